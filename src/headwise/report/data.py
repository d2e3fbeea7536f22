"""What a report is made of: the tables of a scan, of importance and of a cut, read from folders.

In: folders that `headwise scan`, `importance` and `prune` wrote. Out: `ReportData`. A folder that
holds something else, or another model's heads, is refused in one sentence. It draws nothing.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headwise.drawing.heatmap import HeatMap
from headwise.errors import OptionError
from headwise.heads import HeadId, HeadTable

if TYPE_CHECKING:
    from torch import nn

    from headwise.pruning.record import PruneRecord
    from headwise.pruning.selection.curve import Curve

PAIR_COLUMNS = ("a", "b", "cka")
RELATION_COLUMNS = ("source", "relation", "reading", "name", "head", "accuracy", "arcs")
LAYER_COLUMNS = ("layer", "heads", "best", "added", "shown")
CURVE_COLUMNS = ("method", "cut", "share", "loss", "loss_se", "quality", "low", "high")


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention maps of some heads on a text, or why there are none."""

    text: str = ""
    maps: Mapping[str, HeatMap] = field(default_factory=dict)
    """By the head's name, over all tokens."""
    words: Mapping[str, HeatMap] = field(default_factory=dict)
    """The same without special tokens."""
    reason: str = ""
    """Why there are no maps, where there are none."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Worth:
    """What heads are worth: the tables of an importance folder."""

    table: HeadTable
    interaction: pd.DataFrame | None = None
    layers: pd.DataFrame | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Cut:
    """What a directory of a cut model says of the cut."""

    model: str
    heads: tuple[HeadId, ...]
    method: str
    unit: str
    objective: str
    sizes: tuple[tuple[str, float, float], ...]
    """Name, before, after."""
    qualities: Mapping[str, tuple[float | None, float | None]]
    """Loss and quality by name: uncut, cut, refitted, floor, random_mean."""
    random: tuple[float, ...] = ()
    """Quality of each random cut."""
    speeds: tuple[Mapping[str, float], ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """Settings, versions and texts."""
    curve: "Curve | None" = None
    difference: float | None = None
    """Largest difference between the cut and the silenced model."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportData:
    """Everything that a report tells."""

    table: HeadTable
    pairs: pd.DataFrame | None = None
    relations: pd.DataFrame | None = None
    worth: Worth | None = None
    cut: Cut | None = None
    drawn: AttentionMaps = field(default_factory=AttentionMaps)
    text_read: tuple[str, ...] = ()
    """The texts that were scanned, where they are the built-in ones."""

    @property
    def model(self) -> str:
        """The name that the model was scanned under."""
        return str(self.table.about.get("model") or "a model without a name")

    @property
    def counts(self) -> dict[str, int]:
        """How much was read, by what it is: tokens, windows, sentences."""
        known = dict_of(self.table.about, "counts")
        return {name: count for name, count in known.items() if isinstance(count, int)}

    @property
    def tokens(self) -> int:
        """Tokens of text that were read; 0 where that is not known."""
        tokens = self.table.about.get("tokens")
        return tokens if isinstance(tokens, int) else 0


def read_folders(
    scan: Path, importance: Path | None = None, prune: Path | None = None
) -> ReportData:
    """What the folders hold, checked to be of the same model; no maps yet."""
    table = heads_of(scan)
    worth = None if importance is None else worth_of(importance, table)
    return ReportData(
        table=table,
        pairs=frame_of(scan / "pairs.parquet", PAIR_COLUMNS, pd.read_parquet),
        relations=frame_of(scan / "relations.parquet", RELATION_COLUMNS, pd.read_parquet),
        worth=worth,
        cut=None if prune is None else cut_of(prune, table),
        text_read=builtin_text(table.about),
    )


