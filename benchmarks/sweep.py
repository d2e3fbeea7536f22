"""Training steps per second of a sweep's models, with headwise's layer and with torch's, in turns.

The two models in a row have the same shapes and differ only in the module that computes attention.
Torch's is `nn.MultiheadAttention` with `need_weights=False` and the causal mask that it requires.

    python benchmarks/sweep.py
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from harness import setting
from torch import Tensor, nn

from headwise.sweeps.characters import Characters
from headwise.sweeps.settings import Variant
from headwise.sweeps.synthetic_tasks import Relations
from headwise.sweeps.task import SweepTask, TaskExamples
from headwise.sweeps.training import SweepModel, take_step

RESULTS = Path(__file__).parent / "results" / "sweep.json"
TURNS, STEPS = 15, 8
ROWS: list[tuple[SweepTask, int, int, int, int]] = [
    *((Relations(), 32, 1, 32, heads) for heads in (1, 2, 4, 8, 16, 32)),
    *((Characters(), 32, 2, 32, heads) for heads in (1, 4, 16)),
    *((Characters(length=256), 128, 2, 16, heads) for heads in (1, 4, 16)),
]
"""For each row: task, d_model, layers, sequences per batch, heads."""


class TorchAttention(nn.Module):
    """torch's layer with the call signature of headwise's."""

    def __init__(self, d_model: int, variant: Variant) -> None:
        """Make the layer; the mask is made on first use."""
        super().__init__()
        self.inner = nn.MultiheadAttention(d_model, variant.num_heads, batch_first=True)
        self.mask = torch.zeros(0, 0, dtype=torch.bool)

    def forward(self, x: Tensor) -> Tensor:
        """Causal self-attention."""
        if len(self.mask) != x.shape[1]:
            self.mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        output: Tensor
        output, _ = self.inner(x, x, x, attn_mask=self.mask, is_causal=True, need_weights=False)
        return output


class Contestant:
    """A model and its optimiser."""

    def __init__(self, task: SweepTask, sizes: tuple[int, int, int], *, uses_torch: bool) -> None:
        """Create weights that are the same for both contestants, except in attention."""
        d_model, layers, heads = sizes
        torch.manual_seed(0)
        variant = Variant("split", heads, d_model // heads, d_model // heads)
        self.model = SweepModel(task, variant, d_model=d_model, layers=layers)
        for block in self.model.layers if uses_torch else ():
            block.attention = TorchAttention(d_model, variant)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def seconds(self, examples: TaskExamples) -> float:
        """Seconds per step, averaged over `STEPS` steps."""
        start = time.perf_counter()
        for _ in range(STEPS):
            take_step(self.model, self.optimizer, examples)
        return (time.perf_counter() - start) / STEPS


def row(task: SweepTask, d_model: int, layers: int, batch: int, heads: int) -> dict[str, Any]:
    """Measure both contestants in turns, on the same batch."""
    examples = task.examples(batch, torch.Generator().manual_seed(0), held_out=False)
    ours = Contestant(task, (d_model, layers, heads), uses_torch=False)
    theirs = Contestant(task, (d_model, layers, heads), uses_torch=True)
    for one in (ours, theirs):
        one.seconds(examples)
    pairs = []
    for turn in range(TURNS):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        taken = {id(one): one.seconds(examples) for one in order}
        pairs.append((taken[id(ours)], taken[id(theirs)]))
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    return {
        "task": task.name,
        "d_model": d_model,
        "layers": layers,
        "batch": batch,
        "positions": task.shape.length,
        "heads": heads,
        "headwise": round(1 / statistics.median(one for one, _ in pairs), 1),
        "torch": round(1 / statistics.median(one for _, one in pairs), 1),
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(ratios[TURNS // 4], 3),
        "highest": round(ratios[-1 - TURNS // 4], 3),
    }


def main() -> None:
    """Print one line per row, then write all rows to a file."""
    torch.set_num_threads(1)  # as in a sweep: one model per core
    print(
        "task        d_model layers batch x positions heads  headwise     torch  ratio (quartiles)"
    )
    found = []
    for given in ROWS:
        one = row(*given)
        found.append(one)
        size = f"{one['batch']} x {one['positions']}"
        print(
            f"{one['task']:12}{one['d_model']:7}{one['layers']:7}{size:>18}{one['heads']:6}"
            f"{one['headwise']:10.1f}{one['torch']:10.1f}  {one['ratio']:.2f} "
            f"({one['lowest']:.2f} to {one['highest']:.2f})"
        )
    RESULTS.write_text(json.dumps({"setting": setting(), "rows": found}, indent=1) + "\n", "utf-8")
    print(f"wrote {RESULTS.name}: steps per second with one thread")


if __name__ == "__main__":
    main()
