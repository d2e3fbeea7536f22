"""Repeats: attention to earlier copies of a token, and to the tokens that followed them."""

from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.measures.measure import MassMeasure, PairsOf, RowsAndKeys, with_value_columns
from headwise.measures.sequence_view import RowLayout, SequenceView
from headwise.reading.batch import CopyIndex

SHIFTS = {"duplicate": 0, "text_induction": 1}
"""For each mass, how many tokens after an earlier copy of the query's token its keys are."""


class Repeats(MassMeasure):
    """Weights on earlier copies of the query's token, and on the tokens after these copies.

    Duplicate: earlier keys with the query's token. Induction (https://arxiv.org/abs/2209.11895):
    keys whose previous token is the query's. Both are means over the rows that have such a key.
    """

    columns: ClassVar[dict[str, str]] = with_value_columns(
        {
            "duplicate": "Mean weight on earlier copies of the query's token, over the rows with "
            "such a copy, 0 to 1.",
            "text_induction": "Mean weight on the tokens that followed earlier copies of the "
            "query's token, over the rows with such a copy, 0 to 1.",
        }
    )

    def serves(self, view: SequenceView) -> bool:
        """Whether the keys are tokens and come from the same sequence as the queries."""
        return view.layout.tokens is not None and not view.layout.is_cross

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        """Each row with every earlier copy of its token, and with the token after each copy."""
        assert layout.tokens is not None
        by_token = layout.tokens.by_token
        return {name: partial(_earlier_copies, by_token, shift) for name, shift in SHIFTS.items()}

    def rows(self, view: SequenceView) -> dict[str, Tensor]:
        """The rows that may see an earlier copy of their token."""
        rows = view.layout.once("rows with a copy", lambda: (copies_seen(view) > 0).all(0))
        return dict.fromkeys(SHIFTS, rows)


def _earlier_copies(by_token: CopyIndex, shift: int, places: Int[Tensor, " row"]) -> RowsAndKeys:
    """All (row, key) pairs whose key is `shift` tokens after an earlier copy of the row's token."""
    begin = by_token.begin[places]
    counts = by_token.rank[places] - begin
    row = torch.repeat_interleave(counts)
    within = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return row, by_token.order[begin[row] + within] + shift


def copies_seen(view: SequenceView) -> Float[Tensor, "#heads query"]:
    """Number of earlier copies of its own token that each row may see."""
    layout, dtype = view.layout, view.sequence.mixed.dtype
    assert layout.tokens is not None
    ids, places = layout.tokens.ids, layout.places
    if layout.has_mask:
        position = torch.arange(len(ids), device=ids.device)
        is_copy = (ids[places, None] == ids) & (position < places[:, None])
        return (view.allowed & is_copy).sum(-1).to(dtype)
    by_token, size = layout.tokens.by_token, len(ids)
    codes = by_token.begin[by_token.order] * size + by_token.order  # ascending
    low = torch.minimum(layout.seen_range[0], places)
    first = torch.searchsorted(codes, by_token.begin[places] * size + low)
    return (by_token.rank[places] - first).to(dtype)[None]
