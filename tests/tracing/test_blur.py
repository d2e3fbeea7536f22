"""One average row of weights compared with several sharp ones."""

import math

import pytest
import torch

from headwise.attention.layer import MultiHeadAttention
from headwise.errors import OptionError
from headwise.tracing.blur import compare_heads, sharpness, three_targets
from headwise.tracing.layer_trace import trace_layer


def test_one_softmax_gives_each_of_three_targets_a_third() -> None:
    three, together = three_targets(num_keys=8, score=20.0)
    for row in three.heads:
        assert row.largest == pytest.approx(1.0, abs=1e-6)
        assert row.entropy == pytest.approx(0.0, abs=1e-4)
    assert together.largest == pytest.approx(1 / 3, abs=1e-6)
    assert together.entropy == pytest.approx(math.log(3), abs=1e-4)
    assert three.single.largest == pytest.approx(1 / 3, abs=1e-6)
    assert sorted(three.keys)[-3:] == ["target 1", "target 2", "target 3"]


def test_an_average_is_never_sharper_than_its_heads() -> None:
    traced = trace_layer(MultiHeadAttention(24, 4), torch.randn(1, 9, 24))
    means = sharpness(traced)
    assert means.entropy_of_single >= means.entropy_of_heads
    assert means.largest_of_single <= means.largest_of_heads
    blur = compare_heads(traced, 3)
    assert blur.query == "3" and len(blur.heads) == 4
    with pytest.raises(OptionError, match=r"query.* 9.* 0\.\.8"):
        compare_heads(traced, 9)
