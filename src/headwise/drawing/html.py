"""HTML and SVG from text and numbers: tags, sections, bars, images, pages.

Everything except `Html` is escaped here, so that no model name or token can become a tag.
"""

import math
import re
from collections.abc import Iterable, Sequence
from html import escape

SVG_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'
"""Needed by an SVG file, but not by an SVG element inside an HTML page."""
FONT, INK = 11, "#1b1b1b"
LETTER = 0.58
"""Average width of a letter in a sans-serif font, as a share of the font size."""

STYLE = (
    "<style>.headwise{font:14px/1.45 system-ui,sans-serif;color:#1b1b1b;background:#fff;"
    "overflow-x:auto}body.headwise{margin:2em auto;padding:0 1em;max-width:72em}"
    ".headwise table{border-collapse:collapse;margin:.6em 0}"
    ".headwise td,.headwise th{padding:.15em .6em;text-align:left;border-bottom:1px solid #ddd;"
    "font-variant-numeric:tabular-nums}.headwise th{font-weight:600}"
    ".headwise .n{text-align:right}.headwise caption{text-align:left;padding:.15em .6em}"
    ".headwise svg{max-width:100%;height:auto}</style>"
)
"""Style sheet for notebook fragments and for pages other than the report."""


class Html(str):
    """Text that is already HTML, so it is not escaped."""


def to_html(value: object) -> str:
    """Any value as escaped HTML on one line; `Html` is returned unchanged.

    Characters that XML forbids become the replacement character.
    """
    if isinstance(value, Html):
        return value
    forbidden = r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    text = re.sub(forbidden, "\N{REPLACEMENT CHARACTER}", str(value))
    return escape(re.sub(r"\s+", " ", text))


def tag(name: str, *inner: object, **attributes: object) -> Html:
    """An element; in the names of attributes, a final `_` is dropped and others become hyphens.

    >>> tag("b", "a < b", class_="strong")
    '<b class="strong">a &lt; b</b>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{to_html(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{''.join(map(to_html, inner))}</{name}>")


def join_html(parts: Iterable[object], separator: str = "") -> Html:
    """The parts as one piece of HTML."""
    return Html(escape(separator).join(map(to_html, parts)))


def section(name: str, title: str, *parts: object) -> Html:
    """A section of a page, with a heading; links to the section use `#name`."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *parts, id=name, aria_labelledby=f"{name}-title")


def scrolling(label: str, inner: Html) -> Html:
    """A region that scrolls sideways when its content is wider than the screen."""
    named = {"role": "region", "aria_label": label} if label else {}
    return tag("div", inner, class_="scroll", **named, tabindex=0)


def bar_html(share: float, level: float, label: str) -> Html:
    """A bar from 0 to 1 with a tick at `level`; empty if `share` is NaN."""
    if math.isnan(share):
        return Html("")
    parts = [
        Html('<rect class="track" width="100" height="9"/>'),
        Html(f'<rect class="fill" width="{100 * min(max(share, 0), 1):.1f}" height="9"/>'),
    ]
    if not math.isnan(level):
        x = 100 * min(max(level, 0), 1) - 1
        parts.append(Html(f'<rect class="tick" x="{x:.1f}" width="2" height="9"/>'))
    return tag(
        "svg", *parts, class_="bar", viewBox="0 0 100 9", preserveAspectRatio="none",
        role="img", aria_label=label,
    )  # fmt: skip


def svg_image(title: str, width: int | float, height: int | float, *parts: Html) -> str:
    """A complete SVG file: the parts on a white background."""
    return (
        f'<svg{SVG_NAMESPACE} viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" font-size="{FONT}" '
        f'font-family="Helvetica, Arial, sans-serif" fill="{INK}">{tag("title", title)}'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def svg_text(
    x: int | float, y: int | float, text: str, anchor: str = "start", **attributes: object
) -> Html:
    """A line of text; `anchor` says which point of it is at `x`: start, middle or end."""
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, **attributes)


def label_width(labels: Sequence[str]) -> int:
    """Width of the longest label in an image, plus a margin."""
    return round(max(map(len, labels), default=0) * FONT * LETTER + 8)


def figure_html(svg: str, label: str, caption: object) -> Html:
    """An SVG image from headwise.drawing as part of a page, with a label and a caption."""
    assert svg.startswith("<svg") and ' role="img"' in svg, "not an image from headwise.drawing"
    inside = svg.strip().replace(SVG_NAMESPACE, "", 1)
    inside = inside.replace(' role="img"', f' role="img" aria-label="{to_html(label)}"', 1)
    return tag("figure", Html(inside), tag("figcaption", caption))


def fact_list(pairs: Iterable[tuple[str, object]]) -> Html:
    """A list of names and values, without the pairs whose value is missing or empty."""
    known = [(name, value) for name, value in pairs if value not in (None, "")]
    return tag("dl", *(join_html([tag("dt", name), tag("dd", value)]) for name, value in known))


def details(summary: str, *inner: object) -> Html:
    """Content that is collapsed until the reader opens it."""
    return tag("details", tag("summary", summary), *inner)


def bullets(lines: Iterable[object]) -> Html:
    """A bulleted list; empty if there are no lines."""
    items = [tag("li", line) for line in lines]
    return tag("ul", *items, class_="points") if items else Html("")


def notebook_html(*parts: object) -> str:
    """A fragment for a notebook, with its own style sheet."""
    return f"{STYLE}{tag('div', *parts, class_='headwise')}"


def page(title: str, head: str, body: str) -> str:
    """A complete HTML document that needs no other file; `head` and `body` are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{to_html(title)}</title>{head}</head>\n{body}</html>\n"
    )
