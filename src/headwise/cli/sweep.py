"""`headwise sweep`: find out by experiment how many heads a task needs."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from headwise.cli import options
from headwise.errors import OptionError

TaskName = Annotated[str, Argument(help="relations, recall, brackets or characters.")]
Quick = Annotated[bool, Option("--quick", help="Use fewer seeds, rates and steps; takes minutes.")]
Set = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="NAME=VALUE", help="Task setting, such as relations=3. May be repeated."
    ),
]
Groups = Annotated[
    str | None, Option(help="Groups to compare: split, free, big, narrow, separated by commas.")
]
DModel = Annotated[int | None, Option(help="Width of the models.")]
Layers = Annotated[
    int | None, Option(help="Number of layers (default: as many as the task needs).")
]
Width = Annotated[int | None, Option(help='d_key of every head in the group "free".')]
Steps = Annotated[int | None, Option(help="Maximum number of training steps.")]
Seeds = Annotated[int | None, Option(help="Number of models to train per variant.")]
Rates = Annotated[
    str | None, Option(help="Learning rates for every variant to try, separated by commas.")
]
Processes = Annotated[
    int | None, Option(help="Number of models to train at a time (default: one per core).")
]
Out = Annotated[
    Path | None,
    Option(help="Folder for results; a stopped sweep resumes there (default: sweep-TASK)."),
]


def sweep_command(  # noqa: PLR0913 - one parameter per option
    task: TaskName = "relations",
    quick: Quick = False,
    set_: Set = None,
    groups: Groups = None,
    d_model: DModel = None,
    layers: Layers = None,
    width: Width = None,
    steps: Steps = None,
    seeds: Seeds = None,
    rates: Rates = None,
    processes: Processes = None,
    out: Out = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Train small transformers that differ only in their heads, and show what each can do."""
    from headwise.sweeps.settings import make_settings, sweep_task
    from headwise.sweeps.sweep import sweep
    from headwise.views.terminal import ProgressDisplay, quiet_console, say, show_table

    settings = make_settings(
        sweep_task(task, **_task_settings(set_ or [])),
        quick=quick,
        groups=None if groups is None else tuple(groups.split(",")),
        d_model=d_model,
        layers=layers,
        width=width,
        steps=steps,
        seeds=seeds,
        rates=None if rates is None else _numbers(rates),
    )
    folder = out or Path(f"sweep-{task}{'-quick' if quick else ''}")
    with ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True) as progress:
        result = sweep(
            settings=settings, out=folder, processes=processes, progress=progress, force=force
        )
    if as_json:
        typer.echo(json.dumps(result.as_json()))
        return
    from headwise.sweeps.results import FILES

    console = quiet_console()
    show_table(console, result.table())
    say(console, "largest: mean largest weight; entropy: 0 for one position, 1 for an even spread")
    for line in result.in_words():
        say(console, line)
    say(console, f"\nwrote {', '.join(FILES)} in {folder}")


def _task_settings(texts: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise OptionError(f"--set is {text!r}: give a name and a value, such as relations=3")
        settings[name] = value if name == "text" else options.parse_number(value, f"--set {name}")
    return settings


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as err:
        raise OptionError(f"--rates is {text!r}: give numbers, such as 0.003,0.01") from err
