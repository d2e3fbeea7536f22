"""The files of a scan: its tables, and the sums that a stopped scan resumes from.

In: a folder, and a fingerprint of what is scanned. Out: files that are complete at every moment.
Which scan a folder belongs to is checked by headwise.run_folder.
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
"""Tables that a scan may have, and columns that they need."""
TABLES = (*HEAD_TABLES, *(f"{name}.parquet" for name in FRAMES))


@dataclass(frozen=True, eq=False)
class Scan:
    """Everything that a scan found."""

    table: HeadTable
    pairs: pd.DataFrame
    """Every pair of heads in a stack: `a`, `b`, `cka`, `divergence`; empty if not compared."""
    relations: pd.DataFrame
    """One row per relation, reading and head; empty if no sentences with gold were read."""
    was_complete: bool = False
    """Whether the folder already held this scan, complete, before it was run."""

    @classmethod
    def read(cls, folder: str | Path) -> "Scan":
        """The scan that was written to `folder`."""
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
        """Write the tables; raises OutputError if one exists, unless `force`."""
        folder = Path(folder)
        existing = [name for name in TABLES if (folder / name).exists()]
        if existing and not force:
            raise OutputError(f"{folder} has {existing[0]}: choose another folder, or force=True")
        make_folder(folder)
        self.table.write(folder / "heads.parquet", force=True)
        self.table.write(folder / "heads.csv", force=True)
        write_aside(folder / "scan.json", json.dumps(self.table.about, indent=1))
        for name in FRAMES:
            frame: pd.DataFrame = getattr(self, name)
            file = folder / f"{name}.parquet"
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
    except (ValueError, OSError) as error:  # pyarrow's errors are kinds of these
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise OptionError(f"{file} cannot be read: {reason}") from error
    missing = [column for column in FRAMES[name] if column not in frame]
    if missing:
        raise OptionError(f"{file} cannot be read: it has no column {missing[0]}")
    return frame


class ScanFolder:
    """The folder of one scan while it runs."""

    def __init__(
        self, folder: Path, fingerprint: Mapping[str, Any], group: ProcessGroup, *, force: bool
    ) -> None:
        """Raise OutputError if the folder holds another scan, unless `force`; write nothing."""
        settings, outputs = {**fingerprint, "processes": group.world}, (*TABLES, "heads.about.json")
        self.run = RunFolder(folder=folder, kind="scan", settings=settings, outputs=outputs)
        self.group, self.force, self.saved_at = group, force, 0.0
        self.progress_file = folder / f"progress-{group.rank}.npz"
        is_ours = self.run.check(force=force)
        files = (folder / name for name in HEAD_TABLES)
        self.was_complete = is_ours and not force and all(file.is_file() for file in files)

    def begin(self) -> ScanSums:
        """Make the folder, and return the sums that a stopped scan left there.

        With `force`, each process deletes its own earlier sums, and the first everything else.
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
        """Save the sums, unless they were saved a moment ago."""
        if now or time.monotonic() - self.saved_at > SECONDS_BETWEEN_SAVES:
            write_aside(self.progress_file, sums.to_bytes())
            self.saved_at = time.monotonic()
