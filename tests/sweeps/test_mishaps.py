"""What goes wrong in a sweep ends it at once, is said in a sentence, and loses nothing."""

import json
import math
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from headwise.errors import HeadwiseError, OptionError, OutputError
from headwise.sweeps import characters, runs, worker
from headwise.sweeps.results import best_rate
from headwise.sweeps.runs import Records, Run, TrainingPool
from headwise.sweeps.settings import SweepSettings, make_settings, sweep_task
from headwise.sweeps.sweep import sweep
from headwise.sweeps.synthetic_tasks import Relations
from headwise.sweeps.task import Examples
from headwise.sweeps.training import TrainingSettings
from headwise.sweeps.variants import Variant

ONE = Variant("split", 1, 8, 8)
RUNS = [Run(ONE, 0.01, seed) for seed in range(6)]


class Stubborn:
    """A worker that trains until it is ended, but for the first seed."""

    def __init__(self, settings: SweepSettings) -> None:
        self.ended = threading.Event()

    def train(self, run: Run) -> dict[str, Any]:
        if run.seed and not self.ended.wait(120):
            raise AssertionError("it was never ended")
        if run.seed:
            raise HeadwiseError("ended from outside")
        return {"seed": run.seed}

    def end(self) -> None:
        self.ended.set()

    def close(self) -> None:
        assert self.ended.is_set()


def test_an_interrupt_ends_processes_that_train_and_keeps_what_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runs, "TrainingProcess", Stubborn)
    kept = Records(tmp_path)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        TrainingPool(make_settings(sweep_task("recall")), 2) as crew,
    ):
        runs.carry_out_all(RUNS, kept, crew, told=interrupted)
    assert all(worker.ended.is_set() for worker in crew.workers)
    assert [path.name for path in tmp_path.iterdir()] == ["split-1x8-rate0.01-seed0.json"]


def test_a_process_that_dies_ends_the_sweep_with_a_sentence(tmp_path: Path) -> None:
    settings = make_settings(sweep_task("relations"), steps=20, d_model=8, width=4)
    with TrainingPool(settings, 2) as crew:
        crew.workers = [runs.TrainingProcess(settings), runs.TrainingProcess(settings)]
        for worker in crew.workers:
            worker.process.kill()
        with pytest.raises(HeadwiseError, match=r"trained split-1x8-rate0\.01-seed\d was ended"):
            list(crew.train(RUNS[:2]))


def test_a_rate_at_which_training_fails_is_not_chosen() -> None:
    pilots = [{"rate": 0.1, "loss": math.nan}, {"rate": 0.01, "loss": 0.5}]
    assert best_rate(pilots) == best_rate(pilots[::-1]) == 0.01
    pilots = [{"rate": 0.1, "loss": math.inf}, {"rate": 0.01, "loss": math.nan}]
    assert best_rate(pilots) == 0.01


