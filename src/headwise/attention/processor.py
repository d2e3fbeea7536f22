"""Test whether this machine can really run the low-precision kernels its processor advertises.

Some virtual machines advertise AMX, the processor's matrix unit, but kill a process that uses it,
so the test runs in another process. This module imports only the standard library, so that it can
run before torch is loaded.
"""

import os
import subprocess
import sys

SAFE_SETTING = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
"""Environment variable and value that keep oneDNN from using AMX."""

REMEDY = f"set {'='.join(SAFE_SETTING)} in the environment before Python starts"

# Size 64, because oneDNN uses the matrix unit only for 32 or more rows and columns.
_TRIAL = """
import torch
square = torch.ones(64, 64, dtype=torch.bfloat16)
heads = square[None, None]
torch.mm(square, square)
torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
"""


def low_precision_is_safe() -> bool:
    """Whether a bfloat16 matrix product runs here without a crash; starts another Python."""
    trial = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False)
    return trial.returncode == 0


def with_safe_setting() -> dict[str, str]:
    """A copy of the environment in which oneDNN does not use AMX."""
    return {**os.environ, SAFE_SETTING[0]: SAFE_SETTING[1]}
