"""Heads that were made alike are found as a group, and no others."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.pruning.importance.gradients import Gradients, gradients
from headwise.pruning.importance.redundancy import (
    RedundantHeads,
    effect_correlations,
    output_similarity,
    redundant_groups,
)
from headwise.watching.running import real_queries
from headwise.watching.sites import find_sites

from ..tiny_models import assert_close, model_of, objective_of, padded, plain, task_of

SIZE = 7


@torch.no_grad()
def with_twins(model: nn.Module, layer: int, one: int, other: int) -> nn.Module:
    """The second head of a layer of BERT becomes a copy of the first."""
    attention = model.get_submodule(f"encoder.layer.{layer}.attention")
    mine, theirs = (slice(head * SIZE, (head + 1) * SIZE) for head in (one, other))
    for name in ("query", "key", "value"):
        part = attention.get_submodule(f"self.{name}")
        part.weight[theirs], part.bias[theirs] = part.weight[mine], part.bias[mine]
    dense = attention.get_submodule("output.dense")
    dense.weight[:, theirs] = dense.weight[:, mine]
    return model


def twin_task() -> Evaluation:
    return Evaluation.of_batches(
        with_twins(model_of("embedding"), 1, 1, 3), objective_of("embedding"), [plain("bert")]
    )


def test_only_copied_heads_are_redundant() -> None:
    task = twin_task()
    found = gradients(task, draws=16)
    alike = output_similarity(task)
    groups = redundant_groups(found, alike)
    twins = [group for group in groups if HeadId(1, 1) in group.heads]
    assert [group.heads for group in twins] == [(HeadId(1, 1), HeadId(1, 3))]
    assert twins[0].correlation == pytest.approx(1.0)
    assert twins[0].cka == pytest.approx(1.0)
    # two effects that are one: together four times one of them, apart twice
    one, other = (found.heads.index(head) for head in twins[0].heads)
    assert twins[0].cost_apart == found.expected_cost([one]) + found.expected_cost([other])
    pull = float(found.pull[[one, other]].sum())
    assert twins[0].cost_together + pull == pytest.approx(2 * (twins[0].cost_apart + pull))
    honest = task_of("embedding")
    before = redundant_groups(gradients(honest, draws=16), output_similarity(honest))
    assert not any({HeadId(1, 1), HeadId(1, 3)} <= set(group.heads) for group in before)


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_similarity_is_the_cka_of_the_heads_in_their_order(name: str) -> None:
    """A head whose values are 0 is like no head, not even itself."""
    model = model_of(name)
    silent = HeadId(0, 1, "cross") if name == "bart" else HeadId(1, 2)
    silence_values(model, name)
    task = Evaluation.of_batches(model, objective_of(name), [plain(name)])
    heads = task.heads
    found = output_similarity(task)
    rows = [str(head) for head, row in zip(heads, found, strict=True) if row.isnan().all()]
    assert rows == [str(silent)]
    known = [number for number, head in enumerate(heads) if head != silent]
    part = found[known][:, known]
    assert_close(part.diagonal(), torch.ones(len(known)).double(), torch.float64)
    assert_close(part, part.T, torch.float64)


@torch.no_grad()
def silence_values(model: nn.Module, name: str) -> None:
    """The values of one head are 0: of cross.L0H1 in BART (heads of 6), of L1H2 in GPT-2 (of 7)."""
    if name == "bart":
        values = model.get_submodule("model.decoder.layers.0.encoder_attn.v_proj")
        values.weight[6:12], values.bias[6:12] = 0.0, 0.0
    else:
        values = model.get_submodule("transformer.h.1.attn.c_attn")
        own = slice(2 * 35 + 14, 2 * 35 + 21)
        values.weight[:, own], values.bias[own] = 0.0, 0.0


def test_padding_is_not_compared() -> None:
    model = model_of("embedding")
    whole = {name: value[:1] for name, value in padded("bert").items()}
    short = {name: value[:, :7] for name, value in whole.items()}
    found = [
        output_similarity(Evaluation.of_batches(model, objective_of("embedding"), [one]))
        for one in (whole, short)
    ]
    assert_close(found[0], found[1], torch.float64)


def test_padding_of_an_encoder_that_reads_less_than_its_decoder_is_not_compared() -> None:
    model = model_of("bart")
    whole = {name: value[:1] for name, value in plain("bart").items()}
    whole["attention_mask"] = (torch.arange(whole["input_ids"].shape[1]) < 5).long()[None]
    short = {name: value if "decoder" in name else value[:, :5] for name, value in whole.items()}
    found = [
        output_similarity(Evaluation.of_batches(model, objective_of("bart"), [one]))
        for one in (whole, short)
    ]
    assert_close(found[0], found[1], torch.float64)


def test_every_patch_of_an_image_is_compared() -> None:
    model, mask = model_of("clip"), torch.tensor([[1, 1, 0]])
    values = torch.zeros(1, 3, 5)
    for stack in {place.stack for place in find_sites(model)}:
        is_real = real_queries(model, {"attention_mask": mask}, stack, values)
        assert is_real.tolist() == [[True, True, stack == "vision"]]


def test_too_few_rows_have_no_similarity() -> None:
    short = {name: value[:, :3] for name, value in plain("bert").items()}
    task = Evaluation.of_batches(task_of("embedding").model, objective_of("embedding"), [short])
    found = output_similarity(task)
    assert found.isnan().all()
    heads = task.heads
    assert redundant_groups(acting(heads, torch.ones(15, 15)), found) == ()


def acting(heads: Sequence[HeadId], matrix: Tensor, pull: float = 0.0) -> Gradients:
    """Gradients with a given interaction and the same pull for all heads."""
    nothing = torch.zeros(len(heads)).double()
    return Gradients(
        heads=tuple(heads),
        michel=nothing,
        michel_error=nothing,
        fisher=nothing,
        fisher_error=nothing,
        interaction=matrix.double(),
        expected_error=nothing,
        pull=nothing + pull,
    )


def test_costs_are_those_that_importance_expects() -> None:
    heads = [HeadId(0, number) for number in range(2)]
    (found,) = redundant_groups(acting(heads, torch.ones(2, 2), 0.25), torch.ones(2, 2).double())
    assert found.cost_apart == 2 * (0.5 - 0.25)
    assert found.cost_together == 2 - 2 * 0.25


def test_correlations_are_of_effects_and_0_without_one() -> None:
    slopes = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [0.0, 0.0]]).double()
    want = [[1, 1, 0, -1, 0], [1, 1, 0, -1, 0], [0, 0, 1, 0, 0], [-1, -1, 0, 1, 0], [0] * 5]
    assert_close(effect_correlations(slopes @ slopes.T), torch.tensor(want).double(), torch.float64)


def test_the_group_with_the_largest_hidden_cost_comes_first() -> None:
    heads = [HeadId(0, number) for number in range(5)]
    matrix = torch.eye(5, dtype=torch.float64)
    matrix[0, 1] = matrix[1, 0] = 0.6
    matrix[2, 3] = matrix[3, 2] = matrix[3, 4] = matrix[4, 3] = 0.9
    found = redundant_groups(acting(heads, matrix), torch.ones(5, 5).double())
    assert [group.heads for group in found] == [tuple(heads[2:]), tuple(heads[:2])]
    assert found[0].cost_apart == 1.5
    assert found[0].cost_together == pytest.approx(3.3)
    assert found[0].correlation == 0.9
    assert str(found[1]) == (
        "L0H0 L0H1: effects correlate at 0.60 or more, outputs have a CKA of 1.00 or more; "
        "cutting all costs 1.6000, but the separate costs add up to 1.0000"
    )
    assert isinstance(found[0], RedundantHeads)
