"""Importance and cuts in the terminal: every row on one line of 80 columns, no negative zeros."""

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from headwise.drawing.table import Table
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.objectives.evaluation import Estimate
from headwise.pruning.export.sizes import Speed
from headwise.pruning.importance.importance_tables import Importance
from headwise.pruning.importance.redundancy import RedundantHeads
from headwise.pruning.importance.workload import HEAD_MEASURES, MEASURES
from headwise.pruning.record import Score
from headwise.pruning.selection.curve import Curve
from headwise.views.pruning import (
    curve_table,
    held_out_line,
    importance_table,
    importance_title,
    layers_table,
    left_out_lines,
    quality_table,
    sizes_table,
    speed_table,
    stand_in_lines,
)

from ..pruning.records import QUALITY, prune_record, score, text_use

LONG_NUMBER = -0.000123456
"""The longest that a number with two digits can be."""


def printed(table: Table | None) -> list[str]:
    assert table is not None
    console = Console(file=io.StringIO(), width=80)
    console.print(table.to_rich())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def importance_of(
    rows: int = 7, stack: str = "", measures: Sequence[str] = MEASURES, **about: Any
) -> Importance:
    numbers = {name: LONG_NUMBER for name in HEAD_MEASURES if name in measures}
    numbers |= {f"{name}_se": -LONG_NUMBER for name in numbers}
    heads = [{"stack": stack, "layer": 11, "head": 10 + number} | numbers for number in range(rows)]
    if "stand_ins" in measures:
        heads = [head | {"stand_ins": "L0H1 L0H2"} for head in heads]
    layers = pd.DataFrame(
        [{"layer": "L0", "heads": 5, "best": "L0H3", "added": 0.25, "added_se": math.inf,
          "shown": "0.7500"}]
    )  # fmt: skip
    facts = {"model": "m", "objective": "cosine distance", "unit": "cosine", "examples": 7}
    table = HeadTable(pd.DataFrame(heads), {**facts, "loss": -1e-9, **about})
    return Importance(table, None, (), layers if "best_alone" in measures else None)


@pytest.mark.parametrize("stack", ["", "decoder"])
def test_importance_rows_fit_80_columns(stack: str) -> None:
    rows = printed(importance_table(importance_of(stack=stack)))
    heads = [line for line in rows if "L11H1" in line]
    assert len(heads) == 7 and len(rows) == 4 + 7 + 1
    assert all("-0.00012 ± 0.0001" in line for line in heads)
    assert not any("…" in line for line in rows)


def test_long_importance_lists_lose_their_middle() -> None:
    table = importance_table(importance_of(rows=30))
    assert table is not None
    rows = table.rows
    assert len(rows) == 12 + 1 + 12 and rows[12][0] == "..."


def test_layers_without_an_error_have_no_plus_minus() -> None:
    table = layers_table(importance_of())
    assert table is not None and table.rows == [("L0", "5", "L0H3", "0.25", "0.7500")]


def test_tables_have_only_the_measures_taken() -> None:
    table = importance_table(importance_of(measures=("michel", "expected")))
    assert table is not None and table.columns == ("head", "michel", "expected")
    assert table.title == "Michel's score of each head (michel), smallest first"
    none = importance_of(measures=("best_alone",))
    assert importance_table(none) is None and layers_table(none) is not None
    assert layers_table(importance_of(measures=("zero",))) is None


def test_omissions_for_a_large_model_are_listed_with_the_options() -> None:
    large = importance_of(
        measures=("zero", "michel"), tokens=4096, exact_tokens=1024, left_out=["mean", "best_alone"]
    )
    fewer, left_out = left_out_lines(large)
    assert "1,024 of 4,096 tokens" in fewer and fewer.endswith(
        "zero. --exact-tokens 4096 reads all."
    )
    assert "mean, best_alone. --measures all" in left_out
    assert left_out_lines(importance_of(tokens=4096, exact_tokens=4096, left_out=[])) == []
    assert left_out_lines(importance_of(measures=("michel",), tokens=9, exact_tokens=5)) == []


def test_stand_ins_are_listed_with_the_heads_that_were_not_tested() -> None:
    group = RedundantHeads((HeadId(0, 1), HeadId(0, 2)), 0.9, 0.8, 1.0, 2.0, 0.1)
    found = replace(importance_of(stand_ins_untested="L3 (shared)"), groups=(group,))
    assert stand_in_lines(found) == [
        "Heads that can replace each other:",
        f"  {group}",
        "Not tested for stand-ins: L3 (shared).",
    ]
    assert stand_in_lines(importance_of()) == ["No stand-ins found."]
    assert stand_in_lines(importance_of(measures=("zero",))) == []


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
