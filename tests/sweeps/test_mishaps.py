"""Sweeps that fail, stop, resume, or are called with wrong options."""

import io
import json
import math
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from headwise.errors import HeadwiseError, OptionError, OutputError
from headwise.sweeps import characters, runs
from headwise.sweeps.results import best_rate
from headwise.sweeps.runs import Run, RunRecord, TrainingPool
from headwise.sweeps.settings import (
    SweepSettings,
    TrainingSettings,
    Variant,
    make_settings,
    sweep_task,
)
from headwise.sweeps.sweep import sweep
from headwise.sweeps.synthetic_tasks import Relations
from headwise.sweeps.task import TaskExamples

from .test_sweep import planted_record

ONE = Variant("split", 1, 8, 8)
RUNS = [Run(ONE, 0.01, seed) for seed in range(6)]


class Stubborn:
    """A process that trains the first seed at once, and any other until it is killed."""

    def __init__(self, settings: SweepSettings) -> None:
        self.killed = threading.Event()

    def train(self, run: Run) -> RunRecord:
        if run.seed and not self.killed.wait(120):
            raise AssertionError("it was never killed")
        if run.seed:
            raise HeadwiseError("killed")
        return planted_record(run)

    def kill(self) -> None:
        self.killed.set()

    def __enter__(self) -> "Stubborn":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.killed.is_set()


def test_ctrl_c_kills_training_processes_and_keeps_finished_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runs, "TrainingProcess", Stubborn)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        TrainingPool(make_settings(sweep_task("recall")), 2) as pool,
    ):
        runs.train_all(RUNS, tmp_path, pool, interrupt)
    assert all(worker.killed.is_set() for worker in pool.workers)
    assert [path.name for path in tmp_path.iterdir()] == ["split-1x8-rate0.01-seed0.json"]


def test_killed_training_process_ends_the_sweep_with_an_error() -> None:
    settings = make_settings(sweep_task("relations"), steps=20, d_model=8, width=4)
    with suppress(BrokenPipeError), runs.TrainingProcess(settings) as process:  # as the pool does
        process.kill()
        process.wait()
        with pytest.raises(HeadwiseError, match=r"split-1x8-rate0\.01-seed0 was killed"):
            process.train(RUNS[0])


def test_rate_at_which_training_diverges_is_not_chosen() -> None:
    def pilot(rate: float, loss: float) -> RunRecord:
        return planted_record(Run(ONE, rate, 0), loss=loss)

    pilots = [pilot(0.1, math.nan), pilot(0.01, 0.5)]
    assert best_rate(pilots) == best_rate(pilots[::-1]) == 0.01
    pilots = [pilot(0.1, math.inf), pilot(0.01, math.nan)]
    assert best_rate(pilots) == 0.01


