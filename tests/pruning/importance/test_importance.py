"""Importance has a row per head and a column per measure, with standard errors."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.errors import OptionError, OutputError
from headwise.heads import HeadId
from headwise.models.loaded import LoadedModel
from headwise.objectives.evaluation import Evaluation
from headwise.pruning.importance import importance as importance_module, workload
from headwise.pruning.importance.gradients import Gradients, gradients
from headwise.pruning.importance.importance import _best_alone, importance, measure_importance
from headwise.pruning.importance.importance_tables import FILES, Importance
from headwise.pruning.importance.redundancy import Redundancy, RedundantHeads
from headwise.pruning.importance.workload import HEAD_MEASURES, MEASURES
from headwise.pruning.surgery.cut import cut
from headwise.reading.batch import Inputs

from ...watching.tiny import tiny
from ..differences import every_head
from ..tiny_models import (
    added_by_hand,
    assert_unchanged,
    model_of,
    plain,
    state_of,
    task_of,
    texts,
    words_tokenizer,
)


@pytest.fixture(scope="module")
def found() -> Importance:
    """Importance of a grouped Llama's heads, on batches."""
    return importance(model_of("llama"), batches=[plain("llama")])


def test_every_head_has_a_row_and_every_measure_an_error(found: Importance) -> None:
    df = found.table.df
    assert len(df) == 18
    assert list(zip(df["layer"], df["head"], strict=True)) == [
        (layer, head) for layer in range(3) for head in range(6)
    ]
    for name in HEAD_MEASURES:
        assert np.isfinite(df[name]).all() and (df[f"{name}_se"] > 0).all()
    assert found.table.about["objective"] == "next-token loss"
    assert found.table.about["unit"] == "perplexity"
    assert found.table.about["examples"] == 4
    assert json.loads(json.dumps(found.table.about, allow_nan=False)) == found.table.about
    assert "<table" in found._repr_html_()


def test_columns_are_what_their_names_say(found: Importance) -> None:
    task, df = task_of("llama"), found.table.df
    small = Evaluation.of_batches(task.model, task.objective, [plain("llama")])
    near = 1e4 * torch.finfo(torch.float32).eps
    for head in (HeadId(0, 0), HeadId(2, 5)):
        is_it = (df["layer"] == head.layer) & (df["head"] == head.head)
        assert df.loc[is_it, "zero"].item() == pytest.approx(added_by_hand(small, [head]), abs=near)
    assert found.table.about["loss"] == pytest.approx(small.loss().value, rel=near)


def test_the_interaction_is_named_by_heads_and_symmetric(found: Importance) -> None:
    names = [str(head) for head in task_of("llama").heads]
    assert list(found.interaction.index) == list(found.interaction.columns) == names
    matrix = found.interaction.to_numpy()
    assert np.allclose(matrix, matrix.T, rtol=0, atol=torch.finfo(torch.float32).eps)
    assert (np.linalg.eigvalsh(matrix) > -torch.finfo(torch.float32).eps).all()


def test_the_best_alone_is_best_when_all_others_are_silent() -> None:
    task = task_of("gpt2")
    heads, base = task.heads, task.loss()
    steps: list[tuple[str, int, int]] = []
    layers = _best_alone(task, lambda *step: steps.append(step))
    assert list(layers.layer) == ["L0", "L1", "L2"] and list(layers.heads) == [5, 5, 5]
    for _, row in layers.iterrows():
        own = [head for head in heads if str(head).startswith(f"{row.layer}H")]
        costs = {
            str(head): added_by_hand(task, [other for other in own if other != head])
            for head in own
        }
        assert row.best == min(costs, key=lambda name: costs[name])
        assert row.added == pytest.approx(costs[row.best])
        assert row.shown == f"{math.exp(base.value + costs[row.best]):.2f}"
    assert steps == [("leaving one head per layer", done, 2) for done in (0, 1)]


def test_best_head_of_a_layer_with_one_head_costs_nothing() -> None:
    model = model_of("gpt2")
    cut(model, "L1H0 L1H1 L1H2 L1H4")
    layers = importance(model, batches=[plain("gpt2")]).layers
    assert tuple(layers.iloc[1][["heads", "best", "added", "added_se"]]) == (1, "L1H0", 0.0, 0.0)


