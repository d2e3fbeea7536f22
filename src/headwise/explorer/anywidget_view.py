"""The stage as an anywidget: its traits, and the answers to its requests.

In: a Session and a text, or only a head table. Out: a widget that stage/widget.js draws, without
a network. Weights of a short text are traits, so that a saved notebook still shows them; whatever
else the view needs, it requests from Python by a message.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import anywidget
import traitlets

from headwise.errors import HeadwiseError, OptionError
from headwise.explorer import api_types as api, maps
from headwise.explorer.api_requests import BarsQuery
from headwise.explorer.head_panel import head_answer
from headwise.explorer.join_modules import module_name
from headwise.explorer.maps import MapOptions
from headwise.explorer.model_facts import (
    MEASURES,
    describe_scan,
    make_grid,
    model_title,
    role_facts,
)
from headwise.explorer.page_files import read_files
from headwise.explorer.save_page import joined_script, joined_style
from headwise.explorer.session import Session
from headwise.head_table import HeadTable
from headwise.heads import HeadId, check_head

SCRIPT = "stage/widget.js"
STYLES = ("stage/stage.css", "stage/view.css", "stage/widget.css")
MOST_HEADS = 4
SWITCHES = {"words": "is_by_word", "first": "drops_sink", "values": "is_valued"}
"""The view's switches, by their names in its requests, and the options that they set."""

Answer = tuple[Any, list[bytes]]


@cache
def widget_script() -> str:
    """The stage's modules as one module, as anywidget needs it."""
    script = joined_script(read_files(), SCRIPT)
    return f"{script}export default {{ render: {module_name(SCRIPT)}.render }};\n"


@cache
def widget_style() -> str:
    """The stage's styles, whose colours stay inside the widget."""
    style = joined_style(read_files(), STYLES)
    return re.sub(r"(?::root,\s*)?\[data-theme", ".hv-view[data-theme", style)


class HeadView(anywidget.AnyWidget):
    """A widget with the stage: a sentence, where the chosen head looks, its map, and all heads."""

    _esm = widget_script()
    _css = widget_style()
    head: Any = traitlets.Unicode().tag(sync=True)
    """The chosen head, or up to four heads such as "L0H2,L3H1"."""
    about: Any = traitlets.Dict().tag(sync=True)
    text: Any = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    weights: Any = traitlets.Dict().tag(sync=True)
    table: Any = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    state: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, parts: Mapping[str, Any], table: HeadTable, head: str | None) -> None:
        """Show a text or a table of heads: `parts` are the traits."""
        self._counts = Counter(each.layer_name for each in table.heads)
        self._session: Session | None = None
        self._options = MapOptions()
        super().__init__(head=self._full_names(head or str(table.heads[0])), **parts)
        self.on_msg(self._receive)

    @classmethod
    def of_text(
        cls,
        session: Session,
        text: str,
        *,
        head: str | None = None,
        swap: str | None = None,
        options: MapOptions | None = None,
    ) -> "HeadView":
        """The stage with a text, and with `swap` as the second text of a pair."""
        answer = session.text_answer(text)
        if options is None:
            options = MapOptions(is_by_word=answer.why_no_words is None)
        state = dict(zip(SWITCHES, map(_flag, _switches(options)), strict=True))
        if swap is not None:
            state["swap"] = swap
        parts = {"about": asdict(session.about()), "text": asdict(answer), "state": state}
        start = answer.start.head
        view = cls(
            parts | {"weights": stored_weights(session, answer, options)},
            session.read(text).table,
            head or start,
        )
        view._session, view._options = session, options
        return view

    @classmethod
    def of_table(cls, table: HeadTable, head: str | None = None) -> "HeadView":
        """The grid of a table's heads, without a text."""
        parts = {"about": table_about(table), "table": asdict(make_grid(table, MEASURES))}
        return cls(parts, table, head)

    def __repr__(self) -> str:
        return f"HeadView({self.head}, {sum(self._counts.values())} heads)"

    def _full_names(self, heads: str) -> str:
        names = [each.strip() for each in heads.split(",")]
        if len(names) > MOST_HEADS:
            raise OptionError(f"head is {heads!r}: give at most {MOST_HEADS} heads")
        return ",".join(str(check_head(HeadId.parse(name), self._counts)) for name in names)

    @traitlets.validate("head")
    def _check(self, proposal: Any) -> str:
        return self._full_names(proposal["value"])

    def _receive(self, _: Any, content: Any, __: Any) -> None:
        """Answer a request of the view: its values or an error, with the request's number."""
        if not isinstance(content, dict) or content.get("kind") not in REQUESTS:
            return
        number = content.get("number")
        try:
            if self._session is None:
                raise OptionError("this view has no model")
            value, buffers = REQUESTS[content["kind"]](self._session, content)
        except HeadwiseError as error:
            self.send({"number": number, "error": str(error)})
        else:
            self.send({"number": number, "value": value}, buffers)


