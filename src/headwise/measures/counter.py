"""Counting: what the heads of attention computations do, added to sums.

In: calls, one a layer, of a batch. Out: sums in a tally. Where the calls come from, a watched model
or a layer of our own, is not asked here; nor is any model run.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import ModelError, OptionError, warn_user
from headwise.formats import join_words
from headwise.measures.confidence import Confidence
from headwise.measures.distance import Distance
from headwise.measures.entropy import Entropy
from headwise.measures.masses import Masses
from headwise.measures.measure import Measure, measure_rows
from headwise.measures.offsets import Offsets
from headwise.measures.outputs import Outputs
from headwise.measures.repeats import Repeats
from headwise.measures.row_layout import RowLayout, has_mask
from headwise.measures.sequence_view import LEAST_LOG, Scratch, SequenceView
from headwise.measures.similarity import (
    LOOKS,
    ROWS,
    centred_kernels,
    divergences,
    products,
)
from headwise.measures.uniform import Uniform
from headwise.reading.batch import Batch
from headwise.reading.tokens import TokenFacts
from headwise.scans.sums import ScanSums
from headwise.watching.calls import Call, at_least_float32
from headwise.watching.sequence_weights import Tile
from headwise.watching.watch import described

MEASURES: dict[str, type[Measure]] = {
    "offsets": Offsets,
    "masses": Masses,
    "distance": Distance,
    "repeats": Repeats,
    "confidence": Confidence,
    "outputs": Outputs,
    "uniform": Uniform,
    "entropy": Entropy,
}
COMPARED = 4
"""Sequences of a batch that heads are compared with each other on."""
ROWS_LIMIT, ROWS_SAMPLED = 2048, 512
"""By default every row up to this many tokens, and so many random rows beyond."""


@dataclass(frozen=True)
class RowChoice:
    """Which rows of a document are measured: all, a number, or by its length."""

    rows: int | str = "auto"
    seed: int = 0

    def of(self, num_queries: int, index: int) -> Tensor:
        """Positions of the measured rows, drawn by the document's index."""
        wanted = self.rows
        if wanted == "auto":
            wanted = "all" if num_queries <= ROWS_LIMIT else ROWS_SAMPLED
        if wanted == "all" or int(wanted) >= num_queries:
            return torch.arange(num_queries)
        return drawn(num_queries, int(wanted), self.seed, index)


def drawn(total: int, count: int, seed: int, index: int) -> Tensor:
    """Some of `total` positions in order, the same ones for the same seed and index."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
    return torch.randperm(total, generator=generator)[:count].sort().values


def span_of(facts: TokenFacts | None, sequence: int) -> slice:
    """Where the real positions of a sequence stand; all of them where nothing is known."""
    return slice(None) if facts is None else facts.span(sequence)


NOTHING = slice(0, 0)
"""The span of a sequence that is padding alone."""


class LayerCache:
    """What serves batch after batch: each layer's output roots, and room for tiles."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.scratch = Scratch()
        self._roots: dict[tuple[str, int], Tensor | None] = {}
        self._indirect: list[str] = []
        self._layouts: WeakKeyDictionary[Batch, dict[Hashable, RowLayout]] = WeakKeyDictionary()

    def layouts_of(self, batch: Batch) -> dict[Hashable, RowLayout]:
        """Row layouts that the layers of one batch share; they go when the batch does."""
        return self._layouts.setdefault(batch, {})

    def roots_of(self, call: Call) -> Float[Tensor, "heads d_value width"] | None:
        """For each head's part of the output projection a small matrix that gives its lengths.

        `|v Wo| = |v R^T|` with the triangle `R` of `Wo^T = Q R`. None if the projection is not
        known, or gets something else.
        """
        key = (call.stack, call.layer)
        if key not in self._roots:
            if not call.is_direct:
                self._indirect.append(type(call.place.module).__name__)
            roots = call.output_weight
            if roots is not None:
                parts = roots.to(at_least_float32(call.mixed)).unflatten(0, (call.num_heads, -1))
                roots = torch.linalg.qr(parts.mT, mode="r").R.mT.contiguous()
            self._roots[key] = roots
        return self._roots[key]

    def say_what_is_left_out(self) -> None:
        """Remark, once, where the output projection gets something else than what heads give."""
        if self._indirect:
            names = join_words(list(dict.fromkeys(self._indirect)))
            self._indirect.clear()
            warn_user(
                f"{names} changes what its heads give before its output projection gets it: "
                "measures of outputs and values are left out there"
            )


def indices_of(call: Call, batch: Batch) -> Sequence[int]:
    """Place of each sequence of a call among all that are read.

    Pictures beside texts may be fewer or more than those; but a sequence that nobody gave, and
    queries that are not among the keys, have no positions that could be measured.
    """
    count = len(call.mixed)
    given = {len(one) for one in batch.inputs.values() if isinstance(one, Tensor) and one.dim()}
    if count not in {*given, len(batch.indices)}:
        raise ModelError(
            f"{described(call.place)} cannot be measured: it computes {count} sequences where "
            f"{len(batch.indices)} are given, as attention within windows does"
        )
    if call.num_keys < call.num_queries and call.stack != "cross":
        raise ModelError(
            f"{described(call.place)} cannot be measured: its {call.num_queries} queries see "
            f"{call.num_keys} keys, each made of several positions"
        )
    return batch.indices if count == len(batch.indices) else range(count)


