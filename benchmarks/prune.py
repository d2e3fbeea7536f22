"""The cost of cutting heads: quality, speed and time, on the two models that come as packages.

minilm: mean cosine of sentence embeddings to the uncut model's, and the share of sentences that
keep their nearest neighbour, with 25, 50 and 75% of the heads cut. smollm2: perplexity with 10, 20,
33 and 50% of the KV groups cut. Compares random cuts, one-shot ablation, Michel's score, headwise,
and headwise with refitted output projections, always on text that was not used to choose heads or
to fit. Also times the uncut and the cut model in turns, and every importance method.

    python benchmarks/prune.py minilm    # choose, then refit, then time
    python benchmarks/prune.py smollm2 --only refit
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import setting
from rich.console import Console
from rich.table import Table

from headwise import corpus
from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import Embedding
from headwise.objectives.scored_model import open_scored_model
from headwise.pruning.export.sizes import full_batch, sizes_of, time_both
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.importance.gradients import gradients
from headwise.pruning.prune import RefittedCut, cut_and_refit
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.selection.methods import CutOrder, CutSearch, order_units
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import PruneSetup, prepare_setup
from headwise.pruning.surgery.cut import head_counts
from headwise.watching.gates import silence

RESULTS = Path(__file__).parent / "results"
SHARES = {"minilm": (0.25, 0.5, 0.75), "smollm2": (0.1, 0.2, 1 / 3, 0.5)}
TEXT = {
    "minilm": PruneSettings(choose_tokens=8192, fit_tokens=49152, held_tokens=24576),
    "smollm2": PruneSettings(choose_tokens=4096, fit_tokens=16384, held_tokens=8192),
}
LESS_TEXT = 4096
"""Number of tokens for a smaller refit, to show how much the rest of the text helps."""
METHODS = {
    "minilm": ("ablation", "michel", "quadratic", "rounds"),
    "smollm2": ("michel", "quadratic", "rounds"),
}
RANDOMS = {"minilm": 5, "smollm2": 3}
TIMED = {"minilm": SHARES["minilm"], "smollm2": (0.2, 0.5)}
STAGES = ("choose", "refit", "time")
BATCHES, POSITIONS = (1, 16), 512
PROMPT = "The best way to learn a language is"


@dataclass(frozen=True)
class Row:
    """Result of one method at one share of heads cut."""

    share: float
    heads: int
    method: str
    score: float
    neighbours: float | None = None
    """Share of sentences that keep their nearest neighbour."""
    ratio: float | None = None
    """Perplexity divided by the uncut model's."""
    sample: str | None = None


def neighbours(task: Evaluation, outputs: torch.Tensor, uncut: torch.Tensor) -> float:
    """Share of sentences that keep their nearest neighbour."""

    def nearest(embeddings: torch.Tensor) -> torch.Tensor:
        alike = embeddings @ embeddings.T
        return alike.fill_diagonal_(-2).argmax(1)

    return float((nearest(outputs) == nearest(uncut)).float().mean())


@torch.no_grad()
def outputs(task: Evaluation) -> torch.Tensor:
    """The embeddings of all examples."""
    return torch.cat([task.objective.output(task.model, sample.inputs) for sample in task.samples])


class Judge:
    """Scores models on held-out text."""

    def __init__(self, setup: PruneSetup) -> None:
        """Score the uncut model."""
        self.setup, self.task = setup, setup.held_out
        self.unit = setup.objective.unit
        self.is_embedding = isinstance(setup.objective, Embedding)
        self.uncut = self.task.objective.quality(self.task.loss().value)
        self.outputs = outputs(self.task) if self.is_embedding else None

    def row(self, share: float, heads: int, method: str, task: Evaluation, sample: str = "") -> Row:
        """The scores of a model in its current state."""
        score = self.task.objective.quality(task.loss().value)
        if self.outputs is not None:
            kept = neighbours(task, outputs(task), self.outputs)
            return Row(share, heads, method, score, neighbours=kept)
        return Row(share, heads, method, score, ratio=score / self.uncut, sample=sample or None)

    def silenced(self, share: float, method: str, heads: Sequence[HeadId]) -> Row:
        """The scores of the uncut model with heads silenced."""
        with silence(self.setup.scored.model, heads):
            return self.row(share, len(heads), method, self.task)

    def cut(self, share: float, method: str, heads: Sequence[HeadId], found: RefittedCut) -> Row:
        """The scores of a cut model."""
        words = "" if self.is_embedding else generated(self.setup, found.model)
        return self.row(share, len(heads), method, self.task.with_model(found.model), words)


