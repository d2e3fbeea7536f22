"""`headwise doctor`: what is installed here, and what it can do.

Everything that needs torch runs in a process of its own: a broken installation, or a processor
that claims what it cannot do, becomes a line of the report and never the end of it.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated, Any

import typer

OPTIONAL_PACKAGES = {
    "gguf": ("gguf", "the embedded model smollm2"),
    "accelerate": ("gguf", "the embedded model smollm2"),
    "starlette": ("explorer", "headwise explore"),
    "uvicorn": ("explorer", "headwise explore"),
    "anywidget": ("notebook", "the widget in notebooks"),
    "onnx": ("onnx", "headwise prune --onnx: the file"),
    "onnxscript": ("onnx", "headwise prune --onnx: how it is made"),
    "onnxruntime": ("onnx", "headwise prune --onnx: the check that it computes the same"),
}
"""Packages that not everyone needs: the extra that installs each, and what it is for."""

TITLES = {
    "kernels": "kernels: does the fused one run, and its error (eps: from 1 to the next number)",
    "paths": "paths",
    "calls": "calls, and the path each takes",
}
"""What the tables of torch's facts are headed by."""

_TORCH_FACTS = (
    "import json; from headwise.cli.doctor import torch_facts; print(json.dumps(torch_facts()))"
)


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say what is installed, which models are found, and which kernels this machine can run."""
    report = examine()
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=True)
        for line in as_lines(report):
            console.print(line, markup=False, style="" if line.startswith(" ") else "bold")


def examine() -> dict[str, Any]:
    """The whole report, in the form that `--json` prints."""
    from headwise.attention.machine import REMEDY, low_precision_is_safe, with_safe_setting

    is_safe = low_precision_is_safe()
    facts = facts_from_another_process(os.environ if is_safe else with_safe_setting())
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "headwise": installed("headwise"),
        "packages": {name: installed(name) for name in required_packages()},
        "optional": {name: installed(name) for name in OPTIONAL_PACKAGES},
        "low_precision": {"is_safe": is_safe, "remedy": None if is_safe else REMEDY},
        "torch": facts,
        "models": embedded_models(),
    }


def installed(package: str) -> str | None:
    """The package's version, or None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def required_packages() -> list[str]:
    """Names of the packages that headwise cannot run without, as its metadata lists them."""
    lines = [line for line in requires("headwise") or [] if "extra ==" not in line]
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines]


def torch_facts() -> dict[str, Any]:
    """What torch and headwise can do in this process: threads, vector width, kernels, paths."""
    import torch

    from headwise.attention.attend import typical_paths
    from headwise.attention.kernels import available_kernels
    from headwise.attention.paths import PATHS

    return {
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "kernels": available_kernels(),
        "paths": PATHS,
        "calls": {call: choice.path for call, choice in typical_paths().items()},
    }


def facts_from_another_process(
    environment: Mapping[str, str], *, code: str = _TORCH_FACTS
) -> dict[str, Any]:
    """What `torch_facts` says in a fresh process, or `{"error": why it said nothing}`."""
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    if child.returncode < 0:
        return {"error": f"the process was killed by signal {-child.returncode}"}
    if child.returncode > 0:
        return {"error": (child.stderr.strip().splitlines() or ["no message"])[-1]}
    facts: dict[str, Any] = json.loads(child.stdout)
    return facts


def embedded_models() -> dict[str, dict[str, Any]]:
    """Where each embedded model lies and whether its digest is the published one."""
    from headwise.models.embedded import MODELS, file_sha256, find_embedded

    models = {}
    for name, model in MODELS.items():
        path = find_embedded(name)
        models[name] = {
            "path": None if path is None else str(path),
            "is_intact": path is not None and file_sha256(path) == model.sha256,
            "install": model.install_line,
        }
    return models


def as_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report as text: a heading starts at the margin, what belongs to it is indented."""
    for name in ("headwise", "python", "platform"):
        yield f"{name} {report[name]}"
    yield "packages"
    for name, number in report["packages"].items():
        yield f"  {name:<14}{number or 'missing'}"
    yield "optional packages"
    for name, number in report["optional"].items():
        extra, purpose = OPTIONAL_PACKAGES[name]
        here = number or f"missing (pip install 'headwise[{extra}]')"
        yield f"  {name:<14}{here}; for {purpose}"
    yield "embedded models"
    for name, model in report["models"].items():
        yield f"  {name:<14}{_model_line(model)}"
    yield from _torch_lines(report)


def _model_line(model: Mapping[str, Any]) -> str:
    if model["path"] is None:
        return f"missing; {model['install']}"
    if model["is_intact"]:
        return f"{model['path']}, digest as published"
    return f"{model['path']} is not the published file; {model['install']} --force-reinstall"


def _torch_lines(report: Mapping[str, Any]) -> Iterator[str]:
    facts, low_precision = report["torch"], report["low_precision"]
    yield "torch"
    if "error" in facts:
        yield f"  cannot be examined: {facts['error']}"
        return
    yield f"  threads       {facts['threads']}"
    yield f"  cpu           {facts['cpu_capability']}"
    if low_precision["is_safe"]:
        yield "  bfloat16      works"
    else:
        yield (
            f"  bfloat16      kills the process; {low_precision['remedy']}: with it bfloat16 "
            "works, and what follows was tried with it"
        )
    for name, title in TITLES.items():
        table = facts[name]
        yield title
        width = max(map(len, table), default=0) + 2
        for name, text in table.items():
            yield f"  {name:<{width}}{text}"
