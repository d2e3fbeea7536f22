"""Heads sharded over ranks: the same output and gradients as in one process."""

from pathlib import Path

import pytest

from headwise import MultiHeadAttention, tensor_parallel_plan
from headwise.errors import OptionError
from processes import together

RANKS = Path(__file__).with_name("parallel_ranks.py")


@pytest.mark.slow
def test_two_ranks_give_the_output_and_gradients_of_one_process(tmp_path: Path) -> None:
    assert "7 cases agree" in together(RANKS.read_text("utf-8"), folder=tmp_path)


def test_heads_that_do_not_divide_over_ranks_raise() -> None:
    with pytest.raises(OptionError, match=r"num_heads 4.* 3 ranks"):
        tensor_parallel_plan(MultiHeadAttention(8, 4), 3)


def test_kv_heads_that_do_not_divide_over_ranks_raise() -> None:
    with pytest.raises(OptionError, match=r"num_kv_heads 1.* 2 ranks"):
        tensor_parallel_plan(MultiHeadAttention(8, 4, num_kv_heads=1), 2)
