"""Plans as tables and sentences: one model, several models, and the head counts for a width."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from headwise.drawing.table import Table
from headwise.formats import format_large_count, format_size, join_words
from headwise.planning.plans import LARGEST, SMALLEST, HeadChoice, Plan
from headwise.views.terminal import show_table

NAME_WIDTH, NUMBER_WIDTH = 34, 20
"""Same widths in every table of a plan, so that the columns line up."""

COMPARISON_LEGEND = (
    "params: attention parameters in all layers. share: their share of the whole model. per token: "
    "mean multiply-adds of attention. ops/B: operations per byte read when decoding a token."
)
CHOICES_LEGEND = (
    "Every row has the same parameters and multiply-adds; only the memory for materialised "
    "weights grows, and fused kernels do not materialise them.",
    "Rank: the scores of a head have a rank of at most d_key (https://arxiv.org/abs/2002.07028).",
    "headwise sweep tests what one head cannot do, and when heads are too thin.",
)


def print_plan(console: Console, plan: Plan) -> None:
    """Print the name, sizes, source and notes of a plan, then its numbers in tables."""
    console.print(f"[bold]{escape(plan.name)}[/bold]: {plan.shape.summary}")
    if plan.source:
        console.print(f"[dim]{escape(plan.source)}[/dim]")
    if plan.note:
        console.print(f"note: {escape(plan.note)}")
    context = plan.shape.context
    if context is not None and plan.workload.length > context:
        console.print(f"note: the model was made for at most {context:,} positions")
    for title, numbers in _numbers(plan).items():
        rows = [
            (name.ljust(NAME_WIDTH), number.rjust(NUMBER_WIDTH)) for name, number in numbers.items()
        ]
        table = Table(title, ("", "number"), rows, ["number"]).to_rich(is_ruled=False)
        table.show_header = False
        console.print()
        show_table(console, table)


def _numbers(plan: Plan) -> dict[str, dict[str, str]]:
    """Parameters, compute and memory of one model, by table title."""
    workload, work, step = plan.workload, plan.multiply_adds, plan.decoding
    parameters = {f"{name}, per layer": f"{count:,}" for name, count in plan.parameters.items()}
    parameters["attention, per layer"] = f"{plan.layer_parameters:,}"
    if plan.shape.num_layers > 1:
        parameters[f"attention, {plan.shape.num_layers} layers"] = f"{plan.model_parameters:,}"
    if plan.total is not None:
        parameters["whole model"] = f"{plan.total:,}"
        parameters["attention's share"] = f"{plan.model_parameters / plan.total:.1%}"
    compute = {
        **work,
        f"one sequence of {workload.length:,}": sum(work.values()),
        "per token, on average": plan.per_token,
    }
    memory = {
        f"KV cache of {length:,} positions": format_size(size)
        for length, size in plan.cache_by_length.items()
        if size
    }
    memory[f"one layer's weights at {workload.length:,}"] = format_size(plan.weight_matrix_bytes)
    conditions = f"batch {workload.batch}, {workload.dtype}"
    sections = {
        "Parameters": parameters,
        "Multiply-adds, all layers": {
            name: format_large_count(number) for name, number in compute.items()
        },
        f"Memory, {conditions}": memory,
    }
    if step is not None:
        sections[f"Decoding one token after {workload.length:,}, {conditions}"] = {
            "multiply-adds": format_large_count(step.multiply_adds),
            "bytes read": format_size(step.bytes_read),
            "operations per byte": f"{step.intensity:.2f}",
        }
    return sections


def comparison(plans: Sequence[Plan]) -> RichTable:
    """Several models side by side, one row per model."""
    numbers = ("d_model", "heads", "KV", "d_key", "layers", "params", "share", "per token", "cache")
    columns = ("model", *numbers, "ops/B")
    rows = [
        (
            plan.name,
            f"{plan.shape.d_model:,}",
            str(plan.shape.num_heads),
            str(plan.shape.num_kv_heads),
            str(plan.shape.d_key),
            str(plan.shape.num_layers),
            format_large_count(plan.model_parameters),
            "" if plan.total is None else f"{plan.model_parameters / plan.total:.0%}",
            format_large_count(plan.per_token),
            format_size(plan.cache_bytes),
            f"{plan.decoding.intensity:.2f}" if plan.decoding else "-",
        )
        for plan in plans
    ]
    table = Table("", columns, rows, columns[1:]).to_rich(is_ruled=False)
    table.collapse_padding = True  # to fit 80 columns
    table.columns[0].no_wrap = True
    return table


def choices_table(choices: Sequence[HeadChoice]) -> Table:
    """Every head count for a width; parameters and weights are totals over all layers."""
    rows = [
        (
            str(choice.num_heads),
            str(choice.d_key),
            f"{choice.plan.model_parameters:,}",
            format_large_count(choice.plan.multiply_adds["scores"]),
            format_size(choice.plan.weight_matrix_bytes * choice.plan.shape.num_layers),
            "; ".join(choice.remarks),
        )
        for choice in choices
    ]
    numbers = ("heads", "d_key", "parameters", "scores", "weights")
    return Table("", (*numbers, "remarks"), rows, numbers)


def choice_notes(choices: Sequence[HeadChoice]) -> list[str]:
    """Sentences about the head counts of published models at this width, and a legend."""
    usual = [str(choice.num_heads) for choice in choices if SMALLEST <= choice.d_key <= LARGEST]
    sizes = f"{SMALLEST} to {LARGEST} dimensions"
    notes = [f"No number of heads gives {sizes} each, as in nearly all published models."]
    if usual:
        heads, each = ("head", "it") if usual == ["1"] else ("heads", "each")
        counts = join_words(usual, "or")
        notes = [f"With {counts} {heads}, {each} has {sizes}, as in nearly all published models."]
    known = [
        f"{choice.num_heads} heads ({', '.join(choice.as_in)})"
        for choice in choices
        if choice.as_in
    ]
    if known:
        notes.append(f"Known models of about this width have {', '.join(known)}.")
    return [*notes, *CHOICES_LEGEND]
