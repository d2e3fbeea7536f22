"""What if: what a model says when heads are silenced or scaled, beside what it says untouched.

In: a subject, a text or several, and a gate for each head that is changed. Out: next-token
probabilities, similarities of sentences, or what else the model is for, before and after.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError, OptionError
from headwise.heads import HeadCounts, HeadId, check_head
from headwise.objectives.losses import Embedding, MaskedToken, NextToken
from headwise.pruning.setting import Subject
from headwise.pruning.surgery.cut import count_parameters, plan_slices
from headwise.reading.labels import token_text
from headwise.reading.reader import Reader, Window
from headwise.watching.gates import gate
from headwise.watching.running import in_evaluation

LONGEST = 512
"""Tokens of a text that are read at most: changes are to show at once."""
TOP = 8
"""Predictions that are shown of each model."""
MOST_TEXTS = 8


@dataclass(frozen=True)
class Changes:
    """Heads whose outputs are multiplied, and by what; 0 is silence."""

    factors: Mapping[HeadId, float]

    def gates(self, counts: HeadCounts) -> dict[str, Tensor]:
        """Gates of every layer in which something changes."""
        num_heads = {name: heads for name, (heads, _) in counts.items()}
        found: dict[str, Tensor] = {}
        for head, factor in self.factors.items():
            name = check_head(head, num_heads).layer_name
            found.setdefault(name, torch.ones(num_heads[name]))[head.head] = factor
        return found

    @property
    def silent(self) -> tuple[HeadId, ...]:
        """Heads that give nothing."""
        return tuple(sorted(head for head, factor in self.factors.items() if factor == 0))


class BaselineCache:
    """What a model said of the last few texts as it is, so that only changes are computed anew."""

    def __init__(self, most: int = 8) -> None:
        """How many are kept."""
        self.most = most
        self._said: OrderedDict[tuple[str, ...], Tensor] = OrderedDict()

    def of(self, texts: Sequence[str], say: Callable[[], Tensor]) -> Tensor:
        """What was said of these texts, or is now."""
        key = tuple(texts)
        if key not in self._said:
            self._said[key] = say()
            if len(self._said) > self.most:
                self._said.popitem(last=False)
        return self._said[key]


@torch.inference_mode()
def compare_gated(
    subject: Subject,
    texts: Sequence[str],
    changes: Changes,
    counts: HeadCounts,
    untouched: BaselineCache | None = None,
) -> dict[str, Any]:
    """What the model says untouched and changed, and what a cut of the silent heads would save."""
    untouched = untouched or BaselineCache()
    with in_evaluation(subject.model):
        if isinstance(subject.objective, Embedding):
            said = similarities(subject, texts, changes.gates(counts), untouched)
        else:
            said = predictions(subject, texts[0], changes.gates(counts), untouched)
    return said | {"heads_off": len(changes.silent)} | savings(subject, changes)


def savings(subject: Subject, changes: Changes) -> dict[str, Any]:
    """Parameters that cutting the silent heads would save, or why they cannot be cut."""
    total = count_parameters(subject.model)
    found: dict[str, Any] = {"parameters": total, "saved": 0, "cannot_cut": None}
    try:
        parts = plan_slices(subject.model, changes.silent)
    except HeadwiseError as error:
        return found | {"cannot_cut": str(error)}
    for change in parts:
        for part in change.slices:
            tensor = change.layer.base.get_parameter(part.path)
            gone = 1 - len(part.kept) / tensor.shape[part.axis]
            found["saved"] += round(tensor.numel() * gone)
    return found


def inputs_of(subject: Subject, texts: Sequence[str]) -> tuple[dict[str, Tensor], list[str]]:
    """Some texts as one batch, and what is to be said of those that are too long for it.

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


def similarities(
    subject: Subject, texts: Sequence[str], gates: Mapping[str, Tensor], untouched: BaselineCache
) -> dict[str, Any]:
    """How alike the sentences' embeddings are, before and after."""
    inputs, remarks = inputs_of(subject, texts)
    before = untouched.of(texts, lambda: subject.objective.output(subject.model, inputs))
    with gate(subject.model, gates):
        after = subject.objective.output(subject.model, inputs)
    return {
        "kind": "similarity",
        "remarks": remarks,
        "texts": list(texts),
        "before": as_lists(before @ before.T),
        "after": as_lists(after @ after.T),
        "kept": [round(float(one), 4) for one in (before * after).sum(-1)],
    }