def generated(setup: PruneSetup, model: Any) -> str:
    """A causal model's greedy continuation of the prompt."""
    tokenizer = setup.scored.tokenizer
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
    """Do the work, record how long it takes, and return its result."""
    start = time.perf_counter()
    found = work()
    times[name] = time.perf_counter() - start
    console.print(f"{name}: {times[name]:.1f} s")
    return found


class Run:
    """One model's benchmark, which resumes from its record."""

    def __init__(self, name: str, out: Path, console: Console) -> None:
        """Load the model and the record."""
        self.name, self.out, self.console = name, out, console
        self.loaded = open_scored_model(name)
        self.setup = prepare_setup(self.loaded, TEXT[name], texts=corpus("manual")["manual"])
        self.judge = Judge(self.setup)
        self.record: dict[str, Any] = (
            json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"seconds": {}}
        )
        self.record |= {
            "model": name,
            "unit": self.judge.unit,
            "uncut": self.judge.uncut,
            "examples": self.setup.held_out.num_examples,
            "text": asdict(TEXT[name]),
        }
        console.print(f"{name}: uncut {self.judge.unit} {self.judge.uncut:.4f}")

    def keep(self, stage: str, rows: Sequence[Row]) -> None:
        """Add a stage's rows to the record and write it."""
        self.record[stage] = [asdict(row) for row in rows]
        self.write()

    def write(self) -> None:
        """Write the record."""
        part = self.out.with_suffix(".part")
        part.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        part.replace(self.out)

    def count(self, share: float) -> int:
        """Number of units in the given share of all units."""
        return round(share * len(self.setup.search.units))

    def choose(self) -> None:
        """Order heads by every method, and score the cuts without a refit."""
        problem, seconds = self.setup.search, self.record["seconds"]
        most = self.count(max(SHARES[self.name]))
        orders: dict[str, CutOrder] = {
            method: timed(
                f"order by {method}",
                partial(order_units, method, problem, count=most),
                seconds,
                self.console,
            )
            for method in METHODS[self.name]
        }
        self.record["orders"] = {
            str(share): str(CutPlan(orders["rounds"].first(self.count(share))))
            for share in SHARES[self.name]
        }
        rows: list[Row] = []
        for share in SHARES[self.name]:
            count = self.count(share)
            chances = [
                self.judge.silenced(share, "random", chance(problem, seed, count))
                for seed in range(1, RANDOMS[self.name] + 1)
            ]
            rows.append(averaged(chances))
            rows += [
                self.judge.silenced(share, method, order.first(count))
                for method, order in orders.items()
            ]
            self.keep("choose", rows)
        show(rows, self.judge, self.console)

    def refit(self) -> None:
        """Cut in the best order, then refit on all the text and on a small part of it."""
        rows: list[Row] = []
        self.record["proofs"] = []
        if not self.judge.is_embedding:
            self.record["sample"] = generated(self.setup, self.loaded.model)
        for share in SHARES[self.name]:
            heads = self.heads(share)
            found = timed(
                f"refit at {share:.0%}",
                partial(cut_and_refit, self.setup, heads),
                self.record["seconds"],
                self.console,
            )
            rows.append(self.judge.cut(share, "rounds + refit", heads, found))
            if self.judge.is_embedding:
                wide = replace(self.setup, settings=replace(self.setup.settings, refit="wide"))
                also = cut_and_refit(wide, heads)
                rows.append(self.judge.cut(share, "rounds + wide refit", heads, also))
            fit = beginning(self.setup.fit, LESS_TEXT)
            less = replace(self.setup, fit=fit)
            smaller = cut_and_refit(less, heads)
            rows.append(
                self.judge.cut(share, f"rounds + refit on {LESS_TEXT:,} tokens", heads, smaller)
            )
            self.record["proofs"].append({"share": share} | proof(self.setup, found))
            self.keep("refit", rows)
            show(rows[-3:], self.judge, self.console)

    def time(self) -> None:
        """Time uncut and cut models and the importance methods; run nothing else meanwhile."""
        inputs = self.setup.held_out.samples[0].inputs
        plain = replace(self.setup.settings, refit="none")
        self.record["speed"] = []
        for share in TIMED[self.name]:
            found = cut_and_refit(replace(self.setup, settings=plain), self.heads(share))
            for batch in BATCHES:
                many = full_batch(inputs, batch, POSITIONS)
                speed = time_both(self.loaded.model, found.model, many)
                self.record["speed"].append({"share": share} | asdict(speed))
                self.console.print(f"{share:.0%}, batch {batch}: {speed.ratio:.3f} times as fast")
                self.write()
        if self.judge.is_embedding:
            self.record["importance"] = importance_times(self.setup, self.console)
        self.write()

    def heads(self, share: float) -> tuple[HeadId, ...]:
        """Heads that the best method cuts for a given share."""
        if "orders" not in self.record:
            raise SystemExit("no heads have been chosen yet: run --only choose first")
        return CutPlan.parse(self.record["orders"][str(share)]).heads


