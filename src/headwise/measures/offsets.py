"""Offsets: how much attention goes to the key a fixed distance away."""

from jaxtyping import Float
from torch import Tensor

from headwise.measures.measure import Measure, RowValues
from headwise.measures.view import Sums, Tile, View

OFFSETS = {
    "back4": -4,
    "back3": -3,
    "back2": -2,
    "previous": -1,
    "self": 0,
    "next": 1,
    "ahead2": 2,
    "ahead3": 3,
    "ahead4": 4,
}


def words(offset: int) -> str:
    """Where that key stands."""
    if offset == 0:
        return "the token itself"
    return f"the token {abs(offset)} {'before' if offset < 0 else 'after'}"


class Offsets(Measure):
    """`A[q, q + offset]` for the offsets -4 to 4, over the rows that have such a key."""

    columns = {
        name: f"Mean weight on {words(offset)}, 0 to 1." for name, offset in OFFSETS.items()
    } | {
        f"value_{name}": f"Share of the value-weighted attention on {words(offset)}, 0 to 1."
        for name, offset in OFFSETS.items()
    }

    def serves(self, view: View) -> bool:
        """Distances need queries and keys of one sequence."""
        return not view.is_cross

    def features(self, view: View) -> dict[str, Tensor]:
        """The lengths of the values, whose sum a share is a share of."""
        return {} if view.value_norms is None else {"value_norm": view.value_norms}

    def see(self, view: View, tile: Tile, sums: Sums) -> None:
        """Read the weights at each offset that lies in the tile."""
        for name, offset in OFFSETS.items():
            at_offset(view, tile, sums, name, offset)

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """Means over the rows that have a key at that offset."""
        columns = {}
        for name, offset in OFFSETS.items():
            there = view.places + offset
            has_key = (there >= 0) & (there < view.num_keys)
            if offset > 0 and never_ahead(view):
                has_key &= False
            columns[name] = RowValues(sums[name], has_key)
            if view.value_norms is not None:
                norms = view.value_norms[:, there.clamp(0, view.num_keys - 1)]
                share = sums[name] * norms / positive(sums["value_norm"])
                columns[f"value_{name}"] = RowValues(share, has_key)
        return columns


def at_offset(view: View, tile: Tile, sums: Sums, name: str, offset: int) -> None:
    """Put each row's weight at one offset into the sums."""
    places = view.places[tile.span] + (offset - tile.low)
    first, last = int(places[0]), int(places[-1])
    if last < 0 or first >= tile.high - tile.low:
        return
    if view.is_run:
        found = tile.weights.diagonal(first, 1, 2)
        start = tile.span.start + max(0, -first)
        sums[name][:, start : start + found.shape[1]] += found
        return
    inside = ((places >= 0) & (places < tile.high - tile.low)).nonzero()[:, 0]
    sums[name][:, tile.span.start + inside] += tile.weights[:, inside, places[inside]]


def never_ahead(view: View) -> bool:
    """Whether no query sees a key after its own."""
    task = view.sequence.task
    return task is not None and task.band.after == 0


def positive(tensor: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The tensor with 1 for 0, to divide by: what is then divided is 0 too."""
    return tensor.masked_fill(tensor == 0, 1)
