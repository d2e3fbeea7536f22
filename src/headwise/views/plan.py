"""Plans in the terminal: what heads cost, for one model, for several, and for a width."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headwise.formats import format_large_count, format_size, join_words
from headwise.planning.known_models import Known
from headwise.planning.plans import LARGEST, SMALLEST, HeadChoice, Plan

NAME_WIDTH, NUMBER_WIDTH = 34, 20
"""Where there is room for it, so that tables stand below each other."""


def two_columns(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """A small table of names and numbers."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    for name, number in rows:
        table.add_row(name.ljust(NAME_WIDTH), number.rjust(NUMBER_WIDTH))
    return table


def headline(plan: Plan) -> list[str]:
    """What is planned, and where its sizes come from."""
    lines = [f"[bold]{escape(plan.name)}[/bold]: {plan.shape.words}"]
    if plan.source:
        lines.append(f"[dim]{escape(plan.source)}[/dim]")
    if plan.note:
        lines.append(f"note: {plan.note}")
    context = plan.shape.context
    if context is not None and plan.setting.length > context:
        lines.append(f"note: the model was made for at most {context:,} positions")
    return lines


def plan_tables(plan: Plan) -> list[Table]:
    """Parameters, compute and memory of one model."""
    setting, step = plan.setting, plan.decoding
    rows = [(f"{name}, a layer", f"{number:,}") for name, number in plan.parameters.items()]
    rows.append(("attention, a layer", f"{plan.layer_parameters:,}"))
    if plan.shape.num_layers > 1:
        rows.append((f"attention, {plan.shape.num_layers} layers", f"{plan.model_parameters:,}"))
    if plan.total is not None:
        share = plan.model_parameters / plan.total
        rows.append(("whole model", f"{plan.total:,}"))
        rows.append(("attention's share", f"{share:.1%}"))
    tables = [two_columns("Parameters", rows)]
    work = plan.multiply_adds
    rows = [(name, format_large_count(number)) for name, number in work.items()]
    rows.append((f"a sequence of {setting.length:,}", format_large_count(sum(work.values()))))
    rows.append(("a token, on average", format_large_count(plan.per_token)))
    tables.append(two_columns("Multiply-adds, all layers", rows))
    what = f"batch {setting.batch}, {setting.dtype}"
    rows = [
        (f"KV cache of {length:,} positions", format_size(number))
        for length, number in plan.cache_by_length.items()
        if number
    ]
    rows.append(
        (f"one layer's weights at {setting.length:,}", format_size(plan.weight_matrix_bytes))
    )
    tables.append(two_columns(f"Memory, {what}", rows))
    if step is not None:
        rows = [
            ("multiply-adds", format_large_count(step.multiply_adds)),
            ("bytes read", format_size(step.bytes_read)),
            ("operations a byte", f"{step.intensity:.2f}"),
        ]
        title = f"Decoding one token after {setting.length:,}, {what}"
        tables.append(two_columns(title, rows))
    return tables


def comparison(plans: Sequence[Plan]) -> Table:
    """Several models side by side, a row each."""
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    table.add_column("model", no_wrap=True)
    sizes = ("d_model", "heads", "KV", "d_key", "layers")
    for heading in (*sizes, "params", "share", "a token", "cache", "ops/B"):
        table.add_column(heading, justify="right", no_wrap=True)
    for plan in plans:
        shape = plan.shape
        share = "" if plan.total is None else f"{plan.model_parameters / plan.total:.0%}"
        table.add_row(
            Text(plan.name),
            f"{shape.d_model:,}",
            str(shape.num_heads),
            str(shape.num_kv_heads),
            str(shape.d_key),
            str(shape.num_layers),
            format_large_count(plan.model_parameters),
            share,
            format_large_count(plan.per_token),
            format_size(plan.cache_bytes),
            f"{plan.decoding.intensity:.2f}" if plan.decoding else "-",
        )
    return table


def choices(found: Sequence[HeadChoice]) -> Table:
    """Every head count of a width; parameters and weights are those of all layers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in ("heads", "d_key", "parameters", "scores", "weights"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("remarks")
    for choice in found:
        work = choice.plan.multiply_adds
        table.add_row(
            str(choice.num_heads),
            str(choice.d_key),
            f"{choice.plan.model_parameters:,}",
            format_large_count(work["scores"]),
            format_size(choice.plan.weight_matrix_bytes * choice.plan.shape.num_layers),
            "; ".join(choice.remarks),
        )
    return table


def usual_choices(found: Sequence[HeadChoice]) -> str:
    """Which head counts give heads of the size that published models have."""
    usual = [str(one.num_heads) for one in found if SMALLEST <= one.d_key <= LARGEST]
    sizes = f"{SMALLEST} to {LARGEST} dimensions"
    if not usual:
        return f"No number of heads gives {sizes} each, as nearly all published models have."
    heads, each = ("head", "it") if usual == ["1"] else ("heads", "each")
    counts = join_words(usual, "or")
    return f"With {counts} {heads}, {each} has {sizes}, as in nearly all published models."


def known_choices(found: Sequence[HeadChoice]) -> str:
    """Which head counts known models of about that width have; empty if there are none."""
    groups = [
        f"{choice.num_heads} heads ({', '.join(choice.as_in)})" for choice in found if choice.as_in
    ]
    return f"Known models of about this width have {', '.join(groups)}." if groups else ""


def known_models(rows: Iterable[Known]) -> list[str]:
    """The known models with their sources, two lines each."""
    lines = []
    for one in rows:
        lines.append(f"[bold]{one.name:<14}[/bold]{one.shape.words}")
        lines.append(f"{'':<14}[dim]{one.source}[/dim]")
    return lines
