"""Settings -> Sweep: trains every variant with every seed, at the variant's best learning rate.

To choose its rate, a variant is first trained once at each rate, with a seed used for nothing else;
the rate with the lowest loss on held-out sequences is used.
"""

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.files import make_folder
from headwise.progress import Progress, no_progress
from headwise.run_folder import RunFolder
from headwise.sweeps.results import FILES, Sweep, best_rate
from headwise.sweeps.runs import Run, TrainingPool, train_all
from headwise.sweeps.settings import PILOT_SEED, SweepSettings, make_settings
from headwise.sweeps.task import SweepTask

STAGE = "training"
"""Name of a sweep's only stage in progress reports."""


def sweep(
    task: str | SweepTask | None = None,
    *,
    quick: bool = False,
    out: str | Path | None = None,
    settings: SweepSettings | None = None,
    processes: int | None = None,
    progress: Progress = no_progress,
    force: bool = False,
    **options: Any,
) -> Sweep:
    """Train small transformers that differ only in their heads, and report what each can do.

    `options` are settings for the training and the sweep (d_model, layers, steps, batch, seeds,
    rates, groups, width) and, if `task` is a name, for the task, such as relations=3; or pass the
    task and all options as `settings`. The default task is relations. Runs are saved in the folder
    `out`, if given, so that a stopped sweep can resume. Models for your own SweepTask are always
    trained in this process.

    result = headwise.sweep("relations", quick=True)
    result.summary  # accuracy against the number of heads
    """
    if settings is None:
        settings = make_settings(task or "relations", quick=quick, **options)
    elif quick or options or task is not None:
        other = next(iter(options), "quick" if quick else "a task")
        raise OptionError(f"settings and {other} are both given: give only one of them")
    if processes is None:
        processes = os.cpu_count() or 1
    processes = whole_number("processes", processes, least=1)
    runs: Path | None = None
    if out is not None:
        folder = Path(out).expanduser()
        as_saved = json.loads(json.dumps(settings.as_json()))
        outputs = ("runs/*.json", *FILES)
        run_folder = RunFolder(folder=folder, kind="sweep", settings=as_saved, outputs=outputs)
        if not run_folder.check(force=force, extends=_extends, must_be_new=True):
            run_folder.clear()
        run_folder.start()
        runs = folder / "runs"
        make_folder(runs)
    is_own_task = not type(settings.task).__module__.startswith("headwise.")
    with TrainingPool(settings, 1 if is_own_task else processes) as pool:
        result = _train_variants(settings, runs, pool, progress)
    if runs is not None:
        result.write(runs.parent)
    return result


def _train_variants(
    settings: SweepSettings, folder: Path | None, pool: TrainingPool, progress: Progress
) -> Sweep:
    """Train pilots at every rate, then every variant at its best rate with every seed."""
    variants = settings.variants
    rates = settings.rates if len(settings.rates) > 1 else ()
    total = len(variants) * (len(rates) + settings.seeds)
    done = itertools.count()

    def report() -> None:
        progress(STAGE, next(done), total)

    report()
    pilot_runs = [Run(variant, rate, PILOT_SEED) for variant in variants for rate in rates]
    pilots = train_all(pilot_runs, folder, pool, report)
    rate_of = dict.fromkeys(variants, settings.rates[0])
    if pilots:
        rate_of = {
            variant: best_rate([pilot for pilot in pilots if pilot.run.variant == variant])
            for variant in variants
        }
    seeds = range(settings.seeds)
    runs = [Run(variant, rate, seed) for variant, rate in rate_of.items() for seed in seeds]
    results = train_all(runs, folder, pool, report)
    return Sweep(settings, tuple(results), tuple(pilots))


def _extends(settings: Mapping[str, Any], existing: Mapping[str, Any]) -> bool:
    """Whether every run of the existing sweep is also part of this one."""
    growing = {"groups", "rates", "seeds"}
    return (
        all(existing.get(key) == settings[key] for key in settings.keys() - growing)
        and all(set(existing[key]) <= set(settings[key]) for key in ("groups", "rates"))
        and existing["seeds"] <= settings["seeds"]
    )
