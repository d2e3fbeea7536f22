"""Which heads carry the difference between two texts: gradients propose, patching measures.

In: the analyses of two texts with equally many tokens. Out: for the heads with the largest
estimates, the share of the difference between the model's outputs that each carries alone; or the
reason why it is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId
from headwise.models.load_errors import one_sentence
from headwise.objectives.losses import Embedding, MaskedToken, TokenLoss, read_logits
from headwise.objectives.objective import upcast_to_float32
from headwise.objectives.scored_model import ScoredModel
from headwise.patching.alignment import PairBatch
from headwise.patching.attribution import attribute_heads
from headwise.patching.exact import patch_each_head
from headwise.patching.metrics import CleanCosine, CleanDivergence, Metric
from headwise.patching.patch import SMALLEST_DIFFERENCE
from headwise.patching.runs import PairRuns, run_pairs
from headwise.reading.batch import Inputs
from headwise.watching.output_check import skip_check
from headwise.watching.running import in_evaluation

MAX_TOKENS = 512
"""Largest number of tokens per text: the backward pass keeps what every layer computed."""
CANDIDATES = 10
"""Number of heads that are measured: those with the largest estimates."""
DIGITS = 4
"""Decimal places of a share."""
DIRECTION = "denoise"
"""Heads of the second text's run output what they do in the first text's run."""
OTHER_LENGTH = (
    "The two sentences have different numbers of tokens, so what each head carries cannot be "
    "compared."
)
TOO_LONG = f"What each head carries is estimated only for texts of up to {MAX_TOKENS} tokens."
NO_MASK = (
    "This model predicts masked words: put one mask at the same place in both sentences to see "
    "which heads carry the difference."
)
NO_DIFFERENCE = (
    "The model's output is nearly the same for both sentences, so no head carries a difference."
)
NO_ESTIMATE = "What each head carries cannot be estimated in this model"


@dataclass(frozen=True)
class Carriers:
    """Share of the difference per head name, or the reason why there are none."""

    shares: dict[str, float] | None
    why_none: str | None = None


class LogitDivergence(CleanDivergence):
    """The divergence for models that predict classes, or tokens at the end of a text."""

    name: ClassVar[str] = "kl of the last logits"

    def output(self, model: nn.Module, inputs: Inputs, batch: PairBatch) -> Tensor:
        """The logits of each text's class, or those at its last position."""
        logits = upcast_to_float32(read_logits(model, inputs))
        return logits[:, -1] if logits.dim() == 3 else logits


def pair_carriers(scored: ScoredModel, first: TextAnalysis, second: TextAnalysis) -> Carriers:
    """Shares of the difference that heads carry; a few forward passes and a backward one."""
    texts = (first, second)
    if first.batch.num_tokens != second.batch.num_tokens:
        return Carriers(None, OTHER_LENGTH)
    if first.batch.num_tokens > MAX_TOKENS:
        return Carriers(None, TOO_LONG)
    position = _position(scored, texts)
    if position is None:
        return Carriers(None, NO_MASK)
    try:
        # Both texts have already been read, and checked if they had to be.
        with skip_check(), in_evaluation(scored.model):
            batch = _batch(texts, position)
            runs = run_pairs(scored.model, batch, _metric(scored))
            return _shares(runs)
    except (HeadwiseError, RuntimeError) as error:  # such as a kernel without gradients
        return Carriers(None, f"{NO_ESTIMATE}: {one_sentence(error)}.")


def _shares(runs: PairRuns) -> Carriers:
    difference = float((runs.clean - runs.corrupted).mean())
    if not abs(difference) > SMALLEST_DIFFERENCE:
        return Carriers(None, NO_DIFFERENCE)
    heads = [
        HeadId(call.layer, head, call.stack)
        for call in runs.calls[DIRECTION]
        for head in range(call.num_heads)
    ]
    outputs = runs.replacements(DIRECTION)
    estimates = attribute_heads(runs, DIRECTION, outputs, heads)[:, 0]
    if not estimates.isfinite().all():
        return Carriers(None, f"{NO_ESTIMATE}: its gradients are not finite.")
    rows = estimates.abs().topk(min(CANDIDATES, len(heads))).indices.tolist()
    largest = [heads[row] for row in sorted(rows)]
    shares = patch_each_head(runs, DIRECTION, outputs, largest)[:, 0] / difference
    rounded = (round(share, DIGITS) for share in shares.tolist())
    return Carriers(dict(zip(map(str, largest), rounded, strict=True)))


def _metric(scored: ScoredModel) -> Metric:
    objective = scored.objective
    if isinstance(objective, Embedding):
        return CleanCosine(objective.pooling)
    return CleanDivergence() if isinstance(objective, TokenLoss) else LogitDivergence()


def _position(scored: ScoredModel, texts: Sequence[TextAnalysis]) -> int | None:
    """Where the model predicts a word; None if a masked model has no mask there in both texts."""
    first, second = (text.batch.inputs["input_ids"][0] for text in texts)
    if not isinstance(scored.objective, MaskedToken):
        return len(first) - 1
    mask_id = scored.objective.mask_id
    one, other = (
        [place for place, token in enumerate(ids.tolist()) if token == mask_id]
        for ids in (first, second)
    )
    return one[0] if len(one) == 1 and one == other else None


def _batch(texts: Sequence[TextAnalysis], position: int) -> PairBatch:
    first, second = texts
    return PairBatch(
        indices=(0,),
        clean=first.batch.inputs,
        corrupted=second.batch.inputs,
        position=torch.tensor([position]),
        answer=None,
        instead=None,
        tokens=(tuple(piece.text for piece in first.stage.pieces),),
    )