def test_measuring_on_texts_leaves_the_model_unchanged() -> None:
    model = model_of("bert")
    before = state_of(model)
    found = importance(model, texts(), tokenizer=words_tokenizer(), max_tokens=300)
    assert found.table.about["objective"] == "masked-token loss"
    assert 10 < found.table.about["examples"] < 24
    assert_unchanged(model, before)


def test_encoder_decoders_have_rows_for_every_stack() -> None:
    found = importance(model_of("bart"), batches=[plain("bart")])
    counted = found.table.df.groupby("stack", sort=False).size().to_dict()
    assert counted == {"encoder": 6, "decoder": 15, "cross": 15}


def test_model_without_heads_raises() -> None:
    model = model_of("gpt2")
    cut(model, every_head(model))
    with pytest.raises(OptionError, match=r"GPT2LMHeadModel.*heads"):
        importance(model, batches=[plain("gpt2")])


def test_stand_ins_are_the_others_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    group = RedundantHeads(tuple(HeadId(0, number) for number in range(3)), 0.9, 0.8, 1.0, 2.0)
    monkeypatch.setattr(
        importance_module, "find_redundancy", lambda *_, **__: Redundancy((group,), "L2 (so)")
    )
    table = importance(model_of("gpt2"), batches=[plain("gpt2")]).table
    stand_ins = dict(zip(table.heads, table.df.stand_ins, strict=True))
    assert stand_ins[HeadId(0, 1)] == "L0H0 L0H2" and stand_ins[HeadId(1, 0)] == ""
    assert table.about["stand_ins_untested"] == "L2 (so)"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_loss_that_is_not_finite_raises_before_the_work(bad: float) -> None:
    stages: list[str] = []
    with pytest.raises(OptionError, match=f"GPT2LMHeadModel.*{bad}"):
        importance(
            model_of("gpt2"),
            batches=[plain("gpt2")],
            objective=lambda model, inputs: model(**inputs).logits.mean((1, 2)) * bad,
            progress=lambda stage, *_: stages.append(stage),
        )
    assert stages == []


def test_progress_starts_with_the_amount_of_work() -> None:
    task, remarks = task_of("gpt2"), list[str]()
    batch = Evaluation.of_batches(task.model, task.objective, [plain("gpt2")])
    loaded = LoadedModel("gpt2", task.model, None)
    measure_importance(
        loaded, batch, progress=lambda stage, _, total: remarks.append(stage) if not total else None
    )
    (remark,) = remarks
    assert remark.startswith(f"measuring 15 heads on {batch.num_tokens} tokens in 1 batch: ")
    assert re.search(r": (less than a|about \d+) (minute|hour)s?$", remark)


# Some of the measures.


@pytest.mark.parametrize(
    "measures",
    [("zero",), ("mean",), ("michel",), ("fisher", "expected"), ("stand_ins",), ("best_alone",)],
)
def test_only_chosen_measures_are_taken_written_and_read(
    found: Importance, tmp_path: Path, measures: tuple[str, ...]
) -> None:
    few = importance(model_of("llama"), batches=[plain("llama")], measures=measures, out=tmp_path)
    assert few.measures == measures == tuple(few.table.about["measures"])
    assert few.ranked_by == (measures[0] if measures[0] in HEAD_MEASURES else None)
    columns = [name for name in few.table.df if name not in ("stack", "layer", "head", "roles")]
    errors = [f"{name}_se" for name in measures if name in HEAD_MEASURES]
    assert set(columns) == {*errors, *set(measures) - {"best_alone"}}
    for name in errors:  # the same numbers as beside all other measures
        np.testing.assert_allclose(few.table.df[name], found.table.df[name], rtol=1e-9)
    assert (few.layers is None) == ("best_alone" not in measures)
    assert (few.interaction is None) == set(measures).isdisjoint({"expected", "stand_ins"})
    read = Importance.read(tmp_path)
    assert read.table == few.table and read.measures == few.measures
    printed = json.loads(few.to_json())
    assert (printed["layers"] is None) == (few.layers is None)
    assert (printed["stand_ins"] is None) == ("stand_ins" not in measures)


