"""A PatchResult for the terminal and for the report: a grid, the strongest heads, remarks."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from rich.console import Group
from rich.text import Text

from headwise.drawing.table import Table
from headwise.formats import format_count, join_words
from headwise.patching.result import PatchResult
from headwise.views.heads import NONE, cell_grid

MOST_HEADS = 10
"""Number of heads or senders in a table."""
EXACT = {"patch_denoise": "denoising", "patch_noise": "noising"}
ESTIMATES = {"attribution": "estimate", "attribution_steps": "steps", "attribution_drops": "drops"}
OTHERS = {"control": "control", "direct_logit": "direct"}
TITLES = {**EXACT, **ESTIMATES, **OTHERS}
"""Titles of the columns of a result."""
ESTIMATE_NAMES = {
    "attribution": "The estimate",
    "attribution_steps": "The estimate with steps",
    "attribution_drops": "The estimate with drops",
}
RANKED_BY = {
    **EXACT,
    "attribution": "estimate",
    "attribution_steps": "estimate with steps",
    "attribution_drops": "estimate with drops",
    "direct_logit": "direct, in logits",
}
"""The column that ranks the heads, in words."""
SMALLEST_TENTHS, SMALLEST_SIGN = 0.1, 0.02
"""Shares of the largest effect from which a cell has a number, and from which it has a sign."""
PARTS = {
    "pattern": "Patched: only where each head looks.",
    "value": "Patched: only the values that each head carries.",
}
INPUTS = {"query": "queries", "key": "keys", "value": "values"}


def patch_summary(result: PatchResult) -> list[str]:
    """The model, an example of the prompts, and the metric of both runs."""
    about = result.table.about
    example = about["examples"][0]
    lines = [
        f"{about['model']}, {format_count(about['pairs'], 'pair')} of prompts",
        f"clean:     {example['clean']!r}{_answer(example['answer'])}",
        f"corrupted: {example['corrupted']!r}{_answer(example['instead'])}",
    ]
    if about["pairs"] > 1:
        lines[0] += ", such as"
    metric, unit = about["metric"].replace("-", " "), about["unit"]
    after = f" {unit}" if unit not in metric else ""
    lines.append(
        f"{metric[0].upper()}{metric[1:]}: {about['clean']:z.3f} in the clean run, "
        f"{about['corrupted']:z.3f} in the corrupted run; the difference is "
        f"{about['difference']:z.3f}{after}."
    )
    if about["part"] in PARTS:
        lines.append(PARTS[about["part"]])
    if about["positions"] is not None:
        noun = "position" if len(about["positions"]) == 1 else "positions"
        lines.append(f"Patched: only {noun} {join_words(list(map(str, about['positions'])))}.")
    return lines


def _answer(word: str) -> str:
    return f" -> {word!r}" if word else ""


def effect_grids(result: PatchResult) -> Group:
    """A grid per stack: a row per layer, a column per head, the sign and size of each effect."""
    table, column = result.table, result.ranked_by
    values = dict(zip(table.heads, table.df[column].tolist(), strict=True))
    measured = [head for head, value in values.items() if not math.isnan(value)]
    strongest = max(measured or values, key=lambda head: abs(values[head]))
    largest = abs(values[strongest])
    parts: list[Any] = [Text(f"Effect of each head ({RANKED_BY[column]})", style="bold")]
    for stack in table.stacks:
        cells = {
            (head.layer, head.head): _cell(value / (largest or 1.0))
            for head, value in values.items()
            if head.stack == stack
        }
        parts += [Text(stack, style="bold")] if stack else []
        parts.append(cell_grid(cells))
    parts.append(
        Text(
            f"1 to 9: tenths of the largest effect, {_text(values[strongest], column)} of "
            f"{strongest}; + or -: less than a tenth; {NONE}: under {SMALLEST_SIGN:.0%} of it"
            f"{'' if len(measured) == len(values) else '; blank: not patched'}"
        )
    )
    return Group(*parts)


def _cell(share: float) -> Text:
    """The sign and size of an effect that is this share of the largest, -1 to 1; blank for NaN."""
    size = abs(share)
    if math.isnan(share):
        return Text("")
    if size < SMALLEST_SIGN:
        return Text(NONE, style="dim")
    tenths = min(9, math.floor(10 * size + 1e-9)) if size >= SMALLEST_TENTHS else ""
    colour = "blue" if share > 0 else "red"
    style = f"bold {colour}" if size >= 0.5 else colour
    return Text(f"{'+' if share > 0 else '-'}{tenths}", style=style)


def strongest_table(result: PatchResult, count: int = MOST_HEADS) -> Table:
    """The heads with the largest effects: shares with intervals, estimates, direct effects."""
    heads = result.strongest(count)
    columns = [name for name in TITLES if name in heads and heads[name].notna().any()]
    with_interval = [name for name in columns if name in EXACT] or columns
    rows = [
        (str(row["name"]), *(_share_cell(row, name, name in with_interval) for name in columns))
        for row in heads.to_dict("records")
    ]
    title = f"Largest effects ({RANKED_BY[result.ranked_by]})"
    titles = [TITLES[name] for name in columns]
    return Table(title, ("head", *titles), rows, titles)


def _share_cell(row: Mapping[Any, Any], column: str, has_interval: bool = True) -> str:
    """A share in percent, with its 95% interval in brackets if it has one; direct effects as is."""
    value, low, high = (row.get(f"{column}{end}", math.nan) for end in ("", "_low", "_high"))
    if math.isnan(value):
        return ""
    text = _text(value, column)
    if column == "direct_logit" or not has_interval or math.isnan(low):
        return text
    decimals = _decimals(value)
    return f"{text} [{100 * low:z.{decimals}f}, {100 * high:z.{decimals}f}]"


def _text(value: float, column: str) -> str:
    if column == "direct_logit":
        return f"{value:z.2f}"
    return f"{100 * value:z.{_decimals(value)}f}%"


def _decimals(share: float) -> int:
    return 0 if abs(share) >= 0.1 else 1


def remark_lines(result: PatchResult) -> list[str]:
    """Sentences on the columns, on the estimates beside exact effects, and on the control."""
    return list(_remarks(result))


def _remarks(result: PatchResult) -> Iterator[str]:
    df, about = result.table.df, result.table.about
    shares = "Effects are shares of the difference between both runs"
    if about["pairs"] > 1:
        yield f"{shares}; in brackets: 95% intervals over the pairs."
    else:
        yield f"{shares}. A single pair has no intervals: give more pairs."
    if "direct_logit" in df:
        yield "direct: the head's own part of the clean run's logit difference, in logits."
    for name, words in ESTIMATE_NAMES.items():
        if (found := about.get("agreement", {}).get(name)) is not None:
            hits = round(found["recall"] * found["top"])
            mean, most = (100 * found[f"{name}_error"] for name in ("mean_absolute", "largest"))
            yield (
                f"{words} has {hits} of the {found['top']} heads with the largest exact effects "
                f"among its own {found['top']}, and is off by "
                f"{mean:.1f}% of the difference per head on average, and by {most:.0f}% at most."
            )
    if (control := about.get("control")) is not None:
        yield _control_line(control)


def _control_line(control: Mapping[str, Any]) -> str:
    if not control:
        return "There is no control: it needs two pairs of the same length in one batch."
    return (
        f"control: with outputs of other pairs, the largest effect of these "
        f"{format_count(control['heads'], 'head')} is {_text(control['largest'], 'control')}."
    )


def paths_table(result: PatchResult, count: int = MOST_HEADS) -> Table | None:
    """The heads that write most into the receiver; None if no receiver was chosen."""
    if result.paths is None:
        return None
    paths: pd.DataFrame = result.paths
    order = paths[list(INPUTS)].abs().max(axis=1).sort_values(ascending=False, kind="stable").index
    rows = [
        (str(row["sender"]), *(_share_cell(row, name) for name in INPUTS))
        for row in paths.loc[order[:count]].to_dict("records")
    ]
    titles = [f"into its {words}" for words in INPUTS.values()]
    title = f"Direct paths to {paths['receiver'].iloc[0]}"
    return Table(title, ("from", *titles), rows, titles)
