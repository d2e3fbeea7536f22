"""The layer with most to see: the one whose heads have most strong links between words.

In: a model and a text. Out: a layer to trace when the user has named none.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.models.loaded import LoadedModel
from headwise.models.modalities import check_reads_text
from headwise.reading.labels import Labels, token_labels
from headwise.reading.reader import Reader
from headwise.watching.calls import Call
from headwise.watching.running import forward_batch, in_evaluation

STRONG = 0.3
"""Weight from which a link is strong, as in the explorer's faint arcs."""


@dataclass(frozen=True)
class Busiest:
    """A layer, its stack, its number of strong links, and how many layers were compared."""

    layer: int
    stack: str | None
    links: int
    layers: int


@torch.no_grad()
def busiest_layer(loaded: LoadedModel, text: str) -> Busiest:
    """The first layer with the largest number of strong links between words, in all of its heads.

    Links to special tokens, to a causal model's first token and to the word itself do not count:
    heads rest there.
    """
    from headwise.watching.failures import explain_failures  # these import transformers: seconds
    from headwise.watching.watch import watch

    check_reads_text(loaded)
    model = loaded.model
    if loaded.tokenizer is None:
        return Busiest(0, None, 0, 1)
    reader = Reader(loaded.tokenizer, model.config)
    batch = reader.whole_text(text, next(model.parameters()).device)
    counts: dict[tuple[str, int], int] = {}

    def measure(call: Call) -> None:
        weights = call.weights()[0].float()
        size = weights.shape[-2:]
        labels = token_labels(batch, call.stack, loaded.tokenizer, *size)
        counts[call.stack, call.layer] = count_links(weights, labels)

    with in_evaluation(model), watch(model, measure), explain_failures(model, batch.inputs):
        forward_batch(model, batch.inputs)
    (stack, layer), links = max(counts.items(), key=lambda item: item[1], default=(("", 0), 0))
    return Busiest(layer, stack or None, links, len(counts))


def count_links(weights: Tensor, labels: Labels) -> int:
    """Number of strong links between two words; `weights` are [heads, query, key]."""
    weights = weights.cpu()
    is_strong = weights >= STRONG
    special = torch.tensor(labels.is_special or (False,) * weights.shape[-1])
    is_strong[..., special] = False
    if labels.is_self:
        is_strong[:, special] = False
        is_strong[:, torch.eye(len(special), dtype=torch.bool)] = False
        if not weights.triu(1).any():  # causal
            is_strong[..., 0] = False
    return int(is_strong.sum())
