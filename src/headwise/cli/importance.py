"""`headwise importance`: what every head of a model is worth."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.options import (
    AsJson,
    Device,
    Dtype,
    Model,
    RemoteCode,
    Revision,
    texts_of,
    with_head,
)
from headwise.errors import OptionError, OutputError
from headwise.files import lock_folder, make_folder, write_aside
from headwise.formats import replace_nonfinite
from headwise.views.terminal import quiet_console, say, show_table

if TYPE_CHECKING:
    from headwise.pruning.importance.importance import Importance

Text = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE", help="Text file to measure on; - reads standard input. May be repeated."
    ),
]
MaxTokens = Annotated[int, typer.Option(help="Read at most this many tokens of text.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the tables.")]
Force = Annotated[bool, typer.Option("--force", help="Replace tables that are there already.")]

FILES = ("importance.parquet", "importance.csv", "interaction.csv", "layers.csv")


def importance_command(  # noqa: PLR0913 - one parameter an option
    model: Model = "minilm",
    text: Text = None,
    max_tokens: MaxTokens = 4096,
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Measure what every head is worth: exact ablation, gradient scores, stand-ins."""
    check_folder(out, force=force)
    from headwise.models.loading import load_model
    from headwise.pruning.importance.importance import importance
    from headwise.views.terminal import ProgressDisplay

    texts = texts_of(text)
    options = with_head(dtype, device, revision, trust_remote_code)
    loaded = load_model(model, options)
    with (
        only_writer(out, force=force),
        ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True) as stages,
    ):
        found = importance(loaded, texts, max_tokens=max_tokens, progress=stages)
        if out is not None:
            write(found, out)
    if as_json:
        typer.echo(as_text(found))
    else:
        show(found, out)


def check_folder(out: Path | None, *, force: bool) -> None:
    """Refuse a folder that cannot be one, or that holds such tables already."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise OptionError(f"{out} is a file: give the name of a folder")
    there = [name for name in FILES if (out / name).exists()]
    if there and not force:
        raise OutputError(f"{there[0]} is in {out} already: choose another folder, or give --force")


@contextmanager
def only_writer(out: Path | None, *, force: bool) -> Iterator[None]:
    """The folder, made if need be, while no other process writes such tables into it."""
    if out is None:
        yield
        return
    make_folder(out)
    with lock_folder(out):
        check_folder(out, force=force)  # another process may have written since it was looked at
        yield


def write(found: "Importance", out: Path) -> None:
    """The tables, each written aside and moved into place."""
    for name in FILES[:2]:
        found.table.write(out / name, force=True)
    write_aside(out / "interaction.csv", found.interaction.to_csv())
    write_aside(out / "layers.csv", found.layers.to_csv(index=False))


def as_text(found: "Importance") -> str:
    """Everything as one JSON text."""
    return json.dumps(
        {
            "about": found.table.about,
            "heads": replace_nonfinite(found.table.df.drop(columns="roles").to_dict("records")),
            "layers": replace_nonfinite(found.layers.to_dict("records")),
            "stand_ins": [
                {
                    "heads": [str(head) for head in group.heads],
                    "correlation": group.correlation,
                    "cka": group.cka,
                    "cost_apart": group.cost_apart,
                    "cost_together": group.cost_together,
                }
                for group in found.groups
            ],
        }
    )


def show(found: "Importance", out: Path | None) -> None:
    """Tables for people."""
    from headwise.views.pruning import importance_line, importance_table, layers_table

    console, about = quiet_console(), found.table.about
    console.print(importance_line(about))
    show_table(console, importance_table(found.table.df))
    if about["examples"] > 1:
        console.print("--json and --out give every measure with its standard error.")
    else:
        console.print(
            "There are no standard errors, because only one example was read: give more text."
        )
    show_table(console, layers_table(found.layers, about["unit"]))
    console.print("Heads that stand in for each other:" if found.groups else "No stand-ins found.")
    for group in found.groups:
        console.print(f"  {group}")
    if out is not None:
        say(console, f"\nwrote {', '.join(FILES)} in {out}")
