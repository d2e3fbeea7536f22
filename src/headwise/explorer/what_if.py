"""What if: a model's output with heads silenced or scaled, next to its output without.

In: a subject, one text or several, and a factor for each changed head. Out: a WhatIfAnswer with
next-token probabilities, similarities of sentences, or probabilities of classes.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError, OptionError
from headwise.explorer.api_types import Prediction, Savings, Similarity, WhatIfAnswer
from headwise.heads import HeadCounts, HeadId, check_head
from headwise.objectives.losses import Embedding, MaskedToken, NextToken
from headwise.objectives.model_objective import Subject
from headwise.reading.labels import token_text
from headwise.reading.reader import Reader, Window
from headwise.watching.gates import gate
from headwise.watching.running import in_evaluation

LONGEST = 512
"""Largest number of tokens of a text that are read: the effect of a click must show at once."""
TOP = 8
"""Number of predictions shown of each model."""


class BaselineCache:
    """Outputs of the unchanged model on the last few texts."""

    def __init__(self, most: int = 8) -> None:
        """Keep the outputs of at most `most` requests."""
        self.most = most
        self._outputs: OrderedDict[tuple[str, ...], Tensor] = OrderedDict()

    def output(self, texts: Sequence[str], compute: Callable[[], Tensor]) -> Tensor:
        """The output on `texts`, from the cache or computed."""
        key = tuple(texts)
        if key not in self._outputs:
            self._outputs[key] = compute()
            if len(self._outputs) > self.most:
                self._outputs.popitem(last=False)
        return self._outputs[key]


@torch.inference_mode()
def compare_gated(
    subject: Subject,
    texts: Sequence[str],
    factors: Mapping[HeadId, float],
    counts: HeadCounts,
    baselines: BaselineCache | None = None,
) -> WhatIfAnswer:
    """Output with each head's output multiplied by its factor, next to the unchanged output."""
    baselines = baselines or BaselineCache()
    gates = _gates(factors, counts)
    similarity, prediction = None, None
    with in_evaluation(subject.model):
        if isinstance(subject.objective, Embedding):
            similarity, remarks = _similarity(subject, texts, gates, baselines)
        else:
            prediction, remarks = _prediction(subject, texts[0], gates, baselines)
    silenced = tuple(sorted(head for head, factor in factors.items() if factor == 0))
    savings = _savings(subject, silenced)
    return WhatIfAnswer(remarks, similarity, prediction, len(silenced), savings)


def _gates(factors: Mapping[HeadId, float], counts: HeadCounts) -> dict[str, Tensor]:
    """Gates of every layer with a changed head."""
    num_heads = {name: heads for name, (heads, _) in counts.items()}
    gates: dict[str, Tensor] = {}
    for head, factor in factors.items():
        name = check_head(head, num_heads).layer_name
        gates.setdefault(name, torch.ones(num_heads[name]))[head.head] = factor
    return gates


def _savings(subject: Subject, silenced: tuple[HeadId, ...]) -> Savings:
    """Parameters that cutting the silenced heads saves, or why they cannot be cut."""
    from headwise.pruning.surgery.cut import count_parameters, plan_slices

    total, saved = count_parameters(subject.model), 0
    try:
        changes = plan_slices(subject.model, silenced)
    except HeadwiseError as error:
        return Savings(total, 0, str(error))
    for change in changes:
        for part in change.slices:
            tensor = change.layer.base.get_parameter(part.path)
            saved += round(tensor.numel() * (1 - len(part.kept) / tensor.shape[part.axis]))
    return Savings(total, saved, None)


def _read_texts(subject: Subject, texts: Sequence[str]) -> tuple[dict[str, Tensor], list[str]]:
    """The texts as one batch, and a remark for each text that is too long.

    A model that predicts the next token reads the end of a long text, the others its beginning.
    """
    reader = Reader(subject.tokenizer, subject.model.config, length=LONGEST)
    before, after = reader.around
    room = reader.length - len(before) - len(after)
    is_end = isinstance(subject.objective, NextToken)
    windows, remarks = [], []
    for number, text in enumerate(texts):
        ids = reader.ids(text)
        if not ids:
            raise OptionError(f"text {number + 1}, {text[:20]!r}, has no tokens: write a few words")
        if len(ids) > room:
            side = "last" if is_end else "first"
            remarks.append(
                f"Of text {number + 1} the {side} {room:,} of {len(ids):,} tokens are read here."
            )
        windows.append(Window(number, (*before, *(ids[-room:] if is_end else ids[:room]), *after)))
    return dict(reader.batch(windows, subject.device).inputs), remarks


