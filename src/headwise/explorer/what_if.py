"""What if: a model's output with heads silenced or scaled, next to its usual output.

In: a ScoredModel, one or more texts, and a factor for each changed head. Out: a WhatIfAnswer with
token probabilities, class probabilities or sentence similarities.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError, OptionError
from headwise.explorer.api_types import Prediction, Savings, Similarity, WhatIfAnswer
from headwise.heads import HeadId, check_head
from headwise.objectives.losses import Embedding, MaskedToken, NextToken
from headwise.objectives.scored_model import ScoredModel
from headwise.pruning.surgery.cut import count_parameters, plan_slices
from headwise.reading.labels import token_text
from headwise.reading.reader import Reader, Window
from headwise.watching.gates import gate
from headwise.watching.running import in_evaluation

LONGEST = 512
"""Largest number of tokens read per text, so that a click takes effect at once."""
TOP = 8
"""Number of likeliest predictions shown from each of the two outputs."""
MAX_BASELINES = 8
"""Largest number of unchanged outputs to keep."""


@torch.inference_mode()
def compare_gated(
    scored: ScoredModel,
    texts: Sequence[str],
    factors: Mapping[HeadId, float],
    num_heads: Mapping[str, int],
    baselines: dict[tuple[str, ...], Tensor] | None = None,
) -> WhatIfAnswer:
    """Output with each head's output multiplied by its factor, next to the unchanged output.

    `num_heads` has an entry per layer name. `baselines` keeps unchanged outputs between calls. Only
    embedding models compare several texts; others read the first.
    """
    gates: dict[str, Tensor] = {}
    for head, factor in factors.items():
        name = check_head(head, num_heads).layer_name
        gates.setdefault(name, torch.ones(num_heads[name]))[head.head] = factor
    is_embedding = isinstance(scored.objective, Embedding)
    key = tuple(texts) if is_embedding else (texts[0],)
    baselines = {} if baselines is None else baselines
    with in_evaluation(scored.model):
        inputs, remarks = _read_texts(scored, key)
        position, title = (None, "") if is_embedding else _position_to_predict(scored, inputs)
        if key not in baselines:
            baselines[key] = _output(scored, inputs, position)
            if len(baselines) > MAX_BASELINES:
                del baselines[next(iter(baselines))]  # the oldest
        before = baselines[key]
        with gate(scored.model, gates):
            after = _output(scored, inputs, position)
    silenced = tuple(sorted(head for head, factor in factors.items() if factor == 0))
    return WhatIfAnswer(
        remarks=remarks,
        similarity=_similarity(before, after) if is_embedding else None,
        prediction=None if is_embedding else _prediction(scored, title, before, after),
        heads_off=len(silenced),
        savings=_savings(scored, silenced),
    )


def _savings(scored: ScoredModel, silenced: tuple[HeadId, ...]) -> Savings:
    total, saved = count_parameters(scored.model), 0
    try:
        changes = plan_slices(scored.model, silenced)
    except HeadwiseError as error:
        return Savings(total, 0, str(error))
    for change in changes:
        for part in change.slices:
            tensor = change.layer.base.get_parameter(part.path)
            saved += round(tensor.numel() * (1 - len(part.kept) / tensor.shape[part.axis]))
    return Savings(total, saved, None)


def _read_texts(scored: ScoredModel, texts: Sequence[str]) -> tuple[dict[str, Tensor], list[str]]:
    """The texts as one batch, and a remark on each text that is too long.

    Next-token models read the end of a long text, other models its beginning.
    """
    reader = Reader(scored.tokenizer, scored.model.config, length=LONGEST)
    before, after = reader.around
    room = reader.length - reader.num_around
    is_end = isinstance(scored.objective, NextToken)
    windows, remarks = [], []
    for number, text in enumerate(texts):
        ids = reader.ids(text)
        if not ids:
            raise OptionError(f"text {number + 1}, {text[:20]!r}, has no tokens: write a few words")
        if len(ids) > room:
            side = "last" if is_end else "first"
            remarks.append(
                f"Only the {side} {room:,} of {len(ids):,} tokens in text {number + 1} are read."
            )
        windows.append(Window(number, (*before, *(ids[-room:] if is_end else ids[:room]), *after)))
    return dict(reader.batch(windows, scored.device).inputs), remarks


def _output(scored: ScoredModel, inputs: Mapping[str, Tensor], position: int | None) -> Tensor:
    """Embeddings or, if `position` is given, the log-probability of every token or class."""
    output = scored.objective.output(scored.model, inputs)
    if position is None:
        return output
    return (output[0, position] if output.dim() == 3 else output[0]).float().log_softmax(-1)


def _similarity(before: Tensor, after: Tensor) -> Similarity:
    cosines = (before @ before.T, after @ after.T, (before * after).sum(-1))
    return Similarity(*(cosine.double().round(decimals=4).tolist() for cosine in cosines))


def _prediction(scored: ScoredModel, title: str, before: Tensor, after: Tensor) -> Prediction:
    num_shown = min(TOP, len(before))
    tops = [output.topk(num_shown).indices.tolist() for output in (before, after)]
    likeliest = list(dict.fromkeys(tops[0] + tops[1]))
    config: Any = scored.model.config
    is_token = len(before) == config.get_text_config().vocab_size
    labels = getattr(config, "id2label", None) or {}
    return Prediction(
        noun="token" if is_token else "class",
        title=title if is_token else "Likeliest classes",
        names=[
            token_name(scored, number) if is_token else str(labels.get(number, number))
            for number in likeliest
        ],
        before=before[likeliest].exp().double().round(decimals=5).tolist(),
        after=after[likeliest].exp().double().round(decimals=5).tolist(),
        divergence=round(float((before.exp() * (before - after)).sum()), 5),
    )


def _position_to_predict(scored: ScoredModel, inputs: dict[str, Tensor]) -> tuple[int, str]:
    """The position whose prediction is shown, and a title for it.

    For a masked model, that is the first mask token; if there is none, the last word is masked in
    `inputs`.
    """
    ids, objective = inputs["input_ids"][0], scored.objective
    if isinstance(objective, NextToken):
        return len(ids) - 1, "Likeliest next tokens"
    if not isinstance(objective, MaskedToken):
        return len(ids) - 1, "Likeliest tokens at the end of the text"
    if objective.mask_id is None:
        raise OptionError(
            f"{scored.name} predicts masked tokens, but its tokenizer has no mask token: pass a "
            "tokenizer that has one"
        )
    masked = (ids == objective.mask_id).nonzero().flatten().tolist()
    if masked:
        return masked[0], "Likeliest tokens at the first masked token"
    special_ids = scored.tokenizer.all_special_ids
    words = [position for position, id_ in enumerate(ids.tolist()) if id_ not in special_ids]
    if not words:
        raise OptionError(
            f"all {len(ids)} tokens of the text are special, so there is no word to mask: write a "
            "few words"
        )
    last_word = token_name(scored, int(ids[words[-1]]))
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][0, words[-1]] = objective.mask_id
    return words[-1], f"Likeliest tokens at the last word, {last_word!r}, masked"


def token_name(scored: ScoredModel, number: int) -> str:
    """A token's label, or its id if it is not in the tokenizer's vocabulary."""
    piece = scored.tokenizer.convert_ids_to_tokens(number)
    return str(number) if piece is None else token_text(piece, scored.tokenizer.decode([number]))