def _switches(options: MapOptions) -> tuple[bool, bool, bool]:
    """Whether words are whole, the first token counts, and values count."""
    return options.is_by_word, not options.drops_sink, options.is_valued


def _flag(is_on: bool) -> str:
    return "1" if is_on else "0"


def stored_weights(
    session: Session, answer: api.TextAnswer, options: MapOptions
) -> dict[str, dict[str, Any]]:
    """Weights of all heads by stack, if the text is short; empty if it is long."""
    if not answer.is_small:
        return {}
    analysis = session.read(answer.text)
    found = {}
    for stack, axes in answer.stacks.items():
        by_word = options.is_by_word and axes.words is not None
        weights = maps.stack_weights(analysis, stack, replace(options, is_by_word=by_word))
        found[stack] = {"shape": list(weights.shape), "values": maps.as_steps(weights)}
    return found


def table_about(table: HeadTable) -> dict[str, Any]:
    """Facts about the model of a table, as far as the grid of heads needs them."""
    name = str(table.about.get("model", ""))
    counts = Counter(each.layer_name for each in table.heads)
    scan = describe_scan(table, None)
    return {
        "name": name,
        "title": model_title(name),
        "layers": [asdict(api.LayerFacts(layer, heads, heads)) for layer, heads in counts.items()],
        "roles": {role: asdict(facts) for role, facts in role_facts().items()},
        "scan": asdict(replace(scan, findings=[])),
    }


def _map_options(content: Mapping[str, Any]) -> MapOptions:
    return MapOptions(
        is_by_word=bool(content.get("words")),
        drops_sink=not content.get("first", True),
        is_valued=bool(content.get("values")),
    )


def _weights(session: Session, content: Mapping[str, Any]) -> Answer:
    analysis = session.read(str(content["text"]))
    weights = maps.stack_weights(analysis, str(content["stack"]), _map_options(content))
    return list(weights.shape), [maps.as_steps(weights)]


def _pair(session: Session, content: Mapping[str, Any]) -> Answer:
    return asdict(session.pair_answer(str(content["text"]), str(content["other"]))), []


def _facts(session: Session, content: Mapping[str, Any]) -> Answer:
    analysis = session.read(str(content["text"]))
    head = check_head(HeadId.parse(str(content["head"])), session.num_heads)
    return asdict(head_answer(analysis, head, session.scan_table)), []


def _read(session: Session, content: Mapping[str, Any]) -> Answer:
    return asdict(session.text_answer(str(content["text"]))), []


def _row(session: Session, content: Mapping[str, Any]) -> Answer:
    analysis, head = session.read(str(content["text"])), HeadId.parse(str(content["head"]))
    options = _map_options(content)
    row = maps.map_row(analysis, head, options, int(content["at"]), by=bool(content["by"]))
    return len(row), [maps.as_steps(row)]


def _cells(session: Session, content: Mapping[str, Any]) -> Answer:
    analysis, head = session.read(str(content["text"])), HeadId.parse(str(content["head"]))
    part = content.get("part")
    window = (slice(*part["rows"]), slice(*part["keys"])) if part else None
    cells = maps.map_cells(analysis, head, _map_options(content), window)
    return {"rows": cells.rows, "keys": cells.keys, "shape": cells.shape}, [cells.values]


def _thumbs(session: Session, content: Mapping[str, Any]) -> Answer:
    analysis = session.read(str(content["text"]))
    thumbs = maps.thumbnails(analysis, str(content["layer"]), _map_options(content), 64)
    return list(thumbs.shape), [thumbs.tobytes()]


def _bars(session: Session, content: Mapping[str, Any]) -> Answer:
    analysis = session.read(str(content["text"]))
    at, stack, by = int(content["at"]), str(content["stack"]), bool(content["by"])
    bars = maps.map_bars(analysis, _map_options(content), BarsQuery(at, 64, stack, by))
    return list(bars.shape), [bars.tobytes()]


REQUESTS: dict[str, Callable[[Session, Mapping[str, Any]], Answer]] = {
    "weights": _weights,
    "pair": _pair,
    "facts": _facts,
    "read": _read,
    "row": _row,
    "cells": _cells,
    "thumbs": _thumbs,
    "bars": _bars,
}
"""Functions that answer the view's requests, by kind."""
