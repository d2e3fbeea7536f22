"""HeadId and HeadTable: scans fill the table; pruning, views and reports read it.

In: one row per head, one column per measure, and how they were made. Out: the same, checked and
sorted, rows by a head's name, and files that are read back without loss. It knows no models.
"""

import difflib
import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from headwise.checks import whole_number
from headwise.drawing.html import notebook_html
from headwise.drawing.table import Table
from headwise.errors import OptionError, OutputError
from headwise.files import write_aside
from headwise.formats import join_words
from headwise.roles import ROLES
from headwise.table_files import PLACE, format_of, kind_of, note_of, tidied, to_json


@functools.total_ordering
@dataclass(frozen=True)
class HeadId:
    """One head of a model, both numbers counted from 0; sorted by stack, layer, head.

    >>> str(HeadId(3, 11)), HeadId.parse("decoder.L0H2").stack
    ('L3H11', 'decoder')
    """

    layer: int
    head: int
    stack: str = ""

    def __post_init__(self) -> None:
        """Refuse what no model counts."""
        for name in ("layer", "head"):
            whole_number(name, getattr(self, name))
        if min(self.layer, self.head) < 0:
            raise OptionError(f"layers and heads are counted from 0, which {self} is not")

    def __repr__(self) -> str:
        """`L3H11`, or `encoder.L3H11` in a model with several stacks."""
        return f"{self.stack}{'.' if self.stack else ''}L{self.layer}H{self.head}"

    @property
    def layer_name(self) -> str:
        """Name of the layer that the head is in: `L3`, or `encoder.L3`."""
        return str(self).rpartition("H")[0]

    def __lt__(self, other: object) -> bool:
        """Whether this head comes before the other."""
        if not isinstance(other, HeadId):
            return NotImplemented
        return (self.stack, self.layer, self.head) < (other.stack, other.layer, other.head)

    @classmethod
    def parse(cls, text: str) -> "HeadId":
        """The head that prints as this text."""
        found = re.fullmatch(r"(?:(.+)\.)?L([0-9]+)H([0-9]+)", text, re.DOTALL)
        if found is None:
            works = "write L3H11, or encoder.L3H11 in a model with several stacks"
            raise OptionError(f"{text!r} is not a head: {works}")
        return cls(int(found[2]), int(found[3]), found[1] or "")


def check_head(head: HeadId, counts: Mapping[str, int]) -> HeadId:
    """Return `head`; raises OptionError unless `counts`, heads by layer name, has it."""
    check_layer(head, list(counts))
    count = counts[head.layer_name]
    if head.head >= count:
        there = f"heads 0..{count - 1}" if count else "no heads left"
        raise OptionError(f"{head} is not in this model: {head.layer_name} has {there}")
    return head


def check_layer(head: HeadId, names: list[str]) -> None:
    """Raise OptionError if the head's layer is not in `names`."""
    if head.layer_name not in names:
        there = f"its layers are {abbreviate(names)}" if names else "it has no layers"
        raise OptionError(f"{head} is not in this model: {there}")


def abbreviate(names: list[str]) -> str:
    """The names, the middle of a long list left out."""
    return ", ".join(names if len(names) < 8 else [*names[:3], "...", *names[-2:]])


Heads = str | HeadId | Iterable[str | HeadId]
"""Some heads of a model, by name or as they are."""


def parse_heads(heads: Heads) -> tuple[HeadId, ...]:
    """Heads in the order given, each once; a text holds several apart by spaces or commas.

    >>> [str(head) for head in parse_heads("L0H1 L2H3, L0H1")]
    ['L0H1', 'L2H3']
    """
    if not isinstance(heads, str | HeadId | Iterable):
        raise OptionError(f"heads are {heads!r}: give names such as 'L0H1 L2H3', or a list of them")
    found: list[HeadId] = []
    for part in [heads] if isinstance(heads, str | HeadId) else heads:
        texts = re.findall(r"[^\s,]+", part) if isinstance(part, str) else [str(part)]
        found += map(HeadId.parse, texts)
    return tuple(dict.fromkeys(found))


def _head(given: object) -> HeadId:
    """A head, by name or as it is."""
    if isinstance(given, HeadId):
        return given
    if not isinstance(given, str):
        raise OptionError(f"{given!r} is not a head: give a name such as 'L3H11', or a HeadId")
    return HeadId.parse(given)


def _other_roles(roles: Iterable[str]) -> list[str]:
    """The known roles that are not among these."""
    others = set(roles)
    return [role for role in ROLES if role not in others]