def dict_of(about: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of what is known of a table; empty where it is not there."""
    found = about.get(name)
    return found if isinstance(found, dict) else {}


def number(row: Mapping[str, Any] | pd.Series, name: str) -> float:
    """A figure of a row; NaN where it has none."""
    value = row.get(name)
    return math.nan if value is None else float(value)


# Folders.


def heads_of(folder: Path) -> HeadTable:
    """The table of a scan."""
    check_folder(folder, "headwise scan --out")
    file = first_of(folder, "heads.parquet", "heads.csv")
    if file is None and (folder / "settings.json").is_file():
        raise OptionError(f"{folder} holds a scan that is not finished: run the same command again")
    if file is None:
        raise OptionError(
            f"{folder} holds no scan: it has no heads.parquet; give a folder that "
            "headwise scan --out wrote"
        )
    return HeadTable.read(file)


def heads_of_model(name: str, model: "nn.Module") -> HeadTable:
    """A table of a model's heads before anything is measured of them."""
    from headwise.watching.sites import find_sites

    heads = [
        (place.stack, place.layer, head)
        for place in find_sites(model)
        for head in range(place.num_heads or 0)
    ]
    return HeadTable(pd.DataFrame(heads, columns=["stack", "layer", "head"]), {"model": name})


def worth_of(folder: Path, scanned: HeadTable) -> Worth:
    """The tables of an importance folder, of the scanned model's heads."""
    file = importance_file(folder)
    table = HeadTable.read(file)
    if "zero" not in table.df:
        raise OptionError(f"{file} cannot be read as importance: it has no column zero")
    check_model(folder, str(table.about.get("model", "")), scanned)
    if set(table.heads) != set(scanned.heads):
        raise OptionError(
            f"{folder} holds {len(table)} heads, and the scan {len(scanned)}: give folders of "
            "the same model"
        )
    matrix = frame_of(folder / "interaction.csv", (), lambda path: pd.read_csv(path, index_col=0))
    if matrix is not None and not set(map(str, table.heads)) <= {*matrix.index} & {*matrix.columns}:
        raise OptionError(f"{folder / 'interaction.csv'} does not hold every head of the scan")
    layers = frame_of(folder / "layers.csv", LAYER_COLUMNS, read_layers)
    return Worth(table=table, interaction=matrix, layers=layers)


def cut_of(folder: Path, scanned: HeadTable) -> Cut:
    """What a pruned model's directory says, of the scanned model or of what was made of it."""
    check_folder(folder, "headwise prune --out")
    from headwise.pruning.record import PruneRecord

    found = read_cut(PruneRecord.read(folder), folder / "curve.csv")
    named = str(scanned.about.get("model", ""))
    is_result = bool(named) and Path(named).expanduser().resolve() == folder.resolve()
    if not is_result:
        check_model(folder, found.model, scanned)
        absent = [str(head) for head in found.heads if head not in scanned.heads]
        if absent:
            raise OptionError(
                f"the cut in {folder} took {absent[0]}, which the scanned model does not have: "
                "give folders of the same model"
            )
    return found


def read_cut(record: "PruneRecord", curve: Path) -> Cut:
    """A record of a cut, for the report."""
    quality, before, after = record.quality, asdict(record.before), asdict(record.after)
    scores = {
        "uncut": quality.uncut,
        "cut": quality.cut,
        "refitted": quality.refitted,
        "floor": quality.floor,
        "random_mean": quality.random_mean,
    }
    values = json.loads(record.to_json())
    return Cut(
        model=record.model.name,
        heads=record.heads_cut,
        method=record.method,
        unit=quality.unit,
        objective=quality.objective,
        sizes=tuple((name, float(before[name]), float(after[name])) for name in before),
        qualities={
            name: (score.loss, score.value) for name, score in scores.items() if score is not None
        },
        random=tuple(score.value for score in quality.random if not math.isnan(score.value)),
        speeds=tuple(asdict(speed) for speed in record.speed),
        about={key: values[key] for key in ("settings", "versions", "text")},
        curve=read_curve(curve, record.settings.method, quality.unit, record.before.heads),
        difference=record.cut_against_silenced,
    )


def read_curve(file: Path, method: str, unit: str, total: int) -> "Curve | None":
    """The curve that a cut lies on; None where none was measured."""
    table = frame_of(file, CURVE_COLUMNS, pd.read_csv)
    if table is None:
        return None
    from headwise.objectives.evaluation import Estimate
    from headwise.pruning.selection.curve import Curve

    is_floor = table["method"] == "floor"
    uncut, floor = table[table["cut"] == 0], table[is_floor]
    if uncut.empty or floor.empty:
        raise OptionError(f"{file} is not a whole curve: it lacks the uncut model or the floor")
    ends = [Estimate(float(one["loss"].iloc[0]), float(one["loss_se"].iloc[0]))
            for one in (uncut, floor)]  # fmt: skip
    return Curve(table[~is_floor], ends[0], ends[1], method, unit, total)


def read_layers(file: Path) -> pd.DataFrame:
    """The table of layers; what it shows was rounded for readers, and stays text."""
    return pd.read_csv(file, dtype={"shown": str})


def importance_file(folder: Path) -> Path:
    """Where a folder holds what heads are worth."""
    check_folder(folder, "headwise importance --out")
    file = first_of(folder, "importance.parquet", "importance.csv")
    if file is None:
        raise OptionError(
            f"{folder} holds no importance: it has no importance.parquet; give a folder that "
            "headwise importance --out wrote"
        )
    return file


def check_folder(folder: Path, command: str) -> None:
    """Refuse what is not there, or is no folder."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise OptionError(f"{folder} {what}: give a folder that {command} wrote")


def is_same_model(one: str, other: str) -> bool:
    """Whether two names are of one model: the same, or of one directory spelled in two ways."""
    if one == other:
        return True
    try:
        return Path(one).expanduser().samefile(Path(other).expanduser())
    except (OSError, RuntimeError):  # not there, too long for a name, or the home of nobody
        return False


def check_model(folder: Path, named: str, scanned: HeadTable) -> None:
    """Refuse what was measured of another model."""
    wanted = str(scanned.about.get("model", ""))
    if named and wanted and not is_same_model(named, wanted):
        raise OptionError(
            f"{folder} comes from {named}, and the scan from {wanted}: give folders of the same "
            "model"
        )


def first_of(folder: Path, *names: str) -> Path | None:
    """The first of some files that is there."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def frame_of(
    file: Path, columns: tuple[str, ...], read: Callable[[Path], Any]
) -> pd.DataFrame | None:
    """The table in a file, with the columns that are needed; None where there is no file."""
    if not file.is_file():
        return None
    try:
        found: pd.DataFrame = read(file)
    except (ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OptionError(f"{file} cannot be read: {reason}") from error
    absent = [name for name in columns if name not in found]
    if absent:
        raise OptionError(f"{file} cannot be read: it has no column {absent[0]}")
    return found


def builtin_text(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The built-in texts, where they are what was scanned."""
    from headwise.reading.corpus import TEXTS
    from headwise.scans.fingerprint import digest

    return TEXTS if about.get("texts") == digest(TEXTS) else ()
