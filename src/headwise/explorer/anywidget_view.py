"""The stage as an anywidget, and a grid of heads for a table without a text.

In: a Session and a text, or a head table. Out: widgets whose `head` and `word` follow the reader's
choice and can be set.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import anywidget
import traitlets

from headwise.errors import OptionError
from headwise.explorer.maps import MapOptions, as_steps, fits_at_once, stack_weights
from headwise.explorer.model_facts import role_facts
from headwise.explorer.notebook_answers import answer_question
from headwise.explorer.page_files import read_files
from headwise.explorer.role_details import role_detail
from headwise.explorer.save_page import joined_script, joined_style
from headwise.explorer.session import Session
from headwise.head_table import HeadTable
from headwise.heads import HeadId, check_head

STYLES = ("stage/stage.css", "stage/view.css", "stage/notebook.css")
MOST_HEADS = 4
"""Largest number of heads on one stage."""
FACTS = ("normalised_entropy", "confidence", "distance", "previous", "first", "special")
"""Measures shown for the chosen head of a table."""


def widget_script(module: str) -> str:
    """The joined script of a module that exports `render`, as a module for anywidget."""
    name = "$" + module.removesuffix(".js").replace("/", "_")
    script = joined_script(read_files(), module)
    return f"{script}export default {{ render: {name}.render }};\n"


def widget_style() -> str:
    """The stage's styles, whose colours and fonts hold only inside the widget."""
    style = joined_style(read_files(), STYLES)
    style = re.sub(r":root,\s*\[data-theme=.light.\]", "[data-theme]", style)
    return re.sub(r"\[data-theme", ":is(.hw-notebook, .hv-view)[data-theme", style)


def full_names(names: str, counts: Mapping[str, int]) -> str:
    """Names of one to four heads, separated by commas, checked and written in full."""
    heads = [check_head(HeadId.parse(name.strip()), counts) for name in names.split(",")]
    if len(heads) > MOST_HEADS:
        raise OptionError(f"head is {names!r}: choose at most {MOST_HEADS} heads", option="head")
    return ",".join(map(str, heads))


class StageView(anywidget.AnyWidget):
    """A widget with a text, its arcs in the chosen heads, a map and a grid of all heads."""

    _esm = widget_script("stage/notebook_host.js")
    _css = widget_style()
    head: Any = traitlets.Unicode().tag(sync=True)
    """The chosen head, or up to four names separated by commas."""
    word: Any = traitlets.Int(None, allow_none=True).tag(sync=True)
    """Index of the chosen word among the rows of the stage; None if no word is chosen."""
    about: Any = traitlets.Dict().tag(sync=True)
    text: Any = traitlets.Dict().tag(sync=True)
    weights: Any = traitlets.Dict().tag(sync=True)
    question: Any = traitlets.Dict().tag(sync=True)
    answer: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Session, text: str, head: str | None = None) -> None:
        """Show `text` with `head`, or with what its first finding is about."""
        self._session = session
        answer = session.text_answer(text)
        self._name, self._text = answer.name, text
        start = answer.start
        super().__init__(
            head=full_names(head or start.head or answer.heads.names[0], session.num_heads),
            word=start.source if head in (None, start.head) else None,
            about=asdict(session.about()),
            text=asdict(answer),
            weights=self._stored_weights(),
        )

    def __repr__(self) -> str:
        return f"StageView({self.head}, {len(self.text['heads']['names'])} heads)"

    @property
    def names(self) -> list[str]:
        """Names of all heads."""
        return list(self.text["heads"]["names"])

    def _stored_weights(self) -> dict[str, Any]:
        """Weights of every stack by word, if the text is small enough to have them at once."""
        analysis = self._session.read(self._text)
        if not fits_at_once(analysis):
            return {}
        stacks = dict.fromkeys(call.stack for call in analysis.calls.values())
        options = MapOptions(is_by_word=bool(analysis.stage.groups))
        stored = {}
        for stack in stacks:
            weights = stack_weights(analysis, stack, options)
            stored[stack] = {"shape": list(weights.shape), "bytes": as_steps(weights)}
        return stored

    @traitlets.validate("head")
    def _check(self, proposal: Any) -> str:
        return full_names(proposal["value"], self._session.num_heads)

    @traitlets.observe("question")
    def _answer(self, change: Any) -> None:
        if change["new"]:
            self.answer = answer_question(self._session, self._text, change["new"])


class TableView(anywidget.AnyWidget):
    """A widget with the heads of a table, coloured by lead role, and facts on the chosen one."""

    _esm = widget_script("stage/table_view.js")
    _css = widget_style()
    head: Any = traitlets.Unicode().tag(sync=True)
    names: Any = traitlets.List().tag(sync=True)
    roles: Any = traitlets.List().tag(sync=True)
    facts: Any = traitlets.List().tag(sync=True)
    about: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, table: HeadTable, head: str | None = None) -> None:
        """Show `head`, or the table's first head if it is None."""
        self._table = table
        self._counts = Counter(each.layer_name for each in table.heads)
        names = [str(each) for each in table.heads]
        chosen = self._full_name(head or names[0])
        super().__init__(
            head=chosen,
            names=names,
            roles=[list(roles) for roles in table.df["roles"]],
            about={name: asdict(role) for name, role in role_facts().items()},
            facts=self._facts(chosen),
        )

    def __repr__(self) -> str:
        return f"TableView({self.head}, {len(self.names)} heads)"

    def _full_name(self, head: str) -> str:
        return str(check_head(HeadId.parse(head), self._counts))

    def _facts(self, head: str) -> list[str]:
        """Roles of the head with their details, and some of its measures."""
        row = self._table[head]
        roles = []
        for role in row["roles"]:
            detail = role_detail(role, str(row.get(f"{role}_detail", "")))
            roles.append(f"{role}: {detail}" if detail else role)
        measures = [
            f"{column.replace('_', ' ')} {row[column]:.3f}"
            for column in FACTS
            if column in row and row[column] == row[column]  # not NaN
        ]
        return ["; ".join(roles) or "no clear role", "; ".join(measures)]

    @traitlets.validate("head")
    def _check(self, proposal: Any) -> str:
        return self._full_name(proposal["value"])

    @traitlets.observe("head")
    def _choose(self, change: Any) -> None:
        if change["old"]:
            self.facts = self._facts(change["new"])
