"""`headwise trace`: every number of one layer's attention."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli.options import (
    AsJson,
    Device,
    Dtype,
    Force,
    Model,
    RemoteCode,
    Revision,
    check_sentence,
    is_there,
    refuse,
    without_head,
)
from headwise.errors import OptionError
from headwise.formats import join_words

if TYPE_CHECKING:
    from rich.console import Console

    from headwise.models.loading import LoadOptions
    from headwise.tracing.maps import Maps
    from headwise.tracing.record import Trace

SENTENCE = "The cat sat down"


class Example(StrEnum):
    """Worked examples that need no model."""

    cat_sleeps = "cat-sleeps"
    dimensions = "dimensions"


Text = Annotated[
    str | None,
    typer.Option(help=f"Text to read: the text itself, not a file (default: {SENTENCE})."),
]
Layer = Annotated[int | None, typer.Option(help="Layer, counted from 0 (default: the first).")]
Stack = Annotated[
    str | None, typer.Option(help="Stack: encoder, decoder, cross ... (default: the first).")
]
Heads = Annotated[
    str | None,
    typer.Option(help='Heads, such as "L2H0 L2H3", or 0,3 in --layer (default: all).'),
]
StepName = Annotated[
    str | None,
    typer.Option(
        "--step",
        help="Show one step: input, queries, keys, values, scores, scaled, masked, weights, mixed, "
        "concat, Wo, contributions or output; in an example also Wq, Wk or Wv.",
    ),
]
ExampleName = Annotated[
    Example | None, typer.Option(help="Show a worked example instead of a model.")
]
CompareSingle = Annotated[
    bool,
    typer.Option("--compare-single-head", help="Compare the heads' rows with their average."),
]
Query = Annotated[
    int | None,
    typer.Option(help="Token whose rows to compare (default: the last that is not special)."),
]
Words = Annotated[bool, typer.Option("--words", help="Merge the pieces of each word.")]
HideSpecial = Annotated[bool, typer.Option("--hide-special", help="Leave out special tokens.")]
DropSink = Annotated[
    bool, typer.Option("--drop-sink", help="Leave out the first key and rescale rows to sum to 1.")
]
HtmlFile = Annotated[Path | None, typer.Option(help="Write a self-contained HTML page.")]
SvgFile = Annotated[Path | None, typer.Option(help="Write the chosen heads' maps as one image.")]


def trace_command(  # noqa: PLR0913 - one parameter per option
    model: Model = "minilm",
    text: Text = None,
    layer: Layer = None,
    stack: Stack = None,
    heads: Heads = None,
    step: StepName = None,
    example: ExampleName = None,
    compare_single_head: CompareSingle = False,
    query: Query = None,
    words: Words = False,
    hide_special: HideSpecial = False,
    drop_sink: DropSink = False,
    html: HtmlFile = None,
    svg: SvgFile = None,
    force: Force = False,
    as_json: AsJson = False,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Show every number of one layer's attention, and what each head adds to its output."""
    from headwise.views.terminal import check_new, quiet_console, say, write_new

    console = quiet_console()
    if example is not None:
        loading = {"--dtype": dtype != "float32", "--device": device != "cpu"}
        loading |= {"--trust-remote-code": trust_remote_code, model: model != "minilm"}
        others = {"--text": text, "--revision": revision}
        refuse("an example has its own model and text", {**others, **loading})
    if not compare_single_head and query is not None:
        raise OptionError("--query needs --compare-single-head: give both, or omit --query")
    if " " in model and not is_there(model):
        raise OptionError(f"{model!r} is not a model: give a text with --text")
    map_options = {"--words": words, "--hide-special": hide_special, "--drop-sink": drop_sink}
    if compare_single_head:
        refuse("--compare-single-head prints only rows", {"--json": as_json, "--step": step})
    if not (svg or html):
        refuse(_why_no_map(compare_single_head, as_json, step, example), map_options)
    if example is Example.dimensions:
        choice_options = {"--layer": layer, "--stack": stack, "--heads": heads, "--step": step}
        outputs = {"--compare-single-head": compare_single_head, "--svg": svg, "--html": html}
        refuse(
            "the table of dimensions only shows shapes",
            {**choice_options, **outputs, **map_options},
        )
        _show_dimensions(console, as_json=as_json)
        return
    files = [(svg, ".svg"), (html, ".html")]
    for path, suffix in files:
        if path is not None:
            check_new(path, suffix, force=force)
    choice = {"layer": layer, "stack": stack, "heads": heads}
    if example is None:
        options = without_head(dtype, device, revision, trust_remote_code)
        traced = _trace_model(model, options, text, choice)
    else:
        traced = _trace_example(choice)
    if step is not None:
        traced[step]  # an unknown step raises before any file is written
    maps = traced.maps(words=words, special=not hide_special, sink=not drop_sink)
    for path, suffix in files:
        if path is not None:
            write_new(path, _file_text(traced, maps, suffix), suffix, force=force)
    if as_json:
        _print_json(traced, step)
        return
    if compare_single_head:
        _show_blurring(console, traced, query)
    elif step is not None:
        _show_step(console, traced, step, maps)
    elif example is not None:
        _show_everything(console, traced)
    else:
        _show_trace(console, traced, maps, shows_all=heads is not None)
    for path, _ in files:
        if path is not None:
            say(console, f"wrote {path}")


def _why_no_map(compares: bool, as_json: bool, step: str | None, example: Example | None) -> str:
    """Reason for having no map of weights in the output; "" if it has one."""
    if compares:
        return "--compare-single-head compares whole rows"
    if as_json:
        return "--json prints the weights unchanged"
    if step is not None and step != "weights":
        return f"--step {step} shows no map of the weights"
    if step is None and example is not None:
        return "an example is shown whole"
    return ""


