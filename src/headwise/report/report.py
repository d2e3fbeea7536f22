"""The report: one page about a model's heads that needs no other file, no script and no network.

In: what a scan found, and importance and a cut if there are any. Out: HTML. `report_page` is a
function of tables alone; `gather` reads them from folders and asks the model for maps.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.drawing.html import Html, details, fact_list, page, section, tag
from headwise.formats import format_count, format_number
from headwise.report import cut_sections, relations_section
from headwise.report.data import ReportData, dict_of, read_folders
from headwise.report.grids import grids
from headwise.report.heads_section import summary
from headwise.report.maps import SENTENCE, draw_maps
from headwise.report.roles_section import roles
from headwise.report.style import style

if TYPE_CHECKING:
    from headwise.models.loaded import LoadedModel

WORTH = ("objective", "unit", "examples", "source", "sha256")
VERSIONS = ("headwise", "torch", "transformers", "numpy")


def gather(
    scan: Path,
    *,
    importance: Path | None = None,
    prune: Path | None = None,
    text: str = SENTENCE,
    model: "LoadedModel | None" = None,
) -> ReportData:
    """What the folders hold, with attention maps where the scanned model can be loaded."""
    found = read_folders(scan, importance, prune)
    return replace(found, drawn=draw_maps(found.table, text, model))


def report_page(found: ReportData) -> str:
    """The whole page."""
    title = f"The attention heads of {found.model}"
    parts = [
        summary(found),
        grids(found.table),
        roles(found),
        relations_section.relations(found),
        relations_section.redundancy(found, cut_sections.stand_ins(found.worth)),
    ]
    named = [
        ("summary", "In short"),
        ("grid", "Every head"),
        ("roles", "Roles"),
        ("relations", "Relations"),
        ("alike", "Alike"),
    ]
    if found.worth is not None:
        parts.append(cut_sections.importance(found.worth))
        named.append(("importance", "Worth"))
    if found.cut is not None:
        parts.append(cut_sections.cuts(found, found.cut))
        named.append(("cut", "Cut"))
    parts.append(provenance_section(found))
    named.append(("making", "How it was made"))
    links = [tag("li", tag("a", name, href=f"#{place}")) for place, name in named]
    body = [
        tag("a", "To the report", class_="skip", href="#main"),
        tag("header", tag("h1", title), tag("p", LEAD, class_="lead"), key_figures(found)),
        tag("nav", tag("ul", *links), aria_label="Parts of this report"),
        tag("main", *parts, id="main"),
        tag("footer", tag("p", FOOT)),
    ]
    head = (
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<link rel="icon" href="data:,"><style>{style()}</style>'
    )
    return page(title, head, f"<body>{''.join(part + chr(10) for part in body)}</body>")


POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What the browser is told to refuse: every script, and every file from elsewhere."""
LEAD = "What each head looks at, which do the same, and how that was measured."
FOOT = "Written by headwise. This file holds everything it shows and asks for nothing else."


def key_figures(found: ReportData) -> Html:
    """The figures that come first."""
    return tag(
        "ul",
        *(tag("li", tag("b", number), words) for number, words in tile_facts(found)),
        class_="tiles",
    )


def tile_facts(found: ReportData) -> Iterator[tuple[str, str]]:
    """A few numbers, each with what it counts."""
    yield f"{len(found.table):,}", "heads"
    yield f"{found.table.num_layers:,}", "layers"
    yield f"{len(found.table) - len(found.table.without_role):,}", "heads with a role"
    if found.tokens:
        yield f"{found.tokens:,}", "tokens of text read"
    if found.cut is not None:
        yield f"{len(found.cut.heads):,}", "heads cut"
        after = found.cut.qualities.get("refitted", found.cut.qualities.get("cut", (None, None)))
        if after[1] is not None:
            yield format_number(after[1]), f"{found.cut.unit} after the cut"


def provenance_section(found: ReportData) -> Html:
    """Everything that the figures depend on."""
    about = found.table.about
    known = dict_of(about, "loaded")
    kept = in_one_line(known["kept"]) if "kept" in known else ""
    text = "built-in text" if found.text_read else "text of your own" if about.get("texts") else ""
    parts = [
        tag(
            "p",
            "The same model, text, settings and versions give the same figures. Weights are those "
            "of the attention after the softmax, and means are over every row unless rows were "
            "sampled, which is said below.",
        ),
        fact_list(
            [
                ("model", found.model),
                ("loaded from", known.get("source")),
                ("revision", about.get("revision")),
                ("commit", known.get("commit")),
                ("SHA-256 of the weights", known.get("sha256")),
                ("class", known.get("class")),
                ("dtype", known.get("dtype")),
                ("heads, by their numbers before a cut", kept),
                ("rows measured", about.get("rows")),
                ("read", ", ".join(f"{name.replace('_', ' ')} {count:,}"
                                   for name, count in found.counts.items())),
                ("text", text),
                ("SHA-256 of the text", about.get("texts")),
                ("settings", in_one_line(about.get("settings"))),
                ("versions", ", ".join(f"{one} {about[one]}" for one in VERSIONS if one in about)),
                ("sentence of the maps", found.drawn.text if found.drawn.maps else ""),
            ]
        ),
    ]  # fmt: skip
    if found.worth is not None:
        worth = found.worth.table.about
        parts.append(tag("h3", "What heads are worth"))
        parts.append(fact_list([(name, worth.get(name)) for name in WORTH]))
    if found.cut is not None:
        cut = found.cut.about
        parts.append(tag("h3", "The cut"))
        parts.append(fact_list([(name, in_one_line(value)) for name, value in cut.items()]))
    if found.text_read:
        quoted = [tag("blockquote", text) for text in found.text_read]
        title = f"The text that was read: {format_count(len(quoted), 'document')}"
        parts.append(details(title, *quoted))
    return section("making", "How it was made", *parts)


def in_one_line(value: Any) -> str:
    """Settings as a reader takes them in: names and values, lists in brackets."""
    if isinstance(value, dict):
        return "; ".join(f"{name} {in_one_line(one)}" for name, one in value.items())
    if isinstance(value, list):
        return f"[{', '.join(map(in_one_line, value))}]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
