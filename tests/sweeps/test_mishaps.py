"""What goes wrong in a sweep ends it at once, is said in a sentence, and loses nothing."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import HeadwiseError, OptionError, OutputError
from headwise.sweeps import runs
from headwise.sweeps.results import best_rate
from headwise.sweeps.runs import Crew, Run, Shelf
from headwise.sweeps.settings import SweepSettings, make_settings, make_task
from headwise.sweeps.sweep import sweep
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
    monkeypatch.setattr(runs, "Worker", Stubborn)
    shelf = Shelf(tmp_path)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Crew(make_settings(make_task("recall")), 2) as crew:
        runs.carry_out_all(RUNS, shelf, crew, told=interrupted)
    assert all(worker.ended.is_set() for worker in crew.workers)
    assert [path.name for path in tmp_path.iterdir()] == ["split-1x8-rate0.01-seed0.json"]


def test_a_process_that_dies_ends_the_sweep_with_a_sentence(tmp_path: Path) -> None:
    settings = make_settings(make_task("relations"), steps=20, d_model=8, width=4)
    with Crew(settings, 2) as crew:
        crew.workers = [runs.Worker(settings), runs.Worker(settings)]
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
    with pytest.raises(OutputError, match="holds a sweep with other settings \\(data was"):
        sweep("characters", **options, **more)
    second = sweep("characters", **options, **more, force=True)
    assert list(first.runs["loss"]) != list(second.runs["loss"])


def test_files_that_hold_something_else_are_named(tmp_path: Path) -> None:
    small = {"groups": ("narrow",), "steps": 20, "seeds": 1, "rates": (0.01,), "d_model": 2}
    settings = make_settings(make_task("relations"), width=1, **small)
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
        ({"relatons": 3}, "there is no setting relatons: choose from d_model"),
        ({"rates": (math.nan,)}, "rates must be learning rates above 0"),
        ({"rates": (math.inf,)}, "rates must be learning rates above 0"),
        ({"processes": 0}, "processes is 0: give at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sweep("relations", **options)


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
