"""The explorer's stage in a notebook; Python code can read and set the chosen head.

In: a model and a text, or only a head table. Out: an anywidget for Jupyter, VS Code and marimo,
drawn by the same modules as the explorer's page, without a network.
"""

import importlib.util
from os import PathLike
from typing import TYPE_CHECKING, Any

from headwise.errors import MissingPackage, OptionError, warn_user
from headwise.formats import format_count
from headwise.head_table import HeadTable

if TYPE_CHECKING:
    from headwise.explorer.maps import MapOptions
    from headwise.models.loaded import Source


def view(
    model: "Source",
    text: str,
    *,
    head: str | None = None,
    swap: str | None = None,
    tokenizer: Any = None,
    look: "MapOptions | None" = None,
) -> Any:
    """A notebook widget with the stage: a text and every head of a model; `view.head` is chosen.

    With `swap`, the text with a word swapped, it opens on both texts and their differences.

    view = headwise.view("minilm", "The cat sat on the mat because it was warm.")
    view.head  # "L3H1", or the head that was clicked last; "L0H2,L3H1" if two are compared
    """
    _check_package()
    from headwise.explorer.anywidget_view import HeadView
    from headwise.explorer.api_requests import TextRequest
    from headwise.explorer.session import Session
    from headwise.objectives.scored_model import open_scored_model

    scored = open_scored_model(model, tokenizer)
    if scored.tokenizer is None:
        raise OptionError(f"{scored.name} has no tokenizer: pass one as the tokenizer argument")
    session = Session(scored, is_fresh=isinstance(model, str | PathLike))
    text = TextRequest(text).text
    if extra := session.read(text).left_out:
        warn_user(f"the text is {format_count(extra, 'token')} too long: its end was left out")
    return HeadView.of_text(session, text, head=head, swap=swap, options=look)


def view_table(table: HeadTable, *, head: str | None = None) -> Any:
    """A notebook widget with the heads of a table; `view.head` is the chosen head."""
    _check_package()
    from headwise.explorer.anywidget_view import HeadView

    return HeadView.of_table(table, head)


def _check_package() -> None:
    if importlib.util.find_spec("anywidget") is None:
        raise MissingPackage("notebook views need anywidget: pip install 'headwise[notebook]'")
