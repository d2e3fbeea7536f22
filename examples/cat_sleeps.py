"""Two tokens through two heads, every number on screen: `python examples/cat_sleeps.py`.

With `--svg FILE` what is shown is also written as a picture.
"""

import argparse
import re
from pathlib import Path

import torch
from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from torch import Tensor

from headwise.attention.reference import HeadSteps, layer_by_definition
from headwise.attention.worked_example import cat_sleeps


def matrix(title: str, values: Tensor, rows: list[str], columns: list[str]) -> Table:
    """A small matrix with its row and column names."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.ROUNDED)
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in zip(rows, values.tolist(), strict=True):
        table.add_row(name, *(f"{value + 0.0:.2f}" for value in row))
    return table


def show_head(console: Console, number: int, head: HeadSteps, tokens: list[str]) -> None:
    """One head's steps, from its queries to what it passes on."""
    console.rule(f"head {number}: columns {2 * number + 1}-{2 * number + 2} of the input")
    sizes = ["1", "2"]
    console.print(
        Columns(
            [
                matrix("queries = X Wq", head.queries, tokens, sizes),
                matrix("keys = X Wk", head.keys, tokens, sizes),
                matrix("values = X Wv", head.values, tokens, sizes),
            ]
        )
    )
    console.print(
        Columns(
            [
                matrix("scores = Q K^T", head.scores, tokens, tokens),
                matrix("scaled = scores / √2", head.scaled, tokens, tokens),
                matrix("weights = softmax", head.weights, tokens, tokens),
                matrix("mixed = weights V", head.mixed, tokens, sizes),
            ]
        )
    )


def show(console: Console) -> None:
    """Follow "Cat sleeps" through the layer and check the small matrices against the large ones."""
    layer, tokens, x = cat_sleeps()
    columns = ["1", "2", "3", "4"]
    steps = layer_by_definition(layer, x)
    console.print(matrix("X, d_model 4", x, tokens, columns))
    for number, head in enumerate(steps.heads):
        show_head(console, number, head, tokens)
    console.rule("both heads")
    console.print(
        Columns(
            [
                matrix("concat: head 0 | head 1", steps.concat, tokens, columns),
                matrix("Wo: rows 1-2 head 0's, 3-4 head 1's", layer.Wo.weight.T, columns, columns),
                matrix("output = concat Wo", steps.output, tokens, columns),
            ]
        )
    )
    shares = [
        matrix(f"head {number} adds", part, tokens, columns)
        for number, part in enumerate(steps.contributions)
    ]
    console.print(Columns(shares))
    console.print("Before Wo each head owns two columns; after it every column holds both heads.")
    practical = layer(x[None])[0]
    difference = (practical - steps.output).abs().max().item()
    console.print(
        "One large matrix per projection gives the same output as a small one per head: "
        f"largest difference {difference:.1e}."
    )


def main() -> None:
    """Print, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="write a picture of the output here")
    path = parser.parse_args().svg
    console = Console(record=path is not None, width=path and 110, highlight=False)
    with torch.no_grad():
        show(console)
    if path is not None:
        # rich would have the reader's browser fetch a font from the network
        title = "python examples/cat_sleeps.py"
        drawn = re.sub(r"@font-face {.*?}", "", console.export_svg(title=title), flags=re.S)
        path.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
