"""`headwise scan --lines` and `--field`: each line of a text file is an example of its own."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .running import Runner

LINES = [
    "The cat sat on the mat.",
    "Dogs bark at night.",
    "Rain fell on the old town for three days.",
]
QUICK = ("scan", "--measures", "entropy", "--no-probe")


def counts(out: str) -> dict[str, Any]:
    return dict(json.loads(out)["about"]["counts"])


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_text("\n".join([LINES[0], "", *LINES[1:], " ", ""]), encoding="utf-8")
    return file


@pytest.fixture
def json_lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.jsonl"
    rows = [json.dumps({"id": number, "body": line}) for number, line in enumerate(LINES)]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def test_each_line_is_a_window_of_its_own(headwise: Runner, lines: Path) -> None:
    ran = headwise(*QUICK, "--text", lines, "--lines", "--json")
    assert (ran.code, ran.err) == (0, f"headwise: {lines}: 3 examples, one per line\n")
    apart = counts(ran.out)
    whole = headwise(*QUICK, "--text", lines, "--json")
    assert (whole.code, whole.err) == (0, "")
    together = counts(whole.out)
    assert (apart["windows"], together["windows"]) == (3, 1)
    assert apart["tokens"] == together["tokens"] + 2 * 2, "[CLS] and [SEP] around each window"


def test_a_field_of_json_lines_is_read_like_lines(
    headwise: Runner, lines: Path, json_lines: Path
) -> None:
    by_line = headwise(*QUICK, "--text", lines, "--lines", "--json")
    by_field = headwise(*QUICK, "--text", json_lines, "--field", "body", "--json")
    assert by_field.err == f"headwise: {json_lines}: 3 examples in JSON lines\n"
    assert counts(by_field.out) == counts(by_line.out)
    assert json.loads(by_field.out) == json.loads(by_line.out)


def test_every_file_and_standard_input_are_split_into_lines(
    headwise: Runner, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Snow fell.\nIt was cold.\n"))
    ran = headwise(*QUICK, "--text", lines, "--text", "-", "--lines", "--json")
    assert counts(ran.out)["windows"] == 5
    assert ran.err.splitlines() == [
        f"headwise: {lines}: 3 examples, one per line",
        "headwise: -: 2 examples, one per line",
    ]


def test_a_file_that_looks_like_json_lines_is_pointed_out(
    headwise: Runner, json_lines: Path
) -> None:
    ran = headwise(*QUICK, "--text", json_lines, "--json")
    assert (ran.code, counts(ran.out)["windows"]) == (0, 1)
    assert ran.err.count("\n") == 1
    assert f"{json_lines}: 3 lines" in ran.err and "--field" in ran.err


def test_a_list_of_sentences_is_pointed_out(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("".join(f"Sentence {number} ends here.\n" for number in range(23)), "utf-8")
    ran = headwise(*QUICK, "--text", file, "--json")
    assert (ran.code, counts(ran.out)["windows"]) == (0, 1)
    assert f"{file}: 23 lines" in ran.err and "--lines" in ran.err
    split = headwise(*QUICK, "--text", file, "--lines", "--json")
    assert counts(split.out)["windows"] == 23


def test_a_missing_field_is_named_with_its_line_and_the_fields_there(
    headwise: Runner, json_lines: Path
) -> None:
    sentence = headwise.refused(*QUICK, "--text", json_lines, "--field", "text")
    for fact in (f"{json_lines}, line 1", "'text'", "id, body"):
        assert fact in sentence


def test_a_field_that_contains_a_number_is_refused(headwise: Runner, json_lines: Path) -> None:
    sentence = headwise.refused(*QUICK, "--text", json_lines, "--field", "id")
    assert f"{json_lines}, line 1" in sentence and "'id'" in sentence


def test_plain_lines_read_as_json_are_refused(headwise: Runner, lines: Path) -> None:
    sentence = headwise.refused(*QUICK, "--text", lines, "--field", "body")
    assert f"{lines}, line 1" in sentence and "--lines" in sentence


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--lines"], "--lines"),
        (["--field", "body"], "--field"),
        (["--lines", "--field", "body"], "--lines and --field"),
    ],
    ids=["lines", "field", "both"],
)
def test_options_for_text_files_need_a_text_file(
    headwise: Runner, options: list[str], named: str
) -> None:
    sentence = headwise.refused(*QUICK, *options)
    assert "--text" in sentence
    assert sentence.endswith(f"leave out {named}\n")


def test_blank_lines_count_in_the_number_of_a_bad_line(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "gaps.jsonl"
    file.write_text('{"body": "Fine."}\n\n\n{"text": "Not here."}\n', encoding="utf-8")
    assert f"{file}, line 4 " in headwise.refused(*QUICK, "--text", file, "--field", "body")


def test_a_line_separator_inside_a_string_does_not_end_a_json_line(
    headwise: Runner, tmp_path: Path
) -> None:
    file = tmp_path / "separator.jsonl"
    row = json.dumps({"body": "Rain fell.\u2028It was cold."}, ensure_ascii=False)
    file.write_text(f"{row}\n", encoding="utf-8")
    ran = headwise(*QUICK, "--text", file, "--field", "body", "--json")
    assert (ran.code, counts(ran.out)["windows"]) == (0, 1)


def test_an_empty_file_read_by_line_gets_one_sentence(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "empty.txt"
    file.write_text("\n \n", encoding="utf-8")
    assert f"{file} contains no text" in headwise.refused(*QUICK, "--text", file, "--lines")
