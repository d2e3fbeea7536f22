"""The shape of every step, read off a real forward pass: `python examples/dimensions.py`."""

from rich.console import Console

from headwise.attention.worked_example import dimensions
from headwise.views.trace import dimensions_table


def main() -> None:
    """Two common sizes, side by side with the names of their axes."""
    console = Console()
    for batch, position, d_model, num_heads in ((4, 16, 512, 4), (4, 16, 512, 8)):
        console.print(
            f"[bold]batch {batch}, {position} positions, d_model {d_model}, {num_heads} heads: "
            f"d_key = d_value = {d_model // num_heads}[/bold]"
        )
        console.print(dimensions_table(dimensions(batch, position, d_model, num_heads)))


if __name__ == "__main__":
    main()
