"""The table of importance has a row a head, a column a measure, and standard errors."""

import json

import numpy as np
import pytest
import torch

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.objectives.evaluation import head_ids, make_evaluation
from headwise.pruning.importance.importance import (
    Importance,
    amount_of_work,
    best_alone,
    importance,
    stand_ins,
)
from headwise.pruning.importance.redundancy import Redundant
from headwise.pruning.surgery.cut import cut

from ..differences import every_head
from ..subjects import (
    added_by_hand,
    assert_unchanged,
    counts_of,
    model_of,
    plain,
    state_of,
    task_of,
    texts,
    words_tokenizer,
)

MEASURES = ("zero", "mean", "michel", "fisher", "expected")


@pytest.fixture(scope="module")
def found() -> Importance:
    """Of a grouped Llama, on batches."""
    return importance(model_of("llama"), batches=[plain("llama")])


def test_there_is_a_row_a_head_and_an_error_for_every_measure(found: Importance) -> None:
    df = found.table.df
    assert len(df) == 18
    assert list(zip(df["layer"], df["head"], strict=True)) == [
        (layer, head) for layer in range(3) for head in range(6)
    ]
    for name in MEASURES:
        assert np.isfinite(df[name]).all() and (df[f"{name}_se"] > 0).all()
    assert found.table.about["objective"] == "next-token loss"
    assert found.table.about["unit"] == "perplexity"
    assert found.table.about["examples"] == 4
    assert json.loads(json.dumps(found.table.about, allow_nan=False)) == found.table.about
    assert "<table" in found._repr_html_()


def test_columns_are_what_their_names_say(found: Importance) -> None:
    task, df = task_of("llama"), found.table.df
    small = make_evaluation(task.model, task.objective, [plain("llama")])
    near = 1e4 * torch.finfo(torch.float32).eps
    for head in (HeadId(0, 0), HeadId(2, 5)):
        is_it = (df["layer"] == head.layer) & (df["head"] == head.head)
        assert df.loc[is_it, "zero"].item() == pytest.approx(added_by_hand(small, [head]), abs=near)
    assert found.table.about["loss"] == pytest.approx(small.loss().value, rel=near)


def test_the_interaction_is_named_by_heads_and_symmetric(found: Importance) -> None:
    names = [str(head) for head in head_ids(task_of("llama").places, counts_of("llama"))]
    assert list(found.interaction.index) == list(found.interaction.columns) == names
    matrix = found.interaction.to_numpy()
    assert np.allclose(matrix, matrix.T, rtol=0, atol=torch.finfo(torch.float32).eps)
    assert (np.linalg.eigvalsh(matrix) > -torch.finfo(torch.float32).eps).all()


def test_the_best_alone_is_best_when_all_others_are_silent() -> None:
    task, counts = task_of("gpt2"), counts_of("gpt2")
    heads = head_ids(task.places, counts)
    base = task.loss()
    told: list[int] = []
    layers = best_alone(task, heads, counts, base, progress=lambda _, done, __: told.append(done))
    assert list(layers.layer) == ["L0", "L1", "L2"] and list(layers.heads) == [5, 5, 5]
    for _, row in layers.iterrows():
        own = [head for head in heads if str(head).startswith(f"{row.layer}H")]
        costs = {
            str(head): added_by_hand(task, [other for other in own if other != head])
            for head in own
        }
        assert row.best == min(costs, key=lambda name: costs[name])
        assert row.added == pytest.approx(costs[row.best])
        assert row.shown == task.objective.shown(base.value + costs[row.best])
    assert told == [0, 1, 2]


def test_a_layer_of_one_head_loses_nothing() -> None:
    model = model_of("gpt2")
    cut(model, "L1H0 L1H1 L1H2 L1H4")
    layers = importance(model, batches=[plain("gpt2")]).layers
    assert tuple(layers.iloc[1][["heads", "best", "added", "added_se"]]) == (1, "L1H0", 0.0, 0.0)


def test_texts_are_read_and_the_model_stays_as_it_is() -> None:
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


def test_a_model_without_heads_is_refused() -> None:
    model = model_of("gpt2")
    cut(model, every_head(model))
    with pytest.raises(OptionError, match="GPT2LMHeadModel has no head left to measure"):
        importance(model, batches=[plain("gpt2")])


def test_stand_ins_are_the_others_of_a_group() -> None:
    heads = tuple(HeadId(0, number) for number in range(3))
    groups = [Redundant(heads, 0.9, 0.8, 1.0, 2.0)]
    assert stand_ins(heads[1], groups) == "L0H0 L0H2"
    assert stand_ins(HeadId(1, 0), groups) == ""


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_refused_before_the_work(bad: float) -> None:
    told: list[str] = []
    with pytest.raises(OptionError, match=f"the loss of GPT2LMHeadModel is {bad}, and no head can"):
        importance(
            model_of("gpt2"),
            batches=[plain("gpt2")],
            objective=lambda model, inputs: model(**inputs).logits.mean((1, 2)) * bad,
            progress=lambda stage, *_: told.append(stage),
        )
    assert told == []


def test_the_work_is_told_in_its_number() -> None:
    task = task_of("gpt2")
    one = make_evaluation(task.model, task.objective, [plain("gpt2")])
    assert amount_of_work(one, 1).startswith("measuring 1 head on ")
    assert amount_of_work(one, 2).endswith(" in 1 batch")
