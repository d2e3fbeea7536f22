"""`headwise importance`: what every head of a model is worth."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from headwise.cli import options

MaxTokens = Annotated[int, Option(help="Read at most this many tokens of text.")]
Measures = Annotated[
    str | None,
    Option(
        metavar="NAMES",
        help="zero, mean, michel, fisher, expected, stand_ins, best_alone, separated by commas, or "
        "all (default: all; without mean and best_alone for large models).",
    ),
]
ExactTokens = Annotated[
    int | None,
    Option(
        help="Tokens for zero, mean and best_alone, which take a pass per head (default: as many "
        "as take a few minutes)."
    ),
]
Out = Annotated[Path | None, Option(help="Folder for the tables.")]


def importance_command(  # noqa: PLR0913 - one parameter per option
    model: options.Model = "minilm",
    text: options.TextFiles = None,
    image: options.Images = None,
    audio: options.Sounds = None,
    lines: options.Lines = False,
    field: options.Field = None,
    pooling: options.Pooling = None,
    max_tokens: MaxTokens = 4096,
    measures: Measures = None,
    exact_tokens: ExactTokens = None,
    out: Out = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Measure what every head is worth: exact ablation, gradient scores, stand-ins."""
    from headwise.models.loading import LoadOptions, load_model
    from headwise.pruning.importance.importance import importance
    from headwise.pruning.importance.importance_tables import FILES, check_importance_folder
    from headwise.pruning.importance.workload import check_measures
    from headwise.views.terminal import ProgressDisplay, quiet_console, say, show_table

    chosen = check_measures(measures)
    if out is not None:
        check_importance_folder(out, force=force)
    objective = options.embedding_of(pooling)
    texts = options.texts_of(text, by_line=lines, field=field)
    load = LoadOptions(dtype, device, revision, trust_remote_code, keeps_head=True)
    loaded = load_model(model, load)
    batches = options.media_of(loaded, image, audio, texts)
    with ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True) as progress:
        measured = importance(
            loaded,
            texts if batches is None else None,
            batches=batches,
            out=out,
            force=force,
            max_tokens=max_tokens,
            objective=objective,
            keeps_texts_whole=lines or field is not None,
            measures=chosen,
            exact_tokens=exact_tokens,
            progress=progress,
        )
    if as_json:
        typer.echo(measured.to_json())
        return
    from headwise.views.pruning import (
        importance_table,
        importance_title,
        layers_table,
        left_out_lines,
        stand_in_lines,
    )

    console = quiet_console()
    console.print(importance_title(measured))
    if (table := importance_table(measured)) is not None:
        show_table(console, table)
    if measured.table.about["examples"] > 1:
        console.print("--json and --out give every measure with its standard error.")
    else:
        console.print("There are no standard errors for a single example: give more text.")
    if (layers := layers_table(measured)) is not None:
        show_table(console, layers)
    for line in (*stand_in_lines(measured), *left_out_lines(measured)):
        console.print(line)
    if out is not None:
        written = [name for name in FILES if (out / name).is_file()]
        say(console, f"\nwrote {', '.join(written)} in {out}")
