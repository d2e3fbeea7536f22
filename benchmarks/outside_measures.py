"""Measures of a model on public data: similarity of sentence pairs, perplexity of documents.

In: a model, and what outside_data.py reads. Out: one figure, or an evaluation for each register.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import pandas as pd
import torch
from outside_data import OutsideDocument, ScoredPair

from headwise.models.loaded import LoadedModel
from headwise.objectives.evaluation import LENGTH, Evaluation
from headwise.objectives.losses import Embedding
from headwise.objectives.registers import RegisterEvaluation
from headwise.objectives.scored_model import ScoredModel, pooling_in
from headwise.reading.reader import Reader, Window

BATCH_SENTENCES = 64


@torch.no_grad()
def spearman(loaded: LoadedModel, pairs: Sequence[ScoredPair]) -> float:
    """Rank correlation of people's scores with the cosine of the embeddings, -1 to 1."""
    objective = Embedding(pooling_in(loaded.folder))
    sentences = {sentence for pair in pairs for sentence in (pair.first, pair.second)}
    ordered = sorted(sentences, key=lambda sentence: (len(sentence), sentence))
    embeddings: dict[str, torch.Tensor] = {}
    for start in range(0, len(ordered), BATCH_SENTENCES):
        batch = ordered[start : start + BATCH_SENTENCES]
        inputs = loaded.tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
        outputs = objective.output(loaded.model, dict(inputs.to(loaded.device)))
        embeddings |= zip(batch, outputs, strict=True)
    cosines = [float(embeddings[pair.first] @ embeddings[pair.second]) for pair in pairs]
    scores = [pair.score for pair in pairs]
    return float(pd.Series(cosines).rank().corr(pd.Series(scores).rank()))


def evaluate_documents(
    scored: ScoredModel, documents: Sequence[OutsideDocument], max_tokens: int
) -> RegisterEvaluation:
    """The evaluation on windows of the documents, by register, with at most `max_tokens` tokens.

    The documents take turns, so that all have the same number of windows as far as they reach.
    """
    reader = Reader(scored.tokenizer, scored.model.config, length=LENGTH)
    windows: dict[str, list[Window]] = {}
    left = max_tokens
    for register, window in _take_turns(reader, documents, max_tokens):
        left -= len(window.ids)
        if left < 0:
            break
        windows.setdefault(register, []).append(window)
    return RegisterEvaluation(
        {name: Evaluation.of_windows(scored, part) for name, part in sorted(windows.items())}
    )


def _take_turns(
    reader: Reader, documents: Sequence[OutsideDocument], max_tokens: int
) -> Iterator[tuple[str, Window]]:
    """The first window of every document with its register, then the second of each, and so on.

    Files list documents by register, so a fixed shuffle decides which are first.
    """
    shuffled = random.Random(0).sample(documents, len(documents))
    by_document = [
        [(document.register, window) for window in reader.windows([document.text], max_tokens)]
        for document in shuffled
    ]
    return (pair for turn in zip_longest(*by_document) for pair in turn if pair is not None)