def views_of(
    call: Call, batch: Batch, choice: RowChoice, kept: LayerCache
) -> list[tuple[int, SequenceView]]:
    """One view for each sequence of a call, with its place in the batch."""
    found, device = [], call.mixed.device
    layouts = kept.layouts_of(batch)
    of_keys = batch.key_tokens(call.stack, call.num_keys)
    of_queries = batch.query_tokens(call.stack, call.num_queries)
    for place, index in enumerate(indices_of(call, batch)):
        queries, keys = span_of(of_queries, place), span_of(of_keys, place)
        if NOTHING in (queries, keys):
            continue
        sequence = call.sequence(place, queries, keys)
        shape = (sequence.num_heads, sequence.num_queries, sequence.num_keys)
        name = (call.stack, place, choice, shape, sequence.band, device)
        layout = None if has_mask(sequence) else layouts.get(name)
        if layout is None:
            layout = RowLayout.of(
                sequence,
                choice.of(sequence.num_queries, index).to(device),
                None if of_keys is None else of_keys.keys(place, device),
                is_cross=call.stack == "cross",
            )
        if not layout.has_gaps:  # a mask may differ from layer to layer
            layouts[name] = layout
        roots = kept.roots_of(call)
        view = SequenceView(
            sequence=sequence, layout=layout, output_roots=roots, scratch=kept.scratch
        )
        found.append((place, view))
    return found


class HeadCounter:
    """Counts measures of one attention computation after the other."""

    def __init__(
        self,
        tally: ScanSums,
        measures: Sequence[Measure],
        choice: RowChoice,
        *,
        compares: bool,
        kept: LayerCache | None = None,
    ) -> None:
        """What to count, on which rows, and whether heads are compared with each other."""
        self.tally, self.measures, self.choice, self.compares = tally, measures, choice, compares
        self.kept = kept or LayerCache()
        self.kernels: dict[tuple[str, int], list[Tensor]] = {}
        """By stack and place in the batch: of every layer so far."""

    def add(self, call: Call, batch: Batch) -> None:
        """Count one layer's attention."""
        key = (call.stack, call.layer)
        self.tally.num_heads[key] = call.num_heads
        indices = indices_of(call, batch)
        for place, view in views_of(call, batch, self.choice, self.kept):
            columns = measure_rows(view, self.measures)
            self.tally.totals.add_all(key, columns, view.layout.stands_for)
            if self.compares and place < COMPARED:
                self.compare(key, view, place, indices[place])

    def compare(self, key: tuple[str, int], view: SequenceView, place: int, index: int) -> None:
        """Compare the heads of one layer with each other, and keep their outputs' kernels."""
        if view.layout.num_queries < 4:
            return
        rows, looks = compared(view, self.choice.seed + 1, index)
        kernels = centred_kernels(view.sequence.mixed[:, rows])
        self.kernels.setdefault((key[0], place), []).append(kernels)
        if len(looks.rows) == 0:
            return
        weights = view.sequence.log_weights(looks).clamp_(min=LEAST_LOG).exp_()
        found = divergences(weights).sum(-1)
        counted = torch.full_like(found[:1], len(looks.rows))
        self.tally.add_to(self.tally.divergence, key, torch.cat([found, counted]))

    def finish(self) -> None:
        """Every layer of a batch was counted: add up how alike their heads are."""
        for (stack, _), kernels in self.kernels.items():
            together = [one.to(kernels[0].device) for one in kernels]
            self.tally.add_to(self.tally.hsic, stack, products(torch.cat(together)))
        self.kernels = {}


def compared(view: SequenceView, seed: int, index: int) -> tuple[Tensor, Tile]:
    """Random rows whose outputs are compared between heads, and fewer whose weights are.

    Those see two keys at least: on one alone all heads agree.
    """
    layout = view.layout

    def draw() -> tuple[Tensor, Tile]:
        rows = drawn(layout.num_queries, min(ROWS, layout.num_queries), seed, index)
        seeing = layout.rows[view.sees_at_least(2)]
        few = drawn(len(seeing), min(LOOKS, len(seeing)), seed, index).to(seeing.device)
        block = Tile(seeing[few], 0, layout.num_keys, layout.band)
        return rows.to(seeing.device), block

    return layout.once(("compared", seed), draw)


def default_measures(names: Sequence[str] | None = None) -> list[Measure]:
    """The measures of those names, or all."""
    chosen = {name: made for name, made in MEASURES.items() if names is None or name in names}
    for name, made in chosen.items():
        if not (isinstance(made, type) and issubclass(made, Measure)):
            raise OptionError(f"MEASURES[{name!r}] is {made!r}: give a subclass of Measure")
    return [made() for made in chosen.values()]
