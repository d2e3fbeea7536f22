"""The report: one HTML page about a model's heads, without scripts, other files or network access.

Data is read in headwise.report.data; maps are drawn in headwise.report.maps.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwise.drawing.html import Html, details, fact_list, page, section, tag
from headwise.formats import format_count, format_number
from headwise.models.fingerprint import digest_texts
from headwise.reading.corpus import scan_texts
from headwise.report.comparison_section import comparison_section
from headwise.report.cut_sections import cut_section, importance_section, stand_ins_part
from headwise.report.data import ReportData
from headwise.report.heads_section import grid_section, summary_section
from headwise.report.patch_section import patch_section
from headwise.report.relations_section import relations_section, similarity_section
from headwise.report.roles_section import roles_section
from headwise.roles import ROLES, UNKNOWN_ROLE
from headwise.views.heads import dict_in

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: no scripts and no external files."""
IMPORTANCE_FACTS = ("objective", "unit", "examples", "source", "sha256")
CUT_FACTS = ("settings", "versions", "text")
PATCH_FACTS = ("metric", "pairs", "tokens", "part", "positions", "direction", "source", "sha256")
COMPARISON_FACTS = ("model_before", "model_after", "objective", "max_tokens", "seed", "versions")
VERSIONS = ("headwise", "torch", "transformers", "numpy")


def report_page(data: ReportData) -> str:
    """The report as an HTML page."""
    title = f"The attention heads of {data.model}"
    parts = [
        ("summary", "In short", summary_section(data)),
        ("grid", "Every head", grid_section(data.table)),
        ("roles", "Roles", roles_section(data)),
        ("relations", "Relations", relations_section(data)),
        ("alike", "Similar heads", similarity_section(data, stand_ins_part(data.importance))),
    ]
    if data.importance is not None:
        parts.append(("importance", "Importance", importance_section(data.importance)))
    if data.patched is not None:
        parts.append(("patch", "Patching", patch_section(data.patched)))
    if data.cut is not None:
        parts.append(("cut", "Cut", cut_section(data, data.cut)))
    if data.comparison is not None:
        parts.append(("comparison", "Comparison", comparison_section(data.comparison)))
    parts.append(("making", "How it was made", _provenance_section(data)))
    links = [tag("li", tag("a", name, href=f"#{anchor}")) for anchor, name, _ in parts]
    lead = "What each head looks at, which heads do the same, and how that was measured."
    foot = "Written by headwise. This file contains everything it shows and loads nothing else."
    body = [
        tag("a", "Skip to the report", class_="skip", href="#main"),
        tag("header", tag("h1", title), tag("p", lead, class_="lead"), _key_figures(data)),
        tag("nav", tag("ul", *links), aria_label="Parts of this report"),
        tag("main", *(part for _, _, part in parts), id="main"),
        tag("footer", tag("p", foot)),
    ]
    head = (
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<link rel="icon" href="data:,"><style>{style_sheet()}</style>'
    )
    return page(title, head, "<body>" + "\n".join(body) + "</body>")


def style_sheet() -> str:
    """The rules in style.css, and the colours of a cell's first role (a) and second role (b)."""
    rules = Path(__file__).with_name("style.css").read_text("utf-8")
    roles = "".join(
        f".{place}-{role.name} {{ --{place}: {role.light}; }} "
        for role in (*ROLES.values(), UNKNOWN_ROLE)
        for place in "ab"
    )
    return " ".join(f"{rules} {roles}".split())


def _key_figures(data: ReportData) -> Html:
    table = data.table
    figures = {
        "heads": f"{len(table):,}",
        "layers": f"{table.num_layers:,}",
        "heads with a role": f"{len(table) - len(table.without_role):,}",
    }
    if data.tokens:
        figures["tokens of text read"] = f"{data.tokens:,}"
    if data.cut is not None:
        quality = data.cut.quality
        figures["heads cut"] = f"{len(data.cut.heads_cut):,}"
        figures[f"{quality.unit} after the cut"] = format_number(quality.scores.final.value)
    items = (tag("li", tag("b", number), meaning) for meaning, number in figures.items())
    return tag("ul", *items, class_="tiles")


def _provenance_section(data: ReportData) -> Html:
    about = data.table.about
    loaded = dict_in(about, "loaded")
    digest = about.get("texts")
    is_built_in = digest == digest_texts(scan_texts())
    text = "built-in text" if is_built_in else "your own text"
    counts = (f"{name.replace('_', ' ')} {count:,}" for name, count in data.counts.items())
    versions = (f"{name} {about[name]}" for name in VERSIONS if name in about)
    parts = [
        tag(
            "p",
            "The same model, text, settings and versions give the same numbers. Weights are "
            "attention weights after the softmax. Means are over every row, unless rows were "
            "sampled: see below.",
        ),
        fact_list(
            [
                ("model", data.model),
                ("loaded from", loaded.get("source")),
                ("revision", about.get("revision")),
                ("commit", loaded.get("commit")),
                ("SHA-256 of the weights", loaded.get("sha256")),
                ("class", loaded.get("class")),
                ("dtype", loaded.get("dtype")),
                ("head numbers before a cut", _one_line(loaded.get("kept", ""))),
                ("rows measured", about.get("rows")),
                ("read", ", ".join(counts)),
                ("text", text if digest else ""),
                ("SHA-256 of the text", digest),
                ("settings", _one_line(about.get("settings"))),
                ("versions", ", ".join(versions)),
                ("sentence in the maps", data.maps.text if data.maps.by_head else ""),
            ]
        ),
    ]
    if data.importance is not None:
        facts = data.importance.table.about
        parts.append(tag("h3", "Importance"))
        parts.append(fact_list((name, facts.get(name)) for name in IMPORTANCE_FACTS))
    if data.patched is not None:
        facts = data.patched.table.about
        parts.append(tag("h3", "Patching"))
        parts.append(fact_list((name, _one_line(facts.get(name))) for name in PATCH_FACTS))
    if data.cut is not None:
        parts.append(tag("h3", "The cut"))
        facts = asdict(data.cut)
        parts.append(fact_list((name, _one_line(facts[name])) for name in CUT_FACTS))
    if data.comparison is not None:
        parts.append(tag("h3", "The comparison"))
        facts = asdict(data.comparison)
        parts.append(
            fact_list((name.replace("_", " "), _one_line(facts[name])) for name in COMPARISON_FACTS)
        )
    if is_built_in:
        texts = scan_texts()
        title = f"The text that was read: {format_count(len(texts), 'document')}"
        parts.append(details(title, *(tag("blockquote", text) for text in texts)))
    return section("making", "How it was made", *parts)


def _one_line(value: Any) -> str:
    """Nested settings on one line: names and values, lists in brackets."""
    if isinstance(value, dict):
        return "; ".join(f"{name} {_one_line(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_one_line, value))}]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
