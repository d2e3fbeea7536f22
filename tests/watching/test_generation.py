"""Text that a model writes from a cache is the same while it is watched."""

import pytest
import torch

from headwise.watching.watch import watch

from ..pruning.differences import tiny_of
from ..pruning.modern import CUT


@pytest.mark.parametrize("name", ["qwen3_next", "falcon_h1", "jamba", "lfm2"])
def test_states_of_linear_layers_are_cached_as_if_nobody_watched(name: str) -> None:
    """Linear layers change their cached states in place, so a check must run on copies of them."""
    model, inputs = tiny_of(CUT[name])
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "output_logits": True}
    options |= {"return_dict_in_generate": True}
    expected = model.generate(inputs["input_ids"], **options)
    with watch(model, lambda call: None):
        actual = model.generate(inputs["input_ids"], **options)
    assert torch.equal(actual.sequences, expected.sequences)
    for one, other in zip(actual.logits, expected.logits, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
