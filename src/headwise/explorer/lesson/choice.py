"""Which word and which head the lesson follows.

In: the words of a text and every layer's attention on it. Out: a position, and a head whose row
for it is easy to read. A pronoun is followed in a head that links it to an earlier word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.explorer.stage_words import StageText
from headwise.tracing.blur import compare_rows
from headwise.watching.calls import AttentionCall

PRONOUNS = frozenset("it he she they him her them".split())
LINK = 0.3
"""Least weight on an earlier word for a head to be chosen because of it."""
LARGEST, RESTING = 0.95, 0.5
"""Largest single weight and largest weight on resting tokens of a head that is easy to read."""
CLEAR = 0.5
"""The chosen layer must have a gap of at least this share of the largest layer's gap."""


@dataclass(frozen=True)
class Choice:
    """The layer, head and token that the learner chose; None for those left to the lesson."""

    layer: int | None = None
    head: int | None = None
    position: int | None = None


def choose_position(stage: StageText) -> int:
    """The first "it" of a text, else its first other pronoun, else the start of its last word."""
    places = [at for at, piece in enumerate(stage.pieces) if piece.kind == "word"]
    pronouns = [at for at in places if is_pronoun(stage, at)]
    pronouns.sort(key=lambda at: stage.pieces[at].text.lower() != "it")
    if pronouns:
        return pronouns[0]
    if not places:
        return max(at for at, piece in enumerate(stage.pieces) if piece.kind != "special")
    group = next((group for group in stage.groups if places[-1] in group), (places[-1],))
    return group[0] if stage.groups else places[-1]


def is_pronoun(stage: StageText, position: int) -> bool:
    """Whether a token is a pronoun that may stand for an earlier word."""
    return stage.pieces[position].text.lower() in PRONOUNS and any(
        piece.kind == "word" for piece in stage.pieces[:position]
    )


def choose_head(
    calls: Sequence[AttentionCall],
    stage: StageText,
    position: int,
    head: int | None,
    roles: Mapping[str, Sequence[str]] | None,
) -> tuple[AttentionCall, int]:
    """The given head, or the coreference head that links a pronoun most, or the easiest to read.

    Easiest is the sharpest head that attends mostly, but not only, to one other ordinary token, in
    a layer whose heads differ. If there is none, it is the head with the least weight on resting
    tokens: special tokens and the first token.
    """
    rests = torch.tensor([piece.kind == "special" for piece in stage.pieces])
    rests[0] = True
    linked = None
    if head is None and roles is not None and is_pronoun(stage, position):
        linked = _linking_head(calls, rests, position, roles)
    return linked or _easiest_head(calls, rests, position, head)


def _rows(call: AttentionCall, position: int) -> Float[Tensor, "head key"]:
    return call.weights()[0, :, position].detach().double().cpu()


def _linking_head(
    calls: Sequence[AttentionCall],
    rests: Tensor,
    position: int,
    roles: Mapping[str, Sequence[str]],
) -> tuple[AttentionCall, int] | None:
    """The head that links a pronoun most to one earlier word, not its neighbour.

    Heads whose lead role is coreference come first.
    """
    best, chosen = (False, LINK), None
    earlier = max(0, position - 1)
    for call in calls:
        for number, row in enumerate(_rows(call, position)):
            lead = next(iter(roles.get(f"{call.site.layer_name}H{number}", ())), "")
            links = row[:earlier].masked_fill(rests[:earlier], 0)
            score = (lead == "coreference", float(links.max()) if earlier else 0.0)
            if score[1] >= LINK and score >= best:
                best, chosen = score, (call, number)
    return chosen


@dataclass(frozen=True, eq=False)
class _Candidate:
    call: AttentionCall
    head: int
    is_odd: bool
    """Whether the row is hard to read: mostly on sinks or on the token itself, or on one token."""
    gap: float
    """How much sharper the layer's heads are than their average row."""
    worse: float
    """The row's entropy or, if it is odd, its weight on sink tokens; smaller is better."""


def _easiest_head(
    calls: Sequence[AttentionCall], rests: Tensor, position: int, head: int | None
) -> tuple[AttentionCall, int]:
    candidates = []
    for call in calls:
        rows = _rows(call, position)
        gap = compare_rows(rows, rests).gap
        for number, row in enumerate(rows):
            if head not in (None, number):
                continue
            rest, top = float(row[rests].sum()), int(row.argmax())
            is_plain = rest <= RESTING and not rests[top] and top != position
            is_odd = not is_plain or float(row[top]) > LARGEST
            blur = float(torch.special.entr(row).sum())
            candidates.append(_Candidate(call, number, is_odd, gap, rest if is_odd else blur))
    if not candidates:
        most = max(call.num_heads for call in calls)
        where = "this model" if len(calls) > 1 else f"layer {calls[0].layer}"
        raise OptionError(f"head is {head}: {where} has heads 0..{most - 1}")
    clear = CLEAR * max((each.gap for each in candidates if not each.is_odd), default=0.0)
    best = min(candidates, key=lambda each: (each.is_odd, each.gap < clear, each.worse))
    return best.call, best.head
