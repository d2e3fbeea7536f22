"""`headwise scan`: measure every head of a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from headwise.cli import options
from headwise.errors import OptionError

if TYPE_CHECKING:
    from headwise.scans.folder import Scan

Treebank = Annotated[
    Path | None, Option(metavar="FILE", help="CoNLL-U file of sentences with gold relations.")
]
Probe = Annotated[
    bool | None,
    Option(
        "--probe/--no-probe",
        help="Read the built-in sentences with gold relations (default: only if neither --text "
        "nor --treebank is given).",
    ),
]
MaxTokens = Annotated[int | None, Option(help="Read at most this many tokens of text.")]
Length = Annotated[
    int | None, Option(help="Longest window in tokens (default: the model's limit).")
]
Rows = Annotated[str, Option(help="Rows to measure in each window: all, a number, or auto.")]
Measures = Annotated[
    str | None, Option(help="Names of measures, separated by commas (default: all).")
]
Out = Annotated[Path | None, Option(help="Folder for the tables; a stopped scan resumes there.")]
DeviceMap = Annotated[
    str | None, Option(help="Device map, as in transformers; auto spreads the layers over devices.")
]


def scan_command(  # noqa: PLR0913 - one parameter per option
    model: options.Model = "minilm",
    text: options.TextFiles = None,
    image: options.Images = None,
    audio: options.Sounds = None,
    lines: options.Lines = False,
    field: options.Field = None,
    treebank: Treebank = None,
    probe: Probe = None,
    max_tokens: MaxTokens = None,
    length: Length = None,
    rows: Rows = "auto",
    measures: Measures = None,
    out: Out = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    revision: options.Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: options.RemoteCode = False,
    seed: options.Seed = 0,
) -> None:
    """Measure every head of a model, print the head table, and with --out also write tables.

    Without arguments, scan the embedded model minilm on the built-in text and sentences.
    """
    from headwise.measures.counter import MEASURES
    from headwise.models.loading import LoadOptions, load_model
    from headwise.probes.treebank import as_sentences
    from headwise.scans.process_group import ProcessGroup
    from headwise.scans.scan import ScanJob, run_scan
    from headwise.scans.settings import ScanSettings
    from headwise.views.terminal import ProgressDisplay, quiet_console, say

    is_word = rows in ("all", "auto")
    settings = ScanSettings(
        length=length,
        max_tokens=max_tokens,
        rows=rows
        if is_word
        else options.parse_number(rows, "--rows", "all, auto or a number of rows"),
        measures=tuple(MEASURES) if measures is None else tuple(measures.split(",")),
        probe=probe,
        seed=seed,
    )
    has_media = bool(image or audio)
    if has_media:
        unused = {"--treebank": treebank, "--probe": probe, "--max-tokens": max_tokens}
        options.refuse("--image and --audio are read instead of texts", unused)
    load = LoadOptions(dtype, device, revision, trust_remote_code, device_map, keeps_head=has_media)
    texts = options.texts_of(text, by_line=lines, field=field)
    sentences = None if treebank is None else as_sentences(treebank)
    loaded = load_model(model, load)
    inputs = options.media_of(loaded, image, audio, texts)
    if loaded.tokenizer is None and inputs is None:
        raise OptionError(
            f"{model} has no tokenizer: scan it from Python with headwise.scan(model, inputs=[...])"
        )
    texts = texts if inputs is None else None
    job = ScanJob.of(loaded, texts, inputs=inputs, treebank=sentences, settings=settings)
    group, console = ProcessGroup.from_environment(), quiet_console(is_stderr=True)
    with ProgressDisplay(console, unit="tokens") as progress:
        result = run_scan(job, out=out, force=force, progress=progress, group=group)
    if not group.is_first:
        return
    if result.was_complete:
        say(console, f"headwise: the scan in {out} was already complete")
    if as_json:
        typer.echo(result.table.to_json())
    else:
        print_scan(result, out)


def print_scan(scan: "Scan", out: Path | None) -> None:
    """Print the head table, the strongest heads and the names of the files written to `out`."""
    from headwise.scans.folder import TABLES
    from headwise.views.cross_attention import cross_attention
    from headwise.views.findings import findings
    from headwise.views.heads import leaders, overview, skipped_sentences, strongest
    from headwise.views.terminal import quiet_console, say

    console, skipped = quiet_console(), skipped_sentences(scan.table.about)
    console.print(overview(scan.table), "")
    console.print(findings(scan.table), "")
    if scan.table.held_roles:
        console.print(strongest(scan.table), "")
    if (cross := cross_attention(scan.table)) is not None:
        console.print(cross, "")
    if len(scan.relations) > 0:
        console.print(leaders(scan.relations))
    elif not skipped:
        say(console, "No sentences with gold relations were read: --probe reads the built-in ones.")
    for line in skipped:
        console.print(line)
    if out is not None:
        files = [name for name in TABLES if (out / name).is_file()]
        say(console, f"\nwrote {', '.join(files)} in {out}")
