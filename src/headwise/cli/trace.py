"""`headwise trace`: every number in one layer's attention."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from headwise.cli import options
from headwise.errors import OptionError
from headwise.formats import join_words

if TYPE_CHECKING:
    from headwise.tracing.record import Trace

SENTENCE = "The cat sat down"
Text = Annotated[
    str | None, Option(help=f"Text to read: the text itself, not a file (default: {SENTENCE}).")
]
Layer = Annotated[int | None, Option(help="Layer, counted from 0 (default: the first).")]
Stack = Annotated[
    str | None, Option(help="Stack, such as encoder, decoder or cross (default: the first).")
]
Heads = Annotated[
    str | None, Option(help='Heads, such as "L2H0 L2H3", or 0,3 with --layer (default: all).')
]
StepName = Annotated[
    str | None,
    Option(
        help="Show one step: input, queries, keys, values, scores, scaled, masked, weights, mixed, "
        "concat, Wo, contributions or output; in an example also Wq, Wk or Wv."
    ),
]
Example = Annotated[
    Literal["cat-sleeps", "dimensions"] | None,
    Option(help="Show a worked example instead of a model."),
]
CompareSingle = Annotated[
    bool, Option("--compare-single-head", help="Compare the heads' weights with their average.")
]
Query = Annotated[
    int | None, Option(help="Query token, counted from 0 (default: the last non-special one).")
]
Words = Annotated[bool, Option("--words", help="Merge the pieces of each word.")]
HideSpecial = Annotated[bool, Option("--hide-special", help="Leave out special tokens.")]
DropSink = Annotated[
    bool, Option("--drop-sink", help="Leave out the first key and rescale rows to sum to 1.")
]
HtmlFile = Annotated[
    Path | None,
    Option(
        help="Write a self-contained HTML page (by default of the layer with most to see, not the "
        "first)."
    ),
]
SvgFile = Annotated[Path | None, Option(help="Write the chosen heads' maps as one image.")]


def trace_command(  # noqa: PLR0913 - one parameter per option
    model: options.Model = "minilm",
    text: Text = None,
    image: options.Images = None,
    audio: options.Sounds = None,
    layer: Layer = None,
    stack: Stack = None,
    heads: Heads = None,
    step: StepName = None,
    example: Example = None,
    compare_single_head: CompareSingle = False,
    query: Query = None,
    words: Words = False,
    hide_special: HideSpecial = False,
    drop_sink: DropSink = False,
    html: HtmlFile = None,
    svg: SvgFile = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Show every number in one layer's attention, and what each head adds to the output."""
    if example is not None:
        loading: dict[str, object] = {"--text": text, "--revision": revision}
        loading |= {"--image": image or None, "--audio": audio or None}
        loading |= {"--dtype": dtype != "float32", "--device": device != "cpu"}
        loading |= {"--trust-remote-code": trust_remote_code, model: model != "minilm"}
        options.refuse("an example has its own model and text", loading)
    if not compare_single_head and query is not None:
        raise OptionError("--query needs --compare-single-head: give both, or omit --query")
    if " " in model and not options.is_there(model):
        raise OptionError(f"{model!r} is not a model: use --text to give a text")
    map_options = {"--words": words, "--hide-special": hide_special, "--drop-sink": drop_sink}
    if compare_single_head:
        printing = {"--json": as_json, "--step": step}
        options.refuse("--compare-single-head prints only rows", printing)
    if not (svg or html):
        options.refuse(_why_no_map(compare_single_head, as_json, step, example), map_options)
    if example == "dimensions":
        unused: dict[str, object] = {"--layer": layer, "--stack": stack, "--heads": heads}
        unused |= {"--step": step, "--compare-single-head": compare_single_head}
        unused |= {"--svg": svg, "--html": html, **map_options}
        options.refuse("the table of dimensions only shows shapes", unused)
        _print_dimensions(as_json=as_json)
        return
    from headwise.views.terminal import check_new, quiet_console, say, write_new

    files = {suffix: path for suffix, path in ((".svg", svg), (".html", html)) if path is not None}
    for suffix, path in files.items():
        check_new(path, suffix, force=force)
    choice = {"layer": layer, "stack": stack, "heads": heads}
    if example is None:
        finds = html is not None and (layer, stack, heads) == (None, None, None)
        load = (dtype, device, revision, trust_remote_code)
        media = (image, audio)
        traced, note = _trace_model(model, load, text, choice, media, finds_layer=finds)
    else:
        traced, note = _trace_example(choice), ""
    from headwise.views import trace as views
    from headwise.views.trace_page import trace_page

    if step is not None:
        traced[step]  # an unknown step raises before any file is written
    maps = traced.maps(words=words, special=not hide_special, sink=not drop_sink)
    for suffix, path in files.items():
        content = views.maps_svg(maps) if suffix == ".svg" else trace_page(traced, maps, note)
        write_new(path, content, suffix, force=force)
    console = quiet_console()
    if as_json:
        _print_json(traced, step)
        return
    if compare_single_head:
        views.print_blur(console, traced, query)
    elif step is not None:
        views.print_step(console, traced, step, maps)
    elif example is not None:
        views.print_every_step(console, traced)
    else:
        views.print_trace(console, traced, maps, shows_all=heads is not None)
    for path in files.values():
        say(console, f"wrote {path}")


