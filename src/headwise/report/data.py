"""The data of a report: the tables of a scan, of importance and of a cut.

In: folders that `headwise scan`, `importance` and `prune` wrote. Out: ReportData; a folder with
other files, or with another model's heads, raises OptionError.
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
    from headwise.pruning.record import PruneRecord
    from headwise.pruning.selection.curve import Curve

PAIR_COLUMNS = ("a", "b", "cka")
RELATION_COLUMNS = ("source", "relation", "reading", "name", "head", "accuracy", "arcs")
LAYER_COLUMNS = ("layer", "heads", "best", "added", "shown")
CURVE_COLUMNS = ("method", "cut", "share", "loss", "loss_se", "quality", "low", "high")


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention maps of some heads on a text, or the reason for having none."""

    text: str = ""
    by_head: Mapping[str, HeatMap] = field(default_factory=dict)
    """Maps over all tokens, by the head's name."""
    words_by_head: Mapping[str, HeatMap] = field(default_factory=dict)
    """Maps without special tokens, by the head's name."""
    reason: str = ""
    """Why there are no maps; empty if there are some."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Worth:
    """The tables of an importance folder."""

    table: HeadTable
    interaction: pd.DataFrame | None = None
    layers: pd.DataFrame | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Cut:
    """A cut, as recorded in the directory of the cut model."""

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
    """Everything that a report shows."""

    table: HeadTable
    pairs: pd.DataFrame | None = None
    relations: pd.DataFrame | None = None
    importance: Worth | None = None
    cut: Cut | None = None
    maps: AttentionMaps = field(default_factory=AttentionMaps)
    texts: tuple[str, ...] = ()
    """The scanned texts if they are the built-in ones, else empty."""

    @property
    def model(self) -> str:
        """Name of the scanned model."""
        return str(self.table.about.get("model") or "a model without a name")

    @property
    def counts(self) -> dict[str, int]:
        """How much was read: tokens, windows, sentences by source."""
        counts = dict_in(self.table.about, "counts")
        return {name: count for name, count in counts.items() if isinstance(count, int)}

    @property
    def tokens(self) -> int:
        """Number of tokens of text that were read; 0 if unknown."""
        tokens = self.table.about.get("tokens")
        return tokens if isinstance(tokens, int) else 0


def read_folders(
    scan: Path, importance: Path | None = None, prune: Path | None = None
) -> ReportData:
    """The data in the folders, after checking that they are about the same model; without maps."""
    file = _find_file(scan, "scan", ("heads.parquet", "heads.csv"), unfinished="settings.json")
    table = HeadTable.read(file)
    return ReportData(
        table=table,
        pairs=_read_frame(scan / "pairs.parquet", PAIR_COLUMNS, pd.read_parquet),
        relations=_read_frame(scan / "relations.parquet", RELATION_COLUMNS, pd.read_parquet),
        importance=None if importance is None else read_importance(importance, table),
        cut=None if prune is None else read_cut(prune, table),
        texts=builtin_texts(table.about),
    )


def check_folders(importance: Path | None, prune: Path | None) -> None:
    """Raise OptionError unless each folder has the files of its command."""
    if importance is not None:
        _find_importance(importance)
    if prune is not None:
        _find_record(prune)


def read_importance(folder: Path, scanned: HeadTable) -> Worth:
    """The tables of an importance folder; raises OptionError unless it has the scanned heads."""
    file = _find_importance(folder)
    table = HeadTable.read(file)
    if "zero" not in table.df:
        raise OptionError(f"{file} cannot be read as importance: it has no column zero")
    _check_model(folder, str(table.about.get("model", "")), scanned)
    if set(table.heads) != set(scanned.heads):
        raise OptionError(
            f"{folder} has {len(table)} heads, but the scan has {len(scanned)}: give folders of "
            "the same model"
        )
    file = folder / "interaction.csv"
    matrix = _read_frame(file, (), lambda path: pd.read_csv(path, index_col=0))
    if matrix is not None and not set(map(str, table.heads)) <= {*matrix.index} & {*matrix.columns}:
        raise OptionError(f"{file} lacks heads of the scan: give folders of the same model")
    layers = _read_frame(
        folder / "layers.csv",
        LAYER_COLUMNS,
        lambda path: pd.read_csv(path, dtype={"shown": str}),  # rounded for readers: stays text
    )
    return Worth(table=table, interaction=matrix, layers=layers)


def read_cut(folder: Path, scanned: HeadTable) -> Cut:
    """The record in a pruned model's directory, of the scanned model or of its result."""
    from headwise.pruning.record import PruneRecord

    _find_record(folder)
    cut = _cut_of_record(PruneRecord.read(folder), folder / "curve.csv")
    name = str(scanned.about.get("model", ""))
    is_result = bool(name) and Path(name).expanduser().resolve() == folder.resolve()
    if not is_result:
        _check_model(folder, cut.model, scanned)
        missing = [str(head) for head in cut.heads if head not in scanned.heads]
        if missing:
            raise OptionError(
                f"the cut in {folder} removed {missing[0]}, which the scanned model does not have: "
                "give folders of the same model"
            )
    return cut


