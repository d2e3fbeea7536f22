"""Patching a head equals doing so by hand, with itself it changes nothing, and all heads add up."""

import pytest
import torch
from torch import Tensor, nn

from headwise.patching.exact import patch_each_head
from headwise.patching.runs import DIRECTIONS, PairRuns
from headwise.watching.gates import HeadOutputs, gate

from ..watching.helpers import allow_weights
from .tiny_runs import TEXT, assert_same, heads_of, runs_of

pytestmark = allow_weights
EACH = pytest.mark.parametrize("name", TEXT)
BY_HAND = ["bert", "gpt2", "llama", "neox", "opt", "t5"]


def all_gates(runs: PairRuns, value: float) -> dict[str, Tensor]:
    return {
        call.site.layer_name: torch.full((call.num_heads,), float(value))
        for call in runs.calls["noise"]
    }


@EACH
def test_corrupted_tokens_with_all_corrupted_heads_give_the_corrupted_run(name: str) -> None:
    runs = runs_of(name)
    outputs = HeadOutputs({(call.stack, call.layer): call.mixed for call in runs.calls["denoise"]})
    with torch.no_grad(), gate(runs.model, all_gates(runs, 0), means=outputs):
        patched = runs.metric.output(runs.model, runs.batch.corrupted, runs.batch)
    assert_same(patched, runs.corrupted_output)


@EACH
def test_a_head_patched_with_itself_changes_nothing(name: str) -> None:
    runs = runs_of(name)
    own = HeadOutputs({(call.stack, call.layer): call.mixed for call in runs.calls["noise"]})
    changes = patch_each_head(runs, "noise", own, heads_of(runs))
    assert float(changes.abs().max()) <= 1e-9 * float(runs.clean.abs().max() + 1)


@EACH
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_patched_head_equals_a_gate_that_puts_its_output_in_place(
    name: str, direction: str
) -> None:
    runs = runs_of(name)
    outputs, heads = runs.replacements(direction), heads_of(runs)[::2]
    changes = patch_each_head(runs, direction, outputs, heads)
    for head, change in zip(heads, changes, strict=True):
        gates = all_gates(runs, 1)
        gates[head.layer_name][head.head] = 0
        with torch.no_grad(), gate(runs.model, gates, means=outputs):
            output = runs.metric.output(runs.model, runs.inputs(direction), runs.batch)
        expected = runs.objective.values(output) - runs.base(direction)
        bound = 1e-8 * float(runs.base(direction).abs().max() + expected.abs().max() + 1)
        assert float((change - expected).abs().max()) <= bound


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_patched_head_equals_a_hook_written_by_hand(name: str) -> None:
    runs = runs_of(name)
    heads = heads_of(runs)
    changes = patch_each_head(runs, "denoise", runs.replacements("denoise"), heads)
    for head, change in zip(heads, changes, strict=True):
        site, concats = runs.calls["noise"][head.layer].site, list[Tensor]()
        projection = site.output_projection
        assert projection is not None

        def keep(_: nn.Module, args: tuple[Tensor, ...], kept: list[Tensor] = concats) -> None:
            kept.append(args[0])

        with torch.no_grad(), projection.register_forward_pre_hook(keep):
            runs.model(**runs.batch.clean)
        size = concats[0].shape[-1] // runs.calls["noise"][head.layer].num_heads
        columns = slice(head.head * size, (head.head + 1) * size)

        def put(
            _: nn.Module,
            args: tuple[Tensor, ...],
            clean: Tensor = concats[0],
            columns: slice = columns,
        ) -> tuple[Tensor, ...]:
            patched = args[0].clone()
            patched[..., columns] = clean[..., columns]
            return (patched, *args[1:])

        with torch.no_grad(), projection.register_forward_pre_hook(put):
            output = runs.metric.output(runs.model, runs.batch.corrupted, runs.batch)
        assert_same(change, runs.objective.values(output) - runs.corrupted)


def test_only_the_chosen_positions_are_patched() -> None:
    runs = runs_of("llama")
    heads = heads_of(runs)
    before = runs.replacements("noise", positions=[0, 1])  # the prompts differ from position 4 on
    assert float(patch_each_head(runs, "noise", before, heads).abs().max()) < 1e-12
    every = patch_each_head(runs, "noise", runs.replacements("noise"), heads)
    length = runs.batch.length
    chosen = runs.replacements("noise", positions=[*range(4 - length, 0)])
    assert_same(patch_each_head(runs, "noise", chosen, heads), every)


def test_patterns_and_values_are_parts_of_the_output() -> None:
    runs = runs_of("llama")
    mine, theirs = runs.calls["noise"][0], runs.calls["denoise"][0]
    patterns, values = (
        runs.replacements("noise", part=part).of(mine.site) for part in ("pattern", "value")
    )
    groups = mine.num_heads // mine.values.shape[1]  # type: ignore[union-attr]
    own, other = (call.values.repeat_interleave(groups, 1) for call in (mine, theirs))  # type: ignore[union-attr]
    assert_same(patterns, theirs.weights() @ own)
    assert_same(values, mine.weights() @ other)


def test_the_control_takes_a_part_of_another_pair_and_keeps_the_other_part() -> None:
    runs = runs_of("llama")
    order = [1, 2, 3, 0]
    mine, theirs = runs.calls["noise"][0], runs.calls["denoise"][0]
    patterns, values = (
        runs.replacements("noise", part=part, order=order).of(mine.site)
        for part in ("pattern", "value")
    )
    groups = mine.num_heads // mine.values.shape[1]  # type: ignore[union-attr]
    own, other = (call.values.repeat_interleave(groups, 1) for call in (mine, theirs))  # type: ignore[union-attr]
    assert_same(patterns, theirs.weights()[order] @ own)
    assert_same(values, mine.weights() @ other[order])


def test_forgotten_calls_are_computed_again() -> None:
    runs = runs_of("llama")
    before = runs.calls["noise"][1].mixed
    runs.forget_calls()
    assert_same(runs.calls["noise"][1].mixed, before)
