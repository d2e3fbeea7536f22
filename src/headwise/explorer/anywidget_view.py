"""The part of the widget that needs anywidget: its traits, and what follows when one changes."""

from importlib import resources
from typing import Any

import anywidget
import traitlets

from headwise.explorer.maps import TILE
from headwise.explorer.widget import WidgetData

FILES = resources.files("headwise.explorer") / "static"


class HeadView(anywidget.AnyWidget):
    """Heads to choose from, the map of the chosen one, and the sentence with its arcs."""

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

    def __init__(self, data: WidgetData, head: str | None) -> None:
        """Show `head` first, or the first head of the table."""
        self._data = data
        shades, words = data.shades()
        parts = self._parts(data.check_name(head or data.names[0]))
        super().__init__(names=data.names, shades=shades, words=words, **parts)

    def __repr__(self) -> str:
        """The chosen head, and the number of heads."""
        return f"HeadView({self.head}, {len(self.names)} heads)"

    def _parts(self, head: str) -> dict[str, Any]:
        data = self._data
        rows, keys = data.axes(head)
        self._first_linked = 0
        return {
            "head": head,
            "row_labels": rows,
            "key_labels": keys,
            "facts": data.facts(head),
            "cells": data.cells(head, None),
            "links": data.links(head),
        }

    @traitlets.validate("head")
    def _check(self, proposal: Any) -> str:
        return self._data.check_name(proposal["value"])

    @traitlets.observe("head")
    def _choose(self, change: Any) -> None:
        if change["old"]:
            self.set_trait("token", -1)
            self.set_trait("window", None)
            for name, value in self._parts(change["new"]).items():
                if name != "head":
                    self.set_trait(name, value)

    @traitlets.observe("window")
    def _move(self, change: Any) -> None:
        if change["new"]:
            self.set_trait("cells", self._data.cells(self.head, change["new"]))

    @traitlets.observe("token")
    def _link(self, change: Any) -> None:
        """Send the links of the tile that the chosen token is in."""
        start = max(0, change["new"]) // TILE * TILE
        if change["new"] >= 0 and start != self._first_linked:
            self._first_linked = start
            self.set_trait("links", self._data.links(self.head, start))
