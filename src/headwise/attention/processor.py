"""Whether this machine can really run the low-precision kernels that its processor claims.

Some virtual machines announce AMX, the processor's matrix unit, and kill the process that uses it.
So the trial runs in another process. This module needs only the standard library and imports
nothing of headwise, so that it can run before torch is loaded.
"""

import os
import subprocess
import sys

SAFE_SETTING = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
"""The environment variable, and its value, that keep oneDNN from using AMX."""

REMEDY = f"set {'='.join(SAFE_SETTING)} in the environment before Python starts"

# 64: oneDNN uses the matrix unit from 32 rows and columns on.
_TRIAL = """
import torch
square = torch.ones(64, 64, dtype=torch.bfloat16)
heads = square[None, None]
torch.mm(square, square)
torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
"""


def low_precision_is_safe() -> bool:
    """Whether a bfloat16 matrix product survives here; costs one start of Python and torch."""
    trial = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False)
    return trial.returncode == 0


def with_safe_setting() -> dict[str, str]:
    """A copy of the environment in which oneDNN does not use AMX."""
    return {**os.environ, SAFE_SETTING[0]: SAFE_SETTING[1]}