def _similarity(
    subject: Subject, texts: Sequence[str], gates: Mapping[str, Tensor], baselines: BaselineCache
) -> tuple[Similarity, list[str]]:
    inputs, remarks = _read_texts(subject, texts)
    before = baselines.output(texts, lambda: subject.objective.output(subject.model, inputs))
    with gate(subject.model, gates):
        after = subject.objective.output(subject.model, inputs)
    kept = [round(cosine, 4) for cosine in (before * after).sum(-1).tolist()]
    return Similarity(_round(before @ before.T), _round(after @ after.T), kept), remarks


def _round(matrix: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in matrix.tolist()]


def _prediction(
    subject: Subject, text: str, gates: Mapping[str, Tensor], baselines: BaselineCache
) -> tuple[Prediction, list[str]]:
    """The likeliest tokens, or classes, at the position that the model predicts."""
    inputs, remarks = _read_texts(subject, [text])
    position, title = _position_to_predict(subject, inputs)
    before = baselines.output([text], lambda: _log_probabilities(subject, inputs, position))
    with gate(subject.model, gates):
        after = _log_probabilities(subject, inputs, position)
    likeliest = list(dict.fromkeys([*_top(before), *_top(after)]))
    config: Any = subject.model.config
    is_token = len(before) == config.get_text_config().vocab_size
    name = token_name if is_token else _class_name
    prediction = Prediction(
        noun="token" if is_token else "class",
        title=title if is_token else "Likeliest classes",
        names=[name(subject, number) for number in likeliest],
        before=[round(float(before[number].exp()), 5) for number in likeliest],
        after=[round(float(after[number].exp()), 5) for number in likeliest],
        divergence=round(float((before.exp() * (before - after)).sum()), 5),
    )
    return prediction, remarks


def _position_to_predict(subject: Subject, inputs: dict[str, Tensor]) -> tuple[int, str]:
    """The position whose prediction is shown, and its title; masks a word if no token is masked."""
    last = inputs["input_ids"].shape[1] - 1
    if isinstance(subject.objective, NextToken):
        return last, "Likeliest next tokens"
    if not isinstance(subject.objective, MaskedToken):
        return last, "Likeliest tokens at the end of the text"
    if subject.objective.mask_id is None:
        raise OptionError(
            f"{subject.name} predicts masked tokens, but its tokenizer has no mask token: pass a "
            "tokenizer that has one"
        )
    return _position_to_mask(subject, inputs, subject.objective.mask_id)


def _position_to_mask(subject: Subject, inputs: dict[str, Tensor], mask: int) -> tuple[int, str]:
    """The first masked position, and its title; masks the last word if no token is masked."""
    ids = inputs["input_ids"][0]
    masked = (ids == mask).nonzero().flatten().tolist()
    if masked:
        return masked[0], "Likeliest tokens at the first masked token"
    special_ids = subject.tokenizer.all_special_ids
    words = [position for position, id_ in enumerate(ids.tolist()) if id_ not in special_ids]
    if not words:
        raise OptionError(
            f"all {len(ids)} tokens of the text are special, so there is no word to mask: write a "
            "few words"
        )
    hidden = token_name(subject, int(ids[words[-1]]))
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][0, words[-1]] = mask
    return words[-1], f"Likeliest tokens at the last word, {hidden!r}, masked"


def _log_probabilities(subject: Subject, inputs: dict[str, Tensor], position: int) -> Tensor:
    """Log-probability of every token, or class, at a position."""
    logits = subject.objective.output(subject.model, inputs)
    return (logits[0, position] if logits.dim() == 3 else logits[0]).float().log_softmax(-1)


def _top(values: Tensor) -> list[int]:
    indices: list[int] = values.topk(min(TOP, len(values))).indices.tolist()
    return indices


def token_name(subject: Subject, number: int) -> str:
    """A token's label; its number if the model has more tokens than the tokenizer."""
    piece = subject.tokenizer.convert_ids_to_tokens(number)
    return str(number) if piece is None else token_text(piece, subject.tokenizer.decode([number]))


def _class_name(subject: Subject, number: int) -> str:
    names = getattr(subject.model.config, "id2label", None) or {}
    return str(names.get(number, number))
