"""`headwise sweep`: evidence for how many heads."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.options import AsJson, number_in
from headwise.errors import OptionError
from headwise.views.terminal import quiet_console, say, show_table

TaskName = Annotated[str, typer.Argument(help="relations, recall, brackets or characters.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer seeds, rates and steps: minutes.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the task, such as relations=3. May be repeated.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(help="What is compared: split, free, big, narrow, separated by commas."),
]
DModel = Annotated[int | None, typer.Option("--d-model", help="Width of the models.")]
Layers = Annotated[int | None, typer.Option(help="Layers (default: as many as the task needs).")]
Width = Annotated[int | None, typer.Option(help="d_key of the heads of the group free.")]
Steps = Annotated[int | None, typer.Option(help="Training steps at most.")]
Seeds = Annotated[int | None, typer.Option(help="Models trained for each variant.")]
Rates = Annotated[
    str | None, typer.Option(help="Learning rates that every variant tries, separated by commas.")
]
Processes = Annotated[int | None, typer.Option(help="Models trained at a time.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for results; a stopped sweep continues there (default: sweep-TASK)."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace another sweep in that folder.")]


def sweep_command(  # noqa: PLR0913 - one parameter an option
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
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train small transformers that differ in their heads alone, and say what each can do."""
    from headwise.sweeps.settings import make_settings, sweep_task
    from headwise.sweeps.sweep import sweep
    from headwise.views.terminal import ProgressDisplay

    made = sweep_task(task, **settings_of(set_ or []))
    settings = make_settings(
        made,
        quick=quick,
        groups=None if groups is None else tuple(groups.split(",")),
        d_model=d_model,
        layers=layers,
        width=width,
        steps=steps,
        seeds=seeds,
        rates=None if rates is None else tuple(numbers(rates)),
    )
    folder = out or Path(f"sweep-{task}{'-quick' if quick else ''}")
    with ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True) as stages:
        found = sweep(
            settings=settings, out=folder, processes=processes, progress=stages, force=force
        )
    if as_json:
        typer.echo(json.dumps(found.as_json()))
        return
    from headwise.sweeps.results import FILES
    from headwise.views.sweep_table import summary_table

    console = quiet_console()
    show_table(console, summary_table(found))
    for line in found.in_words():
        say(console, line)
    say(console, f"\nwrote {', '.join(FILES)} in {folder}")


def settings_of(given: list[str]) -> dict[str, Any]:
    """Settings of a task from `name=value`."""
    found: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise OptionError(f"--set is {one!r}: give a name and a value, such as relations=3")
        found[name] = value if name == "text" else number_in(value, f"--set {name}")
    return found


def numbers(text: str) -> list[float]:
    """Learning rates with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as err:
        raise OptionError(f"--rates is {text!r}: give numbers, such as 0.003,0.01") from err
