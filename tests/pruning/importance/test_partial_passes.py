"""Blocks alone give what they give in the whole, and leaving some out leaves no trace."""

import pytest
import torch
from torch import Tensor, nn

from headwise.pruning.importance.partial_passes import (
    _block_name,
    _replace_forward,
    find_blocks,
    record_blocks,
    run_block,
    skip_blocks,
)
from headwise.watching.running import forward
from headwise.watching.sites import find_sites

from ...watching.helpers import run as whole
from ...watching.tiny import output_of
from ..subjects import assert_close, assert_unchanged, model_of, padded, state_of, task_of

EACH = pytest.mark.parametrize("name", ["embedding", "gpt2", "llama", "bart", "t5", "gemma2"])


def hidden(output: object) -> Tensor:
    """The output that a block passes to the next one."""
    found = output[0] if isinstance(output, tuple) else output
    assert isinstance(found, Tensor)
    return found


@EACH
def test_a_block_alone_gives_what_it_gives_in_the_whole(name: str) -> None:
    task = task_of(name)
    model, inputs = task.model, task.samples[0].inputs
    blocks = find_blocks(model, task.sites)
    with torch.no_grad(), record_blocks(blocks) as found:
        forward(model, inputs)
    assert [block.name for block in found.blocks] == [block.name for block in blocks]
    states: dict[str, object] = {}
    for index, block in enumerate(blocks):
        got = run_block(model, blocks, index, inputs, states)
        assert_close(hidden(got), hidden(found.outputs[index]), torch.float32, block.name)
        states[block.stack] = found.outputs[index]


@EACH
def test_skipped_blocks_change_nothing_and_are_restored(name: str) -> None:
    task = task_of(name)
    model, inputs = task.model, task.samples[0].inputs
    blocks, before = find_blocks(model, task.sites), state_of(task.model)
    with torch.no_grad(), record_blocks(blocks) as found:
        want = task.objective.output(model, inputs)
    twice = task.samples[0].repeated(2).inputs
    for count in range(len(blocks) + 1):
        with torch.no_grad(), skip_blocks(found, count, batch=len(want), copies=2):
            got = task.objective.output(model, twice)
        assert_close(got, torch.cat([want] * 2), torch.float32 if name == "llama" else want.dtype)
    with pytest.raises(KeyboardInterrupt), skip_blocks(found, 2, batch=len(want)):
        raise KeyboardInterrupt
    assert_unchanged(model, before)


def test_blocks_that_are_left_out_are_not_computed() -> None:
    model, inputs = model_of("gpt2"), padded("gpt2")
    blocks = find_blocks(model, find_sites(model))
    with torch.no_grad(), record_blocks(blocks) as found:
        want = output_of(forward(model, inputs))
    with torch.no_grad():
        for parameter in blocks[0].module.parameters():
            parameter.fill_(torch.nan)
    with skip_blocks(found, 1, batch=4):
        assert_close(output_of(whole(model, inputs)), want, want.dtype)
    assert output_of(whole(model, inputs)).isnan().all()


def test_a_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model, inputs = model_of("gpt2"), padded("gpt2")
    before = state_of(model)
    blocks = find_blocks(model, find_sites(model))
    with pytest.raises(RuntimeError), record_blocks(blocks):
        forward(model, {"input_ids": inputs["input_ids"], "attention_mask": torch.ones(3, 2)})
    with pytest.raises(RuntimeError):
        wrong = {blocks[0].stack: torch.zeros(1, 2, 3)}
        run_block(model, blocks, 1, inputs, wrong)
    assert_unchanged(model, before)


def test_a_forward_replaced_twice_is_put_back_twice() -> None:
    module = nn.Linear(2, 3)
    want = module(torch.ones(2))
    with _replace_forward(module, lambda _: 1):
        with _replace_forward(module, lambda _: 2):
            assert module(torch.ones(2)) == 2
        assert module(torch.ones(2)) == 1
    assert torch.equal(module(torch.ones(2)), want)


def test_blocks_are_named_by_the_first_number_of_a_path() -> None:
    assert _block_name("encoder.layer.3.attention.self") == "encoder.layer.3"
    assert _block_name("stages.1.layers.0.attn") == "stages.1"
    assert _block_name("attention") == "attention"


def test_a_decoder_block_holds_both_of_its_attentions() -> None:
    blocks = find_blocks(task_of("bart").model, task_of("bart").sites)
    assert [len(block.sites) for block in blocks] == [1, 1, 2, 2, 2]
    assert [place.stack for place in blocks[-1].sites] == ["decoder", "cross"]


def test_layers_that_share_weights_have_no_blocks() -> None:
    assert find_blocks(task_of("albert").model, task_of("albert").sites) == ()
