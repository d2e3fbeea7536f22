"""The terminal shows cross-attention by its own measures, and names what was left out."""

import math

import pandas as pd
from rich.console import Console

from headwise.head_table import HeadTable
from headwise.views.cross_attention import SHOWN, cross_attention
from headwise.views.heads import summary_lines


def table(**columns: list[float]) -> HeadTable:
    """A decoder head and some heads of cross-attention."""
    count = len(next(iter(columns.values())))
    rows = {"stack": ["decoder", *["cross"] * (count - 1)], "layer": 0, "roles": [()] * count}
    rows["head"] = [0, *range(count - 1)]
    return HeadTable(pd.DataFrame({**rows, **columns}), {"model": "tiny"})


def text_of(heads: HeadTable) -> str:
    shown = cross_attention(heads)
    assert shown is not None
    console = Console(width=120)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_the_most_orderly_heads_come_first_without_empty_columns() -> None:
    nan = math.nan
    text = text_of(
        table(peak=[nan, 0.25, 0.5], peak_order=[nan, 0.4, 0.9], confidence=[0.3, 0.6, 0.7])
    )
    assert "decoder" not in text and "silence" not in text
    first, second = (line.split() for line in text.splitlines()[1:3])
    assert first == ["cross.L0H1", "0.900", "0.500", "0.700"]
    assert second == ["cross.L0H0", "0.400", "0.250", "0.600"]


def test_only_some_heads_are_shown() -> None:
    peaks = [math.nan, *[0.5] * (SHOWN + 5)]
    assert len(text_of(table(peak=peaks, peak_order=peaks)).splitlines()) == 1 + SHOWN


def test_models_without_cross_attention_show_nothing() -> None:
    assert cross_attention(table(entropy=[1.0, 2.0])) is None
    assert cross_attention(table(peak=[math.nan] * 2, peak_order=[math.nan] * 2)) is None


def test_each_reason_names_all_that_it_left_out() -> None:
    heads = table(entropy=[1.0, 2.0])
    heads.about["left_out"] = {"vision": "it did not run", "audio": "it did not run", "X": "odd"}
    lines = summary_lines(heads)
    assert "left out: vision and audio (it did not run)" in lines
    assert "left out: X (odd)" in lines