def _why_no_map(compares: bool, as_json: bool, step: str | None, example: str | None) -> str:
    """Reason why the output has no map of the weights; "" if it has one."""
    if compares:
        return "--compare-single-head compares whole rows"
    if as_json:
        return "--json prints the weights unchanged"
    if step is not None and step != "weights":
        return f"--step {step} shows no map of the weights"
    if step is None and example is not None:
        return "an example is always shown in full"
    return ""


def _trace_model(
    name: str,
    loading: tuple[str, str, str | None, bool],
    text: str | None,
    choice: dict[str, Any],
    media: tuple[list[Path] | None, list[Path] | None],
    *,
    finds_layer: bool,
) -> tuple["Trace", str]:
    """The trace, and a sentence on the choice of the layer if it was not the user's."""
    from headwise.models.loading import LoadOptions, load_model
    from headwise.tracing.busiest_layer import busiest_layer
    from headwise.tracing.trace import LayerChoice, trace

    has_media = any(media)
    load = LoadOptions(*loading, keeps_head=has_media)
    LayerChoice.parse(**choice)  # report mistakes before loading the model
    options.check_sentence(text)
    loaded = load_model(name, load)
    inputs = options.media_of(loaded, *media, None if text is None else [text])
    if inputs is not None:
        if len(inputs) > 1:
            raise OptionError("a trace shows one input: give one --image or one --audio")
        return trace(loaded, inputs[0], **choice), ""
    text = SENTENCE if text is None else text
    if not finds_layer:
        return trace(loaded, text, **choice), ""
    busiest = busiest_layer(loaded, text)
    note = (
        f"Of {busiest.layers} layers, this one has most links of 30% or more between words: "
        f"{busiest.links}. --layer and --heads choose others."
    )
    traced = trace(loaded, text, layer=busiest.layer, stack=busiest.stack)
    return traced, note if busiest.layers > 1 else ""


def _trace_example(choice_options: dict[str, Any]) -> "Trace":
    from headwise.attention.worked_example import cat_sleeps
    from headwise.tracing.layer_trace import trace_layer
    from headwise.tracing.trace import LayerChoice

    choice = LayerChoice.parse(**choice_options)
    if choice.layer or choice.stack:
        raise OptionError("the example has one layer: leave out --layer and --stack")
    worked = cat_sleeps()
    return trace_layer(worked.layer, worked.x, heads=choice.heads, tokens=worked.tokens)


def _print_json(trace: "Trace", step: str | None) -> None:
    """Print JSON; if values are left out, say on stderr of which steps, and how to print them."""
    from headwise.tracing.record import MOST_NUMBERS
    from headwise.views.terminal import quiet_console, say

    typer.echo(json.dumps(trace.to_json(None if step is None else [step])))
    names = trace.large_steps
    if step is None and names:
        say(
            quiet_console(is_stderr=True),
            f"headwise: {join_words(names)} {'has' if len(names) == 1 else 'have'} more than "
            f"{MOST_NUMBERS:,} values, which are left out: print them with --step {names[0]}",
        )


def _print_dimensions(*, as_json: bool) -> None:
    from headwise.attention.worked_example import dimensions
    from headwise.drawing.table import Table
    from headwise.views.terminal import quiet_console

    console, shapes = quiet_console(), {heads: dimensions(4, 16, 512, heads) for heads in (4, 8)}
    if as_json:
        rows = {f"{heads} heads": [step._asdict() for step in shapes[heads]] for heads in shapes}
        typer.echo(json.dumps(rows))
        return
    for heads, steps in shapes.items():
        sizes = f"{heads} heads: d_key = d_value = {512 // heads}"
        console.print(f"[bold]batch 4, 16 positions, d_model 512, {sizes}[/bold]")
        cells = [(step, str(list(shape)), axes) for step, axes, shape in steps]
        console.print(Table("", ("step", "shape", "axes"), cells).to_rich())
