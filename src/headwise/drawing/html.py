"""Pieces of the report's HTML: sections, tables, grids of heads, bars, images.

In: words and numbers. Out: HTML text. Whatever is not `Html` already is escaped here, and what an
image says where it is drawn, so that no name of a model and no token can become a tag. It knows
tables of heads, but no scan and no model.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from headwise.drawing.heatmap import clean, colour
from headwise.heads import HeadId, HeadTable

NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'
"""What an image needs in a file of its own, and not inside a page."""
HALFWAY = 0.1791
"""The luminance at which black and white are read equally well: (L + .05)^2 = 1.05 x .05."""


class Html(str):
    """Text that is HTML already."""


Cell = Callable[[HeadId, int], Html]
"""The cell of a head, told its row of the table."""


def shown(value: object) -> str:
    """Anything as HTML: escaped, on one line, unless it is HTML already."""
    return value if isinstance(value, Html) else escape(clean(str(value)))


def tag(name: str, *inner: object, **attributes: object) -> Html:
    """An element; `class_` is written class, and `_` in a name is a hyphen.

    >>> tag("b", "a < b", class_="strong")
    '<b class="strong">a &lt; b</b>'
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    written = "".join(f' {key}="{shown(value)}"' for key, value in named.items())
    return Html(f"<{name}{written}>{''.join(map(shown, inner))}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Several pieces as one."""
    return Html(escape(between).join(map(shown, parts)))


def section(name: str, title: str, *parts: object) -> Html:
    """A part of the page with a heading, which can be jumped to."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *parts, id=name, aria_labelledby=f"{name}-title")


def scrolled(label: str, inner: Html) -> Html:
    """What may be wider than the screen, to be moved by keyboard too."""
    return tag("div", inner, class_="scroll", role="region", aria_label=label, tabindex=0)


def data_table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[str] = (),
) -> Html:
    """A table whose first cells name its rows; the columns named in `numbers` stand at the right.

    A table without rows is nothing.
    """
    right = [column in numbers for column in columns]
    lines = [joined(_cells(row, right)) for row in rows]
    if not lines:
        return Html("")
    head = joined(
        tag("th", column, scope="col", **({"class_": "n"} if is_number else {}))
        for column, is_number in zip(columns, right, strict=True)
    )
    body = tag("tbody", *(tag("tr", line) for line in lines))
    whole = joined([titled(caption), tag("thead", tag("tr", head)), body])
    return scrolled(caption, tag("table", whole, class_="data"))


def titled(caption: str) -> Html:
    """What a table is of; it keeps to the screen where the table is wider."""
    return tag("caption", tag("span", caption))


def _cells(row: Sequence[object], right: Sequence[bool]) -> Iterable[Html]:
    yield tag("th", row[0], scope="row")
    for cell, is_number in zip(row[1:], right[1:], strict=True):
        yield tag("td", cell, **({"class_": "n"} if is_number else {}))


def grid(caption: str, table: HeadTable, stack: str, cell_of: Cell) -> Html:
    """Layers down, heads across; a blank where a layer has fewer heads."""
    rows = {
        head: row
        for row, head in enumerate(table.heads)
        if head.stack == stack
    }  # fmt: skip
    layers = list(dict.fromkeys(head.layer for head in rows))
    width = max(head.head for head in rows) + 1
    numbers = [tag("td", ""), *(tag("th", head, scope="col") for head in range(width))]
    lines = []
    for layer in layers:
        heads = [HeadId(layer, head, stack) for head in range(width)]
        cells = [cell_of(head, rows[head]) if head in rows else tag("td", "") for head in heads]
        lines.append(tag("tr", tag("th", f"L{layer}", scope="row"), *cells))
    said = f"{stack}: {caption}" if stack else caption
    whole = joined([titled(said), tag("thead", tag("tr", *numbers)), tag("tbody", *lines)])
    return scrolled(said, tag("table", whole, class_="grid"))


def value_cell(share: float, text: str, words: str) -> Html:
    """A cell of a grid with a number in it, coloured by its share of the largest."""
    if math.isnan(share):
        return tag("td", "", title=words, aria_label=words)
    back = colour(share)
    look = f"background:{back};color:{ink_on(back)}"
    return tag("td", text, class_="value", style=look, title=words, aria_label=words)


def ink_on(back: str) -> str:
    """Black or white, whichever is read better on a colour.

    >>> ink_on("#ffffff"), ink_on("#08306b")
    ('#000', '#fff')
    """
    return "#fff" if luminance(back) < HALFWAY else "#000"


def luminance(colour_: str) -> float:
    """Relative luminance of a colour such as #08306b, 0 to 1.

    https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
    """
    parts = [int(colour_[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def bar(share: float, level: float, words: str) -> Html:
    """A bar from 0 to 1 with a mark at the level that it is held against."""
    if math.isnan(share):
        return Html("")
    parts = [
        Html('<rect class="track" width="100" height="9"/>'),
        Html(f'<rect class="fill" width="{100 * min(max(share, 0), 1):.1f}" height="9"/>'),
    ]
    if not math.isnan(level):
        at = 100 * min(max(level, 0), 1) - 1
        parts.append(Html(f'<rect class="tick" x="{at:.1f}" width="2" height="9"/>'))
    return tag(
        "svg", *parts, class_="bar", viewBox="0 0 100 9", preserveAspectRatio="none",
        role="img", aria_label=words,
    )  # fmt: skip


def figure(svg: str, label: str, caption: object) -> Html:
    """An image of our own drawing inside the page, with its name and a caption."""
    assert svg.startswith("<svg") and ' role="img"' in svg, "an image that drawing made"
    named = f' role="img" aria-label="{shown(label)}"'
    inside = svg.strip().replace(NAMESPACE, "", 1).replace(' role="img"', named, 1)
    return tag("figure", Html(inside), tag("figcaption", caption))


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """Names and what they are; what is empty is left out."""
    known = [(name, value) for name, value in pairs if value not in (None, "")]
    return tag("dl", *(joined([tag("dt", name), tag("dd", value)]) for name, value in known))


def folded(summary: str, *inner: object) -> Html:
    """What is there for those who ask."""
    return tag("details", tag("summary", summary), *inner)


def points(lines: Iterable[object]) -> Html:
    """A list of sentences; nothing without any."""
    found = [tag("li", line) for line in lines]
    return tag("ul", *found, class_="points") if found else Html("")


def was(count: int) -> str:
    """The verb that goes with so many."""
    return "was" if count == 1 else "were"