def chance(problem: CutSearch, seed: int, count: int) -> tuple[HeadId, ...]:
    """The heads of `count` random units."""
    return order_units("random", replace(problem, seed=seed)).first(count)


def beginning(task: Evaluation, tokens: int) -> Evaluation:
    """The first samples of a task, up to `tokens` tokens."""
    kept, seen = [], 0
    for sample in task.samples:
        if seen >= tokens:
            break
        kept.append(sample)
        seen += int(sample.inputs["attention_mask"].sum())
    return replace(task, samples=tuple(kept))


def proof(setup: PruneSetup, found: RefittedCut) -> dict[str, Any]:
    """Sizes of the uncut and the cut model, and the difference between cutting and silencing."""
    before = sizes_of(setup.scored.model, setup.counts, positions=POSITIONS)
    after = sizes_of(found.model, dict(head_counts(found.model)), positions=POSITIONS)
    return {
        "difference": found.surgery.difference,
        "before": asdict(before),
        "after": asdict(after),
    }


def importance_times(setup: PruneSetup, console: Console) -> dict[str, float]:
    """Seconds that every importance method and plain leave-one-out take on the same text."""
    task = beginning(setup.search.evaluation, 4096)
    times = dict[str, float]()
    units = [(head,) for head in setup.search.heads]
    timed("one forward pass", task.loss, times, console)
    timed("michel, fisher and interaction", lambda: gradients(task), times, console)
    timed(f"ablation of {len(units)} heads", lambda: ablate(task, units), times, console)

    def leave_one_out() -> None:
        for unit in units:
            task.loss(unit)

    timed(f"plain leave-one-out of {len(units)} heads", leave_one_out, times, console)
    return times


def show(rows: Sequence[Row], judge: Judge, console: Console) -> None:
    """Print rows as a table."""
    second = "neighbours kept" if judge.is_embedding else "times uncut"
    table = Table("cut", "heads", "method", judge.unit, second)
    for row in rows:
        other = row.neighbours if judge.is_embedding else row.ratio
        table.add_row(
            f"{row.share:.0%}", str(row.heads), row.method, f"{row.score:.4f}", f"{other:.3f}"
        )
    console.print(table)


def main() -> None:
    """Run one model's benchmark and write its record to benchmarks/results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=SHARES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=STAGES, help="run one stage and keep the others' results")
    options = parser.parse_args()
    out = options.out or RESULTS / f"prune-{options.model}.json"
    run = Run(options.model, out, Console(width=110))
    for stage in STAGES if options.only is None else (options.only,):
        run.record.setdefault("settings", {})[stage] = setting()
        getattr(run, stage)()


if __name__ == "__main__":
    main()
