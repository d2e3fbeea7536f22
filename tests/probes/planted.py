"""Heads made by hand: their weights between the words of a sentence, known to the last digit.

In: a sentence. Out: weights `[heads, word, word]`. Scoring is tested elsewhere.
"""

import torch
from torch import Tensor

from headwise.probes.accuracy import OFFSETS
from headwise.probes.scoring import RelationScores
from headwise.probes.sentences import ProbeSentence

GOLD, TWIN, BACKWARD, NOISE = range(4)  # then one head per offset, then one on the first word
NAMES = ("gold", "twin", "backward", "noise", *(f"offset {o:+d}" for o in OFFSETS), "first word")


def gold_head(sentence: ProbeSentence, rng: torch.Generator) -> Tensor:
    """Half of each dependent's attention is on its head, the rest anywhere."""
    words = len(sentence.words)
    weights = torch.rand(words, words, generator=rng).softmax(-1) / 2
    for arc in sentence.arcs:
        weights[arc.dependent, arc.governor] += 0.5
    return weights


def shuffled(weights: Tensor, rng: torch.Generator) -> Tensor:
    """The same rows in another order, none in its place: as sharp, and about other words."""
    order = torch.randperm(len(weights), generator=rng)
    shuffled_rows = torch.empty_like(weights)
    shuffled_rows[order] = weights[order.roll(1)]
    return shuffled_rows


def planted_weights(sentence: ProbeSentence, seed: int = 0) -> Tensor:
    """Weights of the heads NAMES."""
    rng = torch.Generator().manual_seed(seed)
    words = len(sentence.words)
    gold = gold_head(sentence, rng)
    noise = torch.rand(words, words, generator=rng).softmax(-1)
    offsets = [torch.diag(torch.ones(words - abs(o)), o) for o in OFFSETS]
    first = torch.zeros(words, words)
    first[:, 0] = 1
    heads = torch.stack([gold, shuffled(gold, rng), gold.mT, noise, *offsets, first])
    heads.diagonal(dim1=1, dim2=2).zero_()
    return heads


def score(sentences: tuple[ProbeSentence, ...], *, is_causal: bool = False) -> RelationScores:
    """Every planted head on every sentence; in a causal model no row sees what comes later."""
    scores = RelationScores(len(NAMES), is_causal=is_causal)
    for index, sentence in enumerate(sentences):
        weights = planted_weights(sentence, index)
        scores.add(index, sentence, weights.tril() if is_causal else weights)
    return scores
