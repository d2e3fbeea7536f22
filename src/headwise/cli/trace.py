"""`headwise trace`: every number of one layer's attention."""

import json
from enum import StrEnum
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
    check_sentence,
    is_there,
    refuse,
    without_head,
)
from headwise.errors import OptionError
from headwise.formats import join_words
from headwise.views.terminal import check_new, quiet_console, say, show_table, write_new

if TYPE_CHECKING:
    from rich.console import Console

    from headwise.models.loading import LoadOptions
    from headwise.tracing.maps import Maps
    from headwise.tracing.record import Trace
    from headwise.tracing.trace import Chosen


SENTENCE = "The cat sat down"


class Example(StrEnum):
    """What can be followed without a model."""

    cat_sleeps = "cat-sleeps"
    dimensions = "dimensions"


Text = Annotated[
    str | None, typer.Option(help=f"What the model reads, not a file (default: {SENTENCE}).")
]
Layer = Annotated[
    int | None, typer.Option(help="Which layer, counted from 0 (default: the first).")
]
Stack = Annotated[
    str | None, typer.Option(help="encoder, decoder, cross ... (default: the first).")
]
Heads = Annotated[
    str | None,
    typer.Option(help='Which heads: "L2H0 L2H3", or 0,3 of --layer (default: all).'),
]
StepName = Annotated[
    str | None,
    typer.Option(
        "--step",
        help="Show one step: input, queries, keys, values, scores, scaled, masked, weights, mixed, "
        "concat, Wo, contributions or output; of an example also Wq, Wk or Wv.",
    ),
]
ExampleName = Annotated[Example | None, typer.Option(help="A worked example instead of a model.")]
CompareSingle = Annotated[
    bool,
    typer.Option("--compare-single-head", help="Compare the heads' rows with their average."),
]
Query = Annotated[
    int | None, typer.Option(help="Token whose rows are compared (default: the last ordinary one).")
]
Words = Annotated[bool, typer.Option("--words", help="Merge the pieces of a word.")]
HideSpecial = Annotated[bool, typer.Option("--hide-special", help="Leave special tokens out.")]
DropSink = Annotated[
    bool, typer.Option("--drop-sink", help="Leave the first key out; rows sum to 1 again.")
]
Html = Annotated[Path | None, typer.Option(help="Write a page that needs no other file.")]
Svg = Annotated[Path | None, typer.Option(help="Write the chosen heads' maps as one image.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there already.")]


