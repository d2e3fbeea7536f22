"""`headwise scan`: what every head of a model does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli.options import (
    Device,
    Dtype,
    Model,
    RemoteCode,
    Revision,
    texts_of,
    without_head,
)
from headwise.cli.screen import quiet_console, say
from headwise.errors import OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from headwise.measures.scan import Scan, ScanSettings, Task


Text = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Text file, a document each; - reads standard input. May be repeated.",
    ),
]
Treebank = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CoNLL-U file whose relations heads are held against."),
]
Probe = Annotated[
    bool | None,
    typer.Option(
        "--probe/--no-probe",
        help="Read the built-in sentences with gold relations; by default where neither --text nor "
        "--treebank is given.",
    ),
]
MaxTokens = Annotated[int | None, typer.Option(help="Read no more tokens of text.")]
Length = Annotated[
    int | None, typer.Option(help="Longest window in tokens (default: the model's limit).")
]
Rows = Annotated[str, typer.Option(help="Rows measured of each window: all, a number, or auto.")]
Measures = Annotated[
    str | None, typer.Option(help="Names with commas between them (default: all).")
]
Out = Annotated[Path | None, typer.Option(help="Folder for tables; a stopped scan goes on there.")]
Force = Annotated[bool, typer.Option("--force", help="Replace another scan in that folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]
DeviceMap = Annotated[
    str | None, typer.Option(help="transformers' own, e.g. auto: layers over devices.")
]
TpPlan = Annotated[
    str | None, typer.Option(help="transformers' own, e.g. auto: tensors over processes.")
]
Seed = Annotated[int, typer.Option(help="Of random rows, tokens and sentences.")]


def run(  # noqa: PLR0913 - one parameter an option
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
    tp_plan: TpPlan = None,
    trust_remote_code: RemoteCode = False,
    seed: Seed = 0,
) -> None:
    """Say what every head of a model does: the table in the terminal, and in files with --out.

    With no arguments the embedded model minilm is scanned on built-in text and sentences.
    """
    from headwise.measures.counting import MEASURES
    from headwise.measures.scan import ScanSettings
    from headwise.measures.scan import run as run_scan
    from headwise.measures.spread import Spread, world_size

    if tp_plan is not None and world_size() > 1:
        raise OptionError(
            f"--tp-plan {tp_plan} would leave each of the processes with some heads alone, and a "
            "scan needs them all: give --device-map auto in one process"
        )
    settings = ScanSettings(
        length=length,
        max_tokens=max_tokens,
        rows=rows if rows in ("all", "auto") else whole_number(rows, "--rows"),
        measures=tuple(MEASURES) if measures is None else tuple(measures.split(",")),
        probe=probe,
        seed=seed,
    )
    options = replace(
        without_head(dtype, device, revision, trust_remote_code),
        device_map=device_map,
        tp_plan=tp_plan,
    )
    console = quiet_console(is_stderr=True)
    task = make_task(model, options, settings, texts_of(text), treebank)
    found = run_scan(task, out=out, force=force, report=bar(console))
    if not Spread.here().is_first:
        return
    if as_json:
        typer.echo(table_as_json(found))
    else:
        show(found, out)


def whole_number(text: str, option: str) -> int:
    """The number that an option was given as."""
    try:
        return int(text)
    except ValueError as err:
        raise OptionError(f"{option} is {text!r}: give all, auto or a number") from err


def make_task(
    name: str,
    options: Any,
    settings: "ScanSettings",
    texts: list[str] | None,
    treebank: Path | None,
) -> "Task":
    """The model, loaded, and what it is to read."""
    from headwise.measures import scan
    from headwise.probes.treebank import sentences_of
    from headwise.watching.loading import load_model

    sentences = None if treebank is None else sentences_of(treebank)
    loaded = load_model(name, options)
    if loaded.tokenizer is None:
        raise OptionError(
            f"{name} reads no text: scan it from Python with headwise.scan(model, inputs=[...])"
        )
    return scan.make_task(loaded, texts, treebank=sentences, settings=settings)


def bar(console: "Console") -> Any:
    """A progress bar with rate and time left, on stderr."""
    from headwise.views.progress import ProgressBar

    return ProgressBar(console)


def show(found: "Scan", out: Path | None) -> None:
    """Print the head table for people."""
    from headwise.measures.store import TABLES
    from headwise.views.head_table import head_grid, strongest, summary_lines
    from headwise.views.relations import leaders, left_out, notes

    console = quiet_console()
    for line in summary_lines(found.table):
        console.print(line, markup=False)
    for stack in found.table.stacks:
        console.print()
        console.print(head_grid(found.table, stack))
    console.print()
    if found.table.held_roles:
        console.print(strongest(found.table))
        console.print()
    if len(found.relations) > 0:
        console.print(leaders(found.relations))
        for line in notes(found.relations):
            console.print(line)
    elif not left_out(found.table.about):
        say(
            console, "No sentences with known relations were read: --probe reads the built-in ones."
        )
    for line in left_out(found.table.about):
        console.print(line)
    if out is not None:
        written = [name for name in TABLES if (out / name).is_file()]
        say(console, f"\nwrote {', '.join(written)} in {out}")


def table_as_json(found: "Scan") -> str:
    """The head table, and how it was made, as one JSON text."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heads.json"
        found.table.write(path)
        return json.dumps(json.loads(path.read_text(encoding="utf-8")))
