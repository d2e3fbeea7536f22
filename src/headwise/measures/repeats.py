"""Repeats: attention to earlier copies of a token, and to what came after them."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import positive
from headwise.measures.view import Sums, Tile, View


class Repeats(Measure):
    """Weights of the pairs that repetition makes.

    Duplicate: keys before the query with its token. Induction (https://arxiv.org/abs/2209.11895):
    keys whose own previous token is the query's. Both over the rows that have such a key.
    """

    columns = {
        "duplicate": "Mean weight on earlier copies of the query's token, over the rows that have "
        "one, 0 to 1.",
        "text_induction": "Mean weight on the tokens that followed earlier copies of the query's "
        "token, over the rows that have one, 0 to 1.",
    }
    columns |= {
        f"value_{name}": words.replace("Mean weight", "Share of the value-weighted attention")
        for name, words in columns.items()
    }

    def serves(self, view: View) -> bool:
        """It takes tokens, and queries and keys of one sequence."""
        return view.tokens is not None and not view.is_cross

    def features(self, view: View) -> dict[str, Tensor]:
        """The lengths of the values, whose sum a share is a share of."""
        return {} if view.value_norms is None else {"value_norm": view.value_norms}

    def see(self, view: View, tile: Tile, sums: Sums) -> None:
        """Pick the weights of the pairs that lie in the tile."""
        assert view.tokens is not None
        copies = earlier_copies(view.tokens.ids, view.places[tile.span])
        for name, shift in SHIFTS.items():
            add_pairs(view, tile, sums, name, copies.row, copies.key + shift)

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """Over the rows whose token has come before."""
        assert view.tokens is not None
        counts = copies_before(view.tokens.ids)[view.places.clamp(0, view.num_keys - 1)]
        columns = {}
        for name in SHIFTS:
            columns[name] = RowValues(sums[name], counts > 0)
            if view.value_norms is not None:
                share = sums[f"value_{name}"] / positive(sums["value_norm"])
                columns[f"value_{name}"] = RowValues(share, counts > 0)
        return columns


SHIFTS = {"duplicate": 0, "text_induction": 1}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows, and for each pair the key that its row's token is repeated from."""

    row: Int[Tensor, " pairs"]
    key: Int[Tensor, " pairs"]


def copies_before(ids: Int[Tensor, " key"]) -> Int[Tensor, " key"]:
    """How many earlier tokens equal each token."""
    order, starts = classes(ids)
    counts = torch.empty_like(ids)
    counts[order] = torch.arange(len(ids), device=ids.device) - starts
    return counts


def classes(ids: Int[Tensor, " key"]) -> tuple[Tensor, Tensor]:
    """Positions sorted by token, then place; and where in that order each one's token begins."""
    order = torch.argsort(ids, stable=True)
    sorted_ids = ids[order]
    is_first = torch.ones_like(sorted_ids, dtype=torch.bool)
    is_first[1:] = sorted_ids[1:] != sorted_ids[:-1]
    index = torch.arange(len(ids), device=ids.device)
    return order, torch.where(is_first, index, 0).cummax(0).values


def earlier_copies(ids: Int[Tensor, " key"], places: Int[Tensor, " row"]) -> Pairs:
    """Every pair of one of the places and an earlier position with the same token."""
    order, starts = classes(ids)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(ids), device=ids.device)
    begin = starts[rank[places]]
    counts = rank[places] - begin
    row = torch.repeat_interleave(torch.arange(len(places), device=ids.device), counts)
    within = torch.arange(len(row), device=ids.device) - (counts.cumsum(0) - counts)[row]
    return Pairs(row, order[begin[row] + within])


def add_pairs(view: View, tile: Tile, sums: Sums, name: str, row: Tensor, key: Tensor) -> None:
    """Add the weights of the pairs whose key lies in the tile to their rows."""
    inside = (key >= tile.low) & (key < tile.high)
    row, key = row[inside], key[inside]
    if len(row) == 0:
        return
    found = tile.weights[:, row, key - tile.low]
    sums[name][:, tile.span].index_add_(1, row, found)
    if view.value_norms is not None:
        weighted = found * view.value_norms[:, key]
        sums[f"value_{name}"][:, tile.span].index_add_(1, row, weighted)
