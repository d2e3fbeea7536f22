"""Patching in the terminal: rows on lines of 80 columns, signs without colour, honest remarks."""

import io
import math
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from headwise.head_table import HeadTable
from headwise.patching.result import PatchResult
from headwise.views.patching import (
    effect_grids,
    patch_summary,
    paths_table,
    remark_lines,
    strongest_table,
)
from headwise.views.terminal import show_table

from ..patching.patch_results import ABOUT, EFFECTS, estimate, patch_result


def lines_of(part: Any, **options: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=80, **options)
    show_table(console, part) if hasattr(part, "rows") else console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_summary_names_the_prompts_and_both_runs() -> None:
    assert patch_summary(patch_result()) == [
        "small, 7 pairs of prompts, such as",
        "clean:     'The key is' -> ' here'",
        "corrupted: 'The keys is' -> ' there'",
        "Logit difference: 3.000 in the clean run, -1.000 in the corrupted run; the difference is "
        "4.000 logits.",
    ]
    bare = {"clean": "a", "corrupted": "b", "answer": "", "instead": ""}
    cosine = {"metric": "cosine", "unit": "cosine", "examples": [bare], "pairs": 1}
    lines = patch_summary(patch_result(**cosine, part="pattern", positions=[4, -1]))
    assert lines[:3] == ["small, 1 pair of prompts", "clean:     'a'", "corrupted: 'b'"]
    assert lines[3].endswith("difference is 4.000.")
    assert lines[4:] == [
        "Patched: only where each head looks.",
        "Patched: only positions 4 and -1.",
    ]


def test_the_grid_has_the_sign_and_the_size_of_every_effect() -> None:
    lines = [line.rstrip() for line in lines_of(effect_grids(patch_result()))]
    assert lines == [
        "Effect of each head (denoising)",
        "   0  1  2",
        "L0 ·  +  -4",
        "L1 +9 ·",  # this layer has two heads
        "1 to 9: tenths of the largest effect, 50% of L1H0; + or -: less than a tenth; ·:",
        "under 2% of it",
    ]


def test_heads_that_were_not_patched_are_blank_in_the_grid() -> None:
    result = patch_result()
    df = result.table.df.assign(patch_denoise=[math.nan, 0.025, -0.24, 0.5, math.nan])
    lines = [line.rstrip() for line in lines_of(effect_grids(PatchResult(HeadTable(df, ABOUT))))]
    assert lines[2:4] == ["L0    +  -4", "L1 +9"]
    assert lines[4].startswith("1 to 9: tenths of the largest effect, 50% of L1H0;")
    assert lines[5].endswith("blank: not patched")


def test_colours_repeat_the_signs() -> None:
    text = "\n".join(lines_of(effect_grids(patch_result()), force_terminal=True))
    assert "\x1b[1;34m+9" in text and "\x1b[31m-4" in text


def test_every_stack_has_a_grid() -> None:
    table = patch_result().table
    df = table.df.assign(stack=["encoder"] * 3 + ["decoder"] * 2)
    lines = lines_of(effect_grids(PatchResult(HeadTable(df, table.about))))
    assert [line for line in lines if line in ("encoder", "decoder")] == ["encoder", "decoder"]


@pytest.mark.parametrize("stack", ["", "decoder"])
def test_rows_of_the_strongest_heads_fit_80_columns(stack: str) -> None:
    table = patch_result().table
    df = table.df.assign(stack=stack, layer=table.df["layer"] + 10)
    result = PatchResult(HeadTable(df, table.about))
    strongest = strongest_table(result)
    assert strongest.columns == ("head", "denoising", "noising", "estimate", "control", "direct")
    prefix = f"{stack}." if stack else ""
    assert strongest.rows[0] == (
        f"{prefix}L11H0",
        *("50% [40, 60]", "50% [40, 60]", "50%", "3.1%", "2.00"),
    )
    assert strongest.rows[1][1:5] == ("-24% [-34, -14]", "-24% [-34, -14]", "-24%", "")
    assert strongest.rows[2][1] == "2.5% [-7.5, 12.5]"
    lines = lines_of(strongest)
    assert all(len(line) <= 80 for line in lines) and not any("…" in line for line in lines)


def test_estimates_have_intervals_if_nothing_else_has() -> None:
    table = patch_result().table
    kept = [name for name in table.df if not name.startswith(("patch", "control"))]
    rows = strongest_table(PatchResult(HeadTable(table.df[kept], table.about)))
    assert rows.columns == ("head", "estimate", "direct")
    assert rows.rows[0] == ("L1H0", "50% [40, 60]", "2.00")


def test_a_single_pair_has_no_intervals() -> None:
    columns = {"patch_denoise": EFFECTS, "patch_denoise_low": [math.nan] * len(EFFECTS)}
    places = patch_result().table.df[["stack", "layer", "head"]]
    result = PatchResult(HeadTable(places.assign(**columns), {**ABOUT, "pairs": 1, "control": {}}))
    assert strongest_table(result).rows[0] == ("L1H0", "50%")
    assert remark_lines(result) == [
        "Effects are shares of the difference between both runs. A single pair has no intervals: "
        "give more pairs.",
        "There is no control: it needs two pairs of the same length in one batch.",
    ]


def test_remarks_compare_the_estimates_and_name_the_control() -> None:
    found = {"top": 5, "recall": 0.8, "mean_absolute_error": 0.0125, "largest_error": 1.27}
    agreement = {"attribution": found, "attribution_steps": found | {"recall": 1.0}}
    remarks = remark_lines(patch_result(agreement=agreement))
    assert remarks[0].endswith("in brackets: 95% intervals over the pairs.")
    assert remarks[1].startswith("direct: ")
    assert remarks[2].startswith(
        "The estimate has 4 of the 5 heads with the largest exact effects among its own 5"
    )
    assert remarks[2].endswith(
        "off by 1.2% of the difference per head on average, and by 127% at most."
    )
    assert remarks[3].startswith("The estimate with steps has 5 of the 5")
    assert remarks[4] == (
        "control: with outputs of other pairs, the largest effect of these 2 heads is 3.1%."
    )
    assert len(remarks) == 5


def test_paths_list_the_strongest_senders_first() -> None:
    assert paths_table(patch_result()) is None
    senders = {"sender": ["L0H0", "L0H1", "L0H2"], "receiver": ["L1H0"] * 3}
    shares = {"query": [0.0, 0.2, 0.0], "key": [0.0, 0.0, -0.3], "value": [0.01, 0.0, 0.0]}
    columns = {key: value for name in shares for key, value in estimate(name, shares[name]).items()}
    table = paths_table(PatchResult(patch_result().table, pd.DataFrame(senders | columns)), 2)
    assert table is not None and table.title == "Direct paths to L1H0"
    assert table.rows == [
        ("L0H2", "0.0% [-10.0, 10.0]", "-30% [-40, -20]", "0.0% [-10.0, 10.0]"),
        ("L0H1", "20% [10, 30]", "0.0% [-10.0, 10.0]", "0.0% [-10.0, 10.0]"),
    ]
    assert all(len(line) <= 80 for line in lines_of(table))
