"""One text with all heads as one HTML file, which opens without Python and without a network.

In: a Session and a text, and for a pair the text with a word swapped. Out: the file's text: the
stage's modules joined into one script, the styles, and the data as JSON. Numbers are those that
the server sends, so that the file prints the same shares as the live page.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch

from headwise.errors import OptionError
from headwise.explorer.api_requests import PageRequest
from headwise.explorer.api_types import (
    Finding,
    HeadGrid,
    ModelAnswer,
    SavedPage,
    SavedPair,
    SavedWeights,
    TextAnswer,
)
from headwise.explorer.join_modules import join_modules, module_name
from headwise.explorer.maps import EVERY, MapOptions, as_steps, map_weights, stack_layers
from headwise.explorer.page_files import read_files
from headwise.formats import format_count
from headwise.progress import Progress, no_progress

if TYPE_CHECKING:
    from headwise.explorer.session import Session

MAX_TOKENS = 256
"""Largest number of tokens in a saved text: the weights grow with its square."""
MOST_FINDINGS = 4
DIGITS = 4
"""Significant digits of measures, of which the page prints fewer."""
SCRIPT = "stage/saved_host.js"
STYLES = ("stage/stage.css", "stage/view.css", "stage/saved.css")
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="headwise {version}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body class="hw-saved">
<noscript>This page needs JavaScript to show where the heads of {model} look in: {text}</noscript>
<script type="application/json" id="saved">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def saved_page(session: "Session", wanted: PageRequest, progress: Progress = no_progress) -> str:
    """The HTML of a saved page."""
    return page_html(saved_data(session, wanted, progress))


def saved_data(
    session: "Session", wanted: PageRequest, progress: Progress = no_progress
) -> SavedPage:
    """Everything that a saved page shows."""
    about = session.about()
    swap, is_open = wanted.swap, wanted.swap is not None
    if swap is None and about.pair is not None and wanted.text == about.pair.text:
        swap = about.pair.other
    text = _short_text(session, wanted.text, progress)
    pair, other = None, None
    if swap is not None and swap != wanted.text:
        other = _short_text(session, swap, progress)
        found = session.pair_answer(wanted.text, swap)
        aligned = found.aligned
        text = replace(text, findings=_with_swap(text, aligned.words or aligned.pieces, other))
        pair = SavedPair(other, aligned, found.carries, found.why_no_carries)
    texts = [each for each in (text, other) if each is not None]
    opens_pair = {"swap": swap} if is_open and other is not None and swap is not None else {}
    return SavedPage(
        version=version("headwise"),
        about=replace(about, other_texts=[], lesson_pair=None),
        text=text,
        pair=pair,
        weights={each.name: _weights(session, each) for each in texts},
        state=opens_pair | dict(wanted.state),
        missing=_missing(about, version("headwise")),
    )


def page_html(saved: SavedPage) -> str:
    """The HTML file of a saved page."""
    files = read_files()
    script = f"{joined_script(files, SCRIPT)}{module_name(SCRIPT)}.openPage();\n"
    style = joined_style(files, STYLES)
    title = f"{shorten(saved.text.text)} \N{EN DASH} {saved.about.title} \N{EN DASH} headwise"
    return PAGE.format(
        policy=POLICY.format(script=_sha256(script), style=_sha256(style)),
        version=saved.version,
        title=html.escape(title),
        model=html.escape(saved.about.title),
        text=html.escape(saved.text.text),
        style=style,
        data=script_json(asdict(saved)),
        script=script,
    )


def joined_script(files: Mapping[str, bytes], entry: str) -> str:
    """A module and all that it imports as one script, which may stand in an HTML file."""
    script = join_modules(files, entry)
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise AssertionError(f"{entry} has a string that ends a script element")
    return script


def joined_style(files: Mapping[str, bytes], names: tuple[str, ...]) -> str:
    """Style sheets as one, without comments and indentation."""
    style = "\n".join(files[name].decode() for name in names if name in files)
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    return re.sub(r"\n\s*", "\n", style).strip()


def script_json(value: object) -> str:
    """JSON that may stand in a script element; `<` is escaped, so that no text can end it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )


def shorten(text: str, most: int = 60) -> str:
    """A text in one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def file_name(model: str, text: str) -> str:
    """Name of a saved page's file, such as "minilm-the-animal-didnt-cross.html"."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("'", ""))[:5]
    base = re.sub(r"[^a-z0-9.]+", "-", model.rpartition("/")[2].lower()).strip("-.")
    return "-".join([base or "model", *words]) + ".html"


def encode_weights(session: "Session", answer: TextAnswer, stack: str) -> SavedWeights:
    """Weights of all heads of a stack, as the server sends them: by word if there are words."""
    analysis = session.read(answer.text)
    options = MapOptions(is_by_word=answer.stacks[stack].words is not None)
    parts = [
        map_weights(analysis, layer, options, EVERY, EVERY)
        for layer in stack_layers(analysis, stack)
    ]
    weights = torch.cat(parts)
    values = base64.b64encode(as_steps(weights)).decode("ascii")
    return SavedWeights(list(weights.shape), values)


def _weights(session: "Session", answer: TextAnswer) -> dict[str, SavedWeights]:
    return {stack: encode_weights(session, answer, stack) for stack in answer.stacks}


def _short_text(session: "Session", text: str, progress: Progress) -> TextAnswer:
    """The answer on a text; raises OptionError if it is too long to be saved."""
    answer = session.text_answer(text, progress)
    if answer.tokens + answer.left_out > MAX_TOKENS:
        count = format_count(answer.tokens + answer.left_out, "token")
        raise OptionError(
            f"the text has {count}: a saved page holds up to {MAX_TOKENS}; shorten the text"
        )
    return replace(answer, is_small=True, heads=_rounded(answer.heads))


def _rounded(grid: HeadGrid) -> HeadGrid:
    """A grid whose measures have few digits."""
    measures = {
        name: [None if value is None else float(f"{value:.{DIGITS}g}") for value in values]
        for name, values in grid.measures.items()
    }
    return replace(grid, measures=measures)


def _with_swap(
    text: TextAnswer, aligned: list[list[int | None]], other: TextAnswer
) -> list[Finding]:
    """Findings on a text that include the swap, so that the saved pair can be opened."""
    if any(each.kind == "swap" and each.text == other.text for each in text.findings):
        return text.findings
    rows = [_rows(answer) for answer in (text, other)]
    changed = [
        place
        for one, place in aligned
        if place is not None and (one is None or rows[0][one] != rows[1][place])
    ]
    word = rows[1][changed[0]] if changed else ""
    others = [each for each in text.findings if each.kind != "swap"][: MOST_FINDINGS - 1]
    return [*others, Finding("swap", word=word, text=other.text)]


def _rows(answer: TextAnswer) -> list[str]:
    """The words of a text's first stack, or its pieces."""
    axes = next(iter(answer.stacks.values()))
    return [word.text for word in (axes.words or axes.pieces).rows]


def _missing(about: ModelAnswer, version: str) -> str:
    """The sentence at the foot of a saved page."""
    command = f" (headwise explore {about.loads_as})" if about.loads_as else ""
    return (
        f"Saved by headwise {version}. Other sentences, other swaps, pieces of words, measures of "
        f"one head, What if and the lesson need the model{command}."
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
