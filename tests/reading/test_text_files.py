"""A file is one text, a list of lines or JSON lines, and headwise says which."""

import json

import pytest

from headwise.errors import OptionError
from headwise.reading.text_files import split_file

LINES = [f"Sentence number {number} ends here." for number in range(23)]
WRAPPED = "\n".join(" ".join(f"word{number * 7 + at}" for at in range(7)) for number in range(40))


def test_a_plain_text_is_one_document_without_a_remark() -> None:
    for text in ("One sentence.", WRAPPED, "\n\n".join(LINES), "\n".join(LINES[:19])):
        assert split_file(text, "book.txt") == ([text], "")


def test_lines_are_documents_on_request() -> None:
    documents, remark = split_file("\n".join([*LINES, "", " "]), "book.txt", by_line=True)
    assert documents == LINES
    assert remark == "book.txt: 23 examples, one per line"


def test_a_list_of_sentences_is_pointed_out_and_read_as_one_text() -> None:
    text = "\n".join(LINES)
    documents, remark = split_file(text, "book.txt")
    assert documents == [text]
    assert "23 lines" in remark and "--lines" in remark


def test_json_lines_give_one_field() -> None:
    text = "\n".join(json.dumps({"id": number, "text": line}) for number, line in enumerate(LINES))
    documents, remark = split_file(text, "book.jsonl", field="text")
    assert documents == LINES
    assert "23 examples" in remark
    assert "--field" in split_file(text, "book.jsonl")[1]


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ('{"text": "a"', r"book.jsonl, line 2.*not JSON.*--lines"),
        ('{"body": "a", "id": 3}', r"line 2.*'text'.*body, id"),
        ('{"text": 3}', r"line 2.*'text'"),
        ("[1]", r"line 2.*'text'.*none"),
    ],
)
def test_a_bad_line_is_named(line: str, facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        split_file(f'{{"text": "fine"}}\n{line}', "book.jsonl", field="text")
