"""Scans of the embedded models, shipped with the package so that roles are known at once.

In: a loaded model. Out: the head table of its scan, if the model is the one that was scanned by
this version. `python -m headwise.explorer.shipped_scans` scans the embedded models and writes the
tables.
"""

from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headwise.head_table import HeadTable
from headwise.models.loaded import LoadedModel
from headwise.roles import ROLES

FOLDER = Path(str(resources.files("headwise.explorer"))) / "scans"
COLUMNS = ("score", "threshold", "baseline", "detail")
"""Columns of each role that are shipped."""
DIGITS = 4
ABOUT = ("model", "loaded", "weights", "tokens", "counts", "settings", "headwise")
"""Facts about a scan that are shipped."""


def shipped_scan(loaded: LoadedModel, *, is_fresh: bool = False) -> HeadTable | None:
    """The shipped table of an embedded model; None for any other or a changed model.

    `is_fresh` says that the model was just loaded from its file, so its weights are unchanged.
    """
    from headwise.models.embedded import MODELS
    from headwise.models.fingerprint import digest_weights

    names = [name for name in MODELS if MODELS[name].sha256 == loaded.about.get("sha256")]
    path = FOLDER / f"{(names or ['none'])[0]}.parquet"
    if not path.is_file():
        return None
    table = HeadTable.read(path)
    same = [table.about["headwise"] == version("headwise")]
    for fact in ("sha256", "class", "dtype"):
        same.append(table.about["loaded"][fact] == loaded.about.get(fact))
    if "kept" in loaded.about or not all(same):
        return None
    return table if is_fresh or table.about["weights"] == digest_weights(loaded.model) else None


def small_table(table: HeadTable) -> HeadTable:
    """The columns of a scan's table that the explorer shows, rounded."""
    roles = [f"{role}_{name}" for role in ROLES for name in COLUMNS]
    names = ["stack", "layer", "head", "roles", *roles, "induction"]
    df = table.df[[name for name in names if name in table.df]].round(DIGITS)
    return HeadTable(df, {name: table.about[name] for name in ABOUT})


def scan_model(name: str) -> HeadTable:
    """The table to ship for an embedded model, from a new scan with its output layer."""
    from headwise.objectives.scored_model import open_scored_model
    from headwise.scans.scan import scan

    return small_table(scan(open_scored_model(name)))


def write_all(folder: Path = FOLDER) -> None:
    """Scan every embedded model and write its table into `folder`."""
    from headwise.models.embedded import MODELS

    folder.mkdir(exist_ok=True)
    for name in MODELS:
        path: Any = folder / f"{name}.parquet"
        scan_model(name).write(path, force=True)
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    write_all()