def _cut_of_record(record: "PruneRecord", curve: Path) -> Cut:
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
    """The curve in a file; None if there is no file."""
    table = _read_frame(file, CURVE_COLUMNS, pd.read_csv)
    if table is None:
        return None
    from headwise.objectives.evaluation import Estimate
    from headwise.pruning.selection.curve import Curve

    is_floor = table["method"] == "floor"
    uncut, floor = table[table["cut"] == 0], table[is_floor]
    if uncut.empty or floor.empty:
        raise OptionError(f"{file} is not a whole curve: it lacks the uncut model or the floor")
    ends = [
        Estimate(float(rows["loss"].iloc[0]), float(rows["loss_se"].iloc[0]))
        for rows in (uncut, floor)
    ]
    return Curve(table[~is_floor], ends[0], ends[1], method, unit, total)


def is_same_model(name: str, other: str) -> bool:
    """Whether two names mean one model: equal names, or two paths of one directory."""
    if name == other:
        return True
    try:
        return Path(name).expanduser().samefile(Path(other).expanduser())
    except (OSError, RuntimeError):  # missing, too long for a path, or the home of an unknown user
        return False


def builtin_texts(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The built-in texts if they were scanned, else empty."""
    from headwise.reading.corpus import TEXTS
    from headwise.scans.fingerprint import digest_texts

    return TEXTS if about.get("texts") == digest_texts(TEXTS) else ()


def dict_in(about: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The dictionary under `name`; empty if there is none."""
    value = about.get(name)
    return value if isinstance(value, dict) else {}


def number_or_nan(row: Mapping[str, Any] | pd.Series, name: str) -> float:
    """A row's number; NaN if it has none of this name."""
    value = row.get(name)
    return math.nan if value is None else float(value)


def _find_importance(folder: Path) -> Path:
    return _find_file(folder, "importance", ("importance.parquet", "importance.csv"))


def _find_record(folder: Path) -> Path:
    return _find_file(folder, "prune", ("prune.json",))


def _find_file(folder: Path, command: str, names: tuple[str, ...], *, unfinished: str = "") -> Path:
    """The first existing file of `names`; raises OptionError if `command` did not write them."""
    advice = f"give a folder that headwise {command} --out wrote"
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise OptionError(f"{folder} {what}: {advice}")
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None and unfinished and (folder / unfinished).is_file():
        raise OptionError(f"the {command} in {folder} is not finished: run the same command again")
    if file is None:
        raise OptionError(f"{folder} has no {names[0]}: {advice}")
    return file


def _check_model(folder: Path, model: str, scanned: HeadTable) -> None:
    name = str(scanned.about.get("model", ""))
    if model and name and not is_same_model(model, name):
        raise OptionError(
            f"{folder} is about {model}, but the scan is about {name}: give folders of the same "
            "model"
        )


def _read_frame(
    file: Path, columns: tuple[str, ...], read: Callable[[Path], Any]
) -> pd.DataFrame | None:
    """The table in a file, with the columns that are needed; None if there is no file."""
    if not file.is_file():
        return None
    try:
        frame: pd.DataFrame = read(file)
    except (ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OptionError(f"{file} cannot be read: {reason}") from error
    missing = [name for name in columns if name not in frame]
    if missing:
        raise OptionError(f"{file} cannot be read: it has no column {missing[0]}")
    return frame
