"""Tables and plots for docs/sweep.md, from folders that `headwise sweep` wrote.

python benchmarks/render_sweep.py FOLDER ...   # add new sweeps
python benchmarks/render_sweep.py              # rewrite the tables
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from render import markdown

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "sweep.md"
IMAGES = PAGE.parent / "images"
MARKED = re.compile(r"(<!-- (sweep[\w-]*)\.json: -->\n).*?(<!-- :\2\.json -->)", re.DOTALL)
COLUMNS = {
    "group": "group",
    "num_heads": "heads",
    "d_key": "d_key",
    "accuracy": "accuracy",
    "range": "lowest to highest",
    "loss": "loss",
    "entropy": "entropy",
    "largest": "largest weight",
    "rate": "learning rate",
    "parameters": "parameters",
}
SPEED = {
    "task": "task",
    "d_model": "d_model",
    "layers": "layers",
    "batch": "batch",
    "positions": "positions",
    "heads": "heads",
    "headwise": "headwise, steps/s",
    "torch": "torch, steps/s",
    "ratio": "ratio",
}


def add_sweep(folder: Path) -> None:
    """Copy a sweep's summary and plot, under the name of its folder."""
    name = folder.name
    shutil.copyfile(folder / "sweep.json", RESULTS / f"{name}.json")
    shutil.copyfile(folder / "sweep.svg", IMAGES / f"{name.replace('-', '_')}.svg")


def table_of(record: dict[str, Any]) -> str:
    """A sweep, or the benchmark of its training steps, as a Markdown table."""
    if "rows" in record:
        rows = [[str(row[name]) for name in SPEED] for row in record["rows"]]
        return markdown([[*SPEED.values()], *rows]) + "\n"
    rows = [[cell(row, name) for name in COLUMNS] for row in record["summary"]]
    return markdown([[*COLUMNS.values()], *rows]) + "\n"


def cell(row: dict[str, Any], name: str) -> str:
    """One value as text."""
    if name == "range":
        return f"{row['lowest']:.3f} to {row['highest']:.3f}"
    value = row[name]
    if name in ("accuracy", "loss"):
        return f"{value:.3f}"
    if name in ("entropy", "largest"):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def fill_page(page: str) -> str:
    """The page with every table updated from its sweep's record."""

    def fill(match: re.Match[str]) -> str:
        record = json.loads((RESULTS / f"{match[2]}.json").read_text(encoding="utf-8"))
        return match[1] + table_of(record) + match[3]

    return MARKED.sub(fill, page)


def main() -> None:
    """Add the named sweeps and rewrite the page."""
    for name in sys.argv[1:]:
        add_sweep(Path(name))
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
