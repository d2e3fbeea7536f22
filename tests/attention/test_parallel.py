"""Heads sharded over ranks: the same output and gradients as in one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwise import MultiHeadAttention, tensor_parallel_plan
from headwise.errors import OptionError

RANKS = Path(__file__).with_name("parallel_ranks.py")


def test_two_ranks_give_the_output_and_gradients_of_one_process() -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launch, "--nproc-per-node", "2", str(RANKS)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(RANKS.parents[1])},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "7 cases agree" in done.stdout


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(OptionError, match="num_heads 4 cannot be divided over 3 ranks"):
        tensor_parallel_plan(MultiHeadAttention(8, 4), 3)


def test_kv_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(OptionError, match="num_kv_heads 1 cannot be divided over 2 ranks"):
        tensor_parallel_plan(MultiHeadAttention(8, 4, num_kv_heads=1), 2)
