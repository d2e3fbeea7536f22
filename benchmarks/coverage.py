"""What headwise does with every model type of the installed transformers, on tiny random models.

Each type is examined in a process of its own with a time limit. Rows are written as JSON lines as
they come, so a stopped run resumes; the whole table is written to results/coverage.json.

    python benchmarks/coverage.py                   # every type, with a process per core
    python benchmarks/coverage.py --types bert t5   # some types; --record keeps their rows
"""

import argparse
import gc
import json
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import coverage_table
import torch
import transformers
from coverage_checks import Row, examine
from tiny_models import MODEL_TYPES
from transformers.utils import logging

ROWS = Path(".cache/coverage.jsonl")
Fields = dict[str, Any]


def main() -> None:
    """Examine the types that have no row yet, and write the table."""
    options = read_options()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    resumes = options.types is None
    types = options.types or list(MODEL_TYPES)
    done = resume(options.rows, fresh=options.fresh) if resumes else {}
    todo = [name for name in types if name not in done]
    warm_up()
    begun = time.monotonic()
    try:
        for number, row in enumerate(examine_all(todo, options.jobs, options.limit), 1):
            done[row["type"]] = row
            if resumes:
                append(options.rows, row)
            spent = time.monotonic() - begun
            print(f"{number}/{len(todo)} {spent:.0f} s {line(row)}", flush=True)
    except KeyboardInterrupt:
        print("Stopped; the next run resumes here." if resumes else "Stopped.")
        raise SystemExit(130) from None
    record(options, [coverage_table.compact(done[name]) for name in types])


def warm_up() -> None:
    """Import what nearly every type needs, once, before the processes are forked.

    One thread, because processes cannot be forked from one that has a pool of threads.
    """
    torch.set_num_threads(1)
    for model_type in ("bert", "clip"):
        examine(model_type)
    gc.freeze()


def record(options: argparse.Namespace, rows: list[Fields]) -> None:
    """Show the table, and write it if all types were examined or `--record` is given."""
    print(f"\n{coverage_table.plain_text(rows)}")
    if options.record:
        known = {row["type"]: row for row in coverage_table.read(options.out)[1]}
        rows = list((known | {row["type"]: row for row in rows}).values())
    if options.record or options.types is None:
        coverage_table.write(options.out, versions(), rows)
        options.rows.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """What the table depends on."""
    return {"transformers": transformers.__version__, "torch": torch.__version__}


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--types", nargs="+", help="examine these types only")
    parser.add_argument("--record", action="store_true", help="put their rows into the table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one type")
    parser.add_argument("--rows", type=Path, default=ROWS, help="where a stopped run resumes")
    parser.add_argument("--out", type=Path, default=coverage_table.RESULTS, help="the whole table")
    parser.add_argument("--fresh", action="store_true", help="examine every type again")
    return parser.parse_args()


def resume(path: Path, *, fresh: bool) -> dict[str, Fields]:
    """The rows of a stopped run, by type; a half-written last line is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = path.read_text("utf-8").splitlines(keepends=True) if path.exists() and not fresh else []
    whole = [text for text in texts if text.endswith("\n")]
    path.write_text("".join(whole), "utf-8")
    return {row["type"]: row for row in map(json.loads, whole)}


def append(path: Path, row: Fields) -> None:
    """Add a row to those of this run."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


@dataclass
class Job:
    """A process that examines one type."""

    type: str
    process: ForkProcess
    answer: Connection
    deadline: float

    def result(self) -> Fields:
        """The row, or why there is none."""
        try:
            row: Fields = (
                self.answer.recv() if self.answer.poll() else lost(self.type, "it crashed")
            )
        except EOFError:
            row = lost(self.type, "it crashed")
        return row

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.answer.close()


def examine_all(types: Iterable[str], jobs: int, limit: float) -> Iterator[Fields]:
    """Rows of the types as they come. Leaving the loop ends the processes."""
    waiting, running = list(reversed(list(types))), dict[Connection, Job]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                job = start(waiting.pop(), limit)
                running[job.answer] = job
            ready = wait(list(running), timeout=1)
            for answer in list(running):
                job = running[answer]
                if answer in ready:
                    row = job.result()
                elif time.monotonic() > job.deadline:
                    row = lost(job.type, f"it took more than {limit:.0f} seconds")
                else:
                    continue
                del running[answer]
                job.stop()
                yield row
    finally:
        for job in running.values():
            job.stop()


def start(model_type: str, limit: float) -> Job:
    """Fork a process that examines the type; it inherits the imported libraries."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(model_type, there), daemon=True)
    process.start()
    there.close()
    return Job(model_type, process, here, time.monotonic() + limit)


def work(model_type: str, answer: Connection) -> None:
    """Send the row of a type, silently."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    torch.set_num_threads(1)
    answer.send(examine(model_type).to_json())
    answer.close()


def lost(model_type: str, why: str) -> Fields:
    """A row without results."""
    return Row(model_type, why_not_built=why).to_json()


def line(row: Fields) -> str:
    """A row in one line."""
    if not row["model"]:
        return f"{row['type']}: not built: {row['why_not_built']}"
    if not row["attention"]:
        return f"{row['type']}: no attention"
    steps = (
        f"{step} {one['state'] or '-'}" + (f" ({one['why']})" if one["state"] != "yes" else "")
        for step, one in row["outcomes"].items()
    )
    return f"{row['type']}: " + "; ".join(steps)


if __name__ == "__main__":
    main()
