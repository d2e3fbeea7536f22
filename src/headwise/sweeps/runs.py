"""Runs -> RunRecords: trains in this process or in others, and saves each record as a run ends.

A run with a saved record is not trained again, so a stopped sweep can resume. Other processes run
this module as a program: `python -m headwise.sweeps.runs SETTINGS` reads one run per line.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from headwise.errors import HeadwiseError, OutputError
from headwise.files import write_aside
from headwise.sweeps.head_figures import HeadFigures
from headwise.sweeps.settings import SweepSettings, Variant
from headwise.sweeps.training import Outcome, train


@dataclass(frozen=True)
class Run:
    """One model to train: its variant, learning rate and seed."""

    variant: Variant
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """Name of the run's file, without the extension."""
        variant = self.variant
        heads = f"{variant.num_heads}x{variant.d_key}"
        return f"{variant.group}-{heads}-rate{self.rate!r}-seed{self.seed}"

    @property
    def shape(self) -> tuple[float, ...]:
        """Everything that determines the outcome; runs in different groups can share a shape."""
        variant = self.variant
        return variant.num_heads, variant.d_key, variant.d_value, self.rate, self.seed

    def to_json(self) -> dict[str, Any]:
        """The run as flat JSON values."""
        return {**asdict(self.variant), "rate": self.rate, "seed": self.seed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Run":
        """A run from the result of `to_json`; other keys are ignored."""
        variant = (values[name] for name in ("group", "num_heads", "d_key", "d_value"))
        return cls(Variant(*variant), values["rate"], values["seed"])


@dataclass(frozen=True)
class RunRecord:
    """A run and its outcome."""

    run: Run
    outcome: Outcome

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {**self.run.to_json(), **asdict(self.outcome)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "RunRecord":
        """A record from the result of `to_json`."""
        run = Run.from_json(values)
        heads = tuple(
            HeadFigures(**{**head, "roles": tuple(head["roles"])}) for head in values["heads"]
        )
        rest = {key: values[key] for key in values.keys() - run.to_json().keys()}
        return cls(run, Outcome(**{**rest, "heads": heads}))


def train_run(settings: SweepSettings, run: Run) -> RunRecord:
    """Train one model in this process."""
    outcome = train(settings.task, run.variant, settings.recipe, rate=run.rate, seed=run.seed)
    return RunRecord(run, outcome)


def train_all(
    runs: Sequence[Run], folder: Path | None, pool: "TrainingPool", on_done: Callable[[], None]
) -> list[RunRecord]:
    """Train the runs without a record in `folder`, each shape once; return all records in order."""
    records: dict[Run, RunRecord] = {}
    missing: dict[tuple[float, ...], list[Run]] = {}
    for run in runs:
        if folder is not None and (path := folder / f"{run.name}.json").exists():
            records[run] = _read_record(path)
            on_done()
        else:
            missing.setdefault(run.shape, []).append(run)
    for record in pool.train([first for first, *_ in missing.values()]):
        for run in missing[record.run.shape]:
            records[run] = replace(record, run=run)
            if folder is not None:
                write_aside(folder / f"{run.name}.json", json.dumps(records[run].to_json()))
            on_done()
    return [records[run] for run in runs]


def _read_record(path: Path) -> RunRecord:
    try:
        return RunRecord.from_json(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise OutputError(
            f"{path} is not the record of a run: delete it and start the sweep again"
        ) from err


class TrainingPool(AbstractContextManager["TrainingPool"]):
    """Trains runs in this process, or in several others that it starts when needed."""

    def __init__(self, settings: SweepSettings, processes: int) -> None:
        """Train up to `processes` models at a time."""
        self.settings, self.processes = settings, processes
        self.workers: list[TrainingProcess] = []
        self._idle: SimpleQueue[TrainingProcess] = SimpleQueue()
        self._threads = ThreadPoolExecutor(max_workers=processes)  # one thread per process

    def __exit__(self, *_: object) -> None:
        """Kill every process, then wait for the threads that read from them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.kill()
        self._threads.shutdown()
        for worker in self.workers:
            with suppress(BrokenPipeError), worker:  # closes its pipes
                pass

    def train(self, runs: Sequence[Run]) -> Iterator[RunRecord]:
        """Train the runs, and yield each record as soon as its run ends."""
        if self.processes == 1:
            yield from (train_run(self.settings, run) for run in runs)
            return
        while len(self.workers) < min(self.processes, len(runs)):
            self.workers.append(TrainingProcess(self.settings))
            self._idle.put(self.workers[-1])
        for future in as_completed([self._threads.submit(self._train, run) for run in runs]):
            yield future.result()

    def _train(self, run: Run) -> RunRecord:
        worker = self._idle.get()
        try:
            return worker.train(run)
        finally:
            self._idle.put(worker)


class TrainingProcess(subprocess.Popen[str]):
    """Another process that trains one run at a time; see `serve_runs`."""

    def __init__(self, settings: SweepSettings) -> None:
        """Start the process, which needs a few seconds to import torch."""
        super().__init__(
            [sys.executable, "-m", "headwise.sweeps.runs", json.dumps(settings.as_json())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # only the sweep itself reacts to Ctrl-C
        )

    def train(self, run: Run) -> RunRecord:
        """Send a run to the process and wait for its record; raise HeadwiseError if this fails."""
        assert self.stdin is not None and self.stdout is not None
        try:
            print(json.dumps(run.to_json()), file=self.stdin, flush=True)
            line = self.stdout.readline()
        except (BrokenPipeError, ValueError):  # the process ended, or its pipes are closed
            line = ""
        if not line:
            reason = "was killed" if self.wait() < 0 else "failed with the error above"
            raise HeadwiseError(
                f"the process that trained {run.name} {reason}: start the sweep again to resume"
            )
        values = json.loads(line)
        if "error" in values:
            raise HeadwiseError(values["error"])
        return RunRecord.from_json(values)


def serve_runs(settings_json: str) -> None:
    """Train the run on each line of stdin, and print its record or the error as a line of JSON."""
    settings = None
    for line in sys.stdin:
        try:
            settings = settings or SweepSettings.from_json(json.loads(settings_json))
            answer = train_run(settings, Run.from_json(json.loads(line))).to_json()
        except HeadwiseError as error:
            answer = {"error": str(error)}
        try:
            print(json.dumps(answer), flush=True)
        except BrokenPipeError:  # the sweep has ended
            os._exit(0)


if __name__ == "__main__":
    serve_runs(sys.argv[1])
