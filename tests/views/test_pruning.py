"""Importance and cuts in the terminal: every row on one line of 80 columns, no negative zeros."""

import io
import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from headwise.drawing.table import Table
from headwise.head_table import HeadTable
from headwise.objectives.evaluation import Estimate
from headwise.pruning.export.sizes import Speed
from headwise.pruning.importance.importance import Importance
from headwise.pruning.record import Score
from headwise.pruning.selection.curve import Curve
from headwise.views.pruning import (
    MEASURES,
    curve_table,
    held_out_line,
    importance_table,
    importance_title,
    layers_table,
    quality_table,
    sizes_table,
    speed_table,
)

from ..pruning.records import QUALITY, prune_record, score, text_use

LONG_NUMBER = -0.000123456
"""The longest that a number with two digits can be."""


def printed(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(table.to_rich())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def importance_of(rows: int = 7, stack: str = "", **about: Any) -> Importance:
    numbers = {name: LONG_NUMBER for name in MEASURES}
    numbers |= {f"{name}_se": -LONG_NUMBER for name in MEASURES}
    heads = [
        {"stack": stack, "layer": 11, "head": 10 + number, "stand_ins": "L0H1 L0H2"} | numbers
        for number in range(rows)
    ]
    layers = pd.DataFrame(
        [{"layer": "L0", "heads": 5, "best": "L0H3", "added": 0.25, "added_se": math.inf,
          "shown": "0.7500"}]
    )  # fmt: skip
    facts = {"model": "m", "objective": "cosine distance", "unit": "cosine", "examples": 7}
    table = HeadTable(pd.DataFrame(heads), {**facts, "loss": -1e-9, **about})
    return Importance(table, pd.DataFrame(), (), layers)


@pytest.mark.parametrize("stack", ["", "decoder"])
def test_importance_rows_fit_80_columns(stack: str) -> None:
    rows = printed(importance_table(importance_of(stack=stack)))
    heads = [line for line in rows if "L11H1" in line]
    assert len(heads) == 7 and len(rows) == 4 + 7 + 1
    assert all("-0.00012 ± 0.0001" in line for line in heads)
    assert not any("…" in line for line in rows)


def test_long_importance_lists_lose_their_middle() -> None:
    rows = importance_table(importance_of(rows=30)).rows
    assert len(rows) == 12 + 1 + 12 and rows[12][0] == "..."


def test_layers_without_an_error_have_no_plus_minus() -> None:
    assert layers_table(importance_of()).rows == [("L0", "5", "L0H3", "0.25", "0.7500")]


def test_curve_rows_fit_80_columns() -> None:
    methods = ("quadratic", "ablation", "michel", "random", "cut and refitted")
    points = pd.DataFrame(
        {"method": method, "cut": cut, "share": cut / 720, "quality": 0.123456}
        for method in methods
        for cut in (360, 720)
    )
    curve = Curve(points, Estimate(0, 0), Estimate(1, 0), "quadratic", "perplexity", 720)
    cuts = [line.split() for line in printed(curve_table(curve)) if "%" in line]
    assert cuts == [["360", "(50%)", *["0.1235"] * 5], ["720", "(100%)", *["0.1235"] * 5]]


@pytest.mark.parametrize(
    ("source", "unit", "words"),
    [
        ("Python's manual", "cosine", "1,233 sentences from Python's manual, 4,096 tokens"),
        ("given", "perplexity", "1,233 passages from your text, 4,096 tokens"),
    ],
)
def test_held_out_text_is_named(source: str, unit: str, words: str) -> None:
    record = prune_record(text=text_use(source), quality=replace(QUALITY, unit=unit))
    assert words in held_out_line(record)


def test_sizes_that_the_model_does_not_have_are_left_out() -> None:
    rows = {row[0]: row[1:] for row in sizes_table(prune_record()).rows}
    assert rows["heads"] == ("13", "11", "15.4%") and rows["parameters"][2] == "25.0%"
    assert "KV cache per token" not in rows


def test_unknown_scores_are_dashes() -> None:
    unknown = Score(math.nan, math.nan, math.nan)
    quality = replace(QUALITY, cut=unknown, refitted=None, random=(unknown, score(0.25)))
    rows = {row[0]: row[1:] for row in quality_table(prune_record(quality=quality)).rows}
    assert rows["uncut"] == ("1.0000", "0.0000") and rows["cut"] == ("-", "-")
    assert "cut and refitted" not in rows
    assert rows["  lowest"] == rows["  highest"] == ("0.7500", "")
    quality = replace(quality, random=(unknown,))
    rows = {row[0]: row[1:] for row in quality_table(prune_record(quality=quality)).rows}
    assert rows["  lowest"] == ("-", "")


def test_loss_of_zero_has_no_sign() -> None:
    title = importance_title(importance_of())
    assert title.endswith("cosine distance 0.0000 on 7 examples")


def test_speed_fits_80_columns() -> None:
    speed = Speed(16, 512, 12.3456, 10.1234, 1.2195, 0.163)
    lines = printed(speed_table(prune_record(speed=(speed,))))
    assert lines[-2].split() == "16 x 512 tokens 12.346 s 10.123 s 1.22 ± 0.16".split()
