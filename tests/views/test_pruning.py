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
from headwise.pruning.record import Quality, Score
from headwise.pruning.selection.curve import Curve
from headwise.pruning.settings import PruneSettings
from headwise.views.pruning import (
    curve_table,
    cut_warnings,
    held_out_line,
    importance_table,
    importance_title,
    layers_table,
    left_out_lines,
    quality_table,
    register_table,
    sizes_table,
    speed_table,
    stand_in_lines,
)

from ..pruning.records import QUALITY, cut_scores, prune_record, score, text_use

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
    methods = ("quadratic", "ablation", "michel", "random", "cut and corrected")
    points = pd.DataFrame(
        {"method": method, "cut": cut, "share": cut / 720, "quality": 0.123456}
        for method in methods
        for cut in (360, 720)
    )
    curve = Curve(points, Estimate(0, 0), Estimate(1, 0), "quadratic", "perplexity", 720)
    cuts = [line.split() for line in printed(curve_table(curve)) if "%" in line]
    assert cuts == [["360", "(50%)", *["0.1235"] * 5], ["720", "(100%)", *["0.1235"] * 5]]


@pytest.mark.parametrize(
    ("registers", "unit", "words"),
    [
        (("news", "law"), "cosine", "Measured on 1,233 sentences of news and law, 4,096 tokens."),
        ((), "perplexity", "Measured on 1,233 passages of your text, 4,096 tokens."),
    ],
)
def test_held_out_text_is_named(registers: tuple[str, ...], unit: str, words: str) -> None:
    record = prune_record(text=text_use(*registers), quality=replace(QUALITY, unit=unit))
    assert held_out_line(record) == words


def test_texts_that_were_kept_whole_are_examples() -> None:
    record = prune_record(settings=PruneSettings(keeps_texts_whole=True))
    assert "1,233 examples of your text" in held_out_line(record)


def test_sizes_that_the_model_does_not_have_are_left_out() -> None:
    rows = {row[0]: row[1:] for row in sizes_table(prune_record()).rows}
    assert rows["heads"] == ("13", "11", "15.4%") and rows["parameters"][2] == "25.0%"
    assert "KV cache per token" not in rows


def rows_of(quality: Quality) -> dict[str, tuple[str, ...]]:
    """The cells of the quality table by the name of their row."""
    return {row[0]: tuple(row[1:]) for row in quality_table(prune_record(quality=quality)).rows}


def test_every_score_has_its_standard_error() -> None:
    rows = rows_of(QUALITY)
    assert rows == {
        "uncut": ("1.00 ± 0.01",),
        "cut": ("0.75 ± 0.01",),
        "cut, refitted": ("0.94 ± 0.01",),
        "every head silent": ("0.50 ± 0.01",),
        "same number at random, median of 3": ("0.65 ± 0.01",),
        "  best": ("0.70 ± 0.01",),
        "  worst": ("0.60 ± 0.01",),
    }
    assert "cut, biases corrected" in rows_of(replace(QUALITY, correction="bias"))
    assert "cut, refitted widely" in rows_of(replace(QUALITY, correction="wide"))


def test_unknown_scores_are_dashes() -> None:
    unknown = Score(math.nan, math.nan, math.nan, math.nan)
    scores = replace(QUALITY.scores, cut=unknown)
    quality = replace(QUALITY, scores=scores, correction="none", random=(score(0.25), unknown))
    rows = rows_of(quality)
    assert rows["cut"] == ("-",) and not any(name.startswith("cut,") for name in rows)
    assert rows["  best"] == ("0.75 ± 0.01",) and rows["  worst"] == ("-",)
    single = replace(scores, cut=score(0.25, math.inf))  # one example has no standard error
    assert rows_of(replace(quality, scores=single))["cut"] == ("0.7500",)


OTHER = {"law": cut_scores(0.0, 0.5, 0.375), "news": cut_scores(0.0, 0.25, 0.125)}
BESIDE = replace(QUALITY, other=cut_scores(0.0, 0.375, 0.25), other_registers=OTHER)
"""A cut for the user's text, measured on two registers as well."""


def test_your_text_and_other_text_are_two_columns() -> None:
    table = quality_table(prune_record(quality=BESIDE))
    assert list(table.columns) == ["", "on your text", "on other text"]
    rows = rows_of(BESIDE)
    assert rows["uncut"] == ("1.00 ± 0.01", "1.00 ± 0.01")
    assert rows["cut, refitted"] == ("0.94 ± 0.01", "0.75 ± 0.01")
    assert rows["every head silent"] == ("0.50 ± 0.01", "")
    lines = printed(table)
    assert all(len(line) <= 80 for line in lines)
    assert any(line.split()[-6:] == "0.94 ± 0.01 0.75 ± 0.01".split() for line in lines)
    built_in = quality_table(prune_record(text=text_use("news", "law")))
    assert list(built_in.columns) == ["", "cosine"]


def test_the_register_that_suffers_most_comes_first() -> None:
    table = register_table(prune_record(quality=BESIDE))
    assert [row[0] for row in table.rows] == ["law", "news", "given"]
    assert tuple(table.rows[0][1:]) == ("1.00 ± 0.01", "0.62 ± 0.01")


# Warnings.


def warnings_of(quality: Quality, **changes: Any) -> str:
    return " ".join(cut_warnings(prune_record(quality=replace(quality, **changes))))


def test_a_good_cut_gets_no_warning() -> None:
    assert warnings_of(QUALITY) == ""


@pytest.mark.parametrize("lead", [-0.2, 0.0, 0.03, math.nan])
def test_a_cut_that_is_not_clearly_better_than_random_gets_a_warning(lead: float) -> None:
    assert "not clearly better" in warnings_of(QUALITY, random_lead=lead)
    assert "random" in warnings_of(QUALITY, random_lead=lead)
    assert "random" not in warnings_of(QUALITY, random_lead=lead, random=())


def test_dropped_corrections_get_a_warning() -> None:
    assert "No correction was kept" in warnings_of(QUALITY, correction="none", is_dropped=True)
    assert warnings_of(QUALITY, correction="none") == ""  # none was asked for


@pytest.mark.parametrize(
    ("here", "there", "error", "warns"),
    [
        (0.0625, 0.25, 0.01, True),
        (-0.01, 0.05, 0.01, True),
        (0.0625, 0.12, 0.01, False),  # not twice as much
        (0.0, 0.015, 0.01, False),  # within two standard errors
        (0.25, 0.0625, 0.01, False),
    ],
)
def test_other_text_that_suffers_much_more_gets_a_warning(
    here: float, there: float, error: float, warns: bool
) -> None:
    quality = replace(
        QUALITY, scores=cut_scores(0.0, 0.5, here), other=cut_scores(0.0, 0.5, there, error)
    )
    assert ("Other text suffers much more" in warnings_of(quality)) == warns
    assert "Other text" not in warnings_of(quality, other=None)


def test_loss_of_zero_has_no_sign() -> None:
    title = importance_title(importance_of())
    assert title.endswith("cosine distance 0.0000 on 7 examples")


def test_speed_fits_80_columns() -> None:
    speed = Speed(16, 512, 12.3456, 10.1234, 1.2195, 0.163)
    lines = printed(speed_table(prune_record(speed=(speed,))))
    assert lines[-2].split() == "16 x 512 tokens 12.346 s 10.123 s 1.22 ± 0.16".split()
