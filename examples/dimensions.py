"""The shape of every step, read off a real forward pass: `python examples/dimensions.py`."""

from rich.console import Console
from rich.table import Table

from headwise.attention.worked import dimensions


def main() -> None:
    """Two common sizes, side by side with the names of their axes."""
    console = Console()
    for batch, position, d_model, num_heads in ((4, 16, 512, 4), (4, 16, 512, 8)):
        d_key = d_model // num_heads
        table = Table(
            title=f"batch {batch}, {position} tokens, d_model {d_model}, "
            f"{num_heads} heads: d_key = d_value = {d_key}",
            title_justify="left",
            title_style="bold",
        )
        table.add_column("step", no_wrap=True)
        table.add_column("axes", no_wrap=True)
        table.add_column("shape", justify="right")
        for step, axes, shape in dimensions(batch, position, d_model, num_heads):
            table.add_row(step, axes, str(list(shape)))
        console.print(table)


if __name__ == "__main__":
    main()
