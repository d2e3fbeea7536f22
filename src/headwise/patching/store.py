"""Effect store: the changes measured so far, kept in a folder from which a stopped run resumes.

In: a folder and the settings of the run. Out: `progress.json`, written aside after every layer.
"""

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OutputError
from headwise.files import read_text, write_aside
from headwise.run_folder import RunFolder

SECONDS_BETWEEN_SAVES = 2.0
PROGRESS = "progress.json"
FILES = ("patch.json", "heads.parquet", "heads.csv", "heads.about.json", "paths.csv", "heads.svg")
"""Files of a complete run."""


@dataclass(eq=False)
class EffectStore:
    """Changes of the metric by name; without a folder they stay in memory."""

    run: RunFolder | None = None
    changes: dict[str, list[list[float]]] = field(default_factory=dict)
    saved_at: float = 0.0

    @classmethod
    def open(cls, folder: Path | None, settings: dict[str, Any], *, force: bool) -> "EffectStore":
        """The store of a new or a stopped run; raises OutputError if another run is there."""
        if folder is None:
            return cls()
        run = RunFolder(folder=folder, kind="patch", settings=settings, outputs=(*FILES, PROGRESS))
        if not run.check(force=force, must_be_new=True) or force:
            run.clear()
        run.start()
        file = folder / PROGRESS
        if not file.is_file():
            return cls(run)
        try:
            changes = json.loads(read_text(file))
            for rows in changes.values():
                if not all(math.isfinite(value) for row in rows for value in row):
                    raise ValueError
        except (ValueError, TypeError, AttributeError) as error:
            raise OutputError(
                f"{file} is not a readable progress file: delete it and run the command again"
            ) from error
        return cls(run, changes)

    def get(self, name: str, rows: int, pairs: int) -> Float[Tensor, "rows pairs"] | None:
        """The changes of this name; None if they are unknown or have another shape."""
        values = self.changes.get(name)
        if values is None or len(values) != rows or any(len(row) != pairs for row in values):
            return None
        return torch.tensor(values, dtype=torch.float64).view(rows, pairs)

    def put(self, name: str, changes: Float[Tensor, "rows pairs"]) -> None:
        """Keep the changes, and save all if the last save was a while ago."""
        self.changes[name] = changes.tolist()
        if time.monotonic() - self.saved_at > SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Save all changes, if there is a folder."""
        if self.run is not None:
            write_aside(self.run.folder / PROGRESS, json.dumps(self.changes))
            self.saved_at = time.monotonic()
