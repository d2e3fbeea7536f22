"""The widget: the explorer's head view in a notebook, and the chosen head back in Python.

In: a model and a text, or a head table alone. Out: an anywidget for Jupyter, VS Code and marimo. It
draws with the same file as the explorer's page, and needs no network.
"""

import importlib.util
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from headwise.errors import MissingPackage, OptionError
from headwise.formats import format_count
from headwise.heads import HeadId, HeadTable, check_head

if TYPE_CHECKING:
    from headwise.explorer.maps import MapOptions
    from headwise.explorer.text_analysis import TextAnalysis
    from headwise.models.loaded import Source

SHADED = "normalised_entropy"
"""The measure that heads are shaded by: faint ones look at many tokens, or were not measured."""
TOLD = (SHADED, "confidence", "distance", "previous", "first", "special", "output_share")


def check_package() -> None:
    """Raise where anywidget is missing."""
    if importlib.util.find_spec("anywidget") is None:
        raise MissingPackage("views in notebooks need anywidget: pip install 'headwise[notebook]'")


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
    view.head  # "L0H0", or what was clicked since
    """
    check_package()
    from headwise.errors import warn_user
    from headwise.explorer.anywidget_view import HeadView
    from headwise.explorer.text_analysis import read
    from headwise.pruning.setting import make_subject

    subject = make_subject(model, tokenizer)
    if subject.tokenizer is None:
        raise OptionError(f"{subject.name} has no tokenizer: give one")
    reading = read(subject, text)
    if left := reading.left_out:
        warn_user(f"the text is {format_count(left, 'token')} too long: its end was left out")
    return HeadView(Shown(reading.table, reading, look), head or str(reading.table.heads[0]))


def view_table(table: HeadTable, *, head: str | None = None) -> Any:
    """A view of a table's heads, for a notebook; `view.head` is the chosen one."""
    check_package()
    from headwise.explorer.anywidget_view import HeadView

    return HeadView(Shown(table), head or str(table.heads[0]))


class Shown:
    """What a view shows: facts and maps of heads."""

    def __init__(
        self,
        table: HeadTable,
        reading: "TextAnalysis | None" = None,
        look: "MapOptions | None" = None,
    ) -> None:
        """A table, and a reading where there is one."""
        self.table, self.reading, self.look = table, reading, look

    @property
    def names(self) -> list[str]:
        """Every head."""
        return list(map(str, self.table.heads))

    def checked(self, head: str) -> str:
        """The head as it is named everywhere, if it is there."""
        counts = Counter(one.layer_name for one in self.table.heads)
        return str(check_head(HeadId.parse(head), counts))

    def shades(self) -> tuple[list[float], list[str]]:
        """How strongly each head is shaded, and in words."""
        missing = [math.nan] * len(self.table)
        values = self.table.df[SHADED].tolist() if SHADED in self.table.df else missing
        words = [
            ", ".join([f"entropy {value:.2f}"] * math.isfinite(value) + list(roles)) or "no role"
            for value, roles in zip(values, self.table.df["roles"], strict=True)
        ]
        return [1 - value if math.isfinite(value) else 0.0 for value in values], words

    def facts(self, head: str) -> list[str]:
        """Lines about a head."""
        row = self.table[head]
        shown = [
            f"{name.replace('_', ' ')} {row[name]:.3f}"
            for name in TOLD
            if name in row and math.isfinite(row[name])
        ]
        roles = ", ".join(row["roles"]) or "no role found"
        return [roles, "; ".join(shown)]

    def axes(self, head: str) -> tuple[list[str], list[str]]:
        """Labels of the rows and keys of a head's map."""
        if self.reading is None:
            return [], []
        from headwise.explorer.maps import axes_of

        rows, keys = axes_of(self.reading.labels(HeadId.parse(head).layer_name), self._look)
        return list(rows.labels), list(keys.labels)

    @property
    def _look(self) -> "MapOptions":
        from headwise.explorer.maps import MapOptions

        return self.look or MapOptions()

    def cells(self, head: str, window: dict[str, Any] | None) -> dict[str, Any]:
        """A part of a head's map, or all of it thinned out."""
        if self.reading is None:
            return {}
        from headwise.explorer.maps import TILE, part_of_map, whole_map

        at, look = HeadId.parse(head), self._look
        whole = [[0, len(axis)] for axis in self.axes(head)]
        rows, keys = (window["rows"], window["keys"]) if window else whole
        if max(rows[1] - rows[0], keys[1] - keys[0]) <= TILE:
            steps, largest = part_of_map(self.reading, at, look, slice(*rows), slice(*keys))
        else:
            steps, largest = whole_map(self.reading, at, look)
            rows, keys = whole
        return {
            "rows": list(rows),
            "keys": list(keys),
            "shape": list(steps.shape),
            "values": steps.tobytes(),
            "largest": largest,
            "tile": TILE,
        }

    def links(self, head: str, start: int = 0) -> list[list[int | float]]:
        """The strongest links of a head, from some row on."""
        if self.reading is None:
            return []
        from headwise.explorer.head_panel import MOST_ROWS, links

        part = slice(start, start + MOST_ROWS)
        return links(self.reading, HeadId.parse(head), self._look, part)
