"""The scan of the embedded model as a picture: `python examples/scan_minilm.py --svg FILE`.

Without `--svg` it prints what `headwise scan` prints.
"""

import argparse
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from headwise.measures.scan import make_task, run
from headwise.views.head_table import head_grid, strongest, summary_lines
from headwise.views.relations import leaders


def main() -> None:
    """Scan, print, and keep the picture if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="write a picture of the output here")
    options = parser.parse_args()
    found = run(make_task("minilm"))
    parts = [
        *(Text(line) for line in summary_lines(found.table)),
        Text(),
        head_grid(found.table),
        Text(),
        strongest(found.table, per_role=2),
        Text(),
        leaders(found.relations),
    ]
    console = Console(record=True, width=84, highlight=False)
    console.print(Group(*parts))
    if options.svg:
        console.save_svg(str(options.svg), title="headwise scan")


if __name__ == "__main__":
    main()
