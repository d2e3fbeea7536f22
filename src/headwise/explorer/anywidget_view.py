"""The head view as an anywidget: its traits, and how a change to one updates the others.

In: a head table and, if maps are shown, a TextAnalysis. Out: a widget that head_view.js draws.
"""

import math
from collections import Counter
from dataclasses import asdict
from importlib import resources
from typing import Any

import anywidget
import traitlets

from headwise.explorer.maps import TILE, MapOptions, map_axes, map_cells, strongest_links
from headwise.explorer.text_analysis import TextAnalysis
from headwise.head_table import HeadTable
from headwise.heads import HeadId, check_head

FILES = resources.files("headwise.explorer") / "static"
SHADED = "normalised_entropy"
"""Measure that decides how dark a head is: faint heads attend widely or were not measured."""
FACTS = (SHADED, "confidence", "distance", "previous", "first", "special", "output_share")
"""Measures shown for the chosen head."""


class HeadView(anywidget.AnyWidget):
    """A widget with every head, the chosen head's map, and the text with an arc for each link."""

    _esm = (FILES / "head_view.js").read_text("utf-8")
    _css = (FILES / "head_view.css").read_text("utf-8")
    head: Any = traitlets.Unicode().tag(sync=True)
    names: Any = traitlets.List().tag(sync=True)
    shades: Any = traitlets.List().tag(sync=True)
    words: Any = traitlets.List().tag(sync=True)
    facts: Any = traitlets.List().tag(sync=True)
    row_labels: Any = traitlets.List().tag(sync=True)
    key_labels: Any = traitlets.List().tag(sync=True)
    cells: Any = traitlets.Dict().tag(sync=True)
    links: Any = traitlets.List().tag(sync=True)
    window: Any = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    token: Any = traitlets.Int(-1).tag(sync=True)

    def __init__(
        self,
        table: HeadTable,
        head: str | None,
        analysis: TextAnalysis | None = None,
        options: MapOptions | None = None,
    ) -> None:
        """Show `head`, or the table's first head if it is None; without `analysis`, show no map."""
        self._table, self._analysis, self._options = table, analysis, options or MapOptions()
        names = [str(each) for each in table.heads]
        values = list(table.df.get(SHADED, [math.nan] * len(table)))
        words = [
            ", ".join([f"entropy {value:.2f}"] * math.isfinite(value) + list(roles)) or "no role"
            for value, roles in zip(values, table.df["roles"], strict=True)
        ]
        chosen = self._full_name(head or names[0])
        super().__init__(
            head=chosen,
            names=names,
            shades=[1 - value if math.isfinite(value) else 0.0 for value in values],
            words=words,
            **self._parts(chosen),
        )

    def __repr__(self) -> str:
        return f"HeadView({self.head}, {len(self.names)} heads)"

    def _full_name(self, head: str) -> str:
        counts = Counter(each.layer_name for each in self._table.heads)
        return str(check_head(HeadId.parse(head), counts))

    def _parts(self, name: str) -> dict[str, Any]:
        """Values of the traits that depend on the chosen head."""
        self._first_linked = 0
        row, head = self._table[name], HeadId.parse(name)
        measures = [
            f"{column.replace('_', ' ')} {row[column]:.3f}"
            for column in FACTS
            if column in row and math.isfinite(row[column])
        ]
        parts: dict[str, Any] = {
            "facts": [", ".join(row["roles"]) or "no role found", "; ".join(measures)]
        }
        if self._analysis is not None:
            rows, keys = map_axes(self._analysis.labels(head.layer_name), self._options)
            parts |= {"row_labels": list(rows.labels), "key_labels": list(keys.labels)}
            parts |= {"cells": self._cells(name), "links": self._links(name)}
        return parts

    def _cells(self, head: str, window: dict[str, Any] | None = None) -> dict[str, Any]:
        if self._analysis is None:
            return {}
        part = (slice(*window["rows"]), slice(*window["keys"])) if window else None
        return asdict(map_cells(self._analysis, HeadId.parse(head), self._options, part))

    def _links(self, head: str) -> list[list[int | float]]:
        if self._analysis is None:
            return []
        rows = slice(self._first_linked, self._first_linked + TILE)
        return strongest_links(self._analysis, HeadId.parse(head), self._options, rows)

    @traitlets.validate("head")
    def _check(self, proposal: Any) -> str:
        return self._full_name(proposal["value"])

    @traitlets.observe("head")
    def _choose(self, change: Any) -> None:
        if change["old"]:
            self.set_trait("token", -1)
            self.set_trait("window", None)
            for name, value in self._parts(change["new"]).items():
                self.set_trait(name, value)

    @traitlets.observe("window")
    def _move(self, change: Any) -> None:
        if change["new"]:
            self.set_trait("cells", self._cells(self.head, change["new"]))

    @traitlets.observe("token")
    def _link(self, change: Any) -> None:
        """Send the links of the rows around the chosen token."""
        start = max(0, change["new"]) // TILE * TILE
        if change["new"] >= 0 and start != self._first_linked:
            self._first_linked = start
            self.set_trait("links", self._links(self.head))
