"""HeadTable: the measures of every head, checked and sorted; table_files.py encodes the files."""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from headwise import table_files
from headwise.checks import whole_number
from headwise.drawing.html import notebook_html
from headwise.drawing.table import Table
from headwise.errors import OptionError, OutputError
from headwise.files import write_aside
from headwise.formats import join_words
from headwise.heads import HeadId, as_head
from headwise.roles import ROLES


@dataclass(frozen=True, eq=False, repr=False)
class HeadTable:
    """One row per head, one column per measure, and a record of how they were measured.

    `df` starts with the columns stack, layer, head and roles; its rows are sorted by stack (in
    order of first appearance), layer and head. `about` is a dict of JSON values. Both are copies.
    """

    df: pd.DataFrame
    about: dict[str, Any]

    def __post_init__(self) -> None:
        try:
            about = json.loads(json.dumps(self.about, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise OptionError(f"`about` must contain only JSON values: {error}") from error
        if not isinstance(about, dict):
            raise OptionError(f"about is {about!r}: pass a dict that says how the table was made")
        object.__setattr__(self, "about", about)
        object.__setattr__(self, "df", table_files.tidy_table(self.df))
        head, count = Counter(self.heads).most_common(1)[0]
        if count > 1:
            raise OptionError(f"{head} has {count} rows: a table has one row per head")

    def __len__(self) -> int:
        return len(self.df)

    def __iter__(self) -> Iterator[HeadId]:
        return iter(self.heads)

    def __contains__(self, head: str | HeadId) -> bool:
        return as_head(head) in self.heads

    def __getitem__(self, head: str | HeadId) -> "HeadRow":
        """The head's row, as a series named after the head."""
        head, heads = as_head(head), self.heads
        if head not in heads:
            raise OptionError(f"{head} is not in this table: {self._extent(head.stack)}")
        return HeadRow(self.df.iloc[heads.index(head)], name=str(head))

    def __eq__(self, other: object) -> bool:
        """Whether heads, columns, values and `about` are equal; NaN equals NaN."""
        if not isinstance(other, HeadTable):
            return NotImplemented
        return self.about == other.about and self.df.equals(other.df)

    def __repr__(self) -> str:
        model = f", model={self.about['model']!r}" if "model" in self.about else ""
        return f"HeadTable({len(self)} heads, {len(self.df.columns)} columns{model})"

    def __str__(self) -> str:
        """The number of heads per role, and a grid of all heads."""
        from headwise.views.heads import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        return self.df.to_html(max_rows=24, max_cols=16, notebook=True)

    def view(self, head: str | None = None) -> Any:
        """A notebook widget for choosing a head; its `head` attribute is the chosen head."""
        from headwise.explorer.notebook_view import view_table

        return view_table(self, head=head)

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """All heads, in row order."""
        stacks, layers, heads = (self.df[name].tolist() for name in table_files.PLACE)
        return tuple(map(HeadId, layers, heads, stacks))

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the stacks in row order; `("",)` for a single unnamed stack."""
        return tuple(dict.fromkeys(self.df["stack"].tolist()))

    def of_stack(self, stack: str = "") -> pd.DataFrame:
        """Rows of one stack; `stack` can be omitted if the table has only one."""
        name = self.stacks[0] if not stack and len(self.stacks) == 1 else stack
        if name not in self.stacks:
            raise OptionError(f"{name!r} is not a stack in this table: {self._extent(name)}")
        return self.df[self.df["stack"] == name]

    def top(self, column: str, count: int = 5) -> pd.DataFrame:
        """Name, value and roles of the `count` heads with the largest values, without NaN."""
        count = whole_number("count", count, least=1)
        values, names = self._numbers(column), list(map(str, self.heads))
        df = pd.DataFrame({"name": names, column: values, "roles": self.df["roles"]})
        ranked = df.dropna(subset=[column]).sort_values(column, ascending=False, kind="stable")
        return ranked.head(count)

    def with_role(self, role: str) -> tuple[HeadId, ...]:
        """Heads that have the role, in row order."""
        known = dict.fromkeys([*ROLES, *self.held_roles])
        if role not in known:
            raise OptionError(f"{role!r} is not a role: {_suggest(role, known)}")
        roles = self.df["roles"]
        return tuple(head for head, names in zip(self.heads, roles, strict=True) if role in names)

    @property
    def without_role(self) -> tuple[HeadId, ...]:
        """Heads that have no role, in row order."""
        roles = self.df["roles"]
        return tuple(head for head, names in zip(self.heads, roles, strict=True) if not names)

    @property
    def num_layers(self) -> int:
        """Number of layers that have heads, over all stacks."""
        return len({head.layer_name for head in self.heads})

    @property
    def held_roles(self) -> tuple[str, ...]:
        """Roles that at least one head has: known roles in the order of ROLES, then any others."""
        roles = dict.fromkeys(role for names in self.df["roles"] for role in names)
        return tuple(sorted(roles, key=[*ROLES, *roles].index))

    @property
    def untested_roles(self) -> tuple[str, ...]:
        """Roles that were not tested: the table has scores, but none for them."""
        scored = {role for role in ROLES if f"{role}_score" in self.df}
        tested = scored.union(self.held_roles)
        return tuple(role for role in ROLES if scored and role not in tested)

    @property
    def missed_roles(self) -> tuple[str, ...]:
        """Roles that were tested but that no head has."""
        others = {*self.held_roles, *self.untested_roles}
        return tuple(role for role in ROLES if role not in others)

    def grid(self, column: str, stack: str = "") -> npt.NDArray[np.float64]:
        """One measure of one stack's heads as `[layers, heads]`; NaN for missing heads."""
        rows = self.of_stack(stack)
        layers, heads = rows["layer"].to_numpy(), rows["head"].to_numpy()
        values = np.full((layers.max() + 1, heads.max() + 1), np.nan)
        values[layers, heads] = self._numbers(column)[rows.index]
        return values

    def to_json(self) -> str:
        """The table and `about` as a JSON string, with numbers at full precision."""
        return table_files.to_json(self.df, self.about).decode()

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write a .parquet, .csv or .json file, depending on the suffix of `path`.

        With `heads.csv`, `about` and the column types go to a second file, `heads.about.json`.
        """
        path = Path(path)
        files = {path: table_files.file_format(path)[0](self.df, self.about)}
        if path.suffix.lower() == ".csv":
            description = table_files.describe_table(self.df, self.about)
            files[path.with_suffix(".about.json")] = json.dumps(description, indent=1).encode()
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
        """Read a table from a file, or from a scan folder.

        `about` is empty for a CSV file without its `.about.json`.
        """
        path = Path(path)
        if path.is_dir():
            folder, path = path, path / "heads.parquet"
            if not path.is_file():
                raise OptionError(f"{folder} is not the folder of a scan: it has no {path.name}")
        decode = table_files.file_format(path)[1]
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
        kind = table_files.column_kind(column, self.df[column])
        if kind in ("text", "roles"):
            raise OptionError(f"column {column!r} contains {kind}: choose a column of numbers")
        return self.df[column].to_numpy(dtype="float64")


class HeadRow(pd.Series):
    """One head's row in a table; notebooks show it as HTML."""

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
