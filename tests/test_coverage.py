"""A sample of the coverage table: what headwise does with models of 42 types from all code paths.

Each claim is checked on a tiny random model: "equal" means that outputs are the same while the
model is watched, with padding too. `benchmarks/coverage.py` does the same for every model type.
"""

import importlib
import os
import runpy
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ALL = "equal scanned silenced cut"
NO_CUT = "equal scanned silenced"

SAMPLE = {
    "bert": ALL,
    "albert": ALL,  # layers that share one module
    "deberta-v2": ALL,  # returns its weights
    "modernbert": ALL,
    "mpnet": ALL,
    "gpt2": ALL,
    "gptj": ALL,
    "bloom": ALL,
    "falcon": ALL,
    "mpt": ALL,
    "codegen": NO_CUT,
    "xglm": ALL,
    "llama": ALL,
    "mixtral": ALL,
    "gemma2": ALL,
    "gemma3": ALL,
    "gpt_oss": ALL,  # sinks
    "deepseek_v3": ALL,  # latent keys and values
    "qwen3_next": ALL,  # a gate on the heads' outputs, and linear attention
    "jamba": ALL,
    "olmo2": NO_CUT,  # norms over all heads
    "bitnet": NO_CUT,
    "t5": ALL,
    "bart": ALL,
    "whisper": ALL,
    "wav2vec2": ALL,
    "vit": ALL,
    "swin": ALL,  # windows
    "clip": ALL,
    "siglip": ALL,
    "sam": NO_CUT,
    "kosmos-2": ALL,
    "instructblip": ALL,
    "mllama": ALL,
    "blip-2": ALL,
    "qwen2_vl": ALL,  # one sequence for all images
    "timesfm2_5": NO_CUT,
    "swinv2": NO_CUT,
    "longformer": "",
    "reformer": ALL,
}
"""What works, by model type; everything else is refused with a sentence."""

NOT_ATTENTION = ("mamba", "resnet")


@pytest.fixture(scope="module")
def examine() -> Iterator[Callable[[str], Any]]:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("coverage_checks").examine


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_model_type_is_served_or_refused_with_a_sentence(
    examine: Callable[[str], Any], model_type: str
) -> None:
    row = examine(model_type)
    assert row.attention, row.why_not_built
    outcomes = {step: one.state for step, one in row.outcomes.items()}
    bad = {step: one for step, one in row.outcomes.items() if one.state in ("wrong", "failed")}
    assert bad == {}
    is_equal = outcomes["watched"] == "yes" and outcomes.get("padded") in ("yes", "")
    works = [*(["equal"] if is_equal else []), *(s for s in outcomes if outcomes[s] == "yes")]
    assert [step for step in works if step not in ("watched", "padded", "generated")] == SAMPLE[
        model_type
    ].split()


@pytest.mark.parametrize("model_type", NOT_ATTENTION)
def test_a_model_without_attention_is_recognised(
    examine: Callable[[str], Any], model_type: str
) -> None:
    row = examine(model_type)
    assert row.model
    assert not row.attention


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return runpy.run_path(str(BENCHMARKS / "coverage.py"), run_name="benchmark")


def test_a_stopped_run_resumes_with_its_whole_rows(
    coverage: dict[str, Any], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"type": "bert"}\n{"type": "lla')
    assert list(coverage["resume"](rows, fresh=False)) == ["bert"]
    coverage["append"](rows, {"type": "t5"})
    assert list(coverage["resume"](rows, fresh=False)) == ["bert", "t5"]
    assert coverage["resume"](rows, fresh=True) == {}


def test_a_type_that_takes_too_long_or_crashes_gets_a_row(
    coverage: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = {"slow": lambda: time.sleep(60), "crashing": lambda: os._exit(1)}
    examine_all = coverage["examine_all"]
    monkeypatch.setitem(examine_all.__globals__, "examine", lambda name: work[name]())
    rows = {row["type"]: row["why_not_built"] for row in examine_all(list(work), 2, limit=1)}
    assert rows == {"slow": "it took more than 1 seconds", "crashing": "it crashed"}


def test_the_table_counts_what_works_and_why_the_rest_does_not(coverage: dict[str, Any]) -> None:
    table = coverage["coverage_table"]
    refusal = "heads of GPTModel cannot be cut: GPTAttention (h.0.attn): its 12 heads are mixed"
    rows = [
        {"type": "one", "model": "One", "attention": True, "watched": ["yes"], "cut": ["yes"]},
        {"type": "two", "model": "Two", "attention": True, "watched": ["yes"], "padded": ["wrong"]},
        {"type": "mamba", "model": "Mamba"},
        {"type": "part", "why_not_built": "no inputs fit"},
    ]
    rows[1]["cut"] = ["refused", refusal]
    counts = {words: count for words, count, _ in table.totals(rows)}
    assert counts["model types"] == "4"
    assert counts["with attention"] == "2"
    assert counts["watched, outputs equal"] == "1"
    assert counts["wrong, or ends in a traceback"] == "1"
    assert table.outcomes(rows) == {"watched, cut": ["one"], "wrong": ["two"]}
    assert table.reasons(rows, "cut", ("refused",)) == {"its N heads are mixed": ["two"]}


def test_the_recorded_table_has_a_row_for_every_model_type(coverage: dict[str, Any]) -> None:
    setting, rows = coverage["coverage_table"].read()
    assert {row["type"] for row in rows} == set(coverage["MODEL_TYPES"]), "run make coverage"
    assert setting["transformers"] == transformers.__version__
