"""The benchmark tables in README and docs agree with their JSON files."""

import ast
import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

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
