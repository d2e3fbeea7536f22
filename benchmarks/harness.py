"""Timing: contestants take turns in one process, so that a noisy machine is noisy for all of them.

In: cases, each with contestants that compute the same thing. Out: medians, spreads and ratios, as a
table and as JSON that records the machine, the versions and the commit.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from headwise.attention.processor import low_precision_is_safe, with_safe_setting

ROUNDS = 100
"""Maximum number of turns per contestant."""
SECONDS = 5.0
"""A case ends after this many seconds, once each contestant has had six turns."""

OURS = ("headwise", "drop-in")
YARDSTICKS = ("peak", "read")

Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One row of the table: its contestants, and the number of operations that its task needs."""

    level: str
    """`layer` includes the projections; `core` starts from queries, keys and values."""
    kind: str
    size: str
    dtype: str
    is_training: bool
    flops: float
    """Two per multiply-add that the task needs, without masked pairs; backward counts double."""
    build: Callable[[], dict[str, Run]]
    """Contestants by name: `OURS`, the yardsticks `peak` and `read`, and peers."""


@dataclass(frozen=True)
class Result:
    """The outcome of a case; times in milliseconds."""

    level: str
    kind: str
    size: str
    dtype: str
    is_training: bool
    rounds: int
    median: dict[str, float]
    spread: dict[str, float]
    """Half the interquartile range, as a share of the median."""
    best_peer: str
    ratio_to_best: float
    """Median ratio of our time to the best peer's in the same round; below 1, headwise is faster.

    Even rounds decide which peer is best, and odd rounds compare with it. With the same rounds for
    both, the luckiest of several equally fast peers would always seem faster than it is.
    """
    share_of_peak: float | None
    """Our operations per second, as a share of the matrix multiply's in the same run."""


def race(case: Case, *, seconds: float = SECONDS) -> Result:
    """Warm up the contestants, then time them in turns, in a new order each round."""
    runs = case.build()
    torch.set_grad_enabled(case.is_training)
    names = list(runs)
    for name in names:
        runs[name]()
    repeats = {name: max(1, min(100, int(2e-3 / once(runs[name])))) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    start, order = time.perf_counter(), random.Random(0)
    for turn in range(ROUNDS):
        for name in order.sample(names, len(names)):
            if repeats[name] > 1:
                runs[name]()  # the previous contestant filled the caches with its own data
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                runs[name]()
            times[name].append((time.perf_counter() - begin) / repeats[name] * 1e3)
        if turn >= 5 and time.perf_counter() - start > seconds:
            break
    torch.set_grad_enabled(True)
    return summary(case, times)


def once(run: Run) -> float:
    """Seconds that one call takes."""
    begin = time.perf_counter()
    run()
    return max(time.perf_counter() - begin, 1e-7)


def summary(case: Case, times: dict[str, list[float]]) -> Result:
    """Medians, spreads and ratios of a case's times."""
    median = {name: statistics.median(values) for name, values in times.items()}
    peers = [name for name in times if name not in OURS + YARDSTICKS]
    best = min(peers, key=lambda name: statistics.median(times[name][::2]))
    pairs = zip(times["headwise"][1::2], times[best][1::2], strict=True)
    share = None
    if "peak" in times:
        share = case.flops / median["headwise"] / (PEAK_FLOPS / median["peak"])
    return Result(
        level=case.level,
        kind=case.kind,
        size=case.size,
        dtype=case.dtype,
        is_training=case.is_training,
        rounds=len(times["headwise"]),
        median={name: round(value, 4) for name, value in median.items()},
        spread={name: round(spread_of(values), 3) for name, values in times.items()},
        best_peer=best,
        ratio_to_best=round(statistics.median(ours / peer for ours, peer in pairs), 3),
        share_of_peak=None if share is None else round(share, 3),
    )


def spread_of(values: list[float]) -> float:
    """Half the interquartile range, as a share of the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / middle


PEAK_SIZE = 2048
PEAK_FLOPS = 2.0 * PEAK_SIZE**3


def peak(dtype: torch.dtype) -> Run:
    """The yardstick: one large matrix multiply."""
    left, right = (torch.randn(PEAK_SIZE, PEAK_SIZE).to(dtype) for _ in range(2))
    return lambda: torch.mm(left, right)


def restart_if_unsafe() -> None:
    """Restart without AMX if the machine reports it but kills processes that use it."""
    safe = with_safe_setting()
    if any(os.environ.get(name) != value for name, value in safe.items()) and (
        not low_precision_is_safe()
    ):
        os.execve(sys.executable, [sys.executable, *sys.argv], safe)


def setting() -> dict[str, object]:
    """Machine, package versions and commit."""
    wanted = ("torch", "transformers", "x-transformers")
    packages = [name for name in wanted if importlib.util.find_spec(name.replace("-", "_"))]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "onednn_max_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def processor() -> str:
    """Model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write_json(path: Path, results: list[Result]) -> None:
    """Write a temporary file and move it into place, so that an aborted run keeps the old one."""
    record = {"setting": setting(), "results": [asdict(result) for result in results]}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
