"""Store: a folder that a scan writes to, as it goes and at the end.

In: sums, and what they are sums of. Out: files that are whole at every moment. A scan that was
stopped finds its sums again; a scan with other settings is refused, and told which differ.
"""

import json
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import OutputError
from headwise.files import make_folder, read_bytes, read_text, write_aside
from headwise.scans.process_group import ProcessGroup
from headwise.scans.sums import ScanSums

if TYPE_CHECKING:
    from headwise.scans.scan import Scan

SECONDS_BETWEEN_SAVES = 2.0
TABLES = ("heads.parquet", "heads.csv", "scan.json", "pairs.parquet", "relations.parquet")

ABOUT = "heads.about.json"
"""What is said of the CSV file, which cannot say it itself."""
WAYS_OUT = "give another folder, or --force (in Python force=True) to replace it"


class ScanFolder:
    """The files of one scan."""

    def __init__(
        self, folder: Path, fingerprint: dict[str, Any], spread: ProcessGroup, *, force: bool
    ) -> None:
        """Refuse a folder that holds another scan, unless it may be replaced; write nothing yet."""
        self.folder, self.spread, self.force = folder, spread, force
        self.fingerprint = {**fingerprint, "processes": spread.world}
        self.saved_at = 0.0
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is a file: give a folder to write to")
        if not force:
            self.check_settings()

    def begin(self) -> ScanSums:
        """The sums that an earlier scan left, or none; the folder is there from now on."""
        make_folder(self.folder)
        if self.force:
            self.clear()
        if self.spread.is_first and (self.force or not self.settings_file.exists()):
            write_aside(self.settings_file, json.dumps(self.fingerprint, indent=1).encode())
        return self.load()

    def clear(self) -> None:
        """Remove what an earlier scan left: each process its own sums, the first all the rest."""
        self.progress_file().unlink(missing_ok=True)
        if not self.spread.is_first:
            return
        for name in (*TABLES, ABOUT):
            (self.folder / name).unlink(missing_ok=True)
        running = {self.progress_file(rank) for rank in range(self.spread.world)}
        for file in set(self.folder.glob("progress-*.npz")) - running:
            file.unlink(missing_ok=True)

    @property
    def settings_file(self) -> Path:
        """What the sums in this folder are sums of."""
        return self.folder / "settings.json"

    def progress_file(self, rank: int | None = None) -> Path:
        """The sums so far of a process, this one if none is named."""
        return self.folder / f"progress-{self.spread.rank if rank is None else rank}.npz"

    def check_settings(self) -> None:
        """Raise where the folder holds a scan with other settings, or tables of something else."""
        if not self.settings_file.exists():
            there = [name for name in TABLES if (self.folder / name).exists()]
            if there:
                raise OutputError(f"{self.folder} holds {there[0]} and no scan: {WAYS_OUT}")
            return
        differing = differences(self.held_settings(), self.fingerprint)
        if differing:
            raise OutputError(
                f"{self.folder} holds a scan with other settings ({'; '.join(differing)}): "
                f"{WAYS_OUT}"
            )

    def held_settings(self) -> dict[str, Any]:
        """What the sums in the folder are sums of."""
        try:
            held = json.loads(read_text(self.settings_file))
        except json.JSONDecodeError:
            held = None
        if not isinstance(held, dict) or "settings" not in held:
            raise OutputError(
                f"{self.settings_file} holds no settings of a scan: give another folder"
            )
        return held

    def load(self) -> ScanSums:
        """The sums that an earlier scan left, or none."""
        file = self.progress_file()
        if not file.exists():
            return ScanSums()
        content = read_bytes(file)
        try:
            return ScanSums.from_bytes(content)
        except (ValueError, LookupError, EOFError, zipfile.BadZipFile) as error:
            raise OutputError(f"{file} holds no sums of a scan: remove it") from error

    def save(self, tally: ScanSums, *, now: bool = False) -> None:
        """Keep the sums, unless they were kept a moment ago."""
        if now or time.monotonic() - self.saved_at > SECONDS_BETWEEN_SAVES:
            write_aside(self.progress_file(), tally.to_bytes())
            self.saved_at = time.monotonic()

    def finish(self, found: "Scan") -> None:
        """Write the tables; they replace those of the same scan only."""
        found.table.write(self.folder / "heads.parquet", force=True)
        found.table.write(self.folder / "heads.csv", force=True)
        write_aside(self.folder / "scan.json", json.dumps(found.table.about, indent=1).encode())
        for name, frame in (("pairs", found.pairs), ("relations", found.relations)):
            if len(frame) > 0:
                write_aside(self.folder / f"{name}.parquet", frame.to_parquet(index=False))


DIGESTS = {
    "texts": "of other text",
    "data": "of other text",
    "inputs": "of other inputs",
    "treebank": "of other sentences",
    "weights": "of other weights",
    "config": "of another config",
    "tokenizer": "of another tokenizer",
    "model.sha256": "of other weights",
}
"""Settings whose values say nothing to a reader, and what it means when they differ."""


def differences(held: dict[str, Any], wanted: dict[str, Any], path: str = "") -> list[str]:
    """Where two settings differ, in words."""
    found = []
    for key in sorted({*held, *wanted}):
        one, other = held.get(key), wanted.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            found += differences(one, other, f"{path}{key}.")
        elif one != other:
            name = f"{path}{key}"
            before, now = ("not given" if value is None else value for value in (one, other))
            words = f"{name.removeprefix('settings.')} was {before}, now {now}"
            found.append(DIGESTS.get(name, words))
    return list(dict.fromkeys(found))
