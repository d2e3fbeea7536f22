"""Generation: a causal model continues a text, with all heads on and with some changed.

In: a text and a factor for each changed head. Out: a GenerateAnswer with both continuations. Every
token is the likeliest one; no temperature, no sampling.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, StoppingCriteriaList

from headwise.errors import OptionError
from headwise.explorer.api_types import GenerateAnswer, GeneratedText
from headwise.explorer.what_if import Factors, Prompt, change_gates
from headwise.objectives.losses import NextToken
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.reading.reader import token_limit
from headwise.watching.gates import gate
from headwise.watching.running import in_evaluation

STAGE = "Generating"
ENDS = (".", "!", "?", "…", "\u3002", "\uff01", "\uff1f")
"""Characters that end a sentence, the last three in Chinese and Japanese."""
WhyEnded = Literal["sentence", "text", "limit"]


@torch.inference_mode()
def generate(
    scored: ScoredModel,
    text: str,
    factors: Factors,
    num_heads: Mapping[str, int],
    *,
    max_tokens: int = 32,
    progress: Progress = no_progress,
) -> GenerateAnswer:
    """Continue `text` to the end of a sentence, at most `max_tokens` tokens, with and without.

    Both continuations are computed together, the first with all heads on.
    """
    if why := why_not_generated(scored):
        raise OptionError(f"{scored.name} cannot continue a text: {why}")
    model: Any = scored.model
    prompt = Prompt.read(scored, [text])
    ids = prompt.inputs["input_ids"]
    limit = token_limit(scored.tokenizer, model.config)
    if limit is not None:
        ids = ids[:, -max(limit - max_tokens, 1) :]
    length, ends = ids.shape[1], _end_ids(model, scored.tokenizer)

    def stops(rows: Tensor, _: Any, **__: Any) -> Tensor:
        done = rows.shape[1] - length
        progress(STAGE, done, max_tokens)
        ended = [_length(scored, row, ends)[1] != "limit" for row in rows[:, length:].tolist()]
        return torch.tensor(ended, device=rows.device)

    settings = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=None, pad_token_id=int(ids[0, 0])
    )
    rows = ids.repeat(2, 1)
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        with in_evaluation(model), gate(model, change_gates([{}, factors], 1, num_heads)):
            generated = model.generate(
                rows,
                attention_mask=torch.ones_like(rows),
                generation_config=settings,
                stopping_criteria=StoppingCriteriaList([stops]),
            )[:, length:].tolist()
    finally:
        model.generation_config = own
    texts = [_generated_text(scored, text, ids[0].tolist(), row, ends) for row in generated]
    return GenerateAnswer(prompt.remarks, *texts)


def why_not_generated(scored: ScoredModel) -> str:
    """The reason why a model cannot continue a text; "" if it can."""
    can_generate = getattr(scored.model, "can_generate", None)
    if not isinstance(scored.objective, NextToken) or can_generate is None or not can_generate():
        return f"{type(scored.model).__name__} is not a causal language model"
    return ""


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text."""
    named = model.generation_config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    return frozenset(token for token in (*listed, tokenizer.eos_token_id) if isinstance(token, int))


def _length(scored: ScoredModel, row: list[int], ends: frozenset[int]) -> tuple[int, WhyEnded]:
    """Number of tokens up to the end of the first sentence or line, and what ends it."""
    has_word = False
    for place, token in enumerate(row):
        if token in ends:
            return place, "text"
        piece = scored.tokenizer.decode([token])
        if has_word and "\n" in piece:
            return place, "sentence"
        has_word |= any(character.isalnum() for character in piece)
        if has_word and piece.rstrip().endswith(ENDS):
            return place + 1, "sentence"
    return len(row), "limit"


def _generated_text(
    scored: ScoredModel, text: str, prompt: list[int], row: list[int], ends: frozenset[int]
) -> GeneratedText:
    count, why = _length(scored, row, ends)
    options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    before = scored.tokenizer.decode(prompt, **options)
    whole = scored.tokenizer.decode([*prompt, *row[:count]], **options)
    added = whole.removeprefix(before).rstrip() if whole.startswith(before) else ""
    return GeneratedText(text.rstrip() + added if added else text, added, count, why)
