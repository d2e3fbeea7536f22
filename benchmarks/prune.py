"""Which method chooses the best heads to cut, and how much time a cut saves.

`choose`: heads are chosen by several methods on the built-in registers that `headwise prune`
chooses on, and each choice is measured on the registers that it reports on: mean cosine of sentence
embeddings to the uncut model's for minilm, perplexity for smollm2. The cut heads output zeros, or
the mean of their outputs. `time`: the uncut and the cut model in turns, and the importance
measures; run nothing else meanwhile. benchmarks/transfer.py compares corrections of one choice.

    python benchmarks/prune.py minilm
    python benchmarks/prune.py smollm2 --only choose
"""

import argparse
import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import setting
from render import PRUNE, quality_lines
from rich.console import Console
from rich.table import Table

from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.pruning.export.sizes import full_batch, sizes_of, time_both
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.importance.gradients import gradients
from headwise.pruning.selection.curve import RANDOM_ORDERS
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.selection.methods import BEST, order_units, random_cut
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import PruneSetup, prepare_setup
from headwise.pruning.surgery.cut import cut as cut_heads, head_counts
from headwise.watching.running import in_evaluation

SHARES = {"minilm": (0.25, 0.5, 0.75), "smollm2": (0.1, 0.2, 1 / 3, 0.5)}
TIMED = {"minilm": SHARES["minilm"], "smollm2": (0.2, 0.5)}
SETTINGS = {"minilm": PruneSettings(held_tokens=6144), "smollm2": PruneSettings()}
METHODS = ("ablation", "michel", "quadratic", BEST)
RANDOM = f"random, median of {RANDOM_ORDERS} (range)"
BATCHES, POSITIONS = (1, 16), 512


@dataclass(frozen=True)
class Row:
    """Quality on the registers that report, after cutting the heads that one method chooses.

    A method has one cut; the random cuts are several.
    """

    share: float
    method: str
    zeros: list[float]
    """Quality of each cut, with zeros in place of the cut heads' outputs."""
    means: list[float]
    """Quality of each cut, with the cut heads' mean outputs in their place."""


