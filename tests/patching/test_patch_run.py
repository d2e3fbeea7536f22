"""A run of `patch`: mistakes come before anything is written, and a stopped run resumes."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import OptionError, OutputError
from headwise.patching.patch import patch
from headwise.patching.prompts import PromptPair
from headwise.patching.result import PatchResult, agreement
from headwise.patching.settings import PatchSettings

from ..watching.helpers import allow_weights
from .tiny_prompts import load_encoder, load_tiny

pytestmark = allow_weights
PAIRS = (
    PromptPair("w5 w6 w7 w8", "w5 w9 w7 w8", "w10", "w11"),
    PromptPair("w8 w6 w5 w9", "w8 w7 w5 w9", "w12", "w10"),
    PromptPair("w9 w7 w5", "w9 w8 w5", "w11", "w12"),
)
FEW = {"resamples": 20, "control": 2}


def run(pairs: Any = PAIRS, **options: Any) -> PatchResult:
    settings = PatchSettings(**{**FEW, **options.pop("settings", {})})
    return patch(load_tiny("llama"), pairs=pairs, settings=settings, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"settings": {"positions": (3,)}}, "position 3 is not in a prompt of 3 tokens"),
        ({"settings": {"receiver": "L9H0"}}, "L9H0"),
        ({"settings": {"receiver": "L0H0"}}, "L0H0 is in the first layer"),
        ({"count": 0}, "count is 0"),
        ({"answer": "w5"}, "leave them out with pairs"),
        ({"pairs": None, "clean": "w5 w6", "corrupted": "w5 w7 w8"}, "cannot be aligned"),
        ({"pairs": None}, "pass a clean and a corrupted prompt"),
        ({"metric": "loss"}, "metric is 'loss'"),
    ],
)
def test_mistakes_leave_no_folder(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    out = tmp_path / "out"
    with pytest.raises(OptionError, match=words):
        run(out=out, **options)
    assert not out.exists()


def test_runs_that_answer_alike_are_named() -> None:
    with pytest.raises(OptionError, match="custom metric is the same in both runs"):
        run(metric=lambda model, inputs: inputs["input_ids"][:, 0].double())


def test_estimates_are_compared_with_exact_effects_in_any_order_of_directions() -> None:
    for first, second in (("denoise", "noise"), ("noise", "denoise")):
        about = run(settings={"directions": (first, second), "steps": 2}).table.about
        assert about["agreement"].keys() == {"attribution", "attribution_steps"}
    assert "agreement" not in run(settings={"attribution": False}).table.about
    assert "agreement" not in run(settings={"exact": False}).table.about


def test_the_control_uses_pairs_that_have_another_of_their_length() -> None:
    result = run()
    control = result.table.about["control"]
    assert (control["heads"], control["pairs"]) == (2, 2)
    column = result.table.df["control"].dropna()
    assert len(column) == 2
    assert math.isclose(column.abs().max(), control["largest"])
    assert run(PAIRS[1:]).table.about["control"] == {}
    assert run(PAIRS[1:]).table.df["control"].isna().all()


def test_an_estimate_with_the_wrong_sign_is_an_error() -> None:
    exact, wrong = torch.tensor([0.75, 0.125]), torch.tensor([-0.5, 0.125])
    found = agreement({"attribution": wrong, "attribution_drops": wrong.abs()}, exact)
    assert found["attribution"]["largest_error"] == 1.25
    assert found["attribution"]["mean_absolute_error"] == 0.625
    assert found["attribution_drops"]["largest_error"] == 0.25
    assert found["attribution"]["recall"] == 1


def test_pairs_may_be_the_name_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    rows = [json.dumps(vars(pair)) for pair in PAIRS]
    file.write_text("\n".join(rows), encoding="utf-8")
    settings = {"exact": False}
    assert run(str(file), settings=settings).table == run(settings=settings).table
    assert run(file, settings=settings, count=2).table.about["pairs"] == 2


def test_a_finished_run_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(out=tmp_path / "out", settings={"receiver": "L1H0"})
    assert first.paths is not None
    read = PatchResult.read(tmp_path / "out")
    assert read.table == first.table and read.paths is not None
    assert read.paths.columns.tolist() == first.paths.columns.tolist()

    def measure(runs: object, direction: str, outputs: object, heads: list[object]) -> list[Any]:
        assert heads == []
        return []

    monkeypatch.setattr("headwise.patching.patch.patch_layers", measure)
    again = run(out=tmp_path / "out", settings={"receiver": "L1H0"})
    assert again.table == first.table


def test_another_run_is_not_replaced_without_force(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out=out, settings={"exact": False})
    with pytest.raises(OutputError, match=r"settings differ \(other pairs of prompts\).*--force"):
        run(PAIRS[:2], out=out, settings={"exact": False})
    assert run(PAIRS[:2], out=out, settings={"exact": False}, force=True).table.about["pairs"] == 2


def test_an_embedding_model_is_measured_by_the_cosine() -> None:
    result = patch(load_encoder(), "w5 w6 w7", "w5 w9 w7")
    assert result.table.about["metric"] == "cosine"
    assert math.isclose(result.table.about["clean"], 1)
    assert "direct_logit" not in result.table.df
