"""`headwise sweep`: the table and files it writes, and the errors it reports."""

import json
from pathlib import Path

import pandas as pd
import pytest

from headwise.sweeps.results import FILES

from .running import Runner

TINY = (
    *("--steps", 20, "--seeds", 1, "--rates", "0.01", "--d-model", 4, "--width", 4),
    *("--processes", 1, "--set", "length=6", "--set", "letters=8"),
)
SPLIT = (*TINY, "--groups", "split")


def rows(out: str, group: str) -> list[dict[str, str]]:
    """The rows of a group in the printed table, by column name."""
    lines = [line.split() for line in out.splitlines()]
    header = next(line for line in lines if line[:1] == ["group"])
    return [dict(zip(header, line, strict=True)) for line in lines if line[:1] == [group]]


def test_sweep_prints_a_row_per_variant_and_names_its_files(
    headwise: Runner, tmp_path: Path
) -> None:
    ran = headwise("sweep", "relations", *TINY, "--out", tmp_path / "found")
    assert ran.code == 0 and "Traceback" not in ran.err
    shapes = {
        group: [(int(row["heads"]), int(row["d_key"])) for row in rows(ran.out, group)]
        for group in ("split", "free", "big")
    }
    assert shapes["split"] == [(1, 4), (2, 2), (4, 1)]
    assert shapes["free"] == [(1, 4), (2, 4), (4, 4)]
    assert shapes["big"] == [(1, 8), (1, 16)]
    out = " ".join(ran.out.split())
    assert "relations, d_model 4" in out
    for group in ("split", "free", "big"):
        assert f"{group}: 1 head of " in out
    assert f"wrote {', '.join(FILES)} in {tmp_path / 'found'}" in out
    for name in FILES:
        assert (tmp_path / "found" / name).stat().st_size > 0


def test_table_shows_the_written_figures(headwise: Runner, tmp_path: Path) -> None:
    headwise.monkeypatch.setenv("COLUMNS", "80")
    ran = headwise("sweep", "relations", *SPLIT, "--seeds", 2, "--out", tmp_path)
    table = pd.read_csv(tmp_path / "summary.csv")
    assert (table["lowest"] < table["highest"]).all()
    for shown, (_, row) in zip(rows(ran.out, "split"), table.iterrows(), strict=True):
        assert shown["accuracy"] == f"{row['accuracy']:.3f}"
        assert shown["lowest..highest"] == f"{row['lowest']:.3f}..{row['highest']:.3f}"
        assert (shown["steps"], shown["rate"]) == ("20", "0.01")
        assert shown["entropy"] == f"{row['entropy']:.2f}"
        assert shown["largest"] == f"{row['largest']:.2f}"


def test_json_has_settings_and_summary(headwise: Runner, tmp_path: Path) -> None:
    ran = headwise("sweep", "relations", *SPLIT, "--out", tmp_path, "--json")
    printed = json.loads(ran.out)
    assert printed == json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))
    settings = printed["settings"]
    assert settings["task"] == {
        "name": "relations", "relations": 4, "letters": 8, "classes": 8, "length": 6,
    }  # fmt: skip
    assert (settings["groups"], settings["rates"], settings["seeds"]) == (["split"], [0.01], 1)
    assert (settings["recipe"]["d_model"], settings["recipe"]["steps"]) == (4, 20)
    assert [row["num_heads"] for row in printed["summary"]] == [1, 2, 4]
    assert len(printed["in_words"]) == 1


def test_default_folder_is_named_after_the_task(
    headwise: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = (*TINY[:-4], "--groups", "narrow", "--set", "pairs=2", "--set", "keys=3")
    assert "in sweep-recall" in " ".join(headwise("sweep", "recall", *small).out.split())
    headwise("sweep", "recall", *small, "--quick")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "sweep-recall",
        "sweep-recall-quick",
    ]
    quick = json.loads((tmp_path / "sweep-recall-quick/settings.json").read_text(encoding="utf-8"))
    assert (quick["recipe"]["held_out"], quick["recipe"]["steps"]) == (256, 20)


def test_text_file_is_read(headwise: Runner, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be. " * 20, encoding="utf-8")
    options = (*TINY[:-4], "--groups", "narrow", "--layers", 1, "--set", "length=6")
    text = ("--set", f"text={tmp_path / 'text.txt'}")
    ran = headwise("sweep", "characters", *options, *text, "--out", tmp_path / "out", "--json")
    assert json.loads(ran.out)["settings"]["task"]["text"] == str(tmp_path / "text.txt")


def test_folder_of_another_sweep_needs_force(headwise: Runner, tmp_path: Path) -> None:
    assert headwise("sweep", "relations", *SPLIT, "--out", tmp_path).code == 0
    other = (*SPLIT, "--set", "classes=3", "--out", tmp_path)
    error = headwise.refused("sweep", "relations", *other)
    assert "task.classes was 8, now 3" in error and "--force" in error
    ran = headwise("sweep", "relations", *other, "--force", "--json")
    assert json.loads(ran.out)["settings"]["task"]["classes"] == 3


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["dyck"], "'dyck': the tasks are relations, recall, brackets, characters"),
        (
            ["--set", "pairs=3"],
            "relations has no setting pairs: it has relations, letters, classes",
        ),
        (["--set", "letters"], "--set is 'letters'"),
        (["--set", "letters=many"], "--set letters is 'many'"),
        (["--set", "letters=1"], "letters is 1: "),
        (["--set", "relations=8"], "relations is 8: "),
        (["--set", "relations=7", "--layers", 1], "--layers is 1: "),
        (["brackets", "--layers", 1], "--layers is 1: brackets"),
        (["recall", "--set", "pairs=65"], "pairs is 65: "),
        (["characters", "--set", "text=none.txt"], "none.txt"),
        (["--rates", "fast"], "--rates is 'fast'"),
        (["--rates", "0.01,"], "--rates is '0.01,'"),
        (["--rates", "0"], "--rates is (0.0,): "),
        (["--groups", "wide"], "'wide': the groups are split, free, big, narrow"),
        (["--groups", "split,"], "group ''"),
        (["--processes", 0], "--processes is 0: "),
        (["--seeds", 0], "--seeds is 0: "),
        (["--steps", 5], "--steps is 5: "),
        (["--d-model", 0], "--d-model is 0: "),
        (["--width", 0], "--width is 0: "),
        (["--layers", 0], "--layers is 0: "),
    ],
)
def test_error_names_the_facts_and_writes_nothing(
    headwise: Runner, tmp_path: Path, arguments: list[object], facts: str
) -> None:
    assert facts in headwise.refused("sweep", *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_must_be_a_new_folder_or_that_of_the_sweep(headwise: Runner, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("kept")
    assert "note is a file" in headwise.refused("sweep", "--out", tmp_path / "note")
    assert "--force" in headwise.refused("sweep", "--out", tmp_path)
    assert (tmp_path / "note").read_text() == "kept"