def test_a_text_that_has_changed_is_another_sweep(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    options = {"steps": 20, "seeds": 1, "rates": (0.01,), "d_model": 8, "groups": ("split",)}
    text.write_text("one two three " * 100, encoding="utf-8")
    more = {"text": str(text), "length": 8, "processes": 1, "out": tmp_path / "out"}
    first = sweep("characters", **options, **more)
    text.write_text("four five six seven " * 100, encoding="utf-8")
    with pytest.raises(OutputError, match=r"holds a sweep with other settings \(of other text\)"):
        sweep("characters", **options, **more)
    second = sweep("characters", **options, **more, force=True)
    assert list(first.runs["loss"]) != list(second.runs["loss"])


def test_files_that_hold_something_else_are_named(tmp_path: Path) -> None:
    small = {"groups": ("narrow",), "steps": 20, "seeds": 1, "rates": (0.01,), "d_model": 2}
    settings = make_settings(sweep_task("relations"), width=1, **small)
    sweep(settings=settings, out=tmp_path, processes=1)
    said, record = tmp_path / "settings.json", min((tmp_path / "runs").iterdir())
    for path, content, words in (
        (said, "{", "holds no settings of a sweep"),
        (said, "[1]", "holds no settings of a sweep"),
        (record, "{}", "is no record of a run"),
    ):
        kept = path.read_text("utf-8")
        path.write_text(content, encoding="utf-8")
        with pytest.raises(OutputError, match=words):
            sweep(settings=settings, out=tmp_path, processes=1)
        path.write_text(kept, encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recipe": TrainingSettings()}, "there is no setting recipe: choose from d_model"),
        ({"groups": "slit"}, "there is no group 'slit': the groups are split"),
        ({"settings": SweepSettings(), "steps": 40}, "there are settings and steps: give one of"),
        ({"settings": SweepSettings(), "quick": True}, "there are settings and quick: give one"),
        ({"relatons": 3}, "there is no setting relatons: choose from d_model"),
        ({"rates": (math.nan,)}, "rates must be learning rates above 0"),
        ({"rates": (math.inf,)}, "rates must be learning rates above 0"),
        ({"processes": 0}, "processes is 0: it must be at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sweep("relations", **options)


def test_one_group_and_one_rate_may_be_given_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = sweep(
        "relations", groups="narrow", rates=0.01, steps=20, seeds=1, d_model=2, width=1,
        processes=1, out="~/swept",
    )  # fmt: skip
    assert found.settings.groups == ("narrow",) and found.settings.rates == (0.01,)
    assert (tmp_path / "swept/runs.csv").exists()


@dataclass(frozen=True)
class Mine(Relations):
    """A task that no other process knows."""

    name: ClassVar[str] = "mine"


@dataclass(frozen=True)
class Failing(Mine):
    """One whose examples cannot be made."""

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> Examples:
        raise OptionError("there are no examples")


SMALL: dict[str, Any] = {
    "groups": ("narrow",), "rates": (0.01,), "steps": 20, "seeds": 1, "d_model": 2, "width": 1,
}  # fmt: skip


def test_a_task_of_ones_own_is_trained_whatever_the_processes() -> None:
    said: list[int] = []
    found = sweep(Mine(), **SMALL, processes=2, progress=lambda _, done, __: said.append(done))
    assert found.settings.task.name == "mine" and len(found.runs) == 2
    assert said == [0, 1, 2]
    with pytest.raises(OptionError, match="there are no examples"):
        sweep(Failing(), **SMALL, processes=2)


@pytest.mark.slow
def test_a_worker_says_what_went_wrong(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three " * 100, encoding="utf-8")
    settings = make_settings(sweep_task("characters", text=str(text), length=8), **SMALL)
    text.write_text("four five six " * 100, encoding="utf-8")
    with (
        TrainingPool(settings, 2) as crew,
        pytest.raises(HeadwiseError, match="data of characters have changed since the sweep bega"),
    ):
        list(crew.train([Run(settings.variants[0], 0.01, 0)]))
    held = json.dumps(make_settings(Mine(), **SMALL).as_json())
    asked = {"variant": asdict(ONE), "rate": 0.01, "seed": 0}
    assert worker.answer(held, asked)["error"].startswith("there is no task 'mine': the tasks are")


def test_a_text_is_read_once_and_what_was_read_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_records_of_unknown_settings_are_not_used(tmp_path: Path) -> None:
    sweep("relations", **SMALL, processes=1, out=tmp_path)
    (tmp_path / "settings.json").unlink()
    more = SMALL | {"steps": 60}
    with pytest.raises(OutputError, match="holds no sweep: give another folder, or --force to wri"):
        sweep("relations", **more, processes=1, out=tmp_path)
    found = sweep("relations", **more, processes=1, out=tmp_path, force=True)
    assert set(found.runs["steps"]) == {60}


def test_settings_of_a_task_are_options_of_its_sweep() -> None:
    found = sweep(
        "relations", relations=2, letters=8, steps=20, seeds=1, rates=(0.01,), d_model=2,
        width=1, groups=("narrow",), processes=1,
    )  # fmt: skip
    assert found.settings.task.settings()["relations"] == 2
    assert {"accuracy_previous", "accuracy_first"} <= set(found.runs.columns)


def test_what_is_named_twice_is_run_once_and_rates_close_by_are_apart(tmp_path: Path) -> None:
    found = sweep(
        "relations", groups=("split", "split"), rates=(0.01, 0.01, 0.01000000001), steps=20,
        seeds=1, d_model=2, width=1, processes=1, out=tmp_path,
    )  # fmt: skip
    assert list(found.summary["seeds"]) == [1, 1]
    assert [pilot["rate"] for pilot in found.pilots] == [0.01, 0.01000000001] * 2
    assert json.loads((tmp_path / "settings.json").read_text())["groups"] == ["split"]


def test_a_task_beside_settings_is_refused() -> None:
    settings = make_settings(sweep_task("relations"), **SMALL)
    for task in ("recall", Mine()):
        with pytest.raises(OptionError, match="there are settings and a task: give one of them"):
            sweep(task, settings=settings)


def test_held_out_sequences_that_ask_nothing_are_refused() -> None:
    task = sweep_task("brackets", length=2, depth=2)
    with pytest.raises(OptionError, match="1 held-out sequence of brackets ask nothing: give more"):
        sweep(task, **SMALL, held_out=1, processes=1)


def test_a_sweep_grows_by_seeds_and_groups_and_trains_only_what_is_new(tmp_path: Path) -> None:
    first = sweep("relations", **SMALL, processes=1, out=tmp_path)
    done = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()}
    more = SMALL | {"seeds": 2, "groups": ("narrow", "split")}
    said: list[int] = []
    grown = sweep(
        "relations", **more, processes=1, out=tmp_path, progress=lambda _, n, __: said.append(n)
    )
    assert said[: len(done) + 1] == list(range(len(done) + 1)) and len(said) > len(done) + 1
    assert all(file.stat().st_mtime_ns == when for file, when in done.items())
    narrow = grown.runs[(grown.runs["group"] == "narrow") & (grown.runs["seed"] == 0)]
    assert list(narrow["loss"]) == list(first.runs["loss"])
    with pytest.raises(OutputError, match=r"other settings \(groups was .*; seeds was 2, now 1\)"):
        sweep("relations", **SMALL, processes=1, out=tmp_path)


def test_a_forced_sweep_leaves_no_table_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep("relations", **SMALL, processes=1, out=tmp_path)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwise.sweeps.sweep.run_all", stopped)
    with pytest.raises(KeyboardInterrupt):
        sweep("relations", **SMALL | {"steps": 40}, processes=1, out=tmp_path, force=True)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["settings.json"]
