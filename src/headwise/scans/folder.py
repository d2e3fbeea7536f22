"""The files of a scan: its tables, and the sums from which a stopped scan resumes.

In: a folder, and a fingerprint of the scan. Out: files, which are never left half-written.
"""

import json
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.errors import OptionError, OutputError
from headwise.files import make_folder, read_bytes, write_aside
from headwise.head_table import HeadTable
from headwise.run_folder import RunFolder
from headwise.scans.process_group import ProcessGroup
from headwise.scans.sums import ScanSums

SECONDS_BETWEEN_SAVES = 2.0
HEAD_TABLES = ("heads.parquet", "heads.csv", "scan.json")  # every complete scan has these
FRAMES = {
    "pairs": ("a", "b", "cka"),
    "relations": ("source", "relation", "reading", "name", "head", "accuracy", "arcs"),
}
"""Optional tables of a scan, and the columns they must have."""
TABLES = (*HEAD_TABLES, *(f"{name}.parquet" for name in FRAMES))


@dataclass(frozen=True, eq=False)
class Scan:
    """All results of a scan."""

    table: HeadTable
    pairs: pd.DataFrame
    """Head pairs in each stack: `a`, `b`, `cka`, `divergence`; empty if heads were not compared."""
    relations: pd.DataFrame
    """One row per relation, reading and head; empty if no probe sentences were read."""
    was_complete: bool = False
    """Whether this scan was already complete in its folder before the run."""

    @classmethod
    def read(cls, folder: str | Path) -> "Scan":
        """Read the scan saved in `folder`."""
        folder = Path(folder)
        tables = [folder / name for name in HEAD_TABLES[:2] if (folder / name).is_file()]
        if not tables and (folder / "settings.json").is_file():
            raise OptionError(f"the scan in {folder} is not finished: run the same command again")
        if not tables:
            raise OptionError(
                f"{folder} has no {HEAD_TABLES[0]}: pass a folder that headwise scan --out wrote"
            )
        pairs, relations = (_read_frame(folder, name) for name in FRAMES)
        return cls(HeadTable.read(tables[0]), pairs, relations)

    def write(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the tables to `folder`; raise OutputError if one exists, unless `force`."""
        folder = Path(folder)
        existing = [name for name in TABLES if (folder / name).exists()]
        if existing and not force:
            raise OutputError(
                f"{folder} already has {existing[0]}: choose another folder, or pass force=True"
            )
        make_folder(folder)
        for name in HEAD_TABLES[:2]:
            self.table.write(folder / name, force=True)
        write_aside(folder / "scan.json", json.dumps(self.table.about, indent=1))
        for name in FRAMES:
            frame, file = getattr(self, name), folder / f"{name}.parquet"
            if len(frame) > 0:
                write_aside(file, frame.to_parquet(index=False))
            else:
                file.unlink(missing_ok=True)


def _read_frame(folder: Path, name: str) -> pd.DataFrame:
    file = folder / f"{name}.parquet"
    if not file.exists():
        return pd.DataFrame()
    try:
        frame = pd.read_parquet(file)
    except (ValueError, OSError) as error:  # pyarrow's errors are subclasses of these
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise OptionError(f"{file} cannot be read: {reason}") from error
    missing = [column for column in FRAMES[name] if column not in frame]
    if missing:
        raise OptionError(f"{file} cannot be read: it has no column {missing[0]}")
    return frame


class ScanFolder:
    """The output folder of a running scan."""

    def __init__(
        self, folder: Path, fingerprint: Mapping[str, Any], group: ProcessGroup, *, force: bool
    ) -> None:
        """Raise OutputError if the folder contains another scan, unless `force`; write nothing."""
        settings, outputs = {**fingerprint, "processes": group.world}, (*TABLES, "heads.about.json")
        self.run = RunFolder(folder=folder, kind="scan", settings=settings, outputs=outputs)
        self.group, self.force, self.saved_at = group, force, 0.0
        self.progress_file = folder / f"progress-{group.rank}.npz"
        is_ours = self.run.check(force=force)
        files = (folder / name for name in HEAD_TABLES)
        self.was_complete = is_ours and not force and all(file.is_file() for file in files)

    def begin(self) -> ScanSums:
        """Create the folder, and return the sums that a stopped scan left there.

        With `force`, every process deletes its old sums, and the first also all other old files.
        """
        folder, file = self.run.folder, self.progress_file
        make_folder(folder)
        if self.force:
            file.unlink(missing_ok=True)
        if self.force and self.group.is_first:
            self.run.clear()
            running = {folder / f"progress-{rank}.npz" for rank in range(self.group.world)}
            for old_file in set(folder.glob("progress-*.npz")) - running:
                old_file.unlink(missing_ok=True)
        if self.group.is_first:
            self.run.start()
        if not file.exists():
            return ScanSums()
        content = read_bytes(file)
        try:
            return ScanSums.from_bytes(content)
        except (ValueError, LookupError, EOFError, zipfile.BadZipFile) as error:
            raise OutputError(
                f"{file} is not a readable progress file: delete it and run the scan again"
            ) from error

    def save(self, sums: ScanSums, *, now: bool = False) -> None:
        """Save the sums if `now`, or if the last save was over `SECONDS_BETWEEN_SAVES` ago."""
        if now or time.monotonic() - self.saved_at > SECONDS_BETWEEN_SAVES:
            write_aside(self.progress_file, sums.to_bytes())
            self.saved_at = time.monotonic()
