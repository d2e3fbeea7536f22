"""Importance tables: the measures of every head, as files in a folder.

In: tables, or a folder that `Importance.write` wrote. Out: `Importance`. importance.py fills it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.errors import OptionError, OutputError
from headwise.files import make_folder, write_aside
from headwise.formats import replace_nonfinite
from headwise.head_table import HeadTable
from headwise.heads import parse_heads
from headwise.pruning.importance.redundancy import RedundantHeads
from headwise.pruning.importance.workload import HEAD_MEASURES, MEASURES

MEASURES_IN_FILE = {
    "importance.parquet": MEASURES,
    "importance.csv": MEASURES,
    "interaction.csv": ("expected", "stand_ins"),
    "layers.csv": ("best_alone",),
    "stand_ins.json": ("stand_ins",),
}
"""Every file in the folder, and the measures of which one must be taken to write it."""
FILES = tuple(MEASURES_IN_FILE)
LAYER_COLUMNS = ("layer", "heads", "best", "added", "added_se", "shown")


@dataclass(frozen=True, eq=False)
class Importance:
    """How much a model needs each head, by several measures."""

    table: HeadTable
    interaction: pd.DataFrame | None = None
    """G, indexed by head name. The loss expected from cutting some heads is half the sum of G over
    their rows and columns, minus the slopes of the loss in their gates. None if not measured."""
    groups: tuple[RedundantHeads, ...] = ()
    """Heads that stand in for each other; empty if none were found or looked for."""
    layers: pd.DataFrame | None = None
    """For each layer, the head that does best alone and the loss that silencing the rest adds.
    None if not measured."""

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that were taken, in the order of MEASURES."""
        columns = {*self.table.df, *(() if self.layers is None else ("best_alone",))}
        return tuple(name for name in MEASURES if name in columns)

    @property
    def ranked_by(self) -> str | None:
        """The first measure in the table, by which heads are ranked; None if it has none."""
        return next((name for name in self.measures if name in HEAD_MEASURES), None)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def to_json(self) -> str:
        """The tables and groups in one JSON document.

        Numbers that are not finite and measures that were not taken become null.
        """
        layers = None if self.layers is None else self.layers.to_dict("records")
        return json.dumps(
            {
                "about": self.table.about,
                "heads": replace_nonfinite(self.table.df.drop(columns="roles").to_dict("records")),
                "layers": replace_nonfinite(layers),
                "stand_ins": _group_rows(self.groups) if "stand_ins" in self.measures else None,
            }
        )

    def write(self, folder: Path, *, force: bool = False) -> None:
        """Write the files of the measures taken, each under a temporary name first."""
        check_importance_folder(folder, force=force)
        make_folder(folder)
        for name in FILES:
            if name not in _files_of(self.measures):
                (folder / name).unlink(missing_ok=True)  # of an earlier run with more measures
        for name in FILES[:2]:
            self.table.write(folder / name, force=True)
        if self.interaction is not None:
            write_aside(folder / "interaction.csv", self.interaction.to_csv())
        if self.layers is not None:
            write_aside(folder / "layers.csv", self.layers.to_csv(index=False))
        if "stand_ins" in self.measures:
            write_aside(folder / "stand_ins.json", json.dumps(_group_rows(self.groups), indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Importance":
        """The importance that `write` wrote to `folder`."""
        tables = [folder / name for name in FILES[:2] if (folder / name).is_file()]
        if not tables:
            raise _missing_file(folder, FILES[0])
        table = HeadTable.read(tables[0])
        measures = table.about.get("measures")
        if not isinstance(measures, list):
            measures = ["zero", "stand_ins", "best_alone"]
        for name in HEAD_MEASURES:
            if name in measures and name not in table.df:
                raise OptionError(
                    f"{tables[0]} is not an importance table: it has no column {name}"
                )
        files = [folder / name for name in _files_of(measures) if name not in FILES[:2]]
        for file in files:
            if not file.is_file():
                raise _missing_file(folder, file.name)
        parts = {file.name: _read_part(file, table) for file in files}
        return cls(
            table,
            parts.get("interaction.csv"),
            parts.get("stand_ins.json", ()),
            parts.get("layers.csv"),
        )


def _files_of(measures: Iterable[str]) -> list[str]:
    """Names of the files that contain one of the measures."""
    return [
        name for name, inside in MEASURES_IN_FILE.items() if not set(inside).isdisjoint(measures)
    ]


def _missing_file(folder: Path, name: str) -> OptionError:
    return OptionError(
        f"{folder} has no {name}: give a folder that headwise importance --out wrote"
    )


def _read_part(file: Path, table: HeadTable) -> Any:
    """A file beside the table as a data frame or groups; raises OptionError if it is unreadable."""
    try:
        if file.suffix == ".json":
            return tuple(
                RedundantHeads(**{**group, "heads": parse_heads(" ".join(group["heads"]))})
                for group in json.loads(file.read_text("utf-8"))
            )
        if file.name == "layers.csv":
            layers = pd.read_csv(file, dtype={"shown": str})
            if not set(LAYER_COLUMNS) <= set(layers):
                raise ValueError(f"its columns are {', '.join(map(str, layers))}")
            return layers
        interaction = pd.read_csv(file, index_col=0)
        if not set(map(str, table.heads)) <= {*interaction.index} & {*interaction.columns}:
            raise ValueError("it lacks some of the heads in the table")
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise OptionError(f"{file} cannot be read: {error}") from error
    return interaction


def _group_rows(groups: Sequence[RedundantHeads]) -> list[dict[str, Any]]:
    return [asdict(group) | {"heads": [str(head) for head in group.heads]} for group in groups]


def check_importance_folder(folder: Path, *, force: bool) -> None:
    """Raise if `folder` is a file, or if it has one of `FILES` and `force` is False."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file: give the name of a folder")
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not force:
        raise OutputError(
            f"{folder} already has {existing[0]}: choose another folder, or replace the tables "
            "with --force (force=True in Python)"
        )
