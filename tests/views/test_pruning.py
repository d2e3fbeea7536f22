"""Importance and cuts in the terminal: every row on one line of 80 columns, nothing below zero."""

import io
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from headwise.views.pruning import (
    MEASURES,
    curve_table,
    held_out_line,
    importance_line,
    importance_table,
    quality_table,
    speed_lines,
)

WIDE = -0.000123456
"""As long as a number gets when it is written with two digits."""


def printed(table: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("stack", ["", "decoder"])
def test_a_row_of_importance_is_one_line_of_80_columns(stack: str) -> None:
    numbers = {name: WIDE for name in MEASURES} | {f"{name}_se": -WIDE for name in MEASURES}
    row = {"stack": stack, "layer": 11, "head": 23, "stand_ins": "L0H1 L0H2 L0H3"} | numbers
    rows = printed(importance_table(pd.DataFrame([row] * 7)))
    assert sum("L11H23" in line for line in rows) == 7
    assert all("-0.00012 ± 0.0001" in line for line in rows if "L11H23" in line)
    assert not any("…" in line for line in rows)
    assert len(rows) == 4 + 7 + 1


def test_a_cut_of_the_curve_is_one_line_of_80_columns() -> None:
    methods = ("quadratic", "ablation", "michel", "random", "cut and refitted")
    points = pd.DataFrame(
        {
            "method": method,
            "cut": cut,
            "share": cut / 720,
            "quality": 0.123456,
            "low": 0.1,
            "high": 0.2,
        }
        for method in methods
        for cut in (360, 720)
    )
    rows = printed(curve_table(points, "perplexity"))
    cuts = [line.split() for line in rows if "%" in line]
    assert cuts == [["360", "(50%)", *["0.1235"] * 5], ["720", "(100%)", *["0.1235"] * 5]]


@pytest.mark.parametrize(
    ("source", "unit", "words"),
    [
        ("Python's manual", "cosine", "1,233 sentences of Python's manual, 4,096 tokens"),
        ("given", "perplexity", "1,233 passages of your text, 4,096 tokens"),
    ],
)
def test_held_out_text_is_named(source: str, unit: str, words: str) -> None:
    text = {"source": source, "measured_on": {"examples": 1233, "tokens": 4096}}
    assert words in held_out_line(text, unit)


def test_losses_that_are_no_numbers_are_left_open() -> None:
    unknown, known = {"loss": None, "cosine": None}, {"loss": 0.25, "cosine": 0.75}
    quality = {"uncut": known, "cut": unknown, "refitted": None, "random": [unknown, known]}
    rows = printed(quality_table({**quality, "random_mean": unknown}, "cosine"))
    cells = [line.split() for line in rows]
    assert ["uncut", "0.7500", "0.2500"] in cells and ["cut", "-", "-"] in cells
    assert ["from", "0.7500"] in cells and ["to", "0.7500"] in cells
    rows = printed(
        quality_table({**quality, "random": [unknown], "random_mean": unknown}, "cosine")
    )
    assert ["from", "-"] in [line.split() for line in rows]


def test_a_loss_of_nothing_has_no_sign() -> None:
    about = {"model": "m", "objective": "cosine distance", "loss": -1e-9, "examples": 7}
    assert importance_line(about).endswith("cosine distance 0.0000 on 7 examples")


def test_a_speed_fits_a_line_of_80_columns() -> None:
    speed = {"before": 12.3456, "after": 10.1234, "ratio": 1.2195, "spread": 0.163}
    (line,) = speed_lines([{"batch": 16, "positions": 512} | speed])
    assert line.endswith("12.3 s before, 10.1 s after, 1.22 ± 0.16 times as fast")
    assert len(line) <= 80
