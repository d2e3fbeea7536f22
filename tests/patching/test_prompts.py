import json
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import OptionError
from headwise.patching.prompts import PromptPair, read_pairs

MARY = PromptPair(
    "When Mary and John met, John gave it to",
    "When Mary and John met, Mary gave it to",
    " Mary",
    " John",
)
TABLE = f'clean,corrupted,answer,instead\n"{MARY.clean}","{MARY.corrupted}", Mary, John\n'


def write(name: str, text: str) -> Path:
    file = Path(name)
    file.write_text(text, "utf-8")
    return file


def as_json(**row: Any) -> str:
    return json.dumps(row) + "\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs.csv", TABLE),
        ("pairs.CSV", f"\ufeff{TABLE}\n\n"),
        ("pairs.csv", TABLE.replace("\n", "\r\n")),
        ("pairs.tsv", "clean\tcorrupted\tanswer\tinstead\n" + "\t".join(vars(MARY).values())),
        ("pairs.jsonl", "\n" + as_json(**vars(MARY))),
        ("pairs.json", as_json(**vars(MARY))),
    ],
)
def test_every_format_gives_the_pair_with_the_leading_spaces_of_its_answers(
    name: str, text: str
) -> None:
    assert read_pairs(write(name, text)) == (MARY,)


def test_answers_are_optional_and_order_of_columns_is_free() -> None:
    pairs = read_pairs(write("pairs.csv", "corrupted,clean\nb c,a c\nd,e\n"))
    assert pairs == (PromptPair("a c", "b c"), PromptPair("e", "d"))
    assert read_pairs(write("pairs.jsonl", as_json(clean="a", corrupted="b"))) == (
        PromptPair("a", "b"),
    )


def test_a_cell_may_have_several_lines() -> None:
    pairs = read_pairs(write("pairs.csv", 'clean,corrupted\n"a\nb","c\nd"\n'))
    assert pairs == (PromptPair("a\nb", "c\nd"),)


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("pairs.csv", "", "pairs.csv has no pairs.*header"),
        ("pairs.csv", "clean,corrupted\n", "pairs.csv has no pairs.*header"),
        ("pairs.jsonl", "\n\n", "pairs.jsonl has no pairs.*per line"),
        ("pairs.csv", "clean,answer\na,b\n", "line 1 has no column corrupted: .* clean, answer"),
        ("pairs.csv", "clean,corrupted,gold\na,b,c\n", "line 1 .*unknown column 'gold'.*instead"),
        ("pairs.csv", "clean,corrupted,clean\na,b,c\n", "line 1 has the column clean twice"),
        ("pairs.csv", "clean,corrupted\na,b\na,b,c\n", "line 3 has 3 cells.*header has 2"),
        ("pairs.csv", 'clean,corrupted\n"a"b,c\n', "line 2 is not a table: .*write quotes"),
        ("pairs.csv", "clean,corrupted,answer\na,b,c\n", "line 2: instead is ''.*answer is 'c'"),
        ("pairs.csv", "clean,corrupted\n ,b\n", "line 2: clean is ' ': give a prompt"),
        ("pairs.jsonl", as_json(clean="a", corrupted="b") + "{a", "line 2 is not JSON.*answer"),
        ("pairs.jsonl", "[1]\n", 'line 1 is a list.*"corrupted"'),
        ("pairs.jsonl", "{}\n", "line 1 has no key clean and corrupted: its keys are empty"),
        ("pairs.jsonl", as_json(clean="a", corrupted="b", gold="c"), "unknown key 'gold'"),
        ("pairs.jsonl", as_json(clean="a", corrupted=3), "line 1: corrupted is a int"),
        ("pairs.txt", "a b", "pairs.txt ends in '.txt'.*csv.*jsonl"),
        ("pairs", "a b", "pairs ends in 'no suffix'"),
    ],
)
def test_mistakes_in_a_file_name_their_line(name: str, text: str, facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        read_pairs(write(name, text))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(OptionError, match=r"absent\.csv cannot be read"):
        read_pairs("absent.csv")


@pytest.mark.parametrize(
    ("texts", "facts"),
    [
        (("a", "b", "", "c"), "answer is '', but instead is 'c'"),
        (("a", "b", "c", ""), "instead is '', but answer is 'c'"),
        (("a", ""), "corrupted is ''"),
        ((1, "b"), "clean is a int: pass a str"),
        (("a\ud800", "b"), "clean is not UTF-8: character 2"),
    ],
)
def test_a_pair_checks_its_texts(texts: tuple[Any, ...], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        PromptPair(*texts)
