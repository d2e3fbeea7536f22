"""Counter: measures the attention calls of a batch and sums the results per head.

In: a batch, its attention calls (one per layer) and measures. Out: `HeadSums`. Runs no model.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError, warn_user
from headwise.formats import join_words
from headwise.measures.alignment import Alignment
from headwise.measures.confidence import Confidence
from headwise.measures.distance import Distance
from headwise.measures.entropy import Entropy
from headwise.measures.head_sums import HeadSums, LayerKey, add_matrix
from headwise.measures.masses import Masses
from headwise.measures.measure import Measure, measure_rows
from headwise.measures.offsets import Offsets
from headwise.measures.outputs import Outputs
from headwise.measures.repeats import Repeats
from headwise.measures.sequence_view import LEAST_LOG, RowLayout, Scratch, SequenceView
from headwise.measures.silence import Silence
from headwise.measures.similarity import LOOKS, ROWS, centred_kernels, divergences, pairwise_hsic
from headwise.measures.uniform import Uniform
from headwise.reading.batch import SOUND_STACKS, Batch, TokenFacts
from headwise.watching.calls import Call, at_least_float32
from headwise.watching.sequence_weights import SequenceWeights, Tile

MEASURES: Mapping[str, type[Measure]] = MappingProxyType(
    {
        kind.__name__.lower(): kind
        for kind in (
            *(Offsets, Masses, Distance, Repeats, Confidence, Outputs, Uniform, Entropy),
            *(Alignment, Silence),
        )
    }
)
"""headwise's own measures; `ScanSettings(measures=...)` also accepts your own classes."""
COMPARED = 4
"""Number of sequences in each batch to compare heads on."""
ROWS_LIMIT, ROWS_SAMPLED = 2048, 512
"""By default, ROWS_SAMPLED random rows of windows longer than ROWS_LIMIT tokens are measured."""


def make_measures(choices: Sequence[str | type[Measure]] = tuple(MEASURES)) -> list[Measure]:
    """The measures chosen by name, in the order of `MEASURES`, then your own classes.

    Raises OptionError if a choice is neither, or if two measures have a column in common.
    """
    for choice in choices:
        if isinstance(choice, str):
            if choice not in MEASURES:
                raise OptionError(
                    f"unknown measure {choice!r}: the measures are {', '.join(MEASURES)}"
                )
        elif not (isinstance(choice, type) and issubclass(choice, Measure)):
            raise OptionError(
                f"measures has {choice!r}: pass names such as entropy, or subclasses of Measure"
            )
    chosen = [MEASURES[name] for name in MEASURES if name in choices]
    kinds = dict.fromkeys([*chosen, *(kind for kind in choices if not isinstance(kind, str))])
    owners: dict[str, str] = {}
    for kind in kinds:
        for column in kind.columns:
            if owners.setdefault(column, kind.__name__) != kind.__name__:
                raise OptionError(
                    f"{kind.__name__} and {owners[column]} both have a column {column!r}: rename "
                    "one of them"
                )
    return [kind() for kind in kinds]


@dataclass(frozen=True)
class RowChoice:
    """Which rows of a document to measure: `all`, a number of random rows, or `auto`."""

    rows: int | str = "auto"
    seed: int = 0

    def of(self, num_queries: int, index: int) -> Tensor:
        """Positions of the rows to measure; the document's `index` seeds the random choice."""
        rows = self.rows
        if rows == "auto":
            rows = "all" if num_queries <= ROWS_LIMIT else ROWS_SAMPLED
        if rows == "all" or int(rows) >= num_queries:
            return torch.arange(num_queries)
        return _draw(num_queries, int(rows), self.seed, index)


