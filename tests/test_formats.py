"""Formatted numbers: a unit, three digits, and never an exponent."""

import re

import pytest
from hypothesis import given, strategies as st

from headwise.formats import COUNT_UNITS, SIZE_UNITS, format_large_count, format_size


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999_999, "999,999"),
        (999_999.7, "1 M"),
        (2_362_368, "2.36 M"),
        (999_499_999, "999 M"),
        (999_700_000, "1 G"),
        (1.3e15, "1.3 P"),
        (999.9e15, "1 E"),
        (2.5e21, "2,500 E"),
    ],
)
def test_a_count_has_the_unit_that_it_fills(number: float, text: str) -> None:
    assert format_large_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "-"),
        (1023, "1023 B"),
        (1500, "1.46 KiB"),
        (36 << 20, "36 MiB"),
        (1010 << 20, "1,010 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (5 << 50, "5 PiB"),
        (3000 << 60, "3,000 EiB"),
    ],
)
def test_a_size_has_the_unit_that_it_fills(number: int, text: str) -> None:
    assert format_size(number) == text


@given(st.integers(1, 10**24))
def test_text_states_the_number_to_three_digits(number: int) -> None:
    for text, units in (
        (format_large_count(number), COUNT_UNITS),
        (format_size(number), SIZE_UNITS),
    ):
        assert re.fullmatch(r"[\d,]+(\.\d{1,2})?( \w+)?", text), text
        value, unit = (*text.split(), "")[:2]
        stated = float(value.replace(",", "")) * dict(units)[unit]
        assert abs(stated - number) <= 0.005 * number
