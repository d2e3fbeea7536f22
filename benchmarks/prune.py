"""What cutting heads costs: quality, speed and time, on the two models that come as packages.

minilm: mean cosine of sentence embeddings to the uncut model's, and the share of sentences that
keep their nearest neighbour, at 25, 50 and 75% of the heads. smollm2: perplexity at 10, 20, 33 and
50% of the KV groups. Random cuts, one-shot ablation, Michel's score, headwise, and headwise with
refitted output projections, always on text that nothing was chosen or fitted on. Speed of uncut and
cut model in turns; and how long every importance method takes.

    python benchmarks/prune.py minilm
    python benchmarks/prune.py smollm2
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from harness import setting
from rich.console import Console
from rich.table import Table

from headwise.heads import HeadId
from headwise.pruning.ablation import ablate
from headwise.pruning.bench import Bench, CutModel, cut_and_refit, make_bench
from headwise.pruning.choice import Order, order_by
from headwise.pruning.curve import quality
from headwise.pruning.gradients import gradients
from headwise.pruning.objective import Embedding
from headwise.pruning.proof import full_batch, sizes_of, time_both
from headwise.pruning.setting import make_subject, text_task
from headwise.pruning.settings import PruneSettings
from headwise.pruning.surgery import head_counts
from headwise.pruning.task import Task
from headwise.pruning.units import single_heads
from headwise.watching.gates import silence

RESULTS = Path(__file__).parent / "results"
SHARES = {"minilm": (0.25, 0.5, 0.75), "smollm2": (0.1, 0.2, 1 / 3, 0.5)}
TEXT = {
    "minilm": PruneSettings(choose_tokens=16384, fit_tokens=65536, held_tokens=24576),
    "smollm2": PruneSettings(choose_tokens=8192, fit_tokens=32768, held_tokens=16384),
}
LESS_TEXT = {"minilm": 4096, "smollm2": 4096}
"""Tokens that are fitted on to see what more of them buys."""
RANDOMS = {"minilm": 5, "smollm2": 3}
BATCHES, POSITIONS = (1, 16), 512
PROMPT = "The best way to learn a language is"


@dataclass(frozen=True)
class Row:
    """One method at one cut."""

    share: float
    heads: int
    method: str
    score: float
    neighbours: float | None = None
    """Share of sentences that keep their nearest neighbour."""
    ratio: float | None = None
    """Perplexity over the uncut model's."""
    sample: str | None = None


def neighbours(task: Task, outputs: torch.Tensor, uncut: torch.Tensor) -> float:
    """Share of sentences whose nearest neighbour is the one that it was."""

    def nearest(embeddings: torch.Tensor) -> torch.Tensor:
        alike = embeddings @ embeddings.T
        return alike.fill_diagonal_(-2).argmax(1)

    return float((nearest(outputs) == nearest(uncut)).float().mean())


class Judge:
    """Scores models on held-out text."""

    def __init__(self, bench: Bench) -> None:
        """The uncut model first."""
        self.bench, self.task = bench, bench.held_out
        self.unit = bench.subject.objective.unit
        self.is_embedding = isinstance(bench.subject.objective, Embedding)
        self.uncut = quality(self.task.loss().value, self.unit)
        self.outputs = self.task.outputs() if self.is_embedding else None

    def row(self, share: float, heads: int, method: str, task: Task, sample: str = "") -> Row:
        """A model as it is now."""
        score = quality(task.loss().value, self.unit)
        if self.outputs is not None:
            kept = neighbours(task, task.outputs(), self.outputs)
            return Row(share, heads, method, score, neighbours=kept)
        return Row(share, heads, method, score, ratio=score / self.uncut, sample=sample or None)

    def silenced(self, share: float, method: str, heads: Sequence[HeadId]) -> Row:
        """The uncut model with heads silenced."""
        with silence(self.bench.subject.model, heads):
            return self.row(share, len(heads), method, self.task)

    def cut(self, share: float, method: str, heads: Sequence[HeadId], found: CutModel) -> Row:
        """A model that heads were cut from."""
        words = "" if self.is_embedding else generated(self.bench, found.model)
        return self.row(share, len(heads), method, self.task.of(found.model), words)


def generated(bench: Bench, model: Any) -> str:
    """What a causal model makes of the prompt, greedily."""
    tokenizer = bench.subject.tokenizer
    inputs = tokenizer(PROMPT, return_tensors="pt")
    found = model.generate(**inputs, max_new_tokens=24, do_sample=False, use_cache=True)
    return str(tokenizer.decode(found[0], skip_special_tokens=True))


def averaged(rows: Sequence[Row]) -> Row:
    """The mean of several random cuts."""
    first = rows[0]

    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    score = mean([row.score for row in rows])
    assert score is not None
    return replace(
        first,
        method=f"random, mean of {len(rows)}",
        score=score,
        neighbours=mean([row.neighbours for row in rows]),
        ratio=mean([row.ratio for row in rows]),
    )


def timed(name: str, work: Callable[[], Any], times: dict[str, float], console: Console) -> Any:
    """What the work gives; how long it took is kept."""
    start = time.perf_counter()
    found = work()
    times[name] = time.perf_counter() - start
    console.print(f"{name}: {times[name]:.1f} s")
    return found


def measure(name: str, console: Console) -> dict[str, Any]:
    """Everything of one model."""
    subject = make_subject(name)
    bench = make_bench(subject, None, TEXT[name])
    judge, times = Judge(bench), dict[str, float]()
    console.print(f"{name}: uncut {judge.unit} {judge.uncut:.4f}")
    problem, units = bench.problem, bench.problem.units
    orders: dict[str, Order] = {
        method: timed(f"order by {method}", lambda m=method: order_by(m, problem), times, console)
        for method in ("rounds", "quadratic", "michel", "ablation")
    }
    rows: list[Row] = []
    proofs = []
    for share in SHARES[name]:
        count = round(share * len(units))
        chances = [
            order_by("random", replace(problem, seed=seed)).first(count)
            for seed in range(1, RANDOMS[name] + 1)
        ]
        rows.append(averaged([judge.silenced(share, "random", heads) for heads in chances]))
        rows += [
            judge.silenced(share, method, orders[method].first(count))
            for method in ("ablation", "michel", "quadratic", "rounds")
        ]
        heads = orders["rounds"].first(count)
        found = timed(f"refit at {share:.0%}", lambda h=heads: cut_and_refit(bench, h), times, console)
        rows.append(judge.cut(share, "rounds + refit", heads, found))
        proofs.append({"share": share} | proof(bench, found))
        less = replace(bench, fit=text_task(
            subject, bench_texts(bench), max_tokens=LESS_TEXT[name], seed=1))
        smaller = cut_and_refit(less, heads)
        rows.append(judge.cut(share, f"rounds + refit on {LESS_TEXT[name]:,} tokens", heads, smaller))
        worst = timed("", lambda h=chances[0]: cut_and_refit(bench, h), {}, Console(quiet=True))
        rows.append(judge.cut(share, "one random cut + refit", chances[0], worst))
        show(rows[-8:], judge, console)
    return {
        "setting": setting(),
        "model": name,
        "unit": judge.unit,
        "uncut": judge.uncut,
        "examples": bench.held_out.num_examples,
        "text": asdict(TEXT[name]),
        "sample": None if judge.is_embedding else generated(bench, subject.model),
        "rows": [asdict(row) for row in rows],
        "proofs": proofs,
        "seconds": times,
        "importance": importance_times(bench, console),
    }
