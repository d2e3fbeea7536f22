"""The benchmark tables in README and docs agree with their JSON files."""

import ast
import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headwise.objectives.scored_model import open_scored_model
from headwise.pruning.settings import PruneSettings

from .pruning.tiny_models import model_of, words_tokenizer

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def render(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("harness", "render"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return runpy.run_path(str(BENCHMARKS / "render.py"))


def test_pages_show_the_last_runs(render: dict[str, Any]) -> None:
    pages = render["pages"]()
    assert {path.name for path in pages} == {"README.md", "speed.md"}
    for path, text in pages.items():
        assert text == path.read_text("utf-8"), "run python benchmarks/render.py"
    readme, speed = (pages[ROOT / name] for name in ("README.md", "docs/speed.md"))
    assert "| headwise, every row |" in speed
    assert "`benchmarks/scan.py`" in readme
    assert "measured on" in speed
    assert "random, median of 5 (range)" in speed


def test_the_sweep_page_shows_the_recorded_results(
    render: dict[str, Any],
) -> None:
    page = (ROOT / "docs" / "sweep.md").read_text("utf-8")
    assert runpy.run_path(str(BENCHMARKS / "render_sweep.py"))["fill_page"](page) == page
    assert "| split | 4 | 8 | 0.99" in page


SCRIPTS = sorted([*BENCHMARKS.glob("*.py"), *(ROOT / "examples").glob("*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_name_that_a_benchmark_imports_exists(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headwise"):
            module = importlib.import_module(str(node.module))
            assert [one.name for one in node.names if not hasattr(module, one.name)] == []


def test_every_way_to_scan_that_is_timed_runs(
    render: dict[str, Any],
) -> None:
    scan = runpy.run_path(str(BENCHMARKS / "scan.py"))
    times = scan["time_them"](8, 1)
    assert times.keys() == scan["CONTESTANTS"].keys()


def test_a_slower_run_says_so(render: dict[str, Any], tmp_path: Path) -> None:
    record = json.loads((BENCHMARKS / "results" / "layer.json").read_text("utf-8"))
    record["results"][0]["ratio_to_best"] = 1.51
    changed = tmp_path / "layer.json"
    changed.write_text(json.dumps(record), encoding="utf-8")
    assert "largest 1.51" in render["targets"](render["read_json"](changed))[0]


def test_the_ratio_is_to_the_fastest_peer_of_the_row(render: dict[str, Any]) -> None:
    harness = sys.modules["harness"]
    case = harness.Case("core", "full", "1 x 2", "float32", False, 1.0, dict)
    times = {"headwise": [2.0, 2.0, 9.0], "slow": [8.0, 8.0, 8.0], "quick": [4.0, 4.0, 4.0]}
    result = harness.summary(case, times)
    assert (result.best_peer, result.ratio_to_best) == ("quick", 0.5)
    assert result.share_of_peak is None


def choice(unit: str = "cosine", **values: list[float]) -> dict[str, Any]:
    """A record of one cut of half of the heads."""
    rows = [
        {"method": method, "share": 0.5, "zeros": numbers, "means": [2 * x for x in numbers]}
        for method, numbers in values.items()
    ]
    return {"unit": unit, "uncut": 5.0, "choose": rows}


def test_random_cuts_are_shown_as_median_and_range(render: dict[str, Any]) -> None:
    record = choice(random=[0.3, 0.1, 0.125], rounds=[0.375])
    assert render["quality_lines"](record) == [
        ("chosen by", "50% cut"),
        ("random", "0.125 (0.100 to 0.300) / 0.250 (0.200 to 0.600)"),
        ("rounds", "0.375 / 0.750"),
    ]


def test_perplexity_is_shown_as_a_multiple_of_the_uncut_models(render: dict[str, Any]) -> None:
    record = choice("perplexity", rounds=[10.0])
    assert render["quality_lines"](record)[1] == ("rounds", "2.00x / 4.00x")


def test_methods_of_choosing_are_compared_once_and_then_timed(
    render: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    benchmark = runpy.run_path(str(BENCHMARKS / "prune.py"))
    scored = open_scored_model(model_of("llama"), words_tokenizer())
    settings = PruneSettings(choose_tokens=80, fit_tokens=64, held_tokens=48, samples_text=False)
    file, console = tmp_path / "prune.json", Console(quiet=True)
    run = benchmark["Run"](scored, settings, file, console)
    with pytest.raises(SystemExit, match="choose first"):
        run.time((0.5,))
    run.choose((0.5,))
    monkeypatch.setitem(benchmark["Run"].choose.__globals__, "order_units", None)
    later = benchmark["Run"](scored, settings, file, console)
    later.choose((0.5,))  # reads the record
    assert later.record["choose"] == run.record["choose"]
    later.time((0.5,))
    record = later.record
    methods = [row["method"] for row in record["choose"]]
    assert methods == [benchmark["RANDOM"], *benchmark["METHODS"]]
    assert [len(row["zeros"]) for row in record["choose"]] == [5, 1, 1, 1, 1]
    assert record["text"]["report"]["registers"] == ["dialogue", "questions", "speech"]
    assert [row["batch"] for row in record["speed"]] == [1, 16]
    assert {row["multiply_adds_removed"] for row in record["speed"]} == {0.5}
