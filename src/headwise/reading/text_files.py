"""Text files: one text per file, one example per line, or JSON lines.

In: the content of a file and how to read it. Out: documents, and a sentence on what was read.
"""

import json
import re

from headwise.errors import OptionError
from headwise.formats import format_count

FEWEST_LINES = 20
"""Files with fewer lines are never taken for a list of examples."""
SENTENCE_SHARE = 0.8
"""Share of the lines that end like a sentence in a list of examples; wrapped prose has fewer."""
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s*$")


def split_file(
    text: str, name: str, *, by_line: bool = False, field: str = ""
) -> tuple[list[str], str]:
    """The documents in a file, and a sentence on how it was read; "" if nothing needs saying.

    By default, a file is one document. With `by_line` each line is one, and with `field` each line
    is a JSON object whose `field` is the document.
    """
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    lines = [line for _, line in numbered]
    if field:
        documents = [
            _json_field(line, field, f"{name}, line {number}") for number, line in numbered
        ]
        return documents, f"{name}: {format_count(len(lines), 'example')} in JSON lines"
    if by_line:
        return lines, f"{name}: {format_count(len(lines), 'example')}, one per line"
    count = format_count(len(lines), "line")
    if _looks_like_json(lines):
        return [text], f"{name}: {count} that look like JSON; --field NAME reads one field of each"
    if _looks_like_examples(text, lines):
        return [text], (
            f"{name}: {count} that look like separate examples, read as one text; --lines reads "
            "them one by one"
        )
    return [text], ""


def _json_field(line: str, field: str, place: str) -> str:
    try:
        value = json.loads(line)
    except ValueError as err:
        raise OptionError(f"{place} is not JSON: {err}; --lines reads plain lines") from err
    if not isinstance(value, dict) or not isinstance(value.get(field), str):
        fields = ", ".join(value) if isinstance(value, dict) else "none"
        raise OptionError(f"{place} has no text in the field {field!r}: its fields are {fields}")
    return str(value[field])


def _looks_like_json(lines: list[str]) -> bool:
    return bool(lines) and all(line.lstrip().startswith("{") for line in lines[:FEWEST_LINES])


def _looks_like_examples(text: str, lines: list[str]) -> bool:
    """Whether nearly every line ends like a sentence and no blank line separates paragraphs."""
    if len(lines) < FEWEST_LINES or "\n\n" in text.strip():
        return False
    ends = sum(bool(_SENTENCE_END.search(line)) for line in lines)
    return ends >= SENTENCE_SHARE * len(lines)
