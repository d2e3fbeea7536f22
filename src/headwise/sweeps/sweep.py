"""Sweep: train every variant with every seed, each at the learning rate that suits it best.

In: settings. Out: a `Sweep`. The rule for learning rates: every variant is trained once at each of
them with a seed that is used for nothing else, as all runs are, and keeps the one that ended with
the lowest loss on held-out sequences.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headwise.checks import whole_number
from headwise.errors import OptionError, OutputError
from headwise.files import make_folder, write_aside
from headwise.run_folder import setting_changes
from headwise.sweeps.results import FILES, Sweep, best_rate
from headwise.sweeps.runs import Progress, Records, Run, TrainingPool, carry_out_all
from headwise.sweeps.settings import (
    PILOT_SEED,
    SweepSettings,
    make_settings,
    sweep_task,
    task_options,
)
from headwise.sweeps.task import SweepTask


def sweep(
    task: str | SweepTask | None = None,
    *,
    quick: bool = False,
    out: str | Path | None = None,
    settings: SweepSettings | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
    force: bool = False,
    **options: Any,
) -> Sweep:
    """Train small transformers that differ in their heads alone, and say what each can do.

    `options` are settings of the recipe and the sweep: d_model, layers, steps, batch, seeds, rates,
    groups, width; and of the task, where it is given by its name: relations=3. Or all of them, and
    the task, are in `settings`; without either the task is relations. In a folder `out` every run
    is kept, and a sweep that was stopped goes on. A task of your own is trained in this process
    alone.

    found = headwise.sweep("relations", quick=True)
    found.summary  # accuracy against the number of heads
    """
    if settings is None:
        task = "relations" if task is None else task
        if isinstance(task, str):
            of_task = task_options(task)
            task = sweep_task(task, **{key: options.pop(key) for key in of_task & set(options)})
        settings = make_settings(task, quick=quick, **options)
    elif quick or options or task is not None:
        given = next(iter(options), "quick" if quick else "a task")
        raise OptionError(f"there are settings and {given}: give one of them")
    if processes is None:
        processes = os.cpu_count() or 1
    processes = whole_number("processes", processes, least=1)
    folder = None if out is None else Path(out).expanduser()
    kept = Records(None if folder is None else prepared(folder, settings, force=force))
    with TrainingPool(settings, processes if is_ours(settings.task) else 1) as crew:
        found = run_all(settings, kept, crew, progress)
    if folder is not None:
        found.write(folder)
    return found


def is_ours(task: SweepTask) -> bool:
    """Whether another process knows the task: one that a user's program defines it does not."""
    return type(task).__module__.startswith("headwise.")


def run_all(
    settings: SweepSettings, kept: Records, crew: TrainingPool, progress: Progress | None
) -> Sweep:
    """Pilots first, then every variant at its rate with every seed."""
    variants = settings.variants
    rates = settings.rates if len(settings.rates) > 1 else ()
    total = len(variants) * (len(rates) + settings.seeds)
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress("training", done, total)

    def all_of(runs: Iterable[Run]) -> list[Any]:
        return carry_out_all(runs, kept, crew, told=told)

    if progress is not None:
        progress("training", 0, total)
    tried = all_of(Run(one, rate, PILOT_SEED) for one in variants for rate in rates)
    rate_of = dict.fromkeys(variants, settings.rates[0])
    for at, one in enumerate(variants if rates else ()):
        rate_of[one] = best_rate(tried[at * len(rates) : (at + 1) * len(rates)])
    seeds = range(settings.seeds)
    records = all_of(Run(one, rate_of[one], seed) for one in variants for seed in seeds)
    return Sweep(settings, tuple(records), tuple(tried))


def prepared(folder: Path, settings: SweepSettings, *, force: bool) -> Path:
    """The folder of the records; one that holds another sweep is refused, unless it is forced."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise OutputError(f"{place} is a file: give a folder to write to")
    note, runs = folder / "settings.json", folder / "runs"
    wanted = json.loads(json.dumps(settings.as_json()))
    if note.exists():
        held = held_settings(note)
        differing = [] if extends(wanted, held) else setting_changes(held, wanted)
        if differing and not force:
            raise OutputError(
                f"{folder} holds a sweep with other settings ({'; '.join(differing[:3])}): "
                "give another folder, or --force to replace it"
            )
        if differing:
            clear(folder)
    elif folder.exists() and any(folder.iterdir()):
        if not force:
            raise OutputError(
                f"{folder} is not empty and holds no sweep: give another folder, or --force to "
                "write there all the same"
            )
        clear(folder)  # of which settings they are, nobody knows
    make_folder(folder)
    write_aside(note, json.dumps(wanted, indent=1))  # first: a folder without it is no sweep's
    make_folder(runs)
    return runs


def extends(wanted: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    """Whether all that a held sweep trained is part of the wanted one, too: its runs serve both."""
    grows = ("groups", "rates")
    same = wanted.keys() - {*grows, "seeds"}
    return (
        all(held.get(key) == wanted[key] for key in same)
        and all(set(held[key]) <= set(wanted[key]) for key in grows)
        and held["seeds"] <= wanted["seeds"]
    )


def clear(folder: Path) -> None:
    """Remove a sweep's runs, and the tables that were made of them."""
    for file in [*folder.glob("runs/*.json"), *(folder / name for name in FILES)]:
        file.unlink(missing_ok=True)


def held_settings(note: Path) -> dict[str, Any]:
    """The settings that a folder's sweep was begun with."""
    try:
        held = json.loads(note.read_text(encoding="utf-8"))
    except ValueError:
        held = None
    if not isinstance(held, dict) or not {"task", "groups", "rates", "seeds"} <= held.keys():
        raise OutputError(f"{note} holds no settings of a sweep: give another folder")
    return held