class Run:
    """One model's benchmark, which adds to the record of earlier runs."""

    def __init__(
        self, scored: ScoredModel, settings: PruneSettings, out: Path, console: Console
    ) -> None:
        """Prepare the text for every step, and read the record."""
        self.setup, self.out, self.console = prepare_setup(scored, settings), out, console
        self.record: dict[str, Any] = (
            json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"settings": {}}
        )
        quality = self.setup.objective.quality
        self.record |= {
            "model": scored.name,
            "unit": self.setup.objective.unit,
            "uncut": quality(self.setup.report.losses().overall.value),
            "text": json.loads(json.dumps(asdict(self.setup.text_use()))),
        }

    def write(self) -> None:
        """Write the record."""
        part = self.out.with_suffix(".part")
        part.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        part.replace(self.out)

    def choose(self, shares: Sequence[float]) -> None:
        """Order heads by every method, and measure the cut of each share; resumes a stopped run."""
        search = self.setup.search
        counts = {share: round(share * len(search.units)) for share in shares}
        began = {"commit": setting()["commit"], "shares": list(shares), "text": self.record["text"]}
        if self.record.get("began") != began:
            self.record |= {"began": began, "seconds": {}, "chosen": {}, "choose": []}
        seconds, chosen, rows = (self.record[name] for name in ("seconds", "chosen", "choose"))
        for method in METHODS:
            if method not in chosen:
                work = partial(order_units, method, search, count=max(counts.values()))
                order = timed(method, work, seconds, self.console)
                chosen[method] = {
                    str(share): str(CutPlan(order.first(counts[share]))) for share in shares
                }
                self.write()
        for share in shares[len(rows) // (1 + len(METHODS)) :]:
            cuts = {method: CutPlan.parse(chosen[method][str(share)]).heads for method in METHODS}
            seeds = range(1, RANDOM_ORDERS + 1)
            random = [random_cut(search, cuts[BEST], seed) for seed in seeds]
            measured = [self.row(share, RANDOM, random)]
            measured += [self.row(share, method, [heads]) for method, heads in cuts.items()]
            rows += map(asdict, measured)
            self.write()
        heading, *lines = quality_lines(self.record)
        table = Table(*heading)
        for line in lines:
            table.add_row(*line)
        self.console.print(table)

    def row(self, share: float, method: str, cuts: Sequence[Sequence[HeadId]]) -> Row:
        """Measure cuts on the registers that report."""
        report, quality = self.setup.report, self.setup.objective.quality
        zeros, means = (
            [quality(report.losses(heads, means=means).overall.value) for heads in cuts]
            for means in (None, self.setup.search.means)
        )
        return Row(share, method, zeros, means)

    def time(self, shares: Sequence[float]) -> None:
        """Time uncut and cut models, and the importance measures of an embedding model."""
        if "chosen" not in self.record:
            raise SystemExit("no heads have been chosen yet: run --only choose first")
        uncut = self.setup.scored.model
        before = sizes_of(uncut, self.setup.counts, positions=POSITIONS)
        speed = []
        for share in shares:
            cut = copy.deepcopy(uncut)
            cut_heads(cut, self.record["chosen"][BEST][str(share)], inputs=self.setup.inputs)
            after = sizes_of(cut, dict(head_counts(cut)), positions=POSITIONS)
            removed = 1 - after.attention_multiply_adds / before.attention_multiply_adds
            for batch in BATCHES:
                inputs = full_batch(self.setup.report.whole.samples[0].inputs, batch, POSITIONS)
                times = asdict(time_both(uncut, cut, inputs))
                speed.append({"share": share, "multiply_adds_removed": removed, **times})
                self.console.print(f"{share:.0%}, {batch} x {POSITIONS}: {times['ratio']:.2f}")
        self.record["speed"] = speed
        if self.setup.objective.unit == "cosine":
            self.record["importance"] = importance_times(self.setup, self.console)


def timed(name: str, work: Callable[[], Any], seconds: dict[str, float], console: Console) -> Any:
    """Do the work, store how long it takes under `name`, and return its result."""
    start = time.perf_counter()
    result = work()
    seconds[name] = time.perf_counter() - start
    console.print(f"{name}: {seconds[name]:.1f} s")
    return result


def importance_times(setup: PruneSetup, console: Console) -> dict[str, float]:
    """Seconds that each importance measure takes on the text that heads are chosen on."""
    evaluation: Evaluation = setup.choose.whole
    seconds = dict[str, float]()
    units = [(head,) for head in evaluation.heads]

    def leave_one_out() -> None:
        for unit in units:
            evaluation.loss(unit)

    measures: dict[str, Callable[[], Any]] = {
        "one forward pass": evaluation.loss,
        "michel, fisher and expected": partial(gradients, evaluation),
        f"exact ablation of {len(units)} heads": partial(ablate, evaluation, units),
        f"{len(units)} forward passes without one head each": leave_one_out,
    }
    for name, measure in measures.items():
        timed(name, measure, seconds, console)
    return seconds


STAGES = {"choose": (Run.choose, SHARES), "time": (Run.time, TIMED)}


def main() -> None:
    """Run one model's benchmark and write its record to benchmarks/results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=SHARES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=STAGES, help="run one stage and keep the others' results")
    given = parser.parse_args()
    scored = open_scored_model(given.model)
    with in_evaluation(scored.model):
        out = given.out or PRUNE[given.model]
        run = Run(scored, SETTINGS[given.model], out, Console(width=110))
        for name in STAGES if given.only is None else (given.only,):
            stage, shares = STAGES[name]
            stage(run, shares[given.model])
            run.record["settings"][name] = setting()
            run.write()


if __name__ == "__main__":
    main()
