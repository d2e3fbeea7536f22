"""Two tokens through two heads, with every number: `python examples/cat_sleeps.py`.

`--svg FILE` also writes the output as a picture.
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

from headwise import MultiHeadAttention, Trace, trace

TOKENS = ["Cat", "sleeps"]
X = torch.tensor([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 1.0]])


def make_layer() -> MultiHeadAttention:
    """Two heads of size 2: head 0 reads columns 1-2, where Cat is, head 1 columns 3-4.

    Wo adds the heads in the first half of the output and subtracts them in the second: every
    output column mixes both.
    """
    layer = MultiHeadAttention(4, 2, bias=False).requires_grad_(False)
    for projection in (layer.Wq, layer.Wk, layer.Wv):
        projection.weight.copy_(torch.eye(4))
    for head, sign in enumerate((1, -1)):
        layer.heads[head].Wo.copy_(torch.cat([torch.eye(2) / 2, sign * torch.eye(2) / 2], 1))
    return layer


def matrix(title: str, values: Tensor, rows: list[str], columns: list[str]) -> Table:
    """A small matrix with its row and column names."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.ROUNDED)
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in zip(rows, values.tolist(), strict=True):
        table.add_row(name, *(f"{value + 0.0:.2f}" for value in row))
    return table


def show_head(console: Console, steps: Trace, head: int) -> None:
    """One head's steps, from its queries to its mixed values."""
    console.rule(f"head {head}: columns {2 * head + 1}-{2 * head + 2} of the input")
    channels = ["1", "2"]
    for row in (
        {
            "queries": ("queries = X Wq", channels),
            "keys": ("keys = X Wk", channels),
            "values": ("values = X Wv", channels),
        },
        {
            "scores": ("scores = Q K^T", TOKENS),
            "scaled": ("scaled = scores / √2", TOKENS),
            "weights": ("weights = softmax", TOKENS),
            "mixed": ("mixed = weights V", channels),
        },
    ):
        tables = [
            matrix(title, steps[name].values[0, head], TOKENS, columns)
            for name, (title, columns) in row.items()
        ]
        console.print(Columns(tables))


def show(console: Console) -> None:
    """Print "Cat sleeps" on its way through the layer."""
    steps = trace(make_layer(), X)
    columns = ["1", "2", "3", "4"]
    concat, output, wo = steps["concat"].values[0], steps["output"].values[0], steps["Wo"].values
    console.print(matrix("X, d_model 4", X, TOKENS, columns))
    for head in steps.heads:
        show_head(console, steps, head)
    console.rule("both heads")
    console.print(
        Columns(
            [
                matrix("concat: head 0 | head 1", concat, TOKENS, columns),
                matrix("Wo: rows 1-2 head 0's, 3-4 head 1's", wo, columns, columns),
                matrix("output = concat Wo", output, TOKENS, columns),
            ]
        )
    )
    contributions = [
        matrix(f"head {head} adds", steps["contributions"].values[0, head], TOKENS, columns)
        for head in steps.heads
    ]
    console.print(Columns(contributions))
    console.print("Before Wo each head owns two columns; after it every column mixes both heads.")
    console.print(
        "One large matrix per projection gives the same output as a small one per head: "
        f"largest difference {steps.difference:.1e}."
    )


def main() -> None:
    """Print the steps, and write the picture if `--svg` is set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="write the output to this file as a picture")
    path = parser.parse_args().svg
    console = Console(record=path is not None, width=path and 110, highlight=False)
    show(console)
    if path is not None:
        # Without the fonts, which rich would make the reader's browser fetch from the network.
        svg = console.export_svg(title="python examples/cat_sleeps.py")
        path.write_text(re.sub(r"@font-face {.*?}", "", svg, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
