"""Heads that were made alike are found as a group, and no others, with their measured costs."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from headwise.heads import HeadId
from headwise.measures.similarity import cka
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import CustomLoss
from headwise.pruning.importance import redundancy as redundancy_module
from headwise.pruning.importance.ablation import added_losses
from headwise.pruning.importance.gradients import PARTS, Gradients, gradients
from headwise.pruning.importance.redundancy import (
    CLEARLY,
    FEWEST_EXAMPLES,
    LARGEST_GROUP,
    LEAST_CKA,
    LEAST_CORRELATION,
    LEAST_EXCESS,
    Redundancy,
    RedundantHeads,
    _candidates,
    effect_correlations,
    find_redundancy,
    find_testable,
    link_heads,
    output_hsic,
)
from headwise.watching.running import real_queries
from headwise.watching.sites import find_sites

from ...watching.tiny import build, tiny
from ..kin import REFUSED
from ..tiny_models import (
    added_by_hand,
    assert_close,
    model_of,
    objective_of,
    padded,
    plain,
    task_of,
)

SIZE = 7
EXAMPLES = 16


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


def task_on(model: nn.Module, name: str, examples: int = EXAMPLES) -> Evaluation:
    """An evaluation of the model on enough examples for the test."""
    inputs = tiny("bert" if name == "embedding" else name, batch=examples)[1]
    return Evaluation.of_batches(model, objective_of(name), [inputs])


def redundancy_of(task: Evaluation) -> Redundancy:
    return find_redundancy(task, gradients(task), task)


TWINS = (HeadId(1, 1), HeadId(1, 3))


def test_copied_heads_are_found_with_their_measured_costs() -> None:
    task = task_on(with_twins(model_of("embedding"), 1, 1, 3), "embedding")
    (twins,) = (group for group in redundancy_of(task).groups if TWINS[0] in group.heads)
    assert twins.heads == TWINS
    assert twins.correlation == pytest.approx(1.0) and twins.cka == pytest.approx(1.0)
    apart = sum(added_by_hand(task, [head]) for head in TWINS)
    assert twins.cost_apart == pytest.approx(apart)
    assert twins.cost_together == pytest.approx(added_by_hand(task, TWINS))
    assert twins.cost_together > 1.5 * twins.cost_apart
    assert 0 < CLEARLY * twins.excess_se < twins.cost_together - twins.cost_apart


def test_heads_that_are_not_copies_form_other_groups_or_none() -> None:
    groups = redundancy_of(task_on(model_of("embedding"), "embedding")).groups
    assert not any(set(TWINS) & set(group.heads) for group in groups)


def test_costs_of_single_heads_can_be_passed_in() -> None:
    task = task_on(with_twins(model_of("embedding"), 1, 1, 3), "embedding")
    scores = gradients(task)
    (alone,) = added_losses(task, [(head,) for head in task.heads])
    assert find_redundancy(task, scores, task, alone=alone) == find_redundancy(task, scores, task)


def test_group_that_the_measurement_contradicts_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = task_on(model_of("embedding"), "embedding")
    pairs = [(0, 7), (3, 12), (6, 8)]
    monkeypatch.setattr(redundancy_module, "_candidates", lambda *_: iter(pairs))
    costs = {}
    for pair in pairs:
        heads = [task.heads[index] for index in pair]
        costs[tuple(heads)] = (
            sum(added_by_hand(task, [head]) for head in heads),
            added_by_hand(task, heads),
        )
    assert all(together < (1 + LEAST_EXCESS) * apart for apart, together in costs.values())
    assert redundancy_of(task).groups == ()


@pytest.mark.parametrize(
    ("cost_together", "excess_se", "is_clear"),
    [(2.0, 0.4, True), (2.0, 0.6, False), (1.2, 0.01, False), (0.5, 0.01, False)],
)
def test_excess_is_clear_beyond_its_error_and_a_share_of_the_sum(
    cost_together: float, excess_se: float, is_clear: bool
) -> None:
    heads = (HeadId(0, 0), HeadId(0, 1))
    group = RedundantHeads(heads, 0.9, 0.9, 1.0, cost_together, excess_se)
    assert group.is_clear == is_clear


# Where the test cannot tell.


@pytest.mark.parametrize(
    ("name", "layers", "reason"),
    [
        ("gemma3", "L0, L1, L2", "a norm after attention"),
        ("gemma2", "L0, L1, L2", "a norm after attention"),
        ("olmo2", "L0, L1", "a norm after attention"),
        ("albert", "L0, L1, L2", "share their weights"),
    ],
)
def test_layers_that_hide_their_heads_effects_have_no_groups(
    name: str, layers: str, reason: str
) -> None:
    model = build(REFUSED[name][0]) if name in REFUSED else model_of(name)
    found = redundancy_of(task_on(model, "llama" if name in REFUSED else name))
    assert found.groups == () and found.untested.startswith(f"{layers} (")
    assert reason in found.untested


@pytest.mark.parametrize("name", ["llama", "gpt2", "bart", "embedding"])
def test_other_layers_are_tested_and_have_only_small_groups(name: str) -> None:
    task = task_on(model_of(name), name)
    found = redundancy_of(task)
    assert found.untested == ""
    assert all(len(group.heads) <= max(2, len(task.heads) // 4) for group in found.groups)
    named = [head for group in found.groups for head in group.heads]
    assert len(named) == len(set(named)) < len(task.heads) / 2


def test_too_few_examples_leave_all_heads_untested() -> None:
    task = task_on(with_twins(model_of("embedding"), 1, 1, 3), "embedding", FEWEST_EXAMPLES - 1)
    found = redundancy_of(task)
    assert found.groups == ()
    assert found.untested == "all heads (7 examples were read, but at least 8 are needed)"


def test_loss_without_curvature_leaves_all_heads_untested() -> None:
    loss = CustomLoss(lambda model, inputs: model(**inputs).logits.square().mean((1, 2)))
    inputs = tiny("gpt2", batch=EXAMPLES)[1]
    task = Evaluation.of_batches(model_of("gpt2"), loss, [inputs])
    found = redundancy_of(task)
    assert found.groups == () and "curvature" in found.untested


# Links.


def acting(parts: Sequence[Tensor]) -> Gradients:
    """Gradients with these interactions on each of PARTS sets of examples of equal weight."""
    nothing = torch.zeros(len(parts[0])).double()
    sums = [part.double() for part in parts]
    return Gradients(
        heads=tuple(HeadId(0, number) for number in range(len(nothing))),
        michel=nothing,
        michel_error=nothing,
        fisher=nothing,
        fisher_error=nothing,
        interaction=sum(sums, torch.zeros_like(sums[0])) / len(sums),
        expected_error=nothing,
        pull=nothing,
        parts=tuple(sums),
        part_weights=(1.0,) * len(sums),
    )


def alike(num_heads: int, *groups: tuple[int, ...], value: float = 0.9) -> Tensor:
    """A matrix with ones on its diagonal and `value` for every two members of a group."""
    matrix = torch.eye(num_heads, dtype=torch.float64)
    for group in groups:
        for a in group:
            for b in group:
                matrix[a, b] = 1.0 if a == b else value
    return matrix


def linked(scores: Gradients, hsic: Tensor | None = None) -> list[tuple[int, int]]:
    """Every two heads that are linked."""
    count = len(scores.heads)
    hsic = torch.ones(2, count, count).double() if hsic is None else hsic
    links = link_heads(scores, hsic, torch.ones(count, dtype=torch.bool))
    assert torch.equal(links.is_linked, links.is_linked.T)
    return [(a, b) for a, b in links.is_linked.nonzero().tolist() if a < b]


def test_heads_are_linked_only_if_both_halves_show_it() -> None:
    yes, no = alike(3, (0, 1)), alike(3)
    assert linked(acting([yes] * PARTS)) == [(0, 1)]
    assert linked(acting([yes, no] * (PARTS // 2))) == []  # 0.45 on average
    both = alike(3, (0, 1)).expand(2, 3, 3)
    assert linked(acting([yes] * PARTS), both) == [(0, 1)]
    assert linked(acting([yes] * PARTS), torch.stack([yes, no])) == []


def test_links_need_both_similar_effects_and_similar_outputs() -> None:
    outputs = torch.stack([alike(4, (0, 1), (2, 3), value=LEAST_CKA + 0.01)] * 2)
    effects = alike(4, (0, 1), value=LEAST_CORRELATION + 0.01)
    effects[2, 3] = effects[3, 2] = LEAST_CORRELATION - 0.01
    assert linked(acting([effects] * PARTS), outputs) == [(0, 1)]
    outputs = torch.stack([alike(4, (0, 1), value=LEAST_CKA - 0.01)] * 2)
    assert linked(acting([effects] * PARTS), outputs) == []


def test_heads_that_were_not_tested_have_no_links() -> None:
    scores = acting([alike(3, (0, 1, 2))] * PARTS)
    is_tested = torch.tensor([True, True, False])
    links = link_heads(scores, torch.ones(2, 3, 3).double(), is_tested)
    assert links.is_linked.nonzero().tolist() == [[0, 1], [1, 0]]


def groups_of(scores: Gradients, largest: int = LARGEST_GROUP) -> list[tuple[int, ...]]:
    count = len(scores.heads)
    is_candidate = torch.ones(count, dtype=torch.bool)
    links = link_heads(scores, torch.ones(2, count, count).double(), is_candidate)
    return list(_candidates(links, scores, is_candidate, largest))


def test_links_are_not_chained() -> None:
    chain = alike(5, (0, 1), (1, 2), (2, 3))
    chain[1, 2] = chain[2, 1] = 0.95
    assert groups_of(acting([chain] * PARTS)) == [(1, 2)]
    assert groups_of(acting([alike(5, (0, 1, 3))] * PARTS)) == [(0, 1, 3)]


def test_groups_are_disjoint_and_the_largest_excess_comes_first() -> None:
    matrix = alike(7, (0, 1), value=0.6) + alike(7, (2, 3, 5), value=0.8) - torch.eye(7)
    assert groups_of(acting([matrix] * PARTS)) == [(2, 3, 5), (0, 1)]
    assert groups_of(acting([matrix] * PARTS), largest=2)[:2] == [(2, 3), (0, 1)]


def test_expected_excess_within_its_error_forms_no_group() -> None:
    strong, weak = alike(2, (0, 1), value=1.0) * 100, alike(2, (0, 1), value=0.9)
    parts = [strong, strong, *[weak] * (PARTS - 2)]  # two examples of many decide
    assert linked(acting(parts)) == [(0, 1)]
    assert groups_of(acting(parts)) == []


def test_heads_like_all_others_are_in_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_on(model_of("embedding"), "embedding")
    count = len(task.heads)
    same = acting([torch.ones(count, count).double()] * PARTS)
    same = Gradients(**{**vars(same), "heads": task.heads})
    monkeypatch.setattr(
        redundancy_module, "output_hsic", lambda _: torch.ones(2, count, count).double()
    )
    found = find_redundancy(task, same, task)
    assert found.groups == ()
    assert found.untested == "15 heads (each is similar to at least 3 others)"


def test_only_a_cancelled_scale_makes_a_layer_untestable() -> None:
    task = task_on(model_of("llama"), "llama")
    effects = torch.randn(50, 18, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    effects[:, :6] -= effects[:, :6].mean(1, keepdim=True)
    scores = acting([effects.T @ effects] * PARTS)
    scores = Gradients(**{**vars(scores), "heads": task.heads})
    is_tested, reason = find_testable(task, scores)
    assert is_tested.tolist() == [False] * 6 + [True] * 12 and reason.startswith("L0 (")


def test_correlations_are_of_effects_and_0_without_one() -> None:
    slopes = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [0.0, 0.0]]).double()
    want = [[1, 1, 0, -1, 0], [1, 1, 0, -1, 0], [0, 0, 1, 0, 0], [-1, -1, 0, 1, 0], [0] * 5]
    assert_close(effect_correlations(slopes @ slopes.T), torch.tensor(want).double(), torch.float64)


def test_group_as_text_has_evidence_and_costs() -> None:
    heads = (HeadId(0, 0), HeadId(0, 1))
    assert str(RedundantHeads(heads, 0.6, 0.5, 1.0, 1.6, 0.12)) == (
        "L0H0 L0H1: effects correlate at 0.60 or more, outputs have a CKA of 0.50 or more; "
        "silencing all costs 1.6000, but the separate costs add up to 1.0000 (difference ± 0.1)"
    )


# Outputs.


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_similarity_is_the_cka_of_the_heads_in_their_order(name: str) -> None:
    """A head whose values are 0 is like no head, not even itself."""
    model = model_of(name)
    silent = HeadId(0, 1, "cross") if name == "bart" else HeadId(1, 2)
    silence_values(model, name)
    task = Evaluation.of_batches(model, objective_of(name), [plain(name)])
    heads = task.heads
    for hsic in output_hsic(task):
        found = cka(hsic)
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


def test_halves_are_the_even_and_the_odd_examples_of_all_batches() -> None:
    model, inputs = model_of("embedding"), tiny("bert", batch=5)[1]
    first, second = (
        {key: value[rows] for key, value in inputs.items()} for rows in ([0, 1, 2], [3, 4])
    )
    objective = objective_of("embedding")
    halves = output_hsic(Evaluation.of_batches(model, objective, [first, second]))
    for half, rows in enumerate(([0, 2, 4], [1, 3])):
        one_each = [{key: value[[row]] for key, value in inputs.items()} for row in rows]
        alone = output_hsic(Evaluation.of_batches(model, objective, one_each))
        assert_close(halves[half], alone.sum(0), torch.float64)


def test_padding_is_not_compared() -> None:
    model = model_of("embedding")
    whole = {name: value[:1] for name, value in padded("bert").items()}
    short = {name: value[:, :7] for name, value in whole.items()}
    found = [
        output_hsic(Evaluation.of_batches(model, objective_of("embedding"), [one]))
        for one in (whole, short)
    ]
    assert_close(found[0], found[1], torch.float64)


def test_padding_of_an_encoder_that_reads_less_than_its_decoder_is_not_compared() -> None:
    model = model_of("bart")
    whole = {name: value[:1] for name, value in plain("bart").items()}
    whole["attention_mask"] = (torch.arange(whole["input_ids"].shape[1]) < 5).long()[None]
    short = {name: value if "decoder" in name else value[:, :5] for name, value in whole.items()}
    found = [
        output_hsic(Evaluation.of_batches(model, objective_of("bart"), [one]))
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
    hsic = output_hsic(task)
    assert not hsic.any()
    assert linked(acting([torch.ones(15, 15).double()] * PARTS), hsic) == []
