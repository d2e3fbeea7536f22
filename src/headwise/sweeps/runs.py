"""Runs: the single trainings of a sweep, each kept in a file of its own as soon as it is done.

In: settings and a folder. Out: a record of every run. What is there already is not run again, so
that a sweep that was stopped goes on where it was.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError, OutputError
from headwise.files import write_aside
from headwise.sweeps.settings import SweepSettings
from headwise.sweeps.training import train
from headwise.sweeps.variants import Variant

RunRecord = dict[str, Any]
Progress = Callable[[str, int, int], None]
"""Told what is done, how many runs of it are, and of how many."""


@dataclass(frozen=True)
class Run:
    """One training."""

    variant: Variant
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"{self.variant.name}-rate{self.rate!r}-seed{self.seed}"

    @property
    def shape(self) -> tuple[float, ...]:
        """What decides the outcome: runs of other groups may have the same."""
        variant = self.variant
        return variant.num_heads, variant.d_key, variant.d_value, self.rate, self.seed


def train_run(settings: SweepSettings, run: Run) -> RunRecord:
    """Train, and say what came of it."""
    outcome = train(settings.task, run.variant, settings.recipe, rate=run.rate, seed=run.seed)
    return {**asdict(run.variant), "rate": run.rate, "seed": run.seed, **asdict(outcome)}


class Records:
    """What runs came to, in memory and, where there is a folder, in files."""

    def __init__(self, folder: Path | None) -> None:
        """What is there already is read when it is asked for."""
        self.folder = folder
        self._held: dict[str, RunRecord] = {}

    def path(self, run: Run) -> Path | None:
        """Where a run's record is kept."""
        return None if self.folder is None else self.folder / f"{run.name}.json"

    def find(self, run: Run) -> RunRecord | None:
        """The record of a run that is done."""
        path = self.path(run)
        if run.name not in self._held and path is not None and path.exists():
            self._held[run.name] = read_record(path)
        return self._held.get(run.name)

    def put(self, run: Run, record: RunRecord) -> None:
        """Keep a record."""
        self._held[run.name] = record
        path = self.path(run)
        if path is not None:
            write_aside(path, json.dumps(record))


def read_record(path: Path) -> RunRecord:
    """A record that a run has left."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"group", "accuracy", "heads"} <= found.keys():
        raise OutputError(f"{path} is no record of a run: remove it")
    return found


def carry_out_all(
    runs: Iterable[Run], kept: Records, crew: "TrainingPool", *, told: Callable[[], None]
) -> list[RunRecord]:
    """Records of all runs, in their order; those that are missing are run, each shape once."""
    runs = list(runs)
    missing = [run for run in runs if kept.find(run) is None]
    for _ in range(len(runs) - len(missing)):
        told()
    alike: dict[tuple[float, ...], list[Run]] = {}
    for run in missing:
        alike.setdefault(run.shape, []).append(run)
    for first, record in crew.train([one for one, *_ in alike.values()]):
        for run in alike[first.shape]:  # groups may share a shape, and it would train the same
            kept.put(run, record | {"group": run.variant.group})
            told()
    found = [kept.find(run) for run in runs]
    return [record for record in found if record is not None]


class TrainingPool:
    """Whoever trains: this process, or several that are started when there is work for them."""

    def __init__(self, settings: SweepSettings, processes: int) -> None:
        """How many train at a time."""
        self.settings, self.processes = settings, processes
        self.workers: list[TrainingProcess] = []
        self.pool = ThreadPoolExecutor(max_workers=processes)  # a thread waits for each process

    def __enter__(self) -> "TrainingPool":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process, whatever it does, and then those who wait for it."""
        for worker in self.workers:
            worker.end()
        self.pool.shutdown()
        for worker in self.workers:
            worker.close()

    def train(self, runs: list[Run]) -> Iterator[tuple[Run, RunRecord]]:
        """Records as they come."""
        if self.processes == 1:
            yield from ((run, train_run(self.settings, run)) for run in runs)
            return
        while len(self.workers) < min(self.processes, len(runs)):
            self.workers.append(TrainingProcess(self.settings))
        left, idle = list(reversed(runs)), list(self.workers)
        busy: dict[Future[RunRecord], tuple[Run, TrainingProcess]] = {}
        while left or busy:
            while left and idle:
                run, worker = left.pop(), idle.pop()
                busy[self.pool.submit(worker.train, run)] = run, worker
            done, _ = wait(busy, return_when=FIRST_COMPLETED)
            for future in done:
                run, worker = busy.pop(future)
                idle.append(worker)
                yield run, future.result()


class TrainingProcess:
    """A process that trains what it is told to, a line a run."""

    def __init__(self, settings: SweepSettings) -> None:
        """Start it: importing torch takes it some seconds, in which others start, too."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwise.sweeps.worker", json.dumps(settings.as_json())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is the sweep's to hear
        )

    def train(self, run: Run) -> RunRecord:
        """The record of one run."""
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = {"variant": asdict(run.variant), "rate": run.rate, "seed": run.seed}
        try:
            print(json.dumps(asked), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):  # it is gone, or its pipes are closed already
            line = ""
        if not line:
            is_killed = self.process.wait() < 0
            how = "was ended from outside" if is_killed else "has failed, as it says above"
            raise HeadwiseError(f"the process that trained {run.name} {how}")
        record: RunRecord = json.loads(line)
        if "error" in record:
            raise HeadwiseError(record["error"])
        return record

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Close its pipes, once nobody waits at them."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
