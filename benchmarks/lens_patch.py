"""TransformerLens on a model of smollm2's size: seconds and peak memory of attribution patching.

Two runs with every activation cached, one of them differentiated, as its tutorials do. Run it in an
environment that has transformer-lens: python benchmarks/lens_patch.py 256
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformer_lens.model_bridge.sources import native

length = int(sys.argv[1])
config = {
    "n_layers": 30,
    "d_model": 576,
    "n_ctx": length,
    "d_head": 64,
    "n_heads": 9,
    "d_mlp": 1536,
    "d_vocab": 49152,
    "act_fn": "silu",
    "seed": 0,
}


def status(field: str) -> int:
    """A memory figure for this process, in bytes, as reported by the kernel."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


torch.set_num_threads(1)
model = native.boot(config)
for weight in model.parameters():
    weight.requires_grad_(True)
clean, corrupted = torch.randint(0, config["d_vocab"], (2, 1, length))
model(clean[:, :8], return_type="logits")
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset the peak
start = time.process_time()
with torch.no_grad():
    _, clean_cache = model.run_with_cache(clean)
states: dict[str, torch.Tensor] = {}
gradients: dict[str, torch.Tensor] = {}


def keep(cache: dict[str, torch.Tensor]) -> Any:
    """A hook that stores a tensor under its name."""

    def hook(tensor: torch.Tensor, hook: Any) -> None:
        cache[hook.name] = tensor.detach()

    return hook


every = [(name, keep(states)) for name in clean_cache]
backward = [(name, keep(gradients)) for name in clean_cache]
with model.hooks(fwd_hooks=every, bwd_hooks=backward):
    logits = model(corrupted, return_type="logits")
    (logits[0, -1, 0] - logits[0, -1, 1]).backward()
seconds = time.process_time() - start
facts = {"seconds": round(seconds, 2), "memory": status("VmHWM") - before}
print(json.dumps(facts | {"cached": len(states), "gradients": len(gradients)}))
