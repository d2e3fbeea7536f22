"""`headwise scan`: what every head of a model does."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli.options import (
    AsJson,
    Device,
    Dtype,
    Model,
    RemoteCode,
    Revision,
    number_in,
    texts_of,
    without_head,
)
from headwise.errors import OptionError
from headwise.views.terminal import quiet_console, say

if TYPE_CHECKING:
    from rich.console import Console

    from headwise.scans.scan import Scan, ScanJob, ScanSettings


Text = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Text file, read as one document; - reads standard input. May be repeated.",
    ),
]
Treebank = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CoNLL-U file of sentences with gold relations."),
]
Probe = Annotated[
    bool | None,
    typer.Option(
        "--probe/--no-probe",
        help="Read the built-in sentences with gold relations; by default where neither --text nor "
        "--treebank is given.",
    ),
]
MaxTokens = Annotated[int | None, typer.Option(help="Read at most this many tokens of text.")]
Length = Annotated[
    int | None, typer.Option(help="Longest window in tokens (default: the model's limit).")
]
Rows = Annotated[str, typer.Option(help="Rows measured of each window: all, a number, or auto.")]
Measures = Annotated[str | None, typer.Option(help="Names, separated by commas (default: all).")]
Out = Annotated[
    Path | None, typer.Option(help="Folder for tables; a stopped scan continues there.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace another scan in that folder.")]
DeviceMap = Annotated[
    str | None, typer.Option(help="As in transformers, such as auto: layers over devices.")
]
Seed = Annotated[int, typer.Option(help="Seed of random rows, tokens and sentences.")]


def scan_command(  # noqa: PLR0913 - one parameter an option
    model: Model = "minilm",
    text: Text = None,
    treebank: Treebank = None,
    probe: Probe = None,
    max_tokens: MaxTokens = None,
    length: Length = None,
    rows: Rows = "auto",
    measures: Measures = None,
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: RemoteCode = False,
    seed: Seed = 0,
) -> None:
    """Say what every head of a model does: the table in the terminal, and in files with --out.

    With no arguments the embedded model minilm is scanned on built-in text and sentences.
    """
    from headwise.measures.counter import MEASURES
    from headwise.scans.process_group import ProcessGroup
    from headwise.scans.scan import ScanSettings, run_scan as run_scan

    settings = ScanSettings(
        length=length,
        max_tokens=max_tokens,
        rows=rows
        if rows in ("all", "auto")
        else number_in(rows, "--rows", "all, auto or a number"),
        measures=tuple(MEASURES) if measures is None else tuple(measures.split(",")),
        probe=probe,
        seed=seed,
    )
    options = replace(
        without_head(dtype, device, revision, trust_remote_code), device_map=device_map
    )
    console = quiet_console(is_stderr=True)
    task = make_task(model, options, settings, texts_of(text), treebank)
    spread = ProcessGroup.here()
    ended = ("heads.parquet", "heads.csv", "scan.json")
    was_complete = out is not None and not force and all((out / one).is_file() for one in ended)
    found = run_scan(task, out=out, force=force, report=bar(console), spread=spread)
    if not spread.is_first:
        return
    if was_complete:  # of these very settings, or it would have been refused
        say(console, f"headwise: the scan in {out} was complete already")
    if as_json:
        typer.echo(found.table.to_json())
    else:
        show(found, out)


def make_task(
    name: str,
    options: Any,
    settings: "ScanSettings",
    texts: list[str] | None,
    treebank: Path | None,
) -> "ScanJob":
    """The model, loaded, and what it is to read."""
    from headwise.models.loading import load_model
    from headwise.probes.treebank import sentences_of
    from headwise.scans import scan

    sentences = None if treebank is None else sentences_of(treebank)
    loaded = load_model(name, options)
    if loaded.tokenizer is None:
        raise OptionError(
            f"{name} reads no text: scan it from Python with headwise.scan(model, inputs=[...])"
        )
    return scan.make_scan_job(loaded, texts, treebank=sentences, settings=settings)


def bar(console: "Console") -> Any:
    """A progress bar with rate and time left, on stderr."""
    from headwise.views.terminal import ProgressBar

    return ProgressBar(console)


def show(found: "Scan", out: Path | None) -> None:
    """Print the head table for people."""
    from headwise.scans.folder import TABLES
    from headwise.views.heads import leader_notes, leaders, overview, skipped_sentences, strongest

    console = quiet_console()
    console.print(overview(found.table))
    console.print()
    if found.table.held_roles:
        console.print(strongest(found.table))
        console.print()
    if len(found.relations) > 0:
        console.print(leaders(found.relations))
        for line in leader_notes(found.relations):
            console.print(line)
    elif not skipped_sentences(found.table.about):
        say(
            console, "No sentences with known relations were read: --probe reads the built-in ones."
        )
    for line in skipped_sentences(found.table.about):
        console.print(line)
    if out is not None:
        written = [name for name in TABLES if (out / name).is_file()]
        say(console, f"\nwrote {', '.join(written)} in {out}")
