"""Repeats: attention to earlier copies of a token, and to what came after them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import positive
from headwise.measures.view import ByToken, Sums, Tile, View


class Repeats(Measure):
    """Weights of the pairs that repetition makes.

    Duplicate: keys before the query with its token. Induction (https://arxiv.org/abs/2209.11895):
    keys whose own previous token is the query's. Both over the rows that have such a key.
    """

    columns: ClassVar[dict[str, str]] = {
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
        copies = earlier_copies(view.tokens.by_token, view.places[tile.span])
        for name, shift in SHIFTS.items():
            add_pairs(view, tile, sums, name, copies.row, copies.key + shift)

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """Over the rows whose token has come before."""
        assert view.tokens is not None
        has_copy = (copies_before(view.tokens.by_token) > 0)[view.places]
        columns = {}
        for name in SHIFTS:
            columns[name] = RowValues(sums[name], has_copy)
            if view.value_norms is not None:
                share = sums[f"value_{name}"] / positive(sums["value_norm"])
                columns[f"value_{name}"] = RowValues(share, has_copy)
        return columns


SHIFTS = {"duplicate": 0, "text_induction": 1}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows, and for each pair the key that its row's token is repeated from."""

    row: Int[Tensor, " pairs"]
    key: Int[Tensor, " pairs"]


def copies_before(by_token: ByToken) -> Int[Tensor, " key"]:
    """How many earlier tokens equal each token."""
    return by_token.rank - by_token.begin


def copies_seen(view: View) -> Float[Tensor, "#heads query"]:
    """How many earlier copies of its own token each row may see."""
    assert view.tokens is not None
    ids, places = view.tokens.ids, view.places
    if view.seen_range is None:
        position = torch.arange(len(ids), device=ids.device)
        is_copy = (ids[places, None] == ids) & (position < places[:, None])
        return (view.allowed() & is_copy).sum(-1).to(view.sequence.mixed.dtype)
    by_token, size = view.tokens.by_token, len(ids)
    codes = by_token.begin[by_token.order] * size + by_token.order  # ascending
    low = torch.minimum(view.seen_range[0], places)
    first = torch.searchsorted(codes, by_token.begin[places] * size + low)
    return (by_token.rank[places] - first).to(view.sequence.mixed.dtype)[None]


def earlier_copies(by_token: ByToken, places: Int[Tensor, " row"]) -> Pairs:
    """Every pair of one of the places and an earlier position with the same token."""
    begin = by_token.begin[places]
    counts = by_token.rank[places] - begin
    row = torch.repeat_interleave(counts)
    within = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return Pairs(row, by_token.order[begin[row] + within])


def add_pairs(view: View, tile: Tile, sums: Sums, name: str, row: Tensor, key: Tensor) -> None:
    """Add the weights of the pairs whose key lies in the tile to their rows."""
    inside = (key >= tile.low) & (key < tile.high)
    row, key = row[inside], key[inside]
    if len(row) == 0:
        return
    found = tile.weights.flatten(1)[:, row * (tile.high - tile.low) + key - tile.low]
    sums[name][:, tile.span].index_add_(1, row, found)
    if view.value_norms is not None:
        weighted = found * view.value_norms[:, key]
        sums[f"value_{name}"][:, tile.span].index_add_(1, row, weighted)