HeadCounts = Mapping[str, tuple[int, int]]
"""Number of heads and of KV heads in each layer, by name: `L0` or `encoder.L0`."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadTable:
    """One row per head, one column per measure, and a record of how they were made.

    `df` starts with the columns stack, layer, head and roles; its rows are sorted by stack (in the
    order of first appearance), layer and head. `about` is what JSON can hold. Both are copies.
    """

    df: pd.DataFrame
    about: dict[str, Any]

    def __post_init__(self) -> None:
        """Check, sort and copy."""
        try:
            about = json.loads(json.dumps(self.about, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise OptionError(f"about must be what JSON can hold: {error}") from error
        if not isinstance(about, dict):
            raise OptionError(f"about is {about!r}: give a dict of how the table was made")
        object.__setattr__(self, "about", about)
        object.__setattr__(self, "df", tidied(self.df))
        head, count = Counter(self.heads).most_common(1)[0]
        if count > 1:
            raise OptionError(f"a head has one row in a table, and {head} has {count}")

    def __len__(self) -> int:
        """Number of heads."""
        return len(self.df)

    def __iter__(self) -> Iterator[HeadId]:
        """Every head in the order of the rows."""
        return iter(self.heads)

    def __contains__(self, head: str | HeadId) -> bool:
        """Whether the table has a row of the head."""
        return _head(head) in self.heads

    def __getitem__(self, head: str | HeadId) -> "HeadRow":
        """One head's row, named as the head is."""
        asked, heads = _head(head), self.heads
        if asked not in heads:
            raise OptionError(f"{asked} is not in this table: {self._extent(asked.stack)}")
        row = self.df.iloc[heads.index(asked)]
        return HeadRow(row, name=str(asked))

    def __eq__(self, other: object) -> bool:
        """Same heads, columns, values and making; NaN equals NaN."""
        if not isinstance(other, HeadTable):
            return NotImplemented
        return self.about == other.about and self.df.equals(other.df)

    def __repr__(self) -> str:
        """One line: how many heads and columns, and of which model."""
        model = f", model={self.about['model']!r}" if "model" in self.about else ""
        return f"HeadTable({len(self)} heads, {len(self.df.columns)} columns{model})"

    def __str__(self) -> str:
        """How many heads have which role, and the grid of all of them."""
        from headwise.views.heads import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """The table for a notebook, as pandas draws it."""
        return self.df.to_html(max_rows=24, max_cols=16, notebook=True)

    def view(self, head: str | None = None) -> Any:
        """The heads to choose from in a notebook; `view.head` is the chosen one."""
        from headwise.explorer.widget import view_table

        return view_table(self, head=head)

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """Every head in the order of the rows."""
        stacks, layers, heads = (self.df[name].tolist() for name in PLACE)
        return tuple(map(HeadId, layers, heads, stacks))

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the stacks in the order of the rows; `("",)` where a model has but one."""
        return tuple(dict.fromkeys(self.df["stack"].tolist()))

    def of_stack(self, stack: str = "") -> pd.DataFrame:
        """Rows of one stack; of the only one, where no name is given."""
        name = self.stacks[0] if not stack and len(self.stacks) == 1 else stack
        if name not in self.stacks:
            raise OptionError(f"{name!r} is not a stack of this table: {self._extent(name)}")
        return self.df[self.df["stack"] == name]

    def top(self, column: str, count: int = 5) -> pd.DataFrame:
        """Heads with the largest values first: their `name`, the column, their `roles`; no NaN."""
        count = whole_number("count", count, least=1)
        df = self.df.assign(**{column: self._numbers(column)}, name=list(map(str, self.heads)))
        ranked = df[["name", column, "roles"]].dropna(subset=[column])
        return ranked.sort_values(column, ascending=False, kind="stable").head(count)

    def with_role(self, role: str) -> tuple[HeadId, ...]:
        """Heads that have the role, in the order of the rows."""
        roles = self.df["roles"].tolist()
        known = dict.fromkeys([*ROLES, *(name for names in roles for name in names)])
        if role not in known:
            raise OptionError(f"{role!r} is not a role: {_near(role, known)}")
        return tuple(head for head, names in zip(self.heads, roles, strict=True) if role in names)

    @property
    def without_role(self) -> tuple[HeadId, ...]:
        """Heads that have no role, in the order of the rows."""
        return tuple(h for h, names in zip(self.heads, self.df["roles"], strict=True) if not names)

    @property
    def num_layers(self) -> int:
        """Layers that have heads, over all stacks."""
        return len({head.layer_name for head in self.heads})

    @property
    def held_roles(self) -> tuple[str, ...]:
        """Roles that some head has: the known ones in their own order, then any others."""
        held = dict.fromkeys(name for roles in self.df["roles"] for name in roles)
        return tuple(sorted(held, key=[*ROLES, *held].index))

    @property
    def untested_roles(self) -> tuple[str, ...]:
        """Roles that no score decides where scores decide others: no gold sentences were read."""
        scored = [role for role in ROLES if f"{role}_score" in self.df]
        return tuple(_other_roles([*scored, *self.held_roles]) if scored else ())

    @property
    def missed_roles(self) -> tuple[str, ...]:
        """Roles that no head has, though they were looked for."""
        return tuple(_other_roles([*self.held_roles, *self.untested_roles]))

    def grid(self, column: str, stack: str = "") -> npt.NDArray[np.float64]:
        """One measure of one stack, `[layers, heads]`; NaN for missing heads."""
        rows = self.of_stack(stack)
        layers, heads = rows["layer"].to_numpy(), rows["head"].to_numpy()
        values = np.full((layers.max() + 1, heads.max() + 1), np.nan)
        values[layers, heads] = self._numbers(column)[rows.index]
        return values

    def to_json(self) -> str:
        """The table and how it was made as one JSON text, every number in full."""
        return to_json(self.df, self.about).decode()

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Keep the table in a .parquet, .csv or .json file, as the name ends.

        CSV has a companion, `heads.about.json` beside `heads.csv`, for what it cannot say.
        """
        path = Path(path)
        files = {path: format_of(path)[0](self.df, self.about)}
        if path.suffix.lower() == ".csv":
            note = json.dumps(note_of(self.df, self.about), indent=1)
            files[path.with_suffix(".about.json")] = note.encode()
        there = [str(file) for file in files if file.exists()]
        if there and not force:
            raise OutputError(f"{join_words(there)} would be overwritten: give force=True to do so")
        if not path.parent.is_dir():
            raise OptionError(f"{path} cannot be written: there is no folder {path.parent}")
        for file, content in files.items():
            write_aside(file, content)

    @classmethod
    def read(cls, path: str | Path) -> "HeadTable":
        """The table that a file holds, or that a scan wrote into a folder.

        `about` is empty if the companion of a CSV is missing.
        """
        path = Path(path)
        if path.is_dir():
            path /= "heads.parquet"
            if not path.is_file():
                raise OptionError(f"{path.parent} holds no scan: it has no {path.name}")
        decode = format_of(path)[1]
        if not path.is_file():
            raise OptionError(f"there is no file {path}")
        try:
            return cls(*decode(path))
        except (ValueError, TypeError, LookupError, AttributeError, OSError) as error:
            raise OptionError(f"{path} cannot be read as a head table: {error}") from error

    def _extent(self, stack: str) -> str:
        if self.stacks == ("",) and stack:
            return "it has one stack, without a name"
        if stack not in self.stacks:
            return f"its stacks are {', '.join(name or repr(name) for name in self.stacks)}"
        rows = self.of_stack(stack)
        return ", ".join(f"{n}s {rows[n].min()}..{rows[n].max()}" for n in ("layer", "head"))

    def _numbers(self, column: str) -> npt.NDArray[np.float64]:
        if column not in self.df:
            raise OptionError(f"{column!r} is not a column: {_near(column, self.df.columns)}")
        kind = kind_of(column, self.df[column])
        if kind in ("text", "roles"):
            raise OptionError(f"column {column!r} holds {kind}, and numbers are needed here")
        return self.df[column].to_numpy(dtype="float64")


class HeadRow(pd.Series):
    """One head's row of a table, which shows itself in a notebook."""

    @property
    def _constructor(self) -> type[pd.Series]:
        return pd.Series

    def _repr_html_(self) -> str:
        rows = [(str(column), _in_words(cell)) for column, cell in self.items()]
        table = Table("", ("", str(self.name)), tuple(row for row in rows if row[1]))
        return notebook_html(table.to_html())


def _in_words(cell: Any) -> str:
    """A cell as it is read; nothing for a missing one."""
    if isinstance(cell, tuple | list):
        return ", ".join(map(str, cell)) or "none"
    if isinstance(cell, float):
        return "" if np.isnan(cell) else f"{cell:.4g}"
    return str(cell)


MOST_NAMED = 12
"""Columns that a message names where none is like the one asked for."""


def _near(name: str, names: Iterable[str]) -> str:
    known = list(names)
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"perhaps {' or '.join(near)}"
    left = len(known) - MOST_NAMED
    more = f" and {left} more" if left > 0 else ""
    return f"there are {', '.join(known[:MOST_NAMED])}{more}"
