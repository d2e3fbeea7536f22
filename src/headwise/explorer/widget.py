"""The explorer's head view in a notebook; the chosen head is available in Python.

In: a model and a text, or only a head table. Out: an anywidget for Jupyter, VS Code and marimo,
drawn by the same file as the explorer's page, without a network.
"""

import importlib.util
import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headwise.errors import MissingPackage, OptionError
from headwise.formats import format_count
from headwise.heads import HeadId, HeadTable, check_head

if TYPE_CHECKING:
    from headwise.explorer.maps import MapOptions
    from headwise.explorer.text_analysis import TextAnalysis
    from headwise.models.loaded import Source

SHADED = "normalised_entropy"
"""The measure that shades heads: faint ones attend to many tokens, or were not measured."""
FACTS = (SHADED, "confidence", "distance", "previous", "first", "special", "output_share")
"""Measures shown of the chosen head."""


def view(
    model: "Source",
    text: str,
    *,
    head: str | None = None,
    tokenizer: Any = None,
    look: "MapOptions | None" = None,
) -> Any:
    """A view of every head of a model on a text, for a notebook; `view.head` is the chosen one.

    view = headwise.view("minilm", "The cat sat on the mat because it was warm.")
    view.head  # "L0H0", or the head that was clicked last
    """
    _check_package()
    from headwise.errors import warn_user
    from headwise.explorer.anywidget_view import HeadView
    from headwise.explorer.text_analysis import analyse_text
    from headwise.models.loaded import open_model

    loaded = open_model(model, tokenizer)
    if loaded.tokenizer is None:
        raise OptionError(f"{loaded.name} has no tokenizer: pass one as tokenizer")
    analysis = analyse_text(loaded, text)
    if extra := analysis.left_out:
        warn_user(f"the text is {format_count(extra, 'token')} too long: its end was left out")
    return HeadView(WidgetData(analysis.table, analysis, look), head)


def view_table(table: HeadTable, *, head: str | None = None) -> Any:
    """A view of a table's heads, for a notebook; `view.head` is the chosen one."""
    _check_package()
    from headwise.explorer.anywidget_view import HeadView

    return HeadView(WidgetData(table), head)


def _check_package() -> None:
    if importlib.util.find_spec("anywidget") is None:
        raise MissingPackage("views in notebooks need anywidget: pip install 'headwise[notebook]'")


class WidgetData:
    """Facts and maps of heads, as the widget shows them."""

    def __init__(
        self,
        table: HeadTable,
        analysis: "TextAnalysis | None" = None,
        options: "MapOptions | None" = None,
    ) -> None:
        """Show the heads of `table`, with their maps if `analysis` is given."""
        self.table, self.analysis, self._options = table, analysis, options
        self.names = [str(head) for head in table.heads]

    def check_name(self, head: str) -> str:
        """The head's full name; raises OptionError if the table does not have it."""
        counts = Counter(each.layer_name for each in self.table.heads)
        return str(check_head(HeadId.parse(head), counts))

    def shades(self) -> tuple[list[float], list[str]]:
        """Shade of each head from 0 to 1, and its description."""
        missing = [math.nan] * len(self.table)
        values = self.table.df[SHADED].tolist() if SHADED in self.table.df else missing
        words = [
            ", ".join([f"entropy {value:.2f}"] * math.isfinite(value) + list(roles)) or "no role"
            for value, roles in zip(values, self.table.df["roles"], strict=True)
        ]
        return [1 - value if math.isfinite(value) else 0.0 for value in values], words

    def facts(self, head: str) -> list[str]:
        """Lines about a head: its roles and measures."""
        row = self.table[head]
        measures = [
            f"{name.replace('_', ' ')} {row[name]:.3f}"
            for name in FACTS
            if name in row and math.isfinite(row[name])
        ]
        return [", ".join(row["roles"]) or "no role found", "; ".join(measures)]

    @property
    def options(self) -> "MapOptions":
        """How maps are shown."""
        from headwise.explorer.maps import MapOptions

        return self._options or MapOptions()

    def axes(self, head: str) -> tuple[list[str], list[str]]:
        """Labels of the rows and keys of a head's map."""
        if self.analysis is None:
            return [], []
        from headwise.explorer.maps import map_axes

        rows, keys = map_axes(self.analysis.labels(HeadId.parse(head).layer_name), self.options)
        return list(rows.labels), list(keys.labels)

    def cells(self, head: str, window: dict[str, Any] | None) -> dict[str, Any]:
        """A part of a head's map, or all of it, as the fields of MapCells."""
        if self.analysis is None:
            return {}
        from headwise.explorer.maps import map_tile

        parts = (slice(*window["rows"]), slice(*window["keys"])) if window else None
        return asdict(map_tile(self.analysis, HeadId.parse(head), self.options, parts).cells())

    def links(self, head: str, start: int = 0) -> list[list[int | float]]:
        """The strongest links of a head, from row `start`."""
        if self.analysis is None:
            return []
        from headwise.explorer.maps import TILE, strongest_links

        rows = slice(start, start + TILE)
        return strongest_links(self.analysis, HeadId.parse(head), self.options, rows)
