"""Columns of a head table, and the files that hold them: Parquet, CSV, JSON.

In: a data frame, and how it came about. Out: its columns checked and sorted, and bytes that are
read back without loss. Nothing here knows of HeadTable.
"""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headwise.errors import OptionError

PLACE = ("stack", "layer", "head")
DTYPES: dict[str, Any] = dict(int="int64", float="float64", bool="bool", text="str", roles="object")
"""The five kinds of column, and how pandas holds each."""


def tidied(df: pd.DataFrame) -> pd.DataFrame:
    """The same rows sorted, in columns of the five kinds, place and roles first."""
    names = [str(name) for name in df.columns]
    absent = [name for name in PLACE if name not in names]
    if absent:
        raise OptionError(f"a head table needs a column {' and a column '.join(absent)}")
    if not len(df):
        raise OptionError("a head table needs a row for each head, and there is none")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise OptionError(f"{count} columns are called {name!r}: give each a name of its own")
    df = df.set_axis(names, axis=1).reset_index(drop=True)
    if "roles" not in df:
        df["roles"] = [()] * len(df)
    order = dict.fromkeys([*PLACE, "roles", *names])
    tidy = pd.DataFrame({name: tidy_column(name, df[name]) for name in order})
    stacks = pd.factorize(tidy["stack"])[0]
    rows = np.lexsort((tidy["head"].to_numpy(), tidy["layer"].to_numpy(), stacks))
    return tidy.iloc[rows].reset_index(drop=True)


def tidy_column(name: str, column: pd.Series) -> pd.Series:
    """The column in the one dtype of its kind; missing text is empty text."""
    if name == "roles":
        return pd.Series([role_names(cell) for cell in column], dtype="object")
    if column.dtype == DTYPES["float"] and name not in PLACE:
        return column  # as nearly all are
    column = column.infer_objects()
    kind = kind_of(name, column)
    needed = {"stack": "text", "layer": "int", "head": "int"}.get(name, kind)
    if kind != needed or (kind in ("int", "bool") and column.isna().any()):
        raise OptionError(f"column {name!r} must hold {needed} without gaps, not {column.dtype}")
    if kind == "text":
        column = column.astype("object").where(column.notna(), "")
    tidy: pd.Series = column.astype(DTYPES[kind])
    return tidy


def kind_of(name: str, column: pd.Series) -> str:
    """Which of the five kinds a column is of; raises if it is of none."""
    letters = {"b": "bool", "i": "int", "u": "int", "f": "float"}
    kind = "roles" if name == "roles" else letters.get(column.dtype.kind, "text")
    if kind == "text" and not all(isinstance(cell, str) for cell in column.dropna()):
        raise OptionError(f"column {name!r} holds {column.dtype}, not numbers, bool or text")
    return kind


def role_names(cell: Any) -> tuple[str, ...]:
    """The roles of one head, checked."""
    names: list[Any] = list(cell) if isinstance(cell, list | tuple | np.ndarray) else [None]
    if not all(isinstance(name, str) and name and ";" not in name for name in names):
        raise OptionError(f"{cell!r} is not a list of roles: give a list of words without ';'")
    return tuple(names)


Held = tuple[pd.DataFrame, dict[str, Any]]
"""Contents of a file: the columns, and how they were made."""


def note_of(df: pd.DataFrame, about: dict[str, Any]) -> dict[str, Any]:
    """What a format that holds cells alone cannot say."""
    return {"about": about, "columns": {name: kind_of(name, df[name]) for name in df.columns}}


def plain(cell: Any) -> Any:
    """A cell as JSON can hold it: NaN is null, an infinity is text."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return None if math.isnan(cell) else str(cell)
    return cell


def to_json(df: pd.DataFrame, about: dict[str, Any]) -> bytes:
    """Rows as objects, beside the kinds of their columns."""
    rows = df.to_dict("records")
    heads = [{name: plain(cell) for name, cell in row.items()} for row in rows]
    return json.dumps({**note_of(df, about), "heads": heads}, indent=1).encode()


def from_json(path: Path) -> Held:
    """Read the output of `to_json`."""
    held = json.loads(path.read_text("utf-8"))
    dtypes = {name: DTYPES[kind] for name, kind in held["columns"].items()}
    df = pd.DataFrame(held["heads"], columns=list(dtypes), dtype="object")
    return df.astype(dtypes), held["about"]


def to_csv(df: pd.DataFrame, _: dict[str, Any]) -> bytes:
    """One line per head, several roles with ';' between them."""
    flat = df.assign(roles=df["roles"].map(";".join))
    return flat.to_csv(index=False, lineterminator="\r\n").encode()


def from_csv(path: Path) -> Held:
    """Read the output of `to_csv`; without its companion, kinds are guessed, `about` is empty."""
    from pyarrow import csv

    companion = path.with_suffix(".about.json")
    note = {"about": {}, "columns": {"stack": "text", "roles": "roles"}}
    if companion.is_file():
        note = json.loads(companion.read_text("utf-8"))
    kinds = DTYPES | {"roles": "str"}
    types = {name: kinds[kind] for name, kind in note["columns"].items()}
    parse = csv.ParseOptions(newlines_in_values=True)
    convert = csv.ConvertOptions(column_types=types, null_values=["", "nan", "NaN"])
    df = csv.read_csv(path, parse_options=parse, convert_options=convert).to_pandas()
    if "roles" in df:
        df["roles"] = [list(filter(None, cell.split(";"))) for cell in df["roles"]]
    return df, note["about"]


def to_parquet(df: pd.DataFrame, about: dict[str, Any]) -> bytes:
    """Typed columns, and how they came about as metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    types = DTYPES | {"roles": pa.list_(pa.string())}
    fields = [(name, types[kind]) for name, kind in note_of(df, about)["columns"].items()]
    schema = pa.schema(fields, {"headwise": json.dumps(about)})
    columns = {name: df[name].tolist() for name in schema.names}
    file = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pydict(columns, schema), file)
    return file.getvalue().to_pybytes()


def from_parquet(path: Path) -> Held:
    """Read the output of `to_parquet`."""
    from pyarrow import parquet

    held = parquet.read_table(path, partitioning=None)
    about = (held.schema.metadata or {}).get(b"headwise", b"{}")
    return held.to_pandas(), json.loads(about)


FORMATS = {
    ".parquet": (to_parquet, from_parquet),
    ".csv": (to_csv, from_csv),
    ".json": (to_json, from_json),
}


def format_of(path: Path) -> tuple[Callable[..., bytes], Callable[[Path], Held]]:
    """How a file is written and read, by the end of its name."""
    if path.suffix.lower() not in FORMATS:
        raise OptionError(f"{path} must end in {', '.join(FORMATS)}: the end says the format")
    return FORMATS[path.suffix.lower()]
