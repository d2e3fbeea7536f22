"""Whole sweeps: variants, settings, learning rates, resuming, and folders."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, strategies as st

from headwise.errors import OptionError, OutputError
from headwise.sweeps import runs as runs_module
from headwise.sweeps.characters import Characters
from headwise.sweeps.head_figures import HeadFigures
from headwise.sweeps.results import FILES, Sweep, best_rate
from headwise.sweeps.runs import Run, RunRecord
from headwise.sweeps.settings import (
    GROUPS,
    PILOT_SEED,
    TASKS,
    SweepSettings,
    TrainingSettings,
    Variant,
    make_settings,
    sweep_task,
)
from headwise.sweeps.sweep import sweep
from headwise.sweeps.synthetic_tasks import Brackets
from headwise.sweeps.training import Outcome

CSVS = ("runs.csv", "heads.csv", "summary.csv")
PATIENCE = 120
"""Seconds after which a process counts as stuck."""


def tiny(**options: Any) -> SweepSettings:
    """Three variants, one rate and two seeds of a task that trains in a moment."""
    task = sweep_task("relations", relations=2, letters=8, classes=2, length=6)
    defaults: dict[str, Any] = {
        "groups": ("split",), "d_model": 4, "width": 2, "rates": (0.01,), "seeds": 2,
        "steps": 20, "batch": 8, "held_out": 16,
    }  # fmt: skip
    return make_settings(task, **(defaults | options))


def variants_of(*groups: str, d_model: int, width: int) -> tuple[Variant, ...]:
    recipe = TrainingSettings(d_model=d_model)
    return SweepSettings(groups=groups, recipe=recipe, width=width).variants


def weights_of(variant: Variant, d_model: int) -> int:
    """Weights of one layer's four projections."""
    return 2 * d_model * variant.num_heads * (variant.d_key + variant.d_value)


def planted_record(run: Run, *, accuracy: float = 0.5, loss: float = 1.0) -> RunRecord:
    """The record of a run, without training."""
    heads = tuple(
        HeadFigures(f"L0H{number}", ("positional",), 0.25, 0.75, {"previous": 0.5})
        for number in range(run.variant.num_heads)
    )
    outcome = Outcome(
        accuracy=accuracy,
        by_question={"previous": accuracy, "first": accuracy},
        loss=loss,
        steps=20,
        is_solved=False,
        parameters=100 + weights_of(run.variant, 4),
        heads=heads,
        seconds=0.1,
    )
    return RunRecord(run, outcome)


@given(
    heads=st.integers(1, 5),
    loss=st.floats(0, 9) | st.just(float("inf")),
    accuracy=st.floats(0, 1),
)
def test_records_survive_json(heads: int, loss: float, accuracy: float) -> None:
    run = Run(Variant("free", heads, 3, 5), 0.01, 7)
    record = planted_record(run, loss=loss, accuracy=accuracy)
    assert RunRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