def _trace_model(
    name: str, options: "LoadOptions", text: str | None, choice: dict[str, Any]
) -> "Trace":
    from headwise.models.loading import load_model
    from headwise.tracing.trace import LayerChoice, trace

    LayerChoice.parse(**choice)  # mistakes are reported before the model loads
    check_sentence(text)
    return trace(load_model(name, options), SENTENCE if text is None else text, **choice)


def _trace_example(options: dict[str, Any]) -> "Trace":
    from headwise.attention.worked_example import cat_sleeps
    from headwise.tracing.layer_trace import trace_layer
    from headwise.tracing.trace import LayerChoice

    choice = LayerChoice.parse(**options)
    if choice.layer or choice.stack:
        raise OptionError("the example has one layer: leave --layer and --stack out")
    worked = cat_sleeps()
    return trace_layer(worked.layer, worked.x, heads=choice.heads, tokens=worked.tokens)


def _file_text(trace: "Trace", maps: "Maps", suffix: str) -> str:
    from headwise.views.trace import maps_svg, trace_page

    return maps_svg(maps) if suffix == ".svg" else trace_page(trace, maps)


def _print_json(trace: "Trace", step: str | None) -> None:
    """Print JSON, and to stderr which steps have no values in it and how to get them."""
    from headwise.tracing.record import MOST_NUMBERS
    from headwise.views.terminal import quiet_console, say

    typer.echo(json.dumps(trace.to_json(None if step is None else [step])))
    names = trace.large_steps
    if step is None and names:
        say(
            quiet_console(is_stderr=True),
            f"headwise: {join_words(names)} {'has' if len(names) == 1 else 'have'} more than "
            f"{MOST_NUMBERS:,} values, which are left out: --step {names[0]} prints them",
        )


def _show_trace(console: "Console", trace: "Trace", maps: "Maps", *, shows_all: bool) -> None:
    """Steps, weights of some heads, contributions."""
    from rich.markup import escape

    from headwise.views import trace as views

    console.print(f"[bold]{escape(trace.title)}[/bold]")
    console.print(views.steps_table(trace))
    if not shows_all and len(maps.heads) > views.SHOWN_HEADS:
        shown = f"{views.SHOWN_HEADS} of {len(maps.heads)} heads"
        console.print(f"Weights of {shown}; --heads chooses others.")
        maps = maps.first(views.SHOWN_HEADS)
    console.print(views.map_tables(maps))
    console.print("What each head adds to the output:")
    console.print(views.contributions_table(trace))
    console.print("Each head's share of some columns, before Wo (concat) and after it (out):")
    _show_shares(console, trace)


def _show_shares(console: "Console", trace: "Trace") -> None:
    from headwise.tracing.record import closing_lines
    from headwise.views.terminal import show_table
    from headwise.views.trace import shares_table

    show_table(console, shares_table(trace))
    for line in closing_lines(trace):
        console.print(line)


def _show_step(console: "Console", trace: "Trace", name: str, maps: "Maps") -> None:
    from rich.markup import escape

    from headwise.views.trace import map_tables, step_matrices

    step = trace[name]
    console.print(f"[bold]{escape(trace.title)}[/bold], {name}: {step.formula}", end="  ")
    console.print(step.shape, markup=False)
    if name == "weights":
        console.print(map_tables(maps))
        return
    for drawn in step_matrices(trace, step):
        console.print(drawn)


def _show_everything(console: "Console", trace: "Trace") -> None:
    """Every step in full, for examples small enough to follow by hand."""
    from rich.columns import Columns
    from rich.markup import escape

    from headwise.views.trace import step_matrices

    console.print(f"[bold]{escape(' '.join(trace.labels.queries))}[/bold], {escape(trace.title)}")
    for step in trace.steps.values():
        console.rule(f"{step.name}: {step.formula}", align="left")
        console.print(step.shape, markup=False)
        console.print(Columns(step_matrices(trace, step)))
    console.rule("heads before and after Wo", align="left")
    _show_shares(console, trace)


def _show_blurring(console: "Console", trace: "Trace", query: int | None) -> None:
    """The heads' rows beside their average, and the textbook's three targets."""
    from rich.markup import escape

    from headwise.tracing.blur import compare_heads, sharpness, three_targets
    from headwise.views.trace import blur_table, sharpness_line

    if query is None:
        special = trace.labels.is_special or (False,) * len(trace.labels.queries)
        ordinary = [place for place, is_special in enumerate(special) if not is_special]
        query = ordinary[-1] if ordinary else len(special) - 1
    blur = compare_heads(trace, query)
    console.print(f"[bold]{escape(trace.title)}[/bold]: where each head looks from one token")
    console.print(blur_table(blur))
    console.print(sharpness_line(sharpness(trace)))
    console.print("\nThe textbook's case: three keys to look at, three heads or one softmax")
    console.print(blur_table(*three_targets()))


def _show_dimensions(console: "Console", *, as_json: bool) -> None:
    """The shapes of every step of the textbook's example."""
    from headwise.attention.worked_example import dimensions
    from headwise.views.trace import dimensions_table

    shapes = {heads: dimensions(4, 16, 512, heads) for heads in (4, 8)}
    if as_json:
        rows = {f"{heads} heads": [one._asdict() for one in shapes[heads]] for heads in shapes}
        typer.echo(json.dumps(rows))
        return
    for heads in shapes:
        console.print(
            f"[bold]batch 4, 16 positions, d_model 512, {heads} heads: d_key = d_value = "
            f"{512 // heads}[/bold]"
        )
        console.print(dimensions_table(shapes[heads]))