def test_michel_alone_takes_two_backward_passes_per_batch(
    found: Importance, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[int] = []

    def count(*arguments: Any, **options: Any) -> Gradients:
        draws.append(options["draws"])
        return gradients(*arguments, **options)

    monkeypatch.setattr(importance_module, "gradients", count)
    few = importance(model_of("llama"), batches=[plain("llama")], measures="michel")
    assert draws == [1]
    assert few.table.df["michel"].tolist() == found.table.df["michel"].tolist()


def test_forced_run_with_fewer_measures_removes_the_other_files(tmp_path: Path) -> None:
    model, batches = model_of("gpt2"), [plain("gpt2")]
    importance(model, batches=batches, out=tmp_path)
    assert set(FILES) <= {file.name for file in tmp_path.iterdir()}
    importance(model, batches=batches, measures="zero", out=tmp_path, force=True)
    assert set(FILES[:2]) == {file.name for file in tmp_path.iterdir()} & set(FILES)
    assert Importance.read(tmp_path).measures == ("zero",)


def test_loss_without_gradients_can_be_ablated() -> None:
    def loss(model: nn.Module, inputs: Inputs) -> Tensor:
        with torch.no_grad():
            return model(**inputs).logits.square().mean((1, 2))

    model, batches = model_of("gpt2"), [plain("gpt2")]
    with pytest.raises(OptionError, match="zero, mean, best_alone"):
        importance(model, batches=batches, objective=loss)
    few = importance(model, batches=batches, objective=loss, measures=["zero", "best_alone"])
    assert few.table.df["zero"].abs().max() > 0


@pytest.mark.parametrize("measures", ["zeros", "zero,zeros", "", []])
def test_unknown_measures_raise_before_the_model_is_loaded(measures: Any) -> None:
    with pytest.raises(OptionError, match=r"measures is .*zero, mean.*best_alone, or all"):
        importance("no such model", measures=measures)


def test_ablation_on_fewer_tokens_has_larger_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = model_of("gpt2"), tiny("gpt2", batch=24)[1]
    tokens = inputs["input_ids"].numel()
    whole = importance(model, batches=[inputs]).table
    few = importance(model, batches=[inputs], exact_tokens=tokens // 4).table
    assert (few.about["exact_tokens"], few.about["exact_examples"]) == (tokens // 4, 6)
    assert few.about["examples"] == 24 and few.about["left_out"] == []
    assert few.df["zero_se"].mean() > 1.5 * whole.df["zero_se"].mean()
    assert few.df["michel"].tolist() == whole.df["michel"].tolist()
    monkeypatch.setattr(workload, "MOST_WORK", 1)
    monkeypatch.setattr(workload, "LEAST_TOKENS", tokens // 4)
    remarks: list[str] = []
    large = importance(
        model, batches=[inputs], progress=lambda stage, *_: remarks.append(stage)
    ).table
    assert large.about["left_out"] == ["mean", "best_alone"]
    assert large.df["zero"].tolist() == few.df["zero"].tolist()
    assert f"(zero on {tokens // 4} tokens)" in remarks[0]
    assert "all" not in large.about["measures"] and "mean" not in large.df
    every = importance(model, batches=[inputs], measures="all")
    assert every.measures == MEASURES and every.table.about["left_out"] == []


# Folders.


def test_importance_survives_its_folder(found: Importance, tmp_path: Path) -> None:
    pair = RedundantHeads((HeadId(0, 1), HeadId(2, 3)), 0.9, 0.8, 1.0, 2.0)
    found = replace(found, groups=(pair,))
    found.write(tmp_path / "out")
    assert set(FILES) <= {file.name for file in (tmp_path / "out").iterdir()}
    read = Importance.read(tmp_path / "out")
    assert read.table == found.table and read.groups == found.groups
    assert read.layers["shown"].tolist() == found.layers["shown"].tolist()
    np.testing.assert_allclose(read.interaction, found.interaction, rtol=1e-14)


def test_existing_tables_are_replaced_only_by_force(found: Importance, tmp_path: Path) -> None:
    found.write(tmp_path)
    with pytest.raises(OutputError, match=r"importance\.parquet.*--force"):
        found.write(tmp_path)
    with pytest.raises(OutputError, match=r"importance\.parquet.*--force"):
        importance("no such model", out=tmp_path)
    found.write(tmp_path, force=True)


@pytest.mark.parametrize("name", FILES[2:])
def test_unreadable_folders_raise_with_the_file(
    found: Importance, tmp_path: Path, name: str
) -> None:
    found.write(tmp_path)
    (tmp_path / name).write_text("1,2\n3,4\n", "utf-8")
    with pytest.raises(OptionError, match=name):
        Importance.read(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(OptionError, match=f"no {name}"):
        Importance.read(tmp_path)