class Trainings:
    """Stands in for training: lists the runs, and returns planted records."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.loss_of: Callable[[Run], float] = lambda run: 1.0

    def __call__(self, settings: SweepSettings, run: Run) -> RunRecord:
        self.runs.append(run)
        return planted_record(run, loss=self.loss_of(run))


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    trainings = Trainings()
    monkeypatch.setattr(runs_module, "train_run", trainings)
    return trainings


def planted_sweep(accuracies: dict[tuple[str, int, int], list[float]], **options: Any) -> Sweep:
    """A sweep with the accuracies of each seed, by group, number of heads and d_key."""
    settings = tiny(seeds=len(next(iter(accuracies.values()))), **options)
    records = [
        planted_record(Run(variant, 0.01, seed), accuracy=accuracy)
        for variant in settings.variants
        for seed, accuracy in enumerate(accuracies[variant.group, variant.num_heads, variant.d_key])
    ]
    return Sweep(settings, tuple(records))


# What is compared


@pytest.mark.parametrize("d_model", [12, 13, 32])
def test_split_heads_fill_d_model(d_model: int) -> None:
    variants = variants_of("split", d_model=d_model, width=4)
    assert [variant.num_heads for variant in variants] == [
        n for n in range(1, 99) if d_model % n == 0
    ]
    assert {variant.num_heads * variant.d_key for variant in variants} == {d_model}
    assert {weights_of(variant, d_model) for variant in variants} == {4 * d_model * d_model}


def test_big_head_has_the_parameters_of_all_free_heads() -> None:
    free, big = (variants_of(group, d_model=12, width=3) for group in ("free", "big"))
    assert [variant.num_heads for variant in free] == [1, 2, 4, 8, 16]
    assert {variant.d_key for variant in free} == {3}
    assert {variant.num_heads for variant in big} == {1}
    sizes = [weights_of(variant, 12) for variant in free]
    assert [weights_of(variant, 12) for variant in big] == sizes[1:]
    assert sizes == sorted(set(sizes))


def test_narrow_head_has_values_as_wide_as_the_model() -> None:
    variants = variants_of("narrow", d_model=12, width=3)
    assert list(variants) == [Variant("narrow", 1, size, 12) for size in (1, 2, 3, 4, 6, 12)]


def test_variants_keep_the_order_of_groups_and_have_unique_names() -> None:
    variants = variants_of("narrow", "split", "big", "free", d_model=12, width=3)
    order = list(dict.fromkeys(variant.group for variant in variants))
    assert order == ["narrow", "split", "big", "free"] and set(order) == set(GROUPS)
    assert len({Run(variant, 0.01, 0).name for variant in variants}) == len(variants)


# Settings


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("quick", [False, True])
def test_settings_survive_json(name: str, quick: bool) -> None:
    settings = make_settings(sweep_task(name, length=None), quick=quick, width=5, seeds=7)
    again = SweepSettings.from_json(json.loads(json.dumps(settings.as_json())))
    assert again == settings
    assert again != make_settings(sweep_task(name), quick=quick, width=5, seeds=6)


def test_quick_sweep_has_fewer_seeds_rates_and_steps() -> None:
    task = sweep_task("relations")
    quick, full = make_settings(task, quick=True), make_settings(task)
    assert quick.variants == full.variants
    assert quick.seeds < full.seeds and len(quick.rates) < len(full.rates)
    assert quick.recipe.steps < full.recipe.steps
    assert make_settings(task, quick=True, seeds=4, steps=99).seeds == 4
    assert make_settings(task, quick=True, steps=99).recipe.steps == 99


def test_models_have_the_layers_that_the_task_needs_by_default() -> None:
    assert make_settings(sweep_task("relations", relations=6)).recipe.layers == 1
    assert make_settings(sweep_task("relations", relations=7)).recipe.layers == 2
    assert make_settings(Brackets()).recipe.layers == 2
    assert make_settings(Brackets(), layers=3).recipe.layers == 3
    assert make_settings(Characters(), layers=1).recipe.layers == 1


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"seeds": 0}, "seeds is 0: .* 1 to 10,000"),
        ({"seeds": 10_001}, "seeds is 10,001: .* 1 to 10,000"),
        ({"rates": ()}, r"rates is \(\)"),
        ({"rates": (0.01, 0.0)}, r"rates is \(0\.01, 0\.0\)"),
        ({"width": 0}, "width is 0: .* 1 to 4"),
        ({"width": 5}, "width is 5: .* 1 to 4"),
        ({"groups": ("split", "wide")}, "group 'wide': .* split, free, big, narrow"),
        ({"task": Brackets(), "recipe": TrainingSettings()}, "layers is 1: brackets .* 2"),
    ],
)
def test_impossible_settings_raise(options: dict[str, Any], facts: str) -> None:
    settings: dict[str, Any] = {"recipe": TrainingSettings(d_model=4), "width": 2} | options
    with pytest.raises(OptionError, match=facts):
        SweepSettings(**settings)


# The learning rate


def test_best_rate_has_the_lowest_loss_and_is_the_smallest_among_equals() -> None:
    losses = [(0.03, 0.5), (0.01, 0.25), (0.1, 0.25), (0.003, 0.75)]
    variant = Variant("split", 1, 4, 4)
    pilots = [planted_record(Run(variant, rate, 0), loss=loss) for rate, loss in losses]
    assert best_rate(pilots) == best_rate(pilots[::-1]) == 0.01


def test_every_variant_trains_at_the_best_rate_of_its_own_pilots(
    trainings: Trainings,
) -> None:
    best = {1: 0.02, 2: 0.01, 4: 0.03}  # number of heads: rate
    trainings.loss_of = lambda run: abs(run.rate - best[run.variant.num_heads]) + run.seed
    result = sweep(settings=tiny(rates=(0.01, 0.02, 0.03), seeds=3), processes=1)
    pilots, results = trainings.runs[:9], trainings.runs[9:]
    assert {run.seed for run in pilots} == {PILOT_SEED}
    assert sorted((run.variant.num_heads, run.rate) for run in pilots) == [
        (heads, rate) for heads in (1, 2, 4) for rate in (0.01, 0.02, 0.03)
    ]
    assert [(run.variant.num_heads, run.rate, run.seed) for run in results] == [
        (heads, rate, seed) for heads, rate in best.items() for seed in range(3)
    ]
    assert set(result.runs["seed"]) == set(result.heads["seed"]) == {0, 1, 2}
    assert dict(zip(result.summary["num_heads"], result.summary["rate"], strict=True)) == best
    assert [pilot.run.seed for pilot in result.pilots] == [PILOT_SEED] * 9


def test_shape_shared_by_two_groups_trains_once(trainings: Trainings, tmp_path: Path) -> None:
    settings = tiny(groups=("split", "narrow"), seeds=1)
    result = sweep(settings=settings, out=tmp_path, processes=1)
    assert len(settings.variants) == 6 and len(trainings.runs) == 5
    assert list(result.summary["group"]) == ["split"] * 3 + ["narrow"] * 3
    split, narrow = (result.runs[result.runs["group"] == name] for name in ("split", "narrow"))
    wide = [rows[(rows["num_heads"] == 1) & (rows["d_key"] == 4)] for rows in (split, narrow)]
    assert wide[0]["loss"].tolist() == wide[1]["loss"].tolist()
    sweep(settings=settings, out=tmp_path, processes=1)
    assert len(trainings.runs) == 5


def test_one_rate_needs_no_pilots(trainings: Trainings) -> None:
    result = sweep(settings=tiny(rates=(0.02,)), processes=1)
    assert [run.seed for run in trainings.runs] == [0, 1] * 3
    assert result.pilots == () and set(result.runs["rate"]) == {0.02}


def test_progress_counts_every_run(trainings: Trainings) -> None:
    reports: list[tuple[str, int, int]] = []
    settings = tiny(rates=(0.01, 0.02))
    sweep(settings=settings, processes=1, progress=lambda *report: reports.append(report))
    assert reports == [("training", done, 12) for done in range(13)]


# Ways of running


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that really trained, in this process and without a stop."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    sweep(settings=tiny(), out=folder, processes=1)
    return folder


def assert_same_csvs(folder: Path, other_folder: Path) -> None:
    for name in CSVS:
        assert (folder / name).read_bytes() == (other_folder / name).read_bytes(), name


def test_sweep_writes_its_files_and_a_record_per_run(finished: Path) -> None:
    assert {file.name for file in finished.iterdir()} == {*FILES, "settings.json", "runs"}
    records = [json.loads(file.read_text()) for file in (finished / "runs").iterdir()]
    assert sorted((record["num_heads"], record["seed"]) for record in records) == [
        (heads, seed) for heads in (1, 2, 4) for seed in (0, 1)
    ]
    table = pd.read_csv(finished / "runs.csv")
    assert list(table["num_heads"]) == [1, 1, 2, 2, 4, 4]
    assert len(pd.read_csv(finished / "heads.csv")) == 2 * (1 + 2 + 4)
    summary = pd.read_csv(finished / "summary.csv")
    means = table.groupby("num_heads")["accuracy"].mean()
    assert list(summary["accuracy"]) == pytest.approx(list(means), rel=1e-5)  # six digits
    saved = json.loads((finished / "sweep.json").read_text())
    assert SweepSettings.from_json(saved["settings"]) == tiny()
    assert [row["num_heads"] for row in saved["summary"]] == [1, 2, 4]


def test_same_sweep_in_another_folder_writes_the_same_tables(
    finished: Path, tmp_path: Path
) -> None:
    sweep(settings=tiny(), out=tmp_path, processes=1)
    assert_same_csvs(tmp_path, finished)
    assert (tmp_path / "sweep.svg").read_bytes() == (finished / "sweep.svg").read_bytes()


def test_tables_are_the_same_without_a_folder(trainings: Trainings, tmp_path: Path) -> None:
    trainings.loss_of = lambda run: run.variant.num_heads + run.seed / 7
    result = sweep(settings=tiny(), processes=1)
    assert len(trainings.runs) == 6
    sweep(settings=tiny(), out=tmp_path, processes=1)
    for name, frame in (
        ("runs", result.runs),
        ("heads", result.heads),
        ("summary", result.summary),
    ):
        text = frame.to_csv(index=False, float_format="%.6g")
        assert text == (tmp_path / f"{name}.csv").read_text(encoding="utf-8")


def test_sweep_trains_only_missing_records(tmp_path: Path, trainings: Trainings) -> None:
    sweep(settings=tiny(), out=tmp_path, processes=1)
    assert len(trainings.runs) == 6
    trainings.runs.clear()
    lost = [Run(Variant("split", 2, 2, 2), 0.01, 1), Run(Variant("split", 4, 1, 1), 0.01, 0)]
    for run in lost:
        (tmp_path / "runs" / f"{run.name}.json").unlink()
    (tmp_path / "runs.csv").unlink()
    sweep(settings=tiny(), out=tmp_path, processes=1)
    assert trainings.runs == lost
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 6
    trainings.runs.clear()
    sweep(settings=tiny(), out=tmp_path, processes=1)
    assert trainings.runs == []


# A sweep that is killed

KILLED = tiny(steps=40, seeds=3, batch=32, held_out=512)
COMMAND = (
    *("sweep", "relations", "--groups", "split", "--d-model", "4", "--width", "2", "--steps", "40"),
    *("--seeds", "3", "--rates", "0.01", "--processes", "2", "--set", "relations=2"),
    *("--set", "letters=8", "--set", "classes=2", "--set", "length=6"),
)


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.02)


def children(process: int) -> list[int]:
    """Children of a process."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in tasks for child in file.read_text().split()]


