"""Answers to the questions of a notebook widget, which has no server.

In: a Session and a question, a dict from the browser. Out: a dict with a value, or with bytes and
their shape; errors are sentences.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headwise.errors import HeadwiseError, OptionError
from headwise.explorer import maps
from headwise.explorer.api_requests import BarsQuery, PageRequest, parse_head
from headwise.explorer.head_panel import head_answer
from headwise.explorer.session import Session
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId, check_head

Facts = Mapping[str, Any]


def answer_question(session: Session, text: str, question: Facts) -> dict[str, Any]:
    """The answer to one question about `text`, the text of the widget."""
    answer = {"sender": question.get("sender"), "number": question.get("number"), "error": ""}
    try:
        kind = question.get("kind")
        if kind not in KINDS:
            raise OptionError(f"kind is {kind!r}: choose from {', '.join(KINDS)}")
        return answer | KINDS[kind](session, text, question)
    except HeadwiseError as error:
        return answer | {"error": str(error)}
    except (KeyError, TypeError, ValueError) as error:
        return answer | {"error": f"this question cannot be answered: {error}"}


def _options(question: Facts) -> maps.MapOptions:
    names = ("is_by_word", "drops_sink", "is_valued")
    return maps.MapOptions(**{name: bool(question.get(name)) for name in names})


def _analysis(session: Session, text: str, question: Facts) -> TextAnalysis:
    """The analysis of the widget's text, or of a text that it was compared with."""
    known = session.read(text)
    return known if question["text"] == known.name else session.analysis(question["text"])


def _head(session: Session, question: Facts) -> HeadId:
    return check_head(parse_head(str(question["head"])), session.num_heads)


def _weights(session: Session, text: str, question: Facts) -> dict[str, Any]:
    analysis = _analysis(session, text, question)
    weights = maps.stack_weights(analysis, str(question["stack"]), _options(question))
    return {"shape": list(weights.shape), "bytes": maps.as_steps(weights)}


def _pair(session: Session, text: str, question: Facts) -> dict[str, Any]:
    return {"value": asdict(session.pair_answer(text, PageRequest(str(question["other"])).text))}


def _facts(session: Session, text: str, question: Facts) -> dict[str, Any]:
    analysis = _analysis(session, text, question)
    return {"value": asdict(head_answer(analysis, _head(session, question), session.scan_table))}


def _row(session: Session, text: str, question: Facts) -> dict[str, Any]:
    analysis, head = _analysis(session, text, question), _head(session, question)
    by = bool(question["by"])
    row = maps.map_row(analysis, head, _options(question), int(question["at"]), by=by)
    return {"shape": list(row.shape), "bytes": maps.as_steps(row)}


def _cells(session: Session, text: str, question: Facts) -> dict[str, Any]:
    analysis, head = _analysis(session, text, question), _head(session, question)
    part = question.get("part")
    window = None
    if part:
        rows, keys = ([int(place) for place in part[axis]] for axis in ("rows", "keys"))
        window = slice(*rows), slice(*keys)
    cells = maps.map_cells(analysis, head, _options(question), window)
    return {"shape": list(cells.shape), "bytes": maps.as_steps(cells)}


def _thumbs(session: Session, text: str, question: Facts) -> dict[str, Any]:
    analysis, size = _analysis(session, text, question), int(question["size"])
    thumbs = maps.thumbnails(analysis, str(question["layer"]), _options(question), size)
    return {"shape": list(thumbs.shape), "bytes": thumbs.tobytes()}


def _bars(session: Session, text: str, question: Facts) -> dict[str, Any]:
    analysis = _analysis(session, text, question)
    by, size = bool(question["by"]), int(question["size"])
    query = BarsQuery(int(question["at"]), size=size, stack=str(question["stack"]), by=by)
    bars = maps.map_bars(analysis, _options(question), query)
    return {"shape": list(bars.shape), "bytes": bars.tobytes()}


def _page(session: Session, text: str, question: Facts) -> dict[str, Any]:
    from headwise.explorer.save_page import file_name, saved_page

    page = saved_page(session, PageRequest(text, question.get("swap")))
    return {"value": {"name": file_name(session.scored.name, text), "page": page}}


KINDS = {
    "weights": _weights,
    "pair": _pair,
    "facts": _facts,
    "row": _row,
    "cells": _cells,
    "thumbs": _thumbs,
    "bars": _bars,
    "page": _page,
}
"""Functions that answer each kind of question."""
