"""`headwise doctor`: what is installed on this machine, and what works.

Everything that needs torch runs in a separate process, so that a broken installation, or a
processor that lacks features it claims to have, is reported in a line instead of ending the report.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from headwise.cli import options

OPTIONAL_PACKAGES = {
    "pillow": ("images", "pictures, with --image"),
    "gguf": ("gguf", "GGUF files and the embedded model smollm2"),
    "accelerate": ("gguf", "GGUF files and the embedded model smollm2"),
    "starlette": ("explorer", "headwise explore"),
    "uvicorn": ("explorer", "headwise explore"),
    "msgspec": ("explorer", "headwise explore"),
    "anywidget": ("notebook", "the widget in notebooks"),
    "onnx": ("onnx", "headwise prune --onnx, to write the file"),
    "onnxscript": ("onnx", "headwise prune --onnx, to convert the model"),
    "onnxruntime": ("onnx", "headwise prune --onnx, to check its output"),
}
"""The extra that installs each optional package, and what the package is for."""

TITLES = {
    "kernels": "kernels: whether the fused kernel runs, and its error "
    "(eps: the gap from 1 to the next float)",
    "paths": "paths",
    "calls": "calls, and the path each one takes",
}
"""Headings of the tables about torch."""

_TORCH_FACTS = (
    "import json; from headwise.cli.doctor import _torch_facts; print(json.dumps(_torch_facts()))"
)


Examined = Annotated[
    str | None,
    typer.Argument(help="A model to examine instead: minilm, smollm2, a directory, or a hub id."),
]


def doctor_command(
    model: Examined = None,
    as_json: options.AsJson = False,
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Show what is installed and works; with a model, where its heads are, and which can be cut."""
    if model is not None:
        facts = examine_model(model, revision, trust_remote_code=trust_remote_code)
        lines = model_lines(facts)
    else:
        facts = examine()
        lines = as_lines(facts)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=True)
        for line in lines:
            console.print(line, markup=False, style="" if line.startswith(" ") else "bold")


def examine_model(
    model: str, revision: str | None = None, *, trust_remote_code: bool = False
) -> dict[str, Any]:
    """Facts about a model's attention layers, found by experiment, as `--json` prints them."""
    from headwise.models.loading import LoadOptions, load_model
    from headwise.pruning.surgery.describe import describe_layers

    load = LoadOptions("float32", "cpu", revision, trust_remote_code, keeps_head=True)
    loaded = load_model(model, load)
    layers = [asdict(description) for description in describe_layers(loaded.model)]
    return {"model": loaded.name, "class": type(loaded.model).__name__, "layers": layers}


def model_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts about a model as lines of text."""
    from headwise.heads import abbreviate

    yield f"{facts['model']} ({facts['class']})"
    for layer in facts["layers"]:
        names = abbreviate(list(layer["layers"]))
        if layer["refusal"]:
            yield from (f"{names}: {layer['attention']}, cannot be cut", f"  {layer['refusal']}")
            continue
        counts = f"{layer['num_heads']} heads, {layer['num_kv_heads']} KV heads"
        yield f"{names}: {layer['attention']}, {counts}"
        if layer["shared"]:
            yield "  shared by these layers: a cut removes a head from all of them"
        rows = layer["projections"] | {
            name: f"changes with {size}" for name, size in layer["attributes"].items()
        }
        width = max(map(len, rows), default=0) + 2
        for name, text in rows.items():
            yield f"  {name:<{width}}{text}"


def examine() -> dict[str, Any]:
    """The whole report, as `--json` prints it."""
    from importlib.metadata import requires

    from headwise.attention.processor import REMEDY, low_precision_is_safe, with_safe_setting

    lines = [line for line in requires("headwise") or [] if "extra ==" not in line]
    packages = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines]
    is_safe = low_precision_is_safe()
    facts = facts_from_another_process(os.environ if is_safe else with_safe_setting())
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "headwise": _package_version("headwise"),
        "packages": {name: _package_version(name) for name in packages},
        "optional": {name: _package_version(name) for name in OPTIONAL_PACKAGES},
        "low_precision": {"is_safe": is_safe, "remedy": None if is_safe else REMEDY},
        "torch": facts,
        "models": embedded_models(),
    }


def _package_version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _torch_facts() -> dict[str, Any]:
    """Torch's threads, vector width and kernels in this process, and headwise's attention paths."""
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
    """Result of `_torch_facts()` in a new process, or `{"error": reason}` if it fails."""
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
    """Path of each embedded model, and whether its digest matches the published one."""
    from headwise.models.embedded import MODELS, file_sha256, find_embedded

    paths = {name: find_embedded(name) for name in MODELS}
    return {
        name: {
            "path": None if path is None else str(path),
            "is_intact": path is not None and file_sha256(path) == MODELS[name].sha256,
            "install": MODELS[name].install_line,
        }
        for name, path in paths.items()
    }


def as_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report as lines of text: headings are flush left, the lines below them indented."""
    for name in ("headwise", "python", "platform"):
        yield f"{name} {report[name]}"
    yield from _section("packages", report["packages"])
    optional = {}
    for name, version in report["optional"].items():
        extra, purpose = OPTIONAL_PACKAGES[name]
        status = version or f"missing (pip install 'headwise[{extra}]')"
        optional[name] = f"{status}; for {purpose}"
    yield from _section("optional packages", optional)
    models = {name: _model_status(**facts) for name, facts in report["models"].items()}
    yield from _section("embedded models", models)
    facts, low_precision = report["torch"], report["low_precision"]
    if "error" in facts:
        yield from ("torch", f"  cannot be examined: {facts['error']}")
        return
    bfloat16 = "works"
    if not low_precision["is_safe"]:
        bfloat16 = (
            f"kills the process; {low_precision['remedy']}: bfloat16 then works, and the lines "
            "below were measured that way"
        )
    processor = {"threads": facts["threads"], "cpu": facts["cpu_capability"], "bfloat16": bfloat16}
    yield from _section("torch", processor)
    for name, title in TITLES.items():
        yield from _section(title, facts[name], width=max(map(len, facts[name]), default=0) + 2)


def _section(title: str, rows: Mapping[str, object], width: int = 14) -> Iterator[str]:
    yield title
    for name, text in rows.items():
        yield f"  {name:<{width}}{'missing' if text is None else text}"


def _model_status(path: str | None, is_intact: bool, install: str) -> str:
    if path is None:
        return f"missing: run {install}"
    if is_intact:
        return f"{path}, digest matches"
    return f"{path} is not the published file: run {install} --force-reinstall"