def test_changed_text_makes_another_sweep(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    options = {"steps": 20, "seeds": 1, "rates": (0.01,), "d_model": 8, "groups": ("split",)}
    text.write_text("one two three " * 100, encoding="utf-8")
    more = {"text": str(text), "length": 8, "processes": 1, "out": tmp_path / "out"}
    first = sweep("characters", **options, **more)
    text.write_text("four five six seven " * 100, encoding="utf-8")
    with pytest.raises(OutputError, match=r"other text"):
        sweep("characters", **options, **more)
    second = sweep("characters", **options, **more, force=True)
    assert list(first.runs["loss"]) != list(second.runs["loss"])


def test_damaged_files_raise_and_are_named(tmp_path: Path) -> None:
    small = {"groups": ("narrow",), "steps": 20, "seeds": 1, "rates": (0.01,), "d_model": 2}
    settings = make_settings(sweep_task("relations"), width=1, **small)
    sweep(settings=settings, out=tmp_path, processes=1)
    settings_file, record = tmp_path / "settings.json", min((tmp_path / "runs").iterdir())
    for path, content in (
        (settings_file, "{"),
        (settings_file, "[1]"),
        (record, "{}"),
        (record, "[1]"),
        (record, record.read_text("utf-8")[:40]),
    ):
        original = path.read_text("utf-8")
        path.write_text(content, encoding="utf-8")
        with pytest.raises(OutputError, match=path.name):
            sweep(settings=settings, out=tmp_path, processes=1)
        path.write_text(original, encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"recipe": TrainingSettings()}, "recipe.* d_model"),
        ({"groups": "slit"}, "'slit'.* split"),
        ({"settings": SweepSettings(), "steps": 40}, "settings and steps"),
        ({"settings": SweepSettings(), "quick": True}, "settings and quick"),
        ({"relatons": 3}, "relatons.* d_model"),
        ({"rates": (math.nan,)}, r"rates is \(nan,\)"),
        ({"rates": (math.inf,)}, r"rates is \(inf,\)"),
        ({"processes": 0}, "processes is 0: .* 1"),
    ],
)
def test_impossible_options_raise(options: dict[str, Any], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        sweep("relations", **options)


def test_one_group_and_one_rate_need_no_tuple(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    result = sweep(
        "relations", groups="narrow", rates=0.01, steps=20, seeds=1, d_model=2, width=1,
        processes=1, out="~/swept",
    )  # fmt: skip
    assert result.settings.groups == ("narrow",) and result.settings.rates == (0.01,)
    assert (tmp_path / "swept/runs.csv").exists()


@dataclass(frozen=True)
class Mine(Relations):
    """A task that other processes cannot import."""

    name: ClassVar[str] = "mine"


@dataclass(frozen=True)
class Failing(Mine):
    """A task whose examples cannot be made."""

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> TaskExamples:
        raise OptionError("there are no examples")


SMALL: dict[str, Any] = {
    "groups": ("narrow",), "rates": (0.01,), "steps": 20, "seeds": 1, "d_model": 2, "width": 1,
}  # fmt: skip


def test_own_task_trains_in_this_process() -> None:
    steps: list[int] = []
    result = sweep(Mine(), **SMALL, processes=2, progress=lambda _, done, __: steps.append(done))
    assert result.settings.task.name == "mine" and len(result.runs) == 2
    assert steps == [0, 1, 2]
    with pytest.raises(OptionError, match="there are no examples"):
        sweep(Failing(), **SMALL, processes=2)


@pytest.mark.slow
def test_training_process_reports_its_error(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three " * 100, encoding="utf-8")
    settings = make_settings(sweep_task("characters", text=str(text), length=8), **SMALL)
    text.write_text("four five six " * 100, encoding="utf-8")
    with (
        TrainingPool(settings, 2) as pool,
        pytest.raises(HeadwiseError, match="characters changed"),
    ):
        list(pool.train([Run(settings.variants[0], 0.01, 0)]))


def test_serve_runs_prints_a_record_or_an_error_per_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(sweep_task("relations"), **SMALL)
    line = json.dumps(Run(settings.variants[0], 0.01, 0).to_json())
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n{line}\n"))
    runs.serve_runs(json.dumps(settings.as_json()))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["loss"] == second["loss"]
    assert RunRecord.from_json(first).run == Run(settings.variants[0], 0.01, 0)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n"))
    runs.serve_runs(json.dumps(make_settings(Mine(), **SMALL).as_json()))
    assert "'mine'" in json.loads(capsys.readouterr().out)["error"]


def test_text_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, reads = tmp_path / "text.txt", []
    text.write_text("one two three " * 100, encoding="utf-8")
    monkeypatch.setattr(
        characters, "read_text", lambda path: reads.append(path) or text.read_text("utf-8")
    )
    task = sweep_task("characters", text=str(text), length=8)
    digest = task.digest()
    text.write_text("four five six seven " * 100, encoding="utf-8")
    sweep(task, **SMALL | {"steps": 40}, processes=1)
    assert task.digest() == digest and reads == [str(text)]


def test_records_without_settings_are_not_used(tmp_path: Path) -> None:
    sweep("relations", **SMALL, processes=1, out=tmp_path)
    (tmp_path / "settings.json").unlink()
    more = SMALL | {"steps": 60}
    with pytest.raises(OutputError, match=r"no settings\.json.*--force"):
        sweep("relations", **more, processes=1, out=tmp_path)
    result = sweep("relations", **more, processes=1, out=tmp_path, force=True)
    assert set(result.runs["steps"]) == {60}


def test_task_settings_are_options_of_sweep() -> None:
    result = sweep(
        "relations", relations=2, letters=8, steps=20, seeds=1, rates=(0.01,), d_model=2,
        width=1, groups=("narrow",), processes=1,
    )  # fmt: skip
    assert result.settings.task.settings()["relations"] == 2
    assert {"accuracy_previous", "accuracy_first"} <= set(result.runs.columns)


def test_repeated_groups_and_rates_train_once(tmp_path: Path) -> None:
    result = sweep(
        "relations", groups=("split", "split"), rates=(0.01, 0.01, 0.01000000001), steps=20,
        seeds=1, d_model=2, width=1, processes=1, out=tmp_path,
    )  # fmt: skip
    assert list(result.summary["seeds"]) == [1, 1]
    assert [pilot.run.rate for pilot in result.pilots] == [0.01, 0.01000000001] * 2
    assert json.loads((tmp_path / "settings.json").read_text())["groups"] == ["split"]


def test_task_beside_settings_raises() -> None:
    settings = make_settings(sweep_task("relations"), **SMALL)
    for task in ("recall", Mine()):
        with pytest.raises(OptionError, match="settings and a task"):
            sweep(task, settings=settings)


def test_held_out_sequences_without_questions_raise() -> None:
    task = sweep_task("brackets", length=2, depth=2)
    with pytest.raises(OptionError, match="1 held-out sequence of brackets"):
        sweep(task, **SMALL, held_out=1, processes=1)


def test_sweep_with_more_seeds_and_groups_reuses_finished_runs(tmp_path: Path) -> None:
    first = sweep("relations", **SMALL, processes=1, out=tmp_path)
    done = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()}
    more = SMALL | {"seeds": 2, "groups": ("narrow", "split")}
    steps: list[int] = []
    grown = sweep(
        "relations", **more, processes=1, out=tmp_path, progress=lambda _, n, __: steps.append(n)
    )
    assert steps[: len(done) + 1] == list(range(len(done) + 1)) and len(steps) > len(done) + 1
    assert all(file.stat().st_mtime_ns == when for file, when in done.items())
    narrow = grown.runs[(grown.runs["group"] == "narrow") & (grown.runs["seed"] == 0)]
    assert list(narrow["loss"]) == list(first.runs["loss"])
    with pytest.raises(OutputError, match=r"groups was .*; seeds was 2, now 1"):
        sweep("relations", **SMALL, processes=1, out=tmp_path)


def test_forced_sweep_deletes_the_tables_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep("relations", **SMALL, processes=1, out=tmp_path)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwise.sweeps.sweep.train_all", stop)
    with pytest.raises(KeyboardInterrupt):
        sweep("relations", **SMALL | {"steps": 40}, processes=1, out=tmp_path, force=True)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["settings.json"]