def _draw(total: int, count: int, seed: int, index: int) -> Tensor:
    """`count` of `total` positions, drawn at random by `seed` and `index`, in order."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
    return torch.randperm(total, generator=generator)[:count].sort().values


@dataclass(eq=False)
class LayerCache:
    """Row layouts, output roots and memory for tiles, shared by layers and batches."""

    layouts: WeakKeyDictionary[Batch, dict[Hashable, RowLayout]] = field(
        default_factory=WeakKeyDictionary
    )
    """Row layouts of each batch, deleted along with it."""
    scratch: Scratch = field(default_factory=Scratch)
    _roots: dict[LayerKey, Tensor | None] = field(default_factory=dict)
    _indirect: list[str] = field(default_factory=list)

    def output_roots(self, call: Call) -> Float[Tensor, "heads d_value width"] | None:
        """A small matrix per head that gives vectors the same length as the output projection.

        `|v Wo| = |v R^T|`, where `R` is the triangular factor in `Wo^T = Q R`. None if the
        projection is unknown or its input is not the heads' output.
        """
        key = (call.stack, call.layer)
        if key not in self._roots:
            if not call.is_direct:
                self._indirect.append(type(call.site.module).__name__)
            roots = call.output_weight
            if roots is not None:
                parts = roots.to(at_least_float32(call.mixed)).unflatten(0, (call.num_heads, -1))
                roots = torch.linalg.qr(parts.mT, mode="r").R.mT.contiguous()
            self._roots[key] = roots
        return self._roots[key]

    def warn_of_indirect_outputs(self) -> None:
        """Warn once about modules that change the heads' output before the output projection."""
        if self._indirect:
            names = join_words(list(dict.fromkeys(self._indirect)))
            self._indirect.clear()
            warn_user(
                f"head outputs in {names} are changed before the output projection: measures of "
                "outputs and values are left out there"
            )


def sequence_views(
    call: Call, batch: Batch, choice: RowChoice, cache: LayerCache
) -> Iterator[tuple[int, int, SequenceView]]:
    """Position in the batch, index and view of each of a call's sequences, unless all padding.

    A call may have more or fewer sequences than the batch, such as one per image or per window of
    an image. Nothing is known about their tokens then, and each is numbered in its call.
    """
    device, layouts = call.mixed.device, cache.layouts.setdefault(batch, {})
    query_tokens, key_tokens = tokens_of(call, batch)
    count = len(call.mixed)
    indices = batch.indices if count == len(batch.indices) else range(count)
    for position, index in enumerate(indices):
        queries, keys = (
            slice(None) if tokens is None else tokens.spans[position]
            for tokens in (query_tokens, key_tokens)
        )
        if slice(0, 0) in (queries, keys):
            continue
        sequence = call.sequence(position, queries, keys)
        shape = (sequence.num_heads, sequence.num_queries, sequence.num_keys)
        name = (call.stack, position, choice, shape, sequence.band, sequence.has_mask, device)
        layout = layouts.get(name)
        if layout is None or layout.has_mask:  # masks may differ between layers
            layout = layouts[name] = RowLayout.of(
                sequence,
                choice.of(sequence.num_queries, index).to(device),
                None if key_tokens is None else key_tokens.keys(position, device),
                is_cross=not _has_positions(call, sequence),
                is_silent=_silent_keys(call, batch, position, keys),
            )
        view = SequenceView(
            sequence=sequence,
            layout=layout,
            output_roots=cache.output_roots(call),
            scratch=cache.scratch,
        )
        yield position, index, view


def tokens_of(call: Call, batch: Batch) -> tuple[TokenFacts | None, TokenFacts | None]:
    """Facts about a call's queries and its keys; None if they are not tokens of the batch."""
    queries = batch.query_tokens(call.stack, call.num_queries)
    keys = batch.key_tokens(call.stack, call.num_keys)
    count = len(call.mixed)
    queries, keys = (
        facts if facts is not None and len(facts.is_real) == count else None
        for facts in (queries, keys)
    )
    return queries, keys


def _silent_keys(call: Call, batch: Batch, position: int, keys: slice) -> Tensor | None:
    """True for each of a sequence's keys that is silence; None if they are not parts of a sound."""
    silence = batch.silence(call.num_keys) if call.stack in SOUND_STACKS else None
    if silence is None or len(silence) != len(call.mixed):
        return None
    return silence[position, keys].to(call.mixed.device)


