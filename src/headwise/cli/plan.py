"""`headwise plan`: what heads cost. It only does arithmetic and never imports torch."""

import csv
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from headwise.cli import options
from headwise.errors import OptionError

if TYPE_CHECKING:
    from headwise.planning.plans import Plan


class WithDefault(TyperGroup):
    """A command group that runs its first command if none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the first command's name if `args` does not start with a command."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=WithDefault,
    no_args_is_help=True,
    help="Show what heads cost: headwise plan MODEL. MODEL may be sizes such as 768/12x12.\n\n"
    "headwise plan show --help lists every option: --d-model, --heads, --layers and more.",
)

Model = Annotated[
    str | None,
    Argument(
        help="A known model, sizes (768/12x12: width 768, 12 heads, 12 layers; 4096/32:8: 8 KV "
        "heads), a directory with a config.json, or a hub id."
    ),
]
Models = Annotated[list[str], Argument(help="Two or more models, as in headwise plan.")]
DModel = Annotated[int | None, Option(help="Width of the model.")]
Heads = Annotated[int | None, Option(help="Number of query heads.")]
KvHeads = Annotated[int | None, Option(help="Number of KV heads (default: --heads).")]
DKey = Annotated[int | None, Option(help="Size of a head's keys (default: d_model / heads).")]
DValue = Annotated[int | None, Option(help="Size of a head's values (default: d_key).")]
Layers = Annotated[int | None, Option(help="Number of layers (default: 1).", show_default=False)]
Window = Annotated[int | None, Option(help="Number of keys that each query sees (default: all).")]
Length = Annotated[
    int | None,
    Option(
        help="Sequence length in tokens (default: the model's context, at most 8,192; 1,024 if "
        "you give sizes)."
    ),
]
CompareLength = Annotated[
    int | None,
    Option(help="Sequence length in tokens (default: the smallest context, at most 8,192)."),
]
Batch = Annotated[int, Option(help="Sequences per batch.")]
Dtype = Annotated[str, Option(help="float32, bfloat16, float16, float8 or int8.")]
AsCsv = Annotated[bool, Option("--csv", help="Print CSV.")]


@app.command("show")
def show_command(  # noqa: PLR0913 - one parameter per option
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
    as_json: options.AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show what one model's heads cost; the word "show" is optional."""
    from headwise.planning.plans import plan
    from headwise.planning.shapes import make_shape

    sizes = {"--d-model": d_model, "--heads": heads, "--kv-heads": kv_heads, "--d-key": d_key}
    sizes |= {"--d-value": d_value, "--layers": layers, "--window": window}
    shape = None
    if model is not None:
        options.refuse(f"{model} has its own sizes", sizes)
    if model is None:
        if d_model is None:
            raise OptionError("--d-model is missing: name a model, or give --d-model and --heads")
        if heads is None:
            raise OptionError(
                f"--heads is missing: headwise plan heads {d_model} lists the choices"
            )
        shape = make_shape(
            d_model=d_model,
            num_heads=heads,
            num_kv_heads=kv_heads,
            d_key=d_key,
            d_value=d_value,
            num_layers=1 if layers is None else layers,
            window=window,
        )
    costs = plan(model, shape=shape, length=length, batch=batch, dtype=dtype)
    if _print_rows([costs], as_json=as_json, as_csv=as_csv):
        return
    from headwise.views.plan import print_plan
    from headwise.views.terminal import quiet_console

    print_plan(quiet_console(), costs)


@app.command("compare")
def compare_plans_command(
    models: Models,
    length: CompareLength = None,
    batch: Batch = 1,
    dtype: Dtype = "bfloat16",
    as_json: options.AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Compare several models."""
    from headwise.planning.plans import plan

    if len(models) < 2:
        raise OptionError(f"only {models[0]} is named: name two or more models to compare")
    if length is None:
        length = min(plan(model).workload.length for model in models)
    plans = [plan(model, length=length, batch=batch, dtype=dtype) for model in models]
    if _print_rows(plans, as_json=as_json, as_csv=as_csv):
        return
    from headwise.views.plan import COMPARISON_LEGEND, comparison
    from headwise.views.terminal import quiet_console, show_table

    console = quiet_console()
    console.print(f"At {length:,} tokens, batch {batch}, {dtype}:")
    show_table(console, comparison(plans))
    console.print(COMPARISON_LEGEND)


@app.command("heads")
def heads_command(
    width: Annotated[
        int | None, Argument(help="Width to divide among heads, same as --d-model.")
    ] = None,
    d_model: Annotated[int | None, Option(help="Width to divide among heads.")] = None,
    length: Annotated[int, Option(help="Sequence length in tokens.")] = 1024,
    layers: Annotated[int, Option(help="Number of layers to sum the costs over.")] = 1,
    as_json: options.AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List every number of heads that divides a width, with the drawbacks of each."""
    from headwise.planning.plans import head_choices

    widths = [value for value in (width, d_model) if value is not None]
    if len(widths) != 1:
        raise OptionError(
            "give the width to divide among heads once, as in headwise plan heads 768"
        )
    choices = head_choices(widths[0], length=length, num_layers=layers)
    notes = [
        {"remarks": "; ".join(choice.remarks), "as_in": ", ".join(choice.as_in)}
        for choice in choices
    ]
    plans = [choice.plan for choice in choices]
    if _print_rows(plans, as_json=as_json, as_csv=as_csv, notes=notes):
        return
    from headwise.views.plan import choice_notes, choices_table
    from headwise.views.terminal import quiet_console, show_table

    console = quiet_console()
    scope = "one layer" if layers == 1 else f"{layers:,} layers together"
    console.print(f"d_model {widths[0]:,}, {scope}, one causal sequence of {length:,} tokens")
    show_table(console, choices_table(choices))
    console.print(*choice_notes(choices), sep="\n")


@app.command("models")
def models_command(as_json: options.AsJson = False, as_csv: AsCsv = False) -> None:
    """List the known models with their sources."""
    from headwise.planning.known_models import KNOWN
    from headwise.planning.plans import plan

    if _print_rows([plan(name) for name in KNOWN], as_json=as_json, as_csv=as_csv):
        return
    from headwise.views.terminal import quiet_console

    console = quiet_console()
    for model in KNOWN.values():
        console.print(f"[bold]{model.name:<14}[/bold]{model.shape.summary}")
        console.print(f"{'':<14}[dim]{model.source}[/dim]")


def _print_rows(
    plans: Sequence["Plan"], *, as_json: bool, as_csv: bool, notes: Sequence[dict[str, str]] = ()
) -> bool:
    """If requested, print plans as JSON or CSV and return True; `notes` are extra columns."""
    if as_json and as_csv:
        raise OptionError("--json and --csv are both given: choose one of them")
    rows = [plan.to_json() if as_json else plan.to_row() for plan in plans]
    for row, note in zip(rows, notes, strict=False):
        row |= note
    if as_json:
        typer.echo(json.dumps(rows[0] if len(rows) == 1 else rows, indent=1))
    if as_csv:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return as_json or as_csv
