"""`headwise report`: one page about a model's heads that needs no other file."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.cli.options import check_sentence
from headwise.views.terminal import check_new, quiet_console, say, write_new

if TYPE_CHECKING:
    from headwise.report.data import ReportData

ScanFolderOption = Annotated[
    Path | None,
    typer.Argument(metavar="FOLDER", help="Folder of a scan; without it, minilm is scanned."),
]
ImportanceFolderOption = Annotated[
    Path | None, typer.Option("--importance", help="Folder that headwise importance wrote.")
]
PruneFolderOption = Annotated[
    Path | None, typer.Option("--prune", help="Directory that headwise prune wrote.")
]
Out = Annotated[Path, typer.Option(help="The page.")]
Text = Annotated[str | None, typer.Option(help="Sentence of the attention maps, not a file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]


def report_command(
    scan: ScanFolderOption = None,
    importance: ImportanceFolderOption = None,
    prune: PruneFolderOption = None,
    out: Out = Path("report.html"),
    text: Text = None,
    force: Force = False,
) -> None:
    """Write one self-contained HTML page about a scan: roles, maps, relations, importance, cuts.

    Without a folder the embedded model minilm is scanned first, as headwise scan does.
    """
    check_folders(scan, importance, prune)
    check_new(out, ".html", force=force)
    check_sentence(text)
    from headwise.report.maps import SENTENCE
    from headwise.report.report import gather, report_page

    sentence = text or SENTENCE
    if scan is None:
        found = scanned(importance, prune, sentence)
    else:
        found = gather(scan, importance=importance, prune=prune, text=sentence)
    page = report_page(found)
    write_new(out, page, ".html", force=force)
    console = quiet_console()
    if found.drawn.reason:
        unused = "" if text is None else ", and --text was not read"
        say(console, f"the page has no attention maps: {found.drawn.reason}{unused}")
    say(console, f"wrote {out}, {len(page.encode()) / 1024:,.0f} KiB")


def check_folders(scan: Path | None, importance: Path | None, prune: Path | None) -> None:
    """Refuse a folder without the tables it should hold, before anything else is looked at."""
    from headwise.pruning.record import PruneRecord
    from headwise.report.data import heads_of, importance_file

    if scan is not None:
        heads_of(scan)
    if importance is not None:
        importance_file(importance)
    if prune is not None:
        PruneRecord.read(prune)


def scanned(importance: Path | None, prune: Path | None, text: str) -> "ReportData":
    """minilm scanned on the built-in text, its table printed, and what else the folders hold.

    What cannot be on its page is refused before the scan, which takes a while.
    """
    from headwise.cli.scan import bar, make_task, show
    from headwise.models.loaded import LoadedModel
    from headwise.models.loading import LoadOptions
    from headwise.report.data import cut_of, heads_of_model, worth_of
    from headwise.report.maps import check_length
    from headwise.report.report import gather
    from headwise.scans.scan import ScanSettings, run_scan as run_scan

    settings = ScanSettings(probe=True)
    task = make_task("minilm", LoadOptions(), settings, None, None)
    check_length(text, task.tokenizer)
    heads = heads_of_model("minilm", task.model)
    if importance is not None:
        worth_of(importance, heads)
    if prune is not None:
        cut_of(prune, heads)
    with tempfile.TemporaryDirectory() as folder:
        found = run_scan(task, out=Path(folder), report=bar(quiet_console(is_stderr=True)))
        show(found, None)
        loaded = LoadedModel("minilm", task.model, task.tokenizer, dict(task.about))
        return gather(Path(folder), importance=importance, prune=prune, text=text, model=loaded)
