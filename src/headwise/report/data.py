"""The data for a report: a scan and other results about the same model, and attention maps.

In: folders that `headwise scan`, `importance`, `patch`, `prune` and `compare` wrote. Out:
ReportData. Each result reads its own folder; this module raises OptionError if they are from
different models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headwise.comparing.comparison import Comparison
from headwise.drawing.heatmap import HeatMap
from headwise.errors import OptionError
from headwise.head_table import HeadTable
from headwise.patching.result import PatchResult
from headwise.pruning.importance.importance_tables import Importance
from headwise.pruning.record import PruneRecord
from headwise.pruning.selection.curve import Curve
from headwise.scans.folder import Scan
from headwise.views.heads import dict_in


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention maps of some heads on a text, or the reason there are none."""

    text: str = ""
    by_head: Mapping[str, HeatMap] = field(default_factory=dict)
    """Maps over all tokens, by the head's name."""
    words_by_head: Mapping[str, HeatMap] = field(default_factory=dict)
    """Maps without special tokens, by the head's name."""
    reason: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportData:
    """Everything that a report shows."""

    scan: Scan
    importance: Importance | None = None
    cut: PruneRecord | None = None
    curve: Curve | None = None
    """Quality against heads cut; None if `prune` did not measure it."""
    comparison: Comparison | None = None
    patched: PatchResult | None = None
    maps: AttentionMaps = AttentionMaps()

    @property
    def table(self) -> HeadTable:
        """The scan's head table."""
        return self.scan.table

    @property
    def model(self) -> str:
        """Name of the scanned model."""
        return str(self.table.about.get("model") or "an unnamed model")

    @property
    def counts(self) -> dict[str, int]:
        """The amount read: numbers of tokens, windows, and sentences from each source."""
        counts = dict_in(self.table.about, "counts")
        return {name: count for name, count in counts.items() if isinstance(count, int)}

    @property
    def tokens(self) -> int:
        """Number of text tokens read; 0 if unknown."""
        tokens = self.table.about.get("tokens")
        return tokens if isinstance(tokens, int) else 0


def check_folders(
    scan: Path | None,
    importance: Path | None = None,
    prune: Path | None = None,
    compare: Path | None = None,
    patch: Path | None = None,
) -> None:
    """Raise OptionError if one of the folders does not exist."""
    folders = {"scan": scan, "importance": importance, "prune": prune, "compare": compare}
    folders["patch"] = patch
    for command, folder in folders.items():
        if folder is not None and not folder.is_dir():
            reason = "is a file" if folder.exists() else "does not exist"
            raise OptionError(
                f"{folder} {reason}: give a folder that headwise {command} --out wrote"
            )


def read_folders(
    scan: Path | Scan,
    importance: Path | None = None,
    prune: Path | None = None,
    compare: Path | None = None,
    patch: Path | None = None,
) -> ReportData:
    """The data in the folders, without maps; raises OptionError if the models differ."""
    data = ReportData(scan=scan if isinstance(scan, Scan) else Scan.read(scan))
    if importance is not None:
        measured = Importance.read(importance)
        _check_heads(importance, measured.table, data.table)
        data = replace(data, importance=measured)
    if prune is not None:
        cut, file = PruneRecord.read(prune), prune / "curve.csv"
        _check_cut(prune, cut, data.table)
        data = replace(data, cut=cut)
        if file.is_file():
            curve = Curve.read(file, cut.settings.method, cut.quality.unit, cut.before.heads)
            data = replace(data, curve=curve)
    if compare is not None:
        comparison = Comparison.read(compare)
        _check_comparison(compare, comparison, data.table)
        data = replace(data, comparison=comparison)
    if patch is not None:
        patched = PatchResult.read(patch)
        _check_heads(patch, patched.table, data.table)
        data = replace(data, patched=patched)
    return data


def _check_heads(folder: Path, table: HeadTable, scanned: HeadTable) -> None:
    _check_model(folder, str(table.about.get("model", "")), scanned)
    others = [str(head) for head in table.heads if head not in set(scanned.heads)]
    if others:
        raise OptionError(
            f"{folder} has {others[0]}, which the scan does not have: give folders of the same "
            "model"
        )


def _check_cut(folder: Path, cut: PruneRecord, scanned: HeadTable) -> None:
    """Raise OptionError if the scanned model is neither the uncut model nor the cut one."""
    name = str(scanned.about.get("model", ""))
    if name and Path(name).expanduser().resolve() == folder.resolve():
        return
    _check_model(folder, cut.model.name, scanned)
    missing = [str(head) for head in cut.heads_cut if head not in scanned.heads]
    if missing:
        raise OptionError(
            f"the cut in {folder} removed {missing[0]}, which the scanned model does not have: "
            "give folders of the same model"
        )


def _check_comparison(folder: Path, comparison: Comparison, scanned: HeadTable) -> None:
    """Raise OptionError if the scanned model is neither of the two that were compared."""
    names = (comparison.model_before.name, comparison.model_after.name)
    scanned_name = str(scanned.about.get("model", ""))
    if scanned_name and not any(is_same_model(name, scanned_name) for name in names):
        raise OptionError(
            f"{folder} compares {names[0]} and {names[1]}, but the scan is about {scanned_name}: "
            "give folders of the same model"
        )


def _check_model(folder: Path, model: str, scanned: HeadTable) -> None:
    name = str(scanned.about.get("model", ""))
    if model and name and not is_same_model(model, name):
        raise OptionError(
            f"{folder} is about {model}, but the scan is about {name}: give folders of the same "
            "model"
        )


def is_same_model(name: str, other: str) -> bool:
    """Whether two names refer to the same model: equal names, or paths to the same directory."""
    if name == other:
        return True
    try:
        return Path(name).expanduser().samefile(Path(other).expanduser())
    except (OSError, RuntimeError):  # missing, too long for a path, or the home of an unknown user
        return False
