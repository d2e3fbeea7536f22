"""What of the widget needs anywidget: its traits, and what follows when one of them changes."""

from importlib import resources
from typing import Any

import anywidget
import traitlets

from headwise.explorer.head_panel import MOST_ROWS
from headwise.explorer.widget import Shown

FILES = resources.files("headwise.explorer") / "static"


class HeadView(anywidget.AnyWidget):
    """Heads to choose from, the chosen one's map and the sentence with its arcs."""

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

    def __init__(self, shown: Shown, head: str) -> None:
        """Show one head first."""
        self._shown = shown
        shades, words = shown.shades()
        parts = self._parts(shown.checked(head))
        super().__init__(names=shown.names, shades=shades, words=words, **parts)

    def __repr__(self) -> str:
        """The chosen head, and of how many."""
        return f"HeadView({self.head}, {len(self.names)} heads)"

    def _parts(self, head: str) -> dict[str, Any]:
        shown = self._shown
        rows, keys = shown.axes(head)
        self._linked = 0  # the row that the links begin at
        return {
            "head": head,
            "row_labels": rows,
            "key_labels": keys,
            "facts": shown.facts(head),
            "cells": shown.cells(head, None),
            "links": shown.links(head),
        }

    @traitlets.validate("head")
    def _check(self, proposal: Any) -> str:
        return self._shown.checked(proposal["value"])

    @traitlets.observe("head")
    def _choose(self, change: Any) -> None:
        if change["old"]:
            self.set_trait("token", -1)
            self.set_trait("window", None)
            for name, value in self._parts(change["new"]).items():
                if name != "head":
                    self.set_trait(name, value)

    @traitlets.observe("window")
    def _look(self, change: Any) -> None:
        if change["new"]:
            self.set_trait("cells", self._shown.cells(self.head, change["new"]))

    @traitlets.observe("token")
    def _follow(self, change: Any) -> None:
        start = max(0, change["new"]) // MOST_ROWS * MOST_ROWS
        if change["new"] >= 0 and start != self._linked:
            self._linked = start
            self.set_trait("links", self._shown.links(self.head, start))
