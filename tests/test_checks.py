"""Checks of a user's values: numbers become Python's own, errors carry the option's name."""

import numpy as np
import pytest

from headwise.checks import check_characters, real_number, whole_number
from headwise.errors import OptionError


@pytest.mark.parametrize("value", [7, np.int64(7), np.uint8(7)])
def test_any_kind_of_integer_becomes_an_int(value: object) -> None:
    number = whole_number("seed", value, least=7)
    assert type(number) is int and number == 7


@pytest.mark.parametrize("value", [7.0, "7", None, True, [7]])
def test_whole_number_rejects_other_types(value: object) -> None:
    with pytest.raises(OptionError, match=r"^seed is .+ whole number") as raised:
        whole_number("seed", value)
    assert raised.value.option == "seed"


@pytest.mark.parametrize(
    ("bounds", "facts"),
    [
        ({"least": 2}, r"^batch is -3: .+ 2$"),
        ({"most": -4}, r"^batch is -3: .+ -4$"),
        ({"least": 1, "most": 5000}, r"^batch is -3: .+ 1 to 5,000$"),
    ],
)
def test_whole_number_names_the_bounds_it_enforces(bounds: dict[str, int], facts: str) -> None:
    with pytest.raises(OptionError, match=facts) as raised:
        whole_number("batch", -3, **bounds)
    assert raised.value.option == "batch"


def test_whole_number_accepts_its_bounds() -> None:
    assert [whole_number("n", n, least=1, most=3) for n in (1, 3)] == [1, 3]


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1)])
def test_any_kind_of_number_becomes_a_float(value: object) -> None:
    number = real_number("keep", value, "0.6")
    assert type(number) is float and number == 1


@pytest.mark.parametrize("value", ["60%", True, None, [0.6], 10**400, b"1"])
def test_real_number_rejects_other_types_and_quotes_the_example(value: object) -> None:
    with pytest.raises(OptionError, match=r"^keep is .+ 0\.6$") as raised:
        real_number("keep", value, "0.6")
    assert raised.value.option == "keep"


def test_check_characters_locates_the_first_surrogate() -> None:
    check_characters("text", "café \U0001f600")
    with pytest.raises(OptionError, match=r"^text is not UTF-8: character 4 is '\\udce9'$"):
        check_characters("text", "caf\udce9")