def trace_command(  # noqa: PLR0913 - one parameter an option
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
    html: Html = None,
    svg: Svg = None,
    force: Force = False,
    as_json: AsJson = False,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Show every number of one layer's attention, and what each head adds to its output."""
    console = quiet_console()
    if example is not None:
        given = {"--text": text, model: model != "minilm", "--dtype": dtype != "float32"}
        given |= {"--device": device != "cpu", "--revision": revision}
        given |= {"--trust-remote-code": trust_remote_code}
        refuse("an example has a model and a text of its own", given)
    if not compare_single_head and query is not None:
        raise OptionError(
            "--query goes with --compare-single-head: give both, or leave --query out"
        )
    if " " in model and not is_there(model):
        raise OptionError(f"{model!r} is not a model: give a text with --text")
    looks = {"--words": words, "--hide-special": hide_special, "--drop-sink": drop_sink}
    if compare_single_head:
        refuse("--compare-single-head prints rows of its own", {"--json": as_json, "--step": step})
    if not (svg or html):
        refuse(why_no_map(compare_single_head, as_json, step, example), looks)
    if example is Example.dimensions:
        place = {"--layer": layer, "--stack": stack, "--heads": heads, "--step": step}
        shown = {"--compare-single-head": compare_single_head, "--svg": svg, "--html": html}
        refuse("the table of dimensions shows shapes only", {**place, **shown, **looks})
        show_dimensions(console, as_json=as_json)
        return
    files = [(svg, ".svg", svg_of), (html, ".html", html_of)]
    for path, ending, _ in files:
        if path is not None:
            check_new(path, ending, force=force)
    from headwise.tracing.trace import chosen_of

    chosen = chosen_of(layer, stack, heads, dashes="--")
    if example is not None:
        found = traced_example(chosen)
    else:
        options = without_head(dtype, device, revision, trust_remote_code)
        found = traced(model, options, text, chosen)
    if step is not None:
        found[step]  # what is not there is refused before anything is written
    maps = found.maps(words=words, special=not hide_special, sink=not drop_sink)
    for path, ending, write in files:
        if path is not None:
            write_new(path, write(found, maps), ending, force=force)
    if as_json:
        typer.echo(json.dumps(found.to_json(None if step is None else [step])))
        if step is None:
            tell_of_large(found)
    elif compare_single_head:
        show_blurring(console, found, query)
    elif step is not None:
        show_step(console, found, step, maps)
    elif example is not None:
        show_everything(console, found)
    else:
        show_trace(console, found, maps, all_heads=heads is not None)
    for path in (svg, html):
        if path is not None and not as_json:
            say(console, f"wrote {path}")


def why_no_map(compares: bool, as_json: bool, step: str | None, example: Example | None) -> str:
    """Why what is printed holds no map of weights; "" if it does."""
    if compares:
        return "--compare-single-head compares whole rows"
    if as_json:
        return "--json holds every weight as it is"
    if step is not None and step != "weights":
        return f"--step {step} shows no map of the weights"
    if step is None and example is not None:
        return "an example is shown whole"
    return ""


def traced_example(place: "Chosen") -> "Trace":
    """The worked example."""
    from headwise.attention.worked_example import cat_sleeps
    from headwise.tracing.layer_trace import trace_layer

    if place.layer or place.stack:
        raise OptionError("the example has one layer: leave --layer and --stack out")
    worked = cat_sleeps()
    return trace_layer(worked.layer, worked.x, heads=place.heads, tokens=worked.tokens)


def traced(model: str, options: "LoadOptions", text: str | None, place: "Chosen") -> "Trace":
    """One layer of a model on a text."""
    check_sentence(text)
    text = SENTENCE if text is None else text
    from headwise.models.loading import load_model
    from headwise.tracing.trace import trace

    return trace(load_model(model, options), text, **place._asdict())


def tell_of_large(trace: "Trace") -> None:
    """Say on stderr which steps JSON has no values of, and how to get them."""
    from headwise.tracing.record import MOST_NUMBERS

    names = trace.large_steps
    if names:
        steps = "a step" if len(names) == 1 else "steps"
        say(
            quiet_console(is_stderr=True),
            f"headwise: values of {join_words(names)} are left out, {steps} of more than "
            f"{MOST_NUMBERS:,} numbers: --step {names[0]} prints them",
        )


def svg_of(_: "Trace", maps: "Maps") -> str:
    """The maps as an image."""
    from headwise.views.trace import maps_svg

    return maps_svg(maps)


def html_of(trace: "Trace", maps: "Maps") -> str:
    """The trace as a page."""
    from headwise.views.trace import trace_page

    return trace_page(trace, maps)


def show_trace(console: "Console", trace: "Trace", maps: "Maps", *, all_heads: bool) -> None:
    """Steps, weights of some heads, contributions."""
    from rich.markup import escape

    from headwise.tracing.record import closing_lines
    from headwise.views.trace import (
        SHOWN_HEADS,
        contributions_table,
        map_tables,
        shares_table,
        steps_table,
    )

    console.print(f"[bold]{escape(trace.title)}[/bold]")
    console.print(steps_table(trace))
    if not all_heads and len(maps.heads) > SHOWN_HEADS:
        console.print(
            f"Weights of {SHOWN_HEADS} of {len(maps.heads)} heads; --heads chooses others."
        )
        maps = maps.first(SHOWN_HEADS)
    console.print(map_tables(maps))
    console.print("What each head adds to the output:")
    console.print(contributions_table(trace))
    console.print("Each head's share of some columns, before Wo (concat) and after it (out):")
    show_table(console, shares_table(trace))
    for line in closing_lines(trace):
        console.print(line)


def show_step(console: "Console", trace: "Trace", name: str, maps: "Maps") -> None:
    """The values of one step."""
    from rich.markup import escape

    from headwise.views.trace import map_tables, step_matrices

    step = trace[name]
    console.print(f"[bold]{escape(trace.title)}[/bold], {name}: {step.formula}", end="  ")
    console.print(step.shape, markup=False)
    if name == "weights":
        console.print(map_tables(maps))
        return
    for one in step_matrices(trace, step):
        console.print(one)


def show_everything(console: "Console", trace: "Trace") -> None:
    """Every step in full: for examples small enough to be followed by hand."""
    from rich.columns import Columns
    from rich.markup import escape

    from headwise.tracing.record import closing_lines
    from headwise.views.trace import shares_table, step_matrices

    console.print(f"[bold]{escape(' '.join(trace.labels.queries))}[/bold], {escape(trace.title)}")
    for step in trace.steps.values():
        console.rule(f"{step.name}: {step.formula}", align="left")
        console.print(step.shape, markup=False)
        console.print(Columns(step_matrices(trace, step)))
    console.rule("heads before and after Wo", align="left")
    show_table(console, shares_table(trace))
    for line in closing_lines(trace):
        console.print(line)


def show_blurring(console: "Console", trace: "Trace", query: int | None) -> None:
    """The heads' rows beside the one row that an average of them would be."""
    from rich.markup import escape

    from headwise.tracing.blur import blur_of, sharpness, three_targets
    from headwise.views.trace import blur_table, sharpness_line

    if query is None:
        special = trace.labels.is_special or (False,) * len(trace.labels.queries)
        ordinary = [place for place, is_special in enumerate(special) if not is_special]
        query = ordinary[-1] if ordinary else len(special) - 1
    blur = blur_of(trace, query)
    console.print(f"[bold]{escape(trace.title)}[/bold]: where each head looks from one token")
    console.print(blur_table(blur))
    console.print(sharpness_line(sharpness(trace)))
    console.print("\nThe textbook's case: three keys to look at, three heads or one softmax")
    three, together = three_targets()
    console.print(blur_table(three, together))


def show_dimensions(console: "Console", *, as_json: bool) -> None:
    """The shapes of every step of the textbook's example."""
    from headwise.attention.worked_example import dimensions
    from headwise.views.trace import dimensions_table

    found = {heads: dimensions(4, 16, 512, heads) for heads in (4, 8)}
    if as_json:
        plain = {f"{heads} heads": [one._asdict() for one in found[heads]] for heads in found}
        typer.echo(json.dumps(plain))
        return
    for heads, shapes in found.items():
        console.print(
            f"[bold]batch 4, 16 positions, d_model 512, {heads} heads: d_key = d_value = "
            f"{512 // heads}[/bold]"
        )
        console.print(dimensions_table(shapes))
