"""The explorer's head view in a notebook; Python code can read and set the chosen head.

In: a model and a text, or only a head table. Out: an anywidget for Jupyter, VS Code and marimo,
drawn by the same script as the explorer's page, without a network.
"""

import importlib.util
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
    tokenizer: Any = None,
    look: "MapOptions | None" = None,
) -> Any:
    """A notebook widget with every head of a model on a text; `view.head` is the chosen head.

    view = headwise.view("minilm", "The cat sat on the mat because it was warm.")
    view.head  # "L0H0", or the head that was clicked last
    """
    _check_package()
    from headwise.explorer.anywidget_view import HeadView
    from headwise.explorer.text_analysis import analyse_text
    from headwise.models.loaded import open_model

    loaded = open_model(model, tokenizer)
    if loaded.tokenizer is None:
        raise OptionError(f"{loaded.name} has no tokenizer: pass one as the tokenizer argument")
    analysis = analyse_text(loaded, text)
    if extra := analysis.left_out:
        warn_user(f"the text is {format_count(extra, 'token')} too long: its end was left out")
    return HeadView(analysis.table, head, analysis, look)


def view_table(table: HeadTable, *, head: str | None = None) -> Any:
    """A notebook widget with the heads of a table; `view.head` is the chosen head."""
    _check_package()
    from headwise.explorer.anywidget_view import HeadView

    return HeadView(table, head)


def _check_package() -> None:
    if importlib.util.find_spec("anywidget") is None:
        raise MissingPackage("notebook views need anywidget: pip install 'headwise[notebook]'")
