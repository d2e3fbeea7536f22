"""`headwise plan`: what heads cost. Arithmetic alone; torch is never imported."""

import csv
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from headwise.cli.options import AsJson
from headwise.errors import OptionError
from headwise.views.terminal import quiet_console, show_table

if TYPE_CHECKING:
    from headwise.planning.plans import Plan
    from headwise.planning.shapes import Shape


class WithDefault(TyperGroup):
    """A group whose first command is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the first command's name before what names none."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

    @property
    def default(self) -> Any:
        """The command that is meant."""
        return next(iter(self.commands.values()))


app = typer.Typer(
    cls=WithDefault,
    no_args_is_help=True,
    help="Say what heads cost: headwise plan MODEL, or sizes such as 768/12x12.\n\n"
    "headwise plan show --help lists every option: --d-model, --heads, --layers and more.",
)

Model = Annotated[
    str | None,
    typer.Argument(
        help="A known model, sizes (768/12x12: width, heads, layers; 4096/32:8 has 8 KV heads), a "
        "directory with a config.json, or a hub's id."
    ),
]
Models = Annotated[list[str], typer.Argument(help="Two or more, each as headwise plan takes it.")]
DModel = Annotated[int | None, typer.Option(help="Width of the model.")]
Heads = Annotated[int | None, typer.Option(help="Query heads.")]
KvHeads = Annotated[int | None, typer.Option(help="KV heads (default: as many as heads).")]
DKey = Annotated[int | None, typer.Option(help="Size of a head's keys (default: d_model / heads).")]
DValue = Annotated[int | None, typer.Option(help="Size of a head's values (default: d_key).")]
Layers = Annotated[int | None, typer.Option(help="Layers (default: 1).", show_default=False)]
Window = Annotated[int | None, typer.Option(help="Keys that a query sees (default: all).")]
Length = Annotated[
    int | None,
    typer.Option(
        help="Positions of a sequence (default: the context, at most 8,192; for sizes 1,024)."
    ),
]
Batch = Annotated[int, typer.Option(help="Sequences at once.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16, float8 or int8.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]


@app.command("show")
def show(  # noqa: PLR0913 - one parameter an option
    model: Model = None,
    d_model: DModel = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    d_key: DKey = None,
    d_value: DValue = None,
    layers: Layers = None,
    window: Window = None,
    length: Length = None,
    batch: Batch = 1,
    dtype: Dtype = "bfloat16",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """What one model's heads cost; the word show may be left out."""
    from headwise.planning.plans import plan

    sizes = {"d_model": d_model, "num_heads": heads, "num_kv_heads": kv_heads, "d_key": d_key}
    sizes |= {"d_value": d_value, "num_layers": layers, "window": window}
    given = {name: value for name, value in sizes.items() if value is not None}
    if model is not None and given:
        option = OPTIONS.get(first := next(iter(given)), f"--{first.replace('_', '-')}")
        raise OptionError(f"{model} has its own sizes: leave {option} or the model's name out")
    shape = shape_of(given) if model is None else None
    found = plan(model, shape=shape, length=length, batch=batch, dtype=dtype)
    if not printed([found], as_json=as_json, as_csv=as_csv):
        print_plan(found)


OPTIONS = {"num_heads": "--heads", "num_kv_heads": "--kv-heads", "num_layers": "--layers"}
"""Options with other names than the sizes that they give."""


def shape_of(sizes: dict[str, int]) -> "Shape":
    """The shape of sizes that were given as options."""
    from headwise.planning.shapes import make_shape

    if "d_model" not in sizes:
        raise OptionError("--d-model is missing: name a model, or give --d-model and --heads")
    if "num_heads" not in sizes:
        raise OptionError(
            "--heads is missing: give it, or see the choices with headwise plan heads "
            f"{sizes['d_model']}"
        )
    return make_shape(**sizes)


