"""Tests of masks with a row for every query, which users pass instead of one for tokens."""

import pytest
import torch
from torch import Tensor

from headwise.watching.gates import silence
from headwise.watching.watch import watch

from .helpers import assert_all_weights, assert_close, run
from .tiny import BATCH, LENGTH, eager_weights, eagerly, output_of, tiny

MASKS = {name: "attention_mask" for name in ("bert", "llama", "gpt2", "qwen3")}
MASKS["t5"] = "decoder_attention_mask"  # T5 also adds a bias for the distance
SEEDS = torch.Generator()


def may_look(size: int = LENGTH) -> Tensor:
    """A random mask: half of all pairs, and each position itself."""
    is_random = torch.rand(BATCH, 1, size, size, generator=SEEDS.manual_seed(3)) > 0.5
    return is_random | torch.eye(size, dtype=torch.bool)


def additive(allowed: Tensor) -> Tensor:
    """The mask as a term that is added to the scores."""
    lowest = torch.finfo(torch.float64).min
    return torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(~allowed, lowest)


@pytest.mark.parametrize("is_added", [False, True], ids=["bool", "added"])
@pytest.mark.parametrize("name", MASKS)
def test_a_users_4d_mask_is_applied(name: str, is_added: bool) -> None:
    model, inputs = tiny(name)
    inputs = {key: value for key, value in inputs.items() if "attention_mask" not in key}
    allowed = may_look(inputs["decoder_input_ids" if name == "t5" else "input_ids"].shape[1])
    reference = inputs | {MASKS[name]: additive(allowed)}  # eager code accepts no other
    with eagerly(model):
        want = output_of(run(model, reference))
    masked = inputs | {MASKS[name]: additive(allowed) if is_added else allowed}
    with watch(model) as watched:
        got = output_of(run(model, masked))
    assert_close(name, got, want)
    assert_all_weights(name, watched.calls, eager_weights(model, reference))
    with pytest.raises(AssertionError):
        assert_close(name, output_of(run(model, inputs)), want)


def test_silencing_works_with_a_users_mask() -> None:
    model, inputs = tiny("llama")
    masked = inputs | {"attention_mask": may_look()}
    plain = output_of(run(model, masked))
    with silence(model, ["L0H0"]):
        assert not torch.equal(output_of(run(model, masked)), plain)
    assert torch.equal(output_of(run(model, masked)), plain)
