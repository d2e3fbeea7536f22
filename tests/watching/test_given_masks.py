"""A mask with a row for every query, which users give in the place of one for tokens."""

import pytest
import torch
from torch import Tensor

from headwise.watching.gates import silence
from headwise.watching.watch import watch

from .helpers import assert_all_weights, assert_close, run
from .tiny import BATCH, LENGTH, eager_weights, eagerly, output_of, tiny

MASKS = {name: "attention_mask" for name in ("bert", "llama", "gpt2", "qwen3")}
MASKS["t5"] = "decoder_attention_mask"  # it adds a bias for the distance, too
SEEDS = torch.Generator()


def may_look(size: int = LENGTH) -> Tensor:
    """Who may see whom: half of all pairs, and everyone itself."""
    drawn = torch.rand(BATCH, 1, size, size, generator=SEEDS.manual_seed(3)) > 0.5
    return drawn | torch.eye(size, dtype=torch.bool)


def additive(allowed: Tensor) -> Tensor:
    """The mask as models write it: a term added to the scores."""
    lowest = torch.finfo(torch.float64).min
    return torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(~allowed, lowest)


@pytest.mark.parametrize("is_added", [False, True], ids=["bool", "added"])
@pytest.mark.parametrize("name", MASKS)
def test_a_users_4d_mask_is_applied(name: str, is_added: bool) -> None:
    model, inputs = tiny(name)
    inputs = {key: value for key, value in inputs.items() if "attention_mask" not in key}
    allowed = may_look(inputs["decoder_input_ids" if name == "t5" else "input_ids"].shape[1])
    asked = inputs | {MASKS[name]: additive(allowed)}  # eager code takes no other
    with eagerly(model):
        want = output_of(run(model, asked))
    given = inputs | {MASKS[name]: additive(allowed) if is_added else allowed}
    with watch(model) as watched:
        got = output_of(run(model, given))
    assert_close(name, got, want)
    assert_all_weights(name, watched.calls, eager_weights(model, asked))
    with pytest.raises(AssertionError):
        assert_close(name, output_of(run(model, inputs)), want)


def test_silencing_works_with_a_users_mask() -> None:
    model, inputs = tiny("llama")
    given = inputs | {"attention_mask": may_look()}
    plain = output_of(run(model, given))
    with silence(model, ["L0H0"]):
        assert not torch.equal(output_of(run(model, given)), plain)
    assert torch.equal(output_of(run(model, given)), plain)
