"""`headwise report`: one HTML page about a model's heads."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from headwise.cli import options

if TYPE_CHECKING:
    from headwise.report.data import ReportData

ScannedFolder = Annotated[
    Path | None, Argument(metavar="FOLDER", help="Folder of a scan (default: scan minilm now).")
]
ImportanceFolder = Annotated[Path | None, Option(help="Folder that headwise importance wrote.")]
PruneFolder = Annotated[Path | None, Option(help="Directory that headwise prune wrote.")]
CompareFolder = Annotated[Path | None, Option(help="Folder that headwise compare wrote.")]
PatchFolder = Annotated[Path | None, Option(help="Folder that headwise patch wrote.")]
Out = Annotated[Path, Option(help="HTML file to write.")]
Text = Annotated[
    str | None,
    Option(
        help="Sentence to draw attention maps for: the text itself, not a file name "
        "(default: a built-in sentence)."
    ),
]


def report_command(  # noqa: PLR0913 - one parameter per option
    scan: ScannedFolder = None,
    importance: ImportanceFolder = None,
    prune: PruneFolder = None,
    compare: CompareFolder = None,
    patch: PatchFolder = None,
    out: Out = Path("report.html"),
    text: Text = None,
    force: options.Force = False,
) -> None:
    """Write one self-contained HTML page about a scan, and about other results for its model.

    Without a folder, first scan the embedded model minilm, as headwise scan does.
    """
    from headwise.report.data import check_folders, read_folders
    from headwise.report.maps import draw_maps
    from headwise.report.report import report_page
    from headwise.views.terminal import check_new, quiet_console, say, write_new

    folders = (importance, prune, compare, patch)
    check_folders(scan, *folders)
    check_new(out, ".html", force=force)
    options.check_sentence(text)
    if scan is None:
        data = _scan_minilm(folders, text)
    else:
        data = read_folders(scan, *folders)
        data = replace(data, maps=draw_maps(data.table, text))
    page = report_page(data)
    write_new(out, page, ".html", force=force)
    console = quiet_console()
    if data.maps.reason:
        unused = "" if text is None else "; --text was not used"
        say(console, f"the page has no attention maps: {data.maps.reason}{unused}")
    say(console, f"wrote {out}, {len(page.encode()) / 1024:,.0f} KiB")


def _scan_minilm(folders: tuple[Path | None, ...], text: str | None) -> "ReportData":
    """Check the folders and the text, then scan minilm and print its table."""
    import pandas as pd

    from headwise.cli.scan import print_scan
    from headwise.head_table import HeadTable
    from headwise.models.loading import load_model
    from headwise.report.data import read_folders
    from headwise.report.maps import check_length, draw_maps
    from headwise.scans.folder import Scan
    from headwise.scans.scan import ScanJob, run_scan
    from headwise.views.terminal import ProgressDisplay, quiet_console
    from headwise.watching.sites import find_sites

    loaded = load_model("minilm")
    if text is not None:
        check_length(text, loaded.tokenizer)
    rows = [
        (site.stack, site.layer, head)
        for site in find_sites(loaded.model)
        for head in range(site.num_heads or 0)
    ]
    heads = HeadTable(pd.DataFrame(rows, columns=["stack", "layer", "head"]), {"model": "minilm"})
    data = read_folders(Scan(heads, pd.DataFrame(), pd.DataFrame()), *folders)
    with ProgressDisplay(quiet_console(is_stderr=True), unit="tokens") as progress:
        scan = run_scan(ScanJob.of(loaded), progress=progress)
    print_scan(scan, None)
    maps = draw_maps(scan.table, text, loaded)
    return replace(data, scan=scan, maps=maps)
