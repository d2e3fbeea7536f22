"""TransformerLens on a model of the same size: seconds and peak memory of `run_with_cache`.

benchmarks/scan.py runs this file in a separate environment: python benchmarks/lens.py 1024
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from transformer_lens.model_bridge.sources import native

length = int(sys.argv[1])
config = {
    "n_layers": 6,
    "d_model": 512,
    "n_ctx": length,
    "d_head": 64,
    "n_heads": 8,
    "d_mlp": 1376,
    "d_vocab": 1000,
    "act_fn": "silu",
    "seed": 0,
}


def status(field: str) -> int:
    """A memory figure for this process, in bytes, as reported by the kernel."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset the peak
model = native.boot(config)
ids = torch.randint(0, 1000, (1, length))
times = []
with torch.inference_mode():
    for _ in range(4):
        start = time.perf_counter()
        model.run_with_cache(ids, return_type=None)
        times.append(time.perf_counter() - start)
peak = status("VmHWM") - before
print(json.dumps({"seconds": round(statistics.median(times[1:]), 4), "memory": peak}))
