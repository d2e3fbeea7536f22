"""The stage in a notebook; Python code can read and set the chosen head and word.

In: a model and a text, or only a head table. Out: an anywidget for Jupyter, VS Code and marimo,
drawn by the same script as the explorer's page, without a network.
"""

import importlib.util
from os import PathLike
from typing import TYPE_CHECKING, Any

from headwise.errors import MissingPackage, warn_user
from headwise.formats import format_count
from headwise.head_table import HeadTable

if TYPE_CHECKING:
    from headwise.models.loaded import Source


def view(model: "Source", text: str, *, head: str | None = None, tokenizer: Any = None) -> Any:
    """A notebook widget with a text and its links in every head of a model.

    view = headwise.view("minilm", "The animal didn't cross the street because it was too tired.")
    view.head  # "L3H1", or the head that was clicked last
    view.word  # 8, the index of the chosen word on the stage: "it"
    """
    _check_package()
    from headwise.explorer.anywidget_view import StageView
    from headwise.explorer.session import Session
    from headwise.objectives.scored_model import open_scored_model

    scored = open_scored_model(model, tokenizer)
    session = Session(scored, is_fresh=isinstance(model, str | PathLike))
    if extra := session.read(text).left_out:
        warn_user(f"the text is {format_count(extra, 'token')} too long: its end was left out")
    return StageView(session, text, head)


def view_table(table: HeadTable, *, head: str | None = None) -> Any:
    """A notebook widget with the heads of a table; `view.head` is the chosen head."""
    _check_package()
    from headwise.explorer.anywidget_view import TableView

    return TableView(table, head)


def _check_package() -> None:
    if importlib.util.find_spec("anywidget") is None:
        raise MissingPackage("notebook views need anywidget: pip install 'headwise[notebook]'")
