"""HeadId and HeadTable: scans fill the table; pruning, views and reports read it.

In: names of heads, or a data frame with one row per head and one column per measure. Out: HeadIds,
and a table that is checked and sorted. table_files.py encodes the files.
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
from headwise.table_files import (
    PLACE,
    column_kind,
    describe_table,
    file_format,
    tidy_table,
    to_json,
)


@functools.total_ordering
@dataclass(frozen=True)
class HeadId:
    """One head of a model: layer and head counted from 0. Sorts by stack, layer, head.

    >>> str(HeadId(3, 11)), HeadId.parse("decoder.L0H2").stack
    ('L3H11', 'decoder')
    """

    layer: int
    head: int
    stack: str = ""

    def __post_init__(self) -> None:
        """Raise OptionError if a number is not a whole number from 0 up."""
        for name in ("layer", "head"):
            whole_number(name, getattr(self, name))
        if min(self.layer, self.head) < 0:
            raise OptionError(f"{self} is not a head: layer and head numbers start at 0")

    def __repr__(self) -> str:
        """`L3H11`, or `encoder.L3H11` in a model with several stacks."""
        return f"{self.stack}{'.' if self.stack else ''}L{self.layer}H{self.head}"

    @property
    def layer_name(self) -> str:
        """Name of the head's layer: `L3`, or `encoder.L3`."""
        return str(self).rpartition("H")[0]

    def __lt__(self, other: object) -> bool:
        """Compare by stack, layer and head."""
        if not isinstance(other, HeadId):
            return NotImplemented
        return (self.stack, self.layer, self.head) < (other.stack, other.layer, other.head)

    @classmethod
    def parse(cls, text: str) -> "HeadId":
        """The head with this name, such as "L3H11" or "encoder.L3H11"."""
        match = re.fullmatch(r"(?:(.+)\.)?L([0-9]+)H([0-9]+)", text, re.DOTALL)
        if match is None:
            raise OptionError(
                f"{text!r} is not a head: write L3H11, or encoder.L3H11 in a model with several "
                "stacks"
            )
        return cls(int(match[2]), int(match[3]), match[1] or "")


def check_head(head: HeadId, counts: Mapping[str, int]) -> HeadId:
    """Return `head`; raise OptionError unless `counts` (heads by layer name) includes it."""
    check_layer(head, list(counts))
    count = counts[head.layer_name]
    if head.head >= count:
        existing = f"heads 0..{count - 1}" if count else "no heads left"
        raise OptionError(f"{head} is not in this model: {head.layer_name} has {existing}")
    return head


def check_layer(head: HeadId, names: list[str]) -> None:
    """Raise OptionError if the head's layer is not in `names`."""
    if head.layer_name not in names:
        layers = f"its layers are {abbreviate(names)}" if names else "it has no layers"
        raise OptionError(f"{head} is not in this model: {layers}")


def abbreviate(names: list[str]) -> str:
    """The names with commas; a long list without its middle."""
    return ", ".join(names if len(names) < 8 else [*names[:3], "...", *names[-2:]])


Heads = str | HeadId | Iterable[str | HeadId]
"""Some heads of a model, as names or HeadIds."""


def parse_heads(heads: Heads) -> tuple[HeadId, ...]:
    """HeadIds in the given order without repeats; names in one text are split at spaces or commas.

    >>> [str(head) for head in parse_heads("L0H1 L2H3, L0H1")]
    ['L0H1', 'L2H3']
    """
    if not isinstance(heads, str | HeadId | Iterable):
        raise OptionError(f"heads are {heads!r}: pass names such as 'L0H1 L2H3', or a list of them")
    parsed: list[HeadId] = []
    for part in [heads] if isinstance(heads, str | HeadId) else heads:
        texts = re.findall(r"[^\s,]+", part) if isinstance(part, str) else [str(part)]
        parsed += map(HeadId.parse, texts)
    return tuple(dict.fromkeys(parsed))


def _as_head(head: object) -> HeadId:
    if isinstance(head, HeadId):
        return head
    if not isinstance(head, str):
        raise OptionError(f"{head!r} is not a head: pass a name such as 'L3H11', or a HeadId")
    return HeadId.parse(head)


