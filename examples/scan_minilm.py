"""The scan of the embedded model as a picture: `python examples/scan_minilm.py --svg FILE`.

Without `--svg` it prints what `headwise scan` prints.
"""

import argparse
import re
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from headwise.scans.scan import ScanJob, run_scan
from headwise.views.heads import head_grid, leaders, strongest, summary_lines


def main() -> None:
    """Scan, print, and keep the picture if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="write a picture of the output here")
    options = parser.parse_args()
    found = run_scan(ScanJob.of("minilm"))
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
        # rich would have the reader's browser fetch a font from the network
        drawn = re.sub(
            r"@font-face {.*?}", "", console.export_svg(title="headwise scan"), flags=re.S
        )
        options.svg.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
