"""Single blocks compute what they do in the whole model, and replaying some leaves no trace."""

import pytest
import torch
from torch import Tensor, nn

from headwise.watching.hooks import record
from headwise.watching.partial_passes import (
    Block,
    _block_name,
    find_blocks,
    replay_blocks,
    run_block,
)
from headwise.watching.running import forward

from ..pruning.tiny_models import (
    assert_close,
    assert_unchanged,
    model_of,
    padded,
    state_of,
    task_of,
)
from .helpers import run as whole
from .tiny import output_of

EACH = pytest.mark.parametrize("name", ["embedding", "gpt2", "llama", "bart", "t5", "gemma2"])


def hidden(output: object) -> Tensor:
    """The output that a block passes to the next one."""
    found = output[0] if isinstance(output, tuple) else output
    assert isinstance(found, Tensor)
    return found


@EACH
def test_a_single_block_computes_what_it_does_in_the_whole_model(name: str) -> None:
    task = task_of(name)
    model, inputs = task.model, task.samples[0].inputs
    blocks = find_blocks(model)
    with torch.no_grad(), record({block.name: block.module for block in blocks}) as calls:
        forward(model, inputs)
    assert [call.name for call in calls] == [block.name for block in blocks]
    states: dict[str, object] = {}
    for index, (block, call) in enumerate(zip(blocks, calls, strict=True)):
        got = run_block(model, blocks, index, inputs, states)
        assert_close(hidden(got), hidden(call.result), torch.float32, block.name)
        states[block.stack] = call.result


@EACH
def test_replayed_blocks_change_nothing_and_are_restored(name: str) -> None:
    task = task_of(name)
    model, inputs = task.model, task.samples[0].inputs
    blocks, before = find_blocks(model), state_of(task.model)
    with torch.no_grad(), record({block.name: block.module for block in blocks}) as calls:
        want = task.objective.output(model, inputs)
    recorded = [(block, call.result) for block, call in zip(blocks, calls, strict=True)]
    twice = task.samples[0].repeated(2).inputs
    for count in range(len(blocks) + 1):
        with torch.no_grad(), replay_blocks(recorded[:count], batch=len(want), copies=2):
            got = task.objective.output(model, twice)
        assert_close(got, torch.cat([want] * 2), torch.float32 if name == "llama" else want.dtype)
    with pytest.raises(KeyboardInterrupt), replay_blocks(recorded[:2]):
        raise KeyboardInterrupt
    assert_unchanged(model, before)


def test_replayed_blocks_are_not_computed() -> None:
    model, inputs = model_of("gpt2"), padded("gpt2")
    block = find_blocks(model)[0]
    with torch.no_grad(), record({"first": block.module}) as calls:
        want = output_of(forward(model, inputs))
    with torch.no_grad():
        for parameter in block.module.parameters():
            parameter.fill_(torch.nan)
    with replay_blocks([(block, calls[0].result)]):
        assert_close(output_of(whole(model, inputs)), want, want.dtype)
    assert output_of(whole(model, inputs)).isnan().all()


def test_a_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model, inputs = model_of("gpt2"), padded("gpt2")
    before = state_of(model)
    blocks = find_blocks(model)
    with pytest.raises(RuntimeError):
        wrong = {blocks[0].stack: torch.zeros(1, 2, 3)}
        run_block(model, blocks, 1, inputs, wrong)
    assert_unchanged(model, before)


def test_a_forward_replaced_twice_is_restored_twice() -> None:
    module = nn.Linear(2, 3)
    want, block = module(torch.ones(2)), Block("linear", module, ())
    with replay_blocks([(block, 1)]):
        with replay_blocks([(block, 2)]):
            assert module(torch.ones(2)) == 2
        assert module(torch.ones(2)) == 1
    assert torch.equal(module(torch.ones(2)), want)


def test_blocks_are_named_by_the_first_number_of_a_path() -> None:
    assert _block_name("encoder.layer.3.attention.self") == "encoder.layer.3"
    assert _block_name("stages.1.layers.0.attn") == "stages.1"
    assert _block_name("attention") == "attention"


def test_a_decoder_block_has_both_of_its_attention_sites() -> None:
    blocks = find_blocks(task_of("bart").model)
    assert [len(block.sites) for block in blocks] == [1, 1, 2, 2, 2]
    assert [place.stack for place in blocks[-1].sites] == ["decoder", "cross"]


def test_layers_that_share_weights_have_no_blocks() -> None:
    assert find_blocks(task_of("albert").model) == ()