HeadCounts = Mapping[str, tuple[int, int]]
"""Number of heads and of KV heads in each layer, by name: `L0` or `encoder.L0`."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadTable:
    """One row per head, one column per measure, and a record of how they were measured.

    `df` starts with the columns stack, layer, head and roles; its rows are sorted by stack (in
    order of first appearance), layer and head. `about` is a dict of JSON values. Both are copies.
    """

    df: pd.DataFrame
    about: dict[str, Any]

    def __post_init__(self) -> None:
        """Copy, check and sort the rows."""
        try:
            about = json.loads(json.dumps(self.about, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise OptionError(f"about must contain only JSON values: {error}") from error
        if not isinstance(about, dict):
            raise OptionError(f"about is {about!r}: pass a dict that says how the table was made")
        object.__setattr__(self, "about", about)
        object.__setattr__(self, "df", tidy_table(self.df))
        head, count = Counter(self.heads).most_common(1)[0]
        if count > 1:
            raise OptionError(f"{head} has {count} rows: a table has one row per head")

    def __len__(self) -> int:
        """Number of heads."""
        return len(self.df)

    def __iter__(self) -> Iterator[HeadId]:
        """Every head in the order of the rows."""
        return iter(self.heads)

    def __contains__(self, head: str | HeadId) -> bool:
        """Whether the table has a row for the head."""
        return _as_head(head) in self.heads

    def __getitem__(self, head: str | HeadId) -> "HeadRow":
        """The head's row, with the head's name as its name."""
        head, heads = _as_head(head), self.heads
        if head not in heads:
            raise OptionError(f"{head} is not in this table: {self._extent(head.stack)}")
        return HeadRow(self.df.iloc[heads.index(head)], name=str(head))

    def __eq__(self, other: object) -> bool:
        """Whether heads, columns, values and `about` are equal; NaN equals NaN."""
        if not isinstance(other, HeadTable):
            return NotImplemented
        return self.about == other.about and self.df.equals(other.df)

    def __repr__(self) -> str:
        """One line: number of heads and columns, and the model."""
        model = f", model={self.about['model']!r}" if "model" in self.about else ""
        return f"HeadTable({len(self)} heads, {len(self.df.columns)} columns{model})"

    def __str__(self) -> str:
        """The number of heads per role, and a grid of all heads."""
        from headwise.views.heads import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        return self.df.to_html(max_rows=24, max_cols=16, notebook=True)

    def view(self, head: str | None = None) -> Any:
        """A notebook widget to choose a head; its `head` is the chosen one."""
        from headwise.explorer.widget import view_table

        return view_table(self, head=head)

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """Every head in the order of the rows."""
        stacks, layers, heads = (self.df[name].tolist() for name in PLACE)
        return tuple(map(HeadId, layers, heads, stacks))

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the stacks in the order of the rows; `("",)` for a single stack."""
        return tuple(dict.fromkeys(self.df["stack"].tolist()))

    def of_stack(self, stack: str = "") -> pd.DataFrame:
        """Rows of one stack; without a name, of the only stack."""
        name = self.stacks[0] if not stack and len(self.stacks) == 1 else stack
        if name not in self.stacks:
            raise OptionError(f"{name!r} is not a stack of this table: {self._extent(name)}")
        return self.df[self.df["stack"] == name]

    def top(self, column: str, count: int = 5) -> pd.DataFrame:
        """Up to `count` heads with the largest values: `name`, the column and `roles`; no NaN."""
        count = whole_number("count", count, least=1)
        df = self.df.assign(**{column: self._numbers(column)}, name=list(map(str, self.heads)))
        ranked = df[["name", column, "roles"]].dropna(subset=[column])
        return ranked.sort_values(column, ascending=False, kind="stable").head(count)

    def with_role(self, role: str) -> tuple[HeadId, ...]:
        """Heads that have the role, in the order of the rows."""
        known = dict.fromkeys([*ROLES, *self.held_roles])
        if role not in known:
            raise OptionError(f"{role!r} is not a role: {_suggest(role, known)}")
        roles = self.df["roles"]
        return tuple(head for head, names in zip(self.heads, roles, strict=True) if role in names)

    @property
    def without_role(self) -> tuple[HeadId, ...]:
        """Heads that have no role, in the order of the rows."""
        roles = self.df["roles"]
        return tuple(head for head, names in zip(self.heads, roles, strict=True) if not names)

    @property
    def num_layers(self) -> int:
        """Number of layers that have heads, over all stacks."""
        return len({head.layer_name for head in self.heads})

    @property
    def held_roles(self) -> tuple[str, ...]:
        """Roles that some head has: the known ones in their usual order, then any others."""
        roles = dict.fromkeys(role for names in self.df["roles"] for role in names)
        return tuple(sorted(roles, key=[*ROLES, *roles].index))

    @property
    def untested_roles(self) -> tuple[str, ...]:
        """Roles without a score in a table that scores others: they were not tested."""
        scored = {role for role in ROLES if f"{role}_score" in self.df}
        tested = scored.union(self.held_roles)
        return tuple(role for role in ROLES if scored and role not in tested)

    @property
    def missed_roles(self) -> tuple[str, ...]:
        """Roles that were tested and that no head has."""
        others = {*self.held_roles, *self.untested_roles}
        return tuple(role for role in ROLES if role not in others)

    def grid(self, column: str, stack: str = "") -> npt.NDArray[np.float64]:
        """One measure of one stack, `[layers, heads]`; NaN for missing heads."""
        rows = self.of_stack(stack)
        layers, heads = rows["layer"].to_numpy(), rows["head"].to_numpy()
        values = np.full((layers.max() + 1, heads.max() + 1), np.nan)
        values[layers, heads] = self._numbers(column)[rows.index]
        return values

    def to_json(self) -> str:
        """The table and `about` as one JSON text, numbers in full precision."""
        return to_json(self.df, self.about).decode()

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write a .parquet, .csv or .json file, depending on the suffix of `path`.

        `about` and the types of the columns of `heads.csv` go to a second file, `heads.about.json`.
        """
        path = Path(path)
        files = {path: file_format(path)[0](self.df, self.about)}
        if path.suffix.lower() == ".csv":
            description = json.dumps(describe_table(self.df, self.about), indent=1)
            files[path.with_suffix(".about.json")] = description.encode()
        existing = [str(file) for file in files if file.exists()]
        if existing and not force:
            raise OutputError(
                f"{join_words(existing)} would be overwritten: pass force=True to allow it"
            )
        if not path.parent.is_dir():
            raise OptionError(f"{path} cannot be written: the folder {path.parent} does not exist")
        for file, content in files.items():
            write_aside(file, content)

    @classmethod
    def read(cls, path: str | Path) -> "HeadTable":
        """Read a table from a file, or from the folder of a scan.

        `about` is empty for a CSV file without its `.about.json`.
        """
        path = Path(path)
        if path.is_dir():
            folder, path = path, path / "heads.parquet"
            if not path.is_file():
                raise OptionError(f"{folder} is not the folder of a scan: it has no {path.name}")
        decode = file_format(path)[1]
        if not path.is_file():
            raise OptionError(f"{path} does not exist")
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
            raise OptionError(f"{column!r} is not a column: {_suggest(column, self.df.columns)}")
        kind = column_kind(column, self.df[column])
        if kind in ("text", "roles"):
            raise OptionError(f"column {column!r} contains {kind}: choose a column of numbers")
        return self.df[column].to_numpy(dtype="float64")


class HeadRow(pd.Series):
    """One head's row of a table, drawn as HTML in a notebook."""

    @property
    def _constructor(self) -> type[pd.Series]:
        return pd.Series

    def _repr_html_(self) -> str:
        rows = []
        for column, cell in self.dropna().items():
            text = f"{cell:.4g}" if isinstance(cell, float) else str(cell)
            if isinstance(cell, tuple | list):
                text = ", ".join(map(str, cell)) or "none"
            if text:
                rows.append((str(column), text))
        return notebook_html(Table("", ("", str(self.name)), tuple(rows)).to_html())


def _suggest(name: str, names: Iterable[str]) -> str:
    known = list(names)
    if similar := difflib.get_close_matches(name, known, n=3):
        return f"did you mean {' or '.join(similar)}?"
    more = f" and {len(known) - 12} more" if len(known) > 12 else ""
    return f"choose from {', '.join(known[:12])}{more}"
