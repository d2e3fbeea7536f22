"""`headwise compare`: two models side by side, before one replaces the other."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from headwise.cli import options

Before = Annotated[
    str,
    Argument(
        metavar="BEFORE", help="Model to compare with: minilm, smollm2, a directory, or a hub id."
    ),
]
After = Annotated[
    str, Argument(metavar="AFTER", help="Model to judge, such as one that headwise prune wrote.")
]
Registers = Annotated[
    str | None,
    Option(help="Registers of the built-in corpus, separated by commas (default: all)."),
]
MaxTokens = Annotated[
    int, Option(help="Read at most this many tokens of each register, and of the text files.")
]
HasSpeed = Annotated[bool, Option("--speed/--no-speed", help="Measure the speed of both models.")]
Out = Annotated[Path | None, Option(help="Folder for compare.json.")]


def compare_command(  # noqa: PLR0913 - one parameter per option
    before: Before,
    after: After,
    text: options.TextFiles = None,
    lines: options.Lines = False,
    field: options.Field = None,
    registers: Registers = None,
    max_tokens: MaxTokens = 2048,
    speed: HasSpeed = True,
    out: Out = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    seed: options.Seed = 0,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Compare two models: size, speed, and quality and agreement on several kinds of text.

    Both must have the same tokenizer. The last line says how the second does where it does worst.
    """
    from headwise.comparing.compare import TEXT_NAMES, compare
    from headwise.comparing.comparison import FILE, check_comparison_folder
    from headwise.models.loading import LoadOptions, load_model
    from headwise.reading.corpus import corpus
    from headwise.views.terminal import ProgressDisplay, quiet_console, say, show_table

    if out is not None:
        check_comparison_folder(out, force=force)
    texts = options.texts_of(text, by_line=lines, field=field)
    names = TEXT_NAMES if registers is None else registers.split(",")
    corpus(names)  # raises if a register is unknown, before the models load
    load = LoadOptions(
        dtype, device, allows_remote_code=trust_remote_code, keeps_head=True, needs_tokenizer=False
    )
    with ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True) as progress:
        comparison = compare(
            load_model(before, load),
            load_model(after, load),
            texts,
            registers=names,
            max_tokens=max_tokens,
            times_speed=speed,
            out=out,
            force=force,
            seed=seed,
            progress=progress,
        )
    if as_json:
        typer.echo(comparison.to_json())
        return
    from headwise.views.comparing import comparison_title, reading_line, texts_table
    from headwise.views.pruning import sizes_table, speed_table

    console = quiet_console()
    console.print(comparison_title(comparison), soft_wrap=True)
    show_table(console, sizes_table(comparison))
    if comparison.speed:
        show_table(console, speed_table(comparison))
    show_table(console, texts_table(comparison))
    console.print(reading_line(comparison), markup=False)
    if out is not None:
        say(console, f"wrote {out / FILE}")
    say(console, "\n" + "\n".join(comparison.conclusions()))