def is_running(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.fixture
def started(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The command in its own process group."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headwise", *COMMAND, "--out", str(tmp_path / "killed")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_killed_sweep_leaves_no_process_and_resumes_to_the_same_tables(
    started: "subprocess.Popen[bytes]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes trained the finished runs, and one process trains the rest."""
    records = tmp_path / "killed/runs"

    def count() -> int:
        return len(list(records.glob("*.json"))) if records.exists() else 0

    until(lambda: count() >= 2 or started.poll() is not None, "two runs were done")
    workers = children(started.pid)
    os.killpg(started.pid, signal.SIGKILL)
    assert started.wait() == -signal.SIGKILL, "it ended before it was killed"
    assert len(workers) == 2
    until(lambda: not any(map(is_running, workers)), "no training process is left")
    finished = count()
    assert 2 <= finished < 9

    done: list[Run] = []
    train_run = runs_module.train_run

    def count_run(settings: SweepSettings, run: Run) -> RunRecord:
        done.append(run)
        return train_run(settings, run)

    sweep(settings=KILLED, out=tmp_path / "whole", processes=1)
    monkeypatch.setattr(runs_module, "train_run", count_run)
    sweep(settings=KILLED, out=tmp_path / "killed", processes=1)
    assert len(done) == 9 - finished
    assert_same_csvs(tmp_path / "killed", tmp_path / "whole")


# Folders


def test_folder_of_another_sweep_raises_and_is_replaced_with_force(
    tmp_path: Path, trainings: Trainings
) -> None:
    sweep(settings=tiny(), out=tmp_path, processes=1)
    before = (tmp_path / "runs.csv").read_bytes()
    trainings.runs.clear()
    other = tiny(steps=30, seeds=1)
    with pytest.raises(OutputError, match=r"recipe\.steps was 20, now 30; seeds was 2, now 1"):
        sweep(settings=other, out=tmp_path, processes=1)
    assert trainings.runs == [] and (tmp_path / "runs.csv").read_bytes() == before
    sweep(settings=other, out=tmp_path, processes=1, force=True)
    assert len(trainings.runs) == 3, "nothing of the other sweep is used"
    assert len(list((tmp_path / "runs").iterdir())) == len(pd.read_csv(tmp_path / "runs.csv")) == 3
    sweep(settings=other, out=tmp_path, processes=1)
    assert len(trainings.runs) == 3


def test_changed_task_setting_is_named(tmp_path: Path, trainings: Trainings) -> None:
    sweep(settings=tiny(), out=tmp_path, processes=1)
    task = sweep_task("relations", relations=2, letters=9, classes=2, length=6)
    recipe = tiny().recipe
    other = SweepSettings(task, ("split",), recipe, width=2, rates=(0.01,), seeds=2)
    with pytest.raises(OutputError, match=r"task\.letters was 8, now 9"):
        sweep(settings=other, out=tmp_path, processes=1)


def test_folder_with_other_files_raises(tmp_path: Path, trainings: Trainings) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"thesis\.txt"):
        sweep(settings=tiny(), out=tmp_path, processes=1)
    with pytest.raises(OutputError, match=r"thesis\.txt"):
        sweep(settings=tiny(), out=tmp_path / "thesis.txt", processes=1)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    assert trainings.runs == []
    (tmp_path / "empty").mkdir()
    sweep(settings=tiny(), out=tmp_path / "empty", processes=1)
    assert (tmp_path / "empty/runs.csv").exists()