@app.command("compare")
def compare(
    models: Models,
    length: Annotated[
        int | None,
        typer.Option(
            help="Positions of a sequence (default: the smallest context, at most 8,192)."
        ),
    ] = None,
    batch: Batch = 1,
    dtype: Dtype = "bfloat16",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Several models side by side."""
    from headwise.planning.plans import plan

    if len(models) < 2:
        raise OptionError(f"{models[0]} alone cannot be compared: name two models or more")
    if length is None:
        length = min(plan(model).setting.length for model in models)
    found = [plan(model, length=length, batch=batch, dtype=dtype) for model in models]
    if printed(found, as_json=as_json, as_csv=as_csv):
        return
    from headwise.views.plan import comparison

    screen = quiet_console()
    screen.print(f"At {length:,} tokens, batch {batch}, {dtype}:")
    show_table(screen, comparison(found))
    screen.print(
        "params: of the attention of all layers. share: of the whole model. a token: "
        "multiply-adds of attention, on average. ops/B: operations for each byte read when "
        "decoding a token."
    )


@app.command("heads")
def heads(
    width: Annotated[
        int | None, typer.Argument(help="Width to divide among heads, as --d-model.")
    ] = None,
    d_model: Annotated[int | None, typer.Option(help="Width to divide among heads.")] = None,
    length: Annotated[int, typer.Option(help="Positions of a sequence.")] = 1024,
    layers: Annotated[int, typer.Option(help="Layers that figures are summed over.")] = 1,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Every number of heads that divides a width, and what speaks against each."""
    from headwise.planning.plans import head_choices

    widths = [one for one in (width, d_model) if one is not None]
    if len(widths) != 1:
        raise OptionError(
            "give the width to divide among heads once, as in headwise plan heads 768"
        )
    shared = widths[0]
    found = head_choices(shared, length=length, num_layers=layers)
    notes = [
        {"remarks": "; ".join(choice.remarks), "as_in": ", ".join(choice.as_in)} for choice in found
    ]
    if printed([choice.plan for choice in found], as_json=as_json, as_csv=as_csv, notes=notes):
        return
    from headwise.views.plan import choices, known_choices, usual_choices

    screen = quiet_console()
    summed = "one layer" if layers == 1 else f"{layers:,} layers together"
    screen.print(f"d_model {shared:,}, {summed}, one causal sequence of {length:,} tokens")
    show_table(screen, choices(found))
    for line in filter(None, (usual_choices(found), known_choices(found))):
        screen.print(line)
    screen.print(
        "Every row costs the same parameters and multiply-adds; what grows is the memory for "
        "materialised weights, which fused kernels avoid. Rank: the scores of a head have a rank "
        "of at most d_key (https://arxiv.org/abs/2002.07028). headwise sweep finds out by "
        "experiment what one head cannot do, and when heads are too thin."
    )


@app.command("models")
def models(as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """The known models, with their sources."""
    from headwise.planning.known_models import KNOWN
    from headwise.planning.plans import plan

    if printed([plan(name) for name in KNOWN], as_json=as_json, as_csv=as_csv):
        return
    from headwise.views.plan import known_models

    screen = quiet_console()
    for line in known_models(KNOWN.values()):
        screen.print(line)


def printed(
    plans: Sequence["Plan"],
    *,
    as_json: bool,
    as_csv: bool,
    notes: Sequence[dict[str, str]] = (),
) -> bool:
    """Print the plans for programs, if that was asked for."""
    if as_json and as_csv:
        raise OptionError("--json and --csv are two formats: give one of them")
    rows = [plan.to_json() if as_json else plan.to_row() for plan in plans]
    for row, more in zip(rows, notes, strict=False):
        row |= more
    if as_json:
        typer.echo(json.dumps(rows[0] if len(rows) == 1 else rows, indent=1))
    if as_csv:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return as_json or as_csv


def print_plan(plan: "Plan") -> None:
    """Print one plan for people."""
    from headwise.views.plan import headline, plan_tables

    screen = quiet_console()
    for line in headline(plan):
        screen.print(line)
    for table in plan_tables(plan):
        screen.print()
        show_table(screen, table)