def _has_positions(call: Call, sequence: SequenceWeights) -> bool:
    """Whether queries and keys are positions of one sequence, so that distances are defined.

    Fewer keys than queries each combine several positions. More keys are earlier positions only if
    the rule for each query depends on its own position, as in causal attention.
    """
    if call.stack == "cross" or call.num_keys < call.num_queries:
        return False
    return call.num_keys == call.num_queries or not sequence.band.is_full


@dataclass(eq=False)
class HeadCounter:
    """Measures one attention call at a time and adds the results to `sums`."""

    sums: HeadSums
    measures: Sequence[Measure]
    choice: RowChoice
    _: KW_ONLY
    compares: bool
    """Whether to compare heads with each other."""
    cache: LayerCache = field(default_factory=LayerCache)
    _kernels: dict[tuple[str, int], list[Tensor]] = field(default_factory=dict, init=False)
    """Kernels of every layer so far, by stack and position in the batch."""
    _sizes: dict[str, set[tuple[int, int]]] = field(default_factory=dict, init=False)
    """Numbers of sequences and of queries in the layers so far, by stack."""

    def add(self, call: Call, batch: Batch) -> None:
        """Measure one layer's attention and add the results to `sums`."""
        key = (call.stack, call.layer)
        self.sums.num_heads[key] = call.num_heads
        self._sizes.setdefault(call.stack, set()).add((len(call.mixed), call.num_queries))
        for position, index, view in sequence_views(call, batch, self.choice, self.cache):
            columns = measure_rows(view, self.measures)
            self.sums.add_columns(key, columns, view.layout.row_weight)
            if self.compares and position < COMPARED and view.layout.num_queries >= 4:
                self._compare(key, view, position, index)

    def _compare(self, key: LayerKey, view: SequenceView, position: int, index: int) -> None:
        """Add the divergences between a layer's heads, and keep their kernels for `finish`."""
        rows, tile = compared_rows(view, self.choice.seed + 1, index)
        kernels = centred_kernels(view.sequence.mixed[:, rows])
        self._kernels.setdefault((key[0], position), []).append(kernels)
        if len(tile.rows):
            weights = view.sequence.log_weights(tile).clamp_(min=LEAST_LOG).exp_()
            summed = divergences(weights).sum(-1)
            count = torch.full_like(summed[:1], len(tile.rows))
            add_matrix(self.sums.divergence, key, torch.cat([summed, count]))

    def finish(self) -> None:
        """Add the similarities of heads across layers; call it after the batch's last layer.

        Heads of a stack are compared only if all its layers ran once, on the same sequences.
        """
        for (stack, _), kernels in self._kernels.items():
            numbers = self.sums.num_heads.items()
            num_heads = sum(count for (name, _), count in numbers if name == stack)
            if num_heads == sum(map(len, kernels)) and len(self._sizes[stack]) == 1:
                together = torch.cat([layer.to(kernels[0].device) for layer in kernels])
                add_matrix(self.sums.hsic, stack, pairwise_hsic(together))
        self._kernels, self._sizes = {}, {}


def compared_rows(view: SequenceView, seed: int, index: int) -> tuple[Tensor, Tile]:
    """Random rows for comparing heads' outputs, and a tile of fewer rows for comparing weights.

    The tile's rows see at least two keys, because all heads agree if there is only one.
    """
    layout = view.layout

    def draw() -> tuple[Tensor, Tile]:
        rows = _draw(layout.num_queries, min(ROWS, layout.num_queries), seed, index)
        seeing = layout.rows[view.sees_at_least(2)]
        few = _draw(len(seeing), min(LOOKS, len(seeing)), seed, index).to(seeing.device)
        return rows.to(seeing.device), Tile(seeing[few], 0, layout.num_keys, layout.band)

    return layout.once(("compared", seed), draw)
