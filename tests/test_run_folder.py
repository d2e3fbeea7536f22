"""A run folder resumes its own run, rejects others, and deletes nothing but outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import OutputError
from headwise.run_folder import RunFolder, setting_changes


def run_folder(folder: Path, kind: str = "scan", **settings: Any) -> RunFolder:
    return RunFolder(folder=folder, kind=kind, settings=settings, outputs=("*.csv", "runs/*.json"))


def test_new_folder_is_made_and_resumes_with_the_same_settings(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "a/b", seed=1)
    assert not run.check()
    assert not run.folder.exists()
    run.start()
    assert run.check()
    assert json.loads(run.settings_file.read_text()) == {"run": "scan", "seed": 1}


def test_other_settings_are_rejected_by_name_unless_forced(tmp_path: Path) -> None:
    run_folder(tmp_path, seed=1, texts="4a1f").start()
    other = run_folder(tmp_path, seed=2, texts="00c7")
    with pytest.raises(OutputError, match=r"seed.* 1.* 2.*text.*force=True"):
        other.check()
    assert not other.check(force=True)


def test_settings_that_extend_the_existing_ones_resume(tmp_path: Path) -> None:
    run_folder(tmp_path, seeds=2).start()
    run = run_folder(tmp_path, seeds=3)
    assert run.check(extends=lambda now, before: now["seeds"] > before["seeds"])
    with pytest.raises(OutputError, match=r"seeds.* 2.* 3"):
        run.check(extends=lambda now, before: now["seeds"] < before["seeds"])


@pytest.mark.parametrize("content", ["{", "[]", '{"seed": 1}', '{"run": "sweep", "seed": 1}'])
def test_settings_of_something_else_are_never_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(OutputError, match=r"settings\.json.*scan"):
        run_folder(tmp_path, seed=1).check(force=True)


def test_damaged_settings_beside_outputs_are_replaced_only_if_forced(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{")
    (tmp_path / "heads.csv").write_text("")
    with pytest.raises(OutputError, match=r"settings\.json"):
        run_folder(tmp_path, seed=1).check()
    assert not run_folder(tmp_path, seed=1).check(force=True)


def test_outputs_without_settings_are_rejected_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    run = run_folder(tmp_path)
    assert not run.check()
    with pytest.raises(OutputError, match=r"thesis\.txt"):
        run.check(must_be_new=True)
    (tmp_path / "heads.csv").write_text("mine, too")
    with pytest.raises(OutputError, match=r"heads\.csv"):
        run.check()
    assert not run.check(force=True)


def test_a_file_in_place_of_the_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(OutputError, match=r"file.*folder"):
            run_folder(tmp_path / place).check(force=True)


def test_clear_deletes_outputs_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a.csv", "mine.txt", "runs/1.json", "runs/mine.txt", "settings.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    run_folder(tmp_path).clear()
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files == {"mine.txt", "runs/mine.txt", "settings.json"}


def test_digests_are_compared_in_words_once() -> None:
    before = {"texts": "a", "data": "b", "weights": "c", "model": {"sha256": "d", "name": "m"}}
    now = {"texts": "e", "data": "f", "weights": "g", "model": {"sha256": "h", "name": "m"}}
    assert setting_changes(before, now) == ["other text", "other weights"]
    assert setting_changes(before, before) == []
