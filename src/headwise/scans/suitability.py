"""Whether the built-in English sentences suit a model: not one of proteins or another language.

In: a model, its tokenizer and sentences as it reads them. Out: a reason not to measure relations
on these sentences; empty if they suit the model as far as we can tell.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.formats import format_share
from headwise.probes.sentences import ProbeSentence
from headwise.reading.reader import Reader, Window
from headwise.reading.words import Encoded
from headwise.scans.gold_sentences import GoldSentences
from headwise.watching.failures import explain_failures
from headwise.watching.running import forward, in_evaluation

MOST_UNKNOWN = 0.1
"""A tokenizer made for English knows nearly every word."""
MOST_SINGLE = 0.5
"""A tokenizer made for English splits few words into letters."""
LONG_WORD = 3
SENTENCES_TRIED = 32
ROUNDING = 1e-5
"""Larger relative changes of float32 numbers are not due to rounding."""
SCALES = ("logit_scale", "logits_scaling", "final_logit_softcapping", "scale_emb")
"""Config entries that change logits outside the output embedding."""


def why_unsuited(model: nn.Module, reader: Reader, gold: GoldSentences) -> str:
    """The reason why English sentences say nothing about this model; "" if there is none."""
    encoded = list(gold.encoded.values())
    if not encoded:
        return "none of the built-in sentences can be read by this model"
    tokens = [token for each in encoded for token in each.input_ids]
    unknown = sum(token == reader.tokenizer.unk_token_id for token in tokens) / len(tokens)
    if unknown > MOST_UNKNOWN:
        return f"{format_share(unknown)} of the built-in English text is unknown to the tokenizer"
    windows = gold.windows()
    loss = _next_token_loss(model, reader, windows[:: max(1, len(windows) // SENTENCES_TRIED)])
    limit = _frequency_loss(tokens)
    if loss is not None and loss >= limit:
        return (
            f"the model predicts the built-in English text no better (perplexity "
            f"{math.exp(min(loss, 20)):,.0f}) than word frequencies do ({math.exp(limit):,.0f})"
        )
    single = _share_of_single_characters([gold.sentences[index] for index in gold.encoded], encoded)
    if loss is None and single > MOST_SINGLE:
        return f"the tokenizer splits {format_share(single)} of English words into characters"
    return ""


def _share_of_single_characters(
    sentences: Sequence[ProbeSentence], encoded: Sequence[Encoded]
) -> float:
    """Share of the longer words that have as many tokens as letters."""
    is_split = [
        pieces >= len(word)
        for sentence, each in zip(sentences, encoded, strict=True)
        for word, pieces in zip(sentence.words, each.pieces, strict=True)
        if len(word) >= LONG_WORD and word.isalpha()
    ]
    return sum(is_split) / max(1, len(is_split))


def _frequency_loss(tokens: Sequence[int]) -> float:
    """Mean loss, in nats, of a model that knows only how often each token occurs here."""
    counts = Counter(tokens)
    return -sum(n * math.log(n / len(tokens)) for n in counts.values()) / len(tokens)


def _next_token_loss(model: nn.Module, reader: Reader, windows: list[Window]) -> float | None:
    """Mean loss per token, in nats; None if the model does not predict the next token."""
    config: Any = getattr(model, "config", None)
    weight = next(model.parameters(), None)
    if config is None or weight is None or getattr(config, "is_encoder_decoder", False):
        return None
    with torch.inference_mode(), in_evaluation(model):
        first = reader.batch(windows[:2], weight.device).inputs
        with explain_failures(model, first):
            is_causal = _is_causal(model, first)
        if not is_causal:
            return None
        inputs = reader.batch(windows, weight.device).inputs
        logits = _logits(model, config, forward(model, inputs))
        if logits is None:
            return None
        ids, is_real = inputs["input_ids"][:, 1:], inputs["attention_mask"][:, 1:].bool()
        losses = nn.functional.cross_entropy(logits[:, :-1].float().mT, ids, reduction="none")
        return float(losses[is_real].mean())


def _logits(model: Any, config: Any, output: Any) -> Tensor | None:
    """Logits over the vocabulary, if necessary from a tied embedding; None if there are none."""
    if isinstance(logits := getattr(output, "logits", None), Tensor):
        is_vocabulary = logits.dim() == 3 and logits.shape[-1] >= config.vocab_size
        return logits if is_vocabulary else None
    hidden = getattr(output, "last_hidden_state", None)
    is_tied = getattr(config, "tie_word_embeddings", False)
    if hidden is None or not is_tied or any(getattr(config, name, None) for name in SCALES):
        return None
    embedding = model.get_input_embeddings().weight
    return hidden @ embedding.mT if embedding.shape[-1] == hidden.shape[-1] else None


def _is_causal(model: nn.Module, inputs: Any) -> bool:
    """Whether the model's output at the first token stays the same if all later tokens change."""
    ids = inputs["input_ids"]
    other = torch.cat([ids[:, :1], ids[:, 1:].roll(1, 0)], dim=1)  # those of the other sentence
    first, again = (
        _states(forward(model, {**inputs, "input_ids": tokens})) for tokens in (ids, other)
    )
    if first is None or again is None:
        return False
    change = (first[:, 0] - again[:, 0]).abs().max()
    return bool(change <= ROUNDING * first[:, 0].abs().max())


def _states(output: Any) -> Tensor | None:
    for name in ("logits", "last_hidden_state"):
        states = getattr(output, name, None)
        if isinstance(states, Tensor) and states.dim() == 3:
            return states
    return None
