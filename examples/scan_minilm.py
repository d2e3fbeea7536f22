"""The output of `headwise scan` as a picture: `python examples/scan_minilm.py --svg FILE`.

Without `--svg` it only prints the output.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def main() -> None:
    """Run the command, print its output in colour, and write the picture if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="write a picture of the output to this file")
    options = parser.parse_args()
    command = [sys.executable, "-m", "headwise", "scan"]
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "84"}
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    console = Console(record=True, width=84, highlight=False)
    console.print(Text.from_ansi(output.stdout))
    if options.svg:
        # without this, rich's picture makes the browser fetch a font from the network
        picture = console.export_svg(title="headwise scan")
        picture = re.sub(r"@font-face {.*?}", "", picture, flags=re.DOTALL)
        options.svg.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
