"""What is given is checked once, and refused by its name."""

import numpy as np
import pytest

from headwise.checks import check_characters, real_number, whole_number
from headwise.errors import OptionError


@pytest.mark.parametrize("given", [7, np.int64(7), np.uint8(7)])
def test_whole_numbers_of_any_kind_become_pythons(given: object) -> None:
    found = whole_number("seed", given, least=7)
    assert type(found) is int and found == 7


@pytest.mark.parametrize("given", [7.0, "7", None, True, [7]])
def test_what_counts_nothing_is_refused_by_name(given: object) -> None:
    with pytest.raises(OptionError, match=r"^seed is .+: give a whole number$"):
        whole_number("seed", given)


def test_a_number_below_the_least_is_refused_with_both() -> None:
    with pytest.raises(OptionError, match=r"^batch is -3: it must be at least 2$"):
        whole_number("batch", -3, least=2)


@pytest.mark.parametrize("given", [1, 1.0, np.float32(1)])
def test_numbers_of_any_kind_become_floats(given: object) -> None:
    found = real_number("keep", given, "0.6")
    assert type(found) is float and found == 1


@pytest.mark.parametrize("given", ["60%", True, None, [0.6], 10**400, b"1"])
def test_what_measures_nothing_is_refused_with_an_example(given: object) -> None:
    with pytest.raises(OptionError, match=r"^keep is .+: give a number such as 0\.6$"):
        real_number("keep", given, "0.6")


def test_half_a_character_is_found_where_it_stands() -> None:
    check_characters("the text", "café \U0001f600")
    with pytest.raises(OptionError, match=r"^the text is not UTF-8: character 4 is '\\udce9'$"):
        check_characters("the text", "caf\udce9")
