"""The folder of one run: the same run can resume in it, and any other is rejected.

`settings.json` in the folder says which run its files belong to. Scans and sweeps decide what else
to write there and how to resume from it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import OutputError
from headwise.files import make_folder, read_text, write_aside

Settings = Mapping[str, Any]
"""Settings as JSON values: with lists, not tuples."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFolder:
    """The folder of one run: `check` it first, `clear` it unless the run resumes, then `start`."""

    folder: Path
    kind: str
    """Kind of run: "scan" or "sweep"."""
    settings: Settings
    outputs: tuple[str, ...]
    """Patterns of the files that a run of this kind writes, such as `runs/*.json`."""

    @property
    def settings_file(self) -> Path:
        """The file that says which run the other files belong to."""
        return self.folder / "settings.json"

    def check(
        self,
        *,
        force: bool = False,
        extends: Callable[[Settings, Settings], bool] | None = None,
        must_be_new: bool = False,
    ) -> bool:
        """Whether the folder holds this run, so that it can resume; writes nothing.

        Raises OutputError if the folder holds another run, or outputs of an unknown one, unless
        `force`. Without a `settings.json`, `must_be_new` also rejects a folder with any other
        files. `extends(settings, existing)` decides whether a run with other settings may continue
        from the existing files. Files of another kind of run are never replaced.
        """
        for place in (self.folder, *self.folder.parents):
            if place.exists() and not place.is_dir():
                raise OutputError(f"{place} is a file: choose a folder to write to")
        if not self.settings_file.exists():
            patterns = (*self.outputs, *(("*",) if must_be_new else ()))
            files = (file for pattern in patterns for file in sorted(self.folder.glob(pattern)))
            if (file := next(files, None)) is not None and not force:
                raise OutputError(
                    f"{self.folder} has {file.name} but no settings.json, so it is not the folder "
                    f"of a {self.kind}: choose another folder, or write there anyway with --force "
                    "(force=True in Python)"
                )
            return False
        existing = self._read_settings()
        if existing is None:
            if force and any(any(self.folder.glob(pattern)) for pattern in self.outputs):
                return False
            raise OutputError(
                f"{self.settings_file} has no settings of a {self.kind}: choose another folder"
            )
        changes = setting_changes(existing, self.settings)
        if not changes or (extends is not None and extends(self.settings, existing)):
            return True
        if not force:
            raise OutputError(
                f"cannot resume the {self.kind} in {self.folder}: its settings differ "
                f"({'; '.join(changes)}); choose another folder, or replace the {self.kind} with "
                "--force (force=True in Python)"
            )
        return False

    def clear(self) -> None:
        """Delete the files of an earlier run, and no others."""
        for pattern in self.outputs:
            for file in self.folder.glob(pattern):
                file.unlink(missing_ok=True)

    def start(self) -> None:
        """Make the folder and write its `settings.json`."""
        make_folder(self.folder)
        write_aside(self.settings_file, json.dumps({"run": self.kind, **self.settings}, indent=1))

    def _read_settings(self) -> Settings | None:
        """Settings of the run in the folder; None if the file is damaged or of unknown origin."""
        try:
            settings = json.loads(read_text(self.settings_file))
        except json.JSONDecodeError:
            return None
        kind = settings.pop("run", None) if isinstance(settings, dict) else None
        if kind is not None and kind != self.kind:
            raise OutputError(
                f"{self.settings_file} has the settings of a {kind}, not of a {self.kind}: "
                "choose another folder"
            )
        return None if kind is None else settings


DIGESTS = {
    "texts": "other text",
    "data": "other text",
    "inputs": "other inputs",
    "pairs": "other pairs of prompts",
    "treebank": "other sentences",
    "weights": "other weights",
    "config": "another config",
    "tokenizer": "another tokenizer",
    "model.sha256": "other weights",
}
"""Settings with long values or digests, with the words that report a difference."""


def setting_changes(before: Settings, now: Settings, prefix: str = "") -> list[str]:
    """Differences between the settings of two runs, in words.

    >>> setting_changes({"seed": 1, "texts": "4a1f"}, {"seed": 2, "texts": "00c7"})
    ['seed was 1, now 2', 'other text']
    """
    changes: list[str] = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            changes += setting_changes(old, new, f"{prefix}{key}.")
        elif old != new:
            name = f"{prefix}{key}"
            values = ("not given" if value is None else value for value in (old, new))
            words = "{} was {}, now {}".format(name.removeprefix("settings."), *values)
            changes.append(DIGESTS.get(name, words))
    return list(dict.fromkeys(changes))
