"""Head tables: check and sort data frames, and read and write Parquet, CSV and JSON files."""

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
"""The dtype for each of the five column kinds."""


def tidy_table(df: pd.DataFrame) -> pd.DataFrame:
    """A sorted copy with stack, layer, head and roles first, and each column's dtype checked."""
    names = [str(name) for name in df.columns]
    missing = [name for name in PLACE if name not in names]
    if missing:
        raise OptionError(f"a head table needs a column {' and a column '.join(missing)}")
    if not len(df):
        raise OptionError("a head table needs one row per head, but there are no rows")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise OptionError(f"{count} columns are called {name!r}: rename all but one")
    df = df.set_axis(names, axis=1).reset_index(drop=True)
    if "roles" not in df:
        df["roles"] = [()] * len(df)
    order = dict.fromkeys([*PLACE, "roles", *names])
    tidy = pd.DataFrame({name: _tidy_column(name, df[name]) for name in order})
    stacks = pd.factorize(tidy["stack"])[0]
    rows = np.lexsort((tidy["head"].to_numpy(), tidy["layer"].to_numpy(), stacks))
    return tidy.iloc[rows].reset_index(drop=True)


def _tidy_column(name: str, column: pd.Series) -> pd.Series:
    """The column in the dtype of its kind; missing text becomes empty text."""
    if name == "roles":
        return pd.Series([_role_names(cell) for cell in column], dtype="object")
    if column.dtype == DTYPES["float"] and name not in PLACE:
        return column
    column = column.infer_objects()
    kind = column_kind(name, column)
    needed = {"stack": "text", "layer": "int", "head": "int"}.get(name, kind)
    if kind != needed or (kind in ("int", "bool") and column.isna().any()):
        raise OptionError(f"column {name!r} is {column.dtype}: it must be {needed}, none missing")
    if kind == "text":
        column = column.astype("object").where(column.notna(), "")
    tidy: pd.Series = column.astype(DTYPES[kind])
    return tidy


def column_kind(name: str, column: pd.Series) -> str:
    """One of the five kinds in DTYPES; raises OptionError if the column is none of them."""
    letters = {"b": "bool", "i": "int", "u": "int", "f": "float"}
    kind = "roles" if name == "roles" else letters.get(column.dtype.kind, "text")
    if kind == "text" and not all(isinstance(cell, str) for cell in column.dropna()):
        raise OptionError(f"column {name!r} is {column.dtype}: use numbers, bool or text")
    return kind


def _role_names(cell: Any) -> tuple[str, ...]:
    names: list[Any] = list(cell) if isinstance(cell, list | tuple | np.ndarray) else [None]
    if not all(isinstance(name, str) and name and ";" not in name for name in names):
        raise OptionError(f"{cell!r} is not a list of roles: use a list of names without ';'")
    return tuple(names)


_Contents = tuple[pd.DataFrame, dict[str, Any]]  # the rows, and `about`


def describe_table(df: pd.DataFrame, about: dict[str, Any]) -> dict[str, Any]:
    """`about` and the kind of every column, for formats that store only cell values."""
    return {"about": about, "columns": {name: column_kind(name, df[name]) for name in df.columns}}


def _json_cell(cell: Any) -> Any:
    """The cell as a JSON value: None for NaN, a string for an infinity."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return None if math.isnan(cell) else str(cell)
    return cell


def to_json(df: pd.DataFrame, about: dict[str, Any]) -> bytes:
    """JSON with `about`, the column kinds, and one object per row."""
    rows = df.to_dict("records")
    heads = [{name: _json_cell(cell) for name, cell in row.items()} for row in rows]
    return json.dumps({**describe_table(df, about), "heads": heads}, indent=1).encode()


def _from_json(path: Path) -> _Contents:
    contents = json.loads(path.read_text("utf-8"))
    dtypes = {name: DTYPES[kind] for name, kind in contents["columns"].items()}
    df = pd.DataFrame(contents["heads"], columns=list(dtypes), dtype="object")
    return df.astype(dtypes), contents["about"]


def _to_csv(df: pd.DataFrame, _: dict[str, Any]) -> bytes:
    flat = df.assign(roles=df["roles"].map(";".join))
    return flat.to_csv(index=False, lineterminator="\r\n").encode()


def _from_csv(path: Path) -> _Contents:
    """Rows and `about`; if there is no `.about.json`, guess the kinds and leave `about` empty."""
    from pyarrow import csv

    about_file = path.with_suffix(".about.json")
    description = {"about": {}, "columns": {"stack": "text", "roles": "roles"}}
    if about_file.is_file():
        description = json.loads(about_file.read_text("utf-8"))
    kinds = DTYPES | {"roles": "str"}
    types = {name: kinds[kind] for name, kind in description["columns"].items()}
    parse = csv.ParseOptions(newlines_in_values=True)
    convert = csv.ConvertOptions(column_types=types, null_values=["", "nan", "NaN"])
    df = csv.read_csv(path, parse_options=parse, convert_options=convert).to_pandas()
    if "roles" in df:
        df["roles"] = [list(filter(None, cell.split(";"))) for cell in df["roles"]]
    return df, description["about"]


def _to_parquet(df: pd.DataFrame, about: dict[str, Any]) -> bytes:
    """A Parquet file with typed columns, and `about` in the schema's metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    types = DTYPES | {"roles": pa.list_(pa.string())}
    fields = [(name, types[kind]) for name, kind in describe_table(df, about)["columns"].items()]
    schema = pa.schema(fields, {"headwise": json.dumps(about)})
    columns = {name: df[name].tolist() for name in schema.names}
    file = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pydict(columns, schema), file)
    return file.getvalue().to_pybytes()


def _from_parquet(path: Path) -> _Contents:
    from pyarrow import parquet

    contents = parquet.read_table(path, partitioning=None)
    about = (contents.schema.metadata or {}).get(b"headwise", b"{}")
    return contents.to_pandas(), json.loads(about)


FORMATS = {
    ".parquet": (_to_parquet, _from_parquet),
    ".csv": (_to_csv, _from_csv),
    ".json": (to_json, _from_json),
}


def file_format(path: Path) -> tuple[Callable[..., bytes], Callable[[Path], _Contents]]:
    """The encoder and the decoder for the file's suffix."""
    if path.suffix.lower() not in FORMATS:
        raise OptionError(f"{path} has an unknown suffix: use one of {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]