def as_lists(matrix: Tensor) -> list[list[float]]:
    """A small matrix as JSON holds it."""
    return [[round(value, 4) for value in row] for row in matrix.tolist()]


def predictions(
    subject: Subject, text: str, gates: Mapping[str, Tensor], untouched: BaselineCache
) -> dict[str, Any]:
    """The likeliest tokens, or classes, at the place that the model predicts, before and after."""
    inputs, remarks = inputs_of(subject, [text])
    place, title = predicted_place(subject, inputs)
    before = untouched.of([text], lambda: log_probabilities(subject, inputs, place))
    with gate(subject.model, gates):
        after = log_probabilities(subject, inputs, place)
    shown = list(dict.fromkeys([*top(before), *top(after)]))
    config: Any = subject.model.config
    is_token = len(before) == config.get_text_config().vocab_size
    name = token_name if is_token else class_name
    return {
        "kind": "prediction",
        "remarks": remarks,
        "noun": "token" if is_token else "class",
        "title": title if is_token else "Likeliest classes",
        "names": [name(subject, number) for number in shown],
        "before": [round(float(before[number].exp()), 5) for number in shown],
        "after": [round(float(after[number].exp()), 5) for number in shown],
        "divergence": round(float((before.exp() * (before - after)).sum()), 5),
    }


def predicted_place(subject: Subject, inputs: dict[str, Tensor]) -> tuple[int, str]:
    """The position whose prediction is shown, and its title; a mask is set where there is none."""
    last = inputs["input_ids"].shape[1] - 1
    if isinstance(subject.objective, NextToken):
        return last, "Likeliest next tokens"
    if not isinstance(subject.objective, MaskedToken):
        return last, "Likeliest tokens at the end of the text"
    if subject.objective.mask_id is None:
        raise OptionError(
            f"{subject.name} predicts masked tokens, and its tokenizer has no mask: give one that "
            "has"
        )
    return masked_place(subject, inputs, subject.objective.mask_id)


def masked_place(subject: Subject, inputs: dict[str, Tensor], mask: int) -> tuple[int, str]:
    """The first mask, and its title; the last word is masked where there is none."""
    ids = inputs["input_ids"][0]
    masked = (ids == mask).nonzero().flatten().tolist()
    if masked:
        return masked[0], "Likeliest tokens at the first masked token"
    ordinary = [
        place
        for place, one in enumerate(ids.tolist())
        if one not in subject.tokenizer.all_special_ids
    ]
    if not ordinary:
        raise OptionError(
            f"there is no word to mask: all {len(ids)} tokens of the text are special ones; write "
            "a few words"
        )
    hidden = token_name(subject, int(ids[ordinary[-1]]))
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][0, ordinary[-1]] = mask
    return ordinary[-1], f"Likeliest tokens at the last word, {hidden!r}, masked"


def log_probabilities(subject: Subject, inputs: dict[str, Tensor], place: int) -> Tensor:
    """Log-probability of every token, or class, at that place."""
    logits = subject.objective.output(subject.model, inputs)
    at = logits[0, place] if logits.dim() == 3 else logits[0]
    return at.float().log_softmax(-1)


def top(values: Tensor) -> list[int]:
    """Numbers of the likeliest."""
    found: list[int] = values.topk(min(TOP, len(values))).indices.tolist()
    return found


def token_name(subject: Subject, number: int) -> str:
    """What to write for a token; its number where the model has more than the tokenizer knows."""
    piece = subject.tokenizer.convert_ids_to_tokens(number)
    return str(number) if piece is None else token_text(piece, subject.tokenizer.decode([number]))


def class_name(subject: Subject, number: int) -> str:
    """What to write for a class; its number where the model has no name for it."""
    names = getattr(subject.model.config, "id2label", None) or {}
    return str(names.get(number, number))
