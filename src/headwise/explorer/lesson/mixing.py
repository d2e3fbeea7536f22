"""Step 4: mixing the values, as arrows tip to tail.

In: Facts. Out: a LessonStep, with every piece's part of the sum in a plane.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.prose import Prose, join_runs, part, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question
from headwise.explorer.lesson.token_text import percent, signed

LONGER = 1.5
"""One arrow is clearly longer than another from this ratio on."""
LEAST = 0.02
"""Least share of a piece that the question mentions."""
SHORTER = 0.02
"""A sum is clearly shorter than its parts together from this difference on."""
MAX_OPTIONS = 4


class Parts(NamedTuple):
    """The values, the shortened values, and their sum."""

    values: Float[Tensor, "key d_value"]
    parts: Float[Tensor, "key d_value"]
    sum: Float[Tensor, " d_value"]

    @property
    def lengths(self) -> Float[Tensor, " key"]:
        """Length of each shortened value."""
        lengths: Tensor = torch.linalg.vector_norm(self.parts, dim=-1)
        return lengths


def mixing(facts: Facts) -> LessonStep:
    """The step that multiplies values by shares and adds them up."""
    values = facts.steps["values"][facts.kv_head].double()
    mixed = facts.steps["mixed"][facts.head, facts.position].double()
    found = Parts(values, facts.row[:, None] * values, mixed)
    plane = choose_plane(found)
    flat_values, flat_parts = values @ plane.mT, found.parts @ plane.mT
    kept = float((flat_parts**2).sum() / (found.parts**2).sum().clamp(min=1e-12))
    return LessonStep(
        name="mixing",
        title="Mixing the values",
        minutes=1.5,
        paragraphs=_opening(facts, len(mixed)),
        exercise=prose(
            "Point at a piece, or tap it, to see its arrow, before and after it is shortened."
        ),
        question=_length_question(facts, found),
        figures=figures.MixingFigure(
            place=facts.place,
            d_value=len(mixed),
            parts=[
                figures.PartFigure(
                    piece=at,
                    weight=float(facts.row[at]),
                    value_length=float(values[at].norm()),
                    length=float(found.lengths[at]),
                    value=flat_values[at].tolist(),
                    part=flat_parts[at].tolist(),
                )
                for at in facts.by_weight
            ],
            sum=(mixed @ plane.mT).tolist(),
            sum_length=float(mixed.norm()),
            kept=kept,
            weights=facts.row.tolist(),
            difference=float((found.parts.sum(0) - mixed).abs().max()),
        ),
        after=_after(facts, found),
    )


def choose_plane(found: Parts) -> Float[Tensor, "2 d_value"]:
    """Two directions at right angles: along the sum, and across it toward the longest part.

    The sum and the longest part lie in this plane, so both keep their true lengths.
    """
    basis: list[Tensor] = []
    longest = found.parts[found.lengths.argmax()]
    candidates = [found.sum, longest, *found.values, *torch.eye(len(found.sum)).double()]
    size = max(float(found.lengths.max()), 1e-9)
    for vector in candidates:
        rest = vector - sum((vector @ direction) * direction for direction in basis)
        if float(rest.norm()) > 1e-6 * size:
            basis.append(rest / rest.norm())
        if len(basis) == 2:
            break
    return torch.stack(basis) if len(basis) == 2 else torch.eye(2, len(found.sum)).double()


def _opening(facts: Facts, d_value: int) -> list[Prose]:
    here, shares = facts.piece(facts.position), facts.by_weight[:3]
    taken = [
        prose(f"{percent(float(facts.row[at]))} of ",
              "its own value" if at == facts.position else prose("the value of ", facts.piece(at)))
        for at in shares
    ]  # fmt: skip
    more = ", and so on along the row" if len(facts.by_weight) > 3 else ""
    return [
        prose("The shares are settled. Now something is fetched: every piece hands over its ",
              part("value", "values"), ", multiplied by its share. So ", here, " takes ",
              join_runs(taken), f"{more}."),
        prose(f"Added up, these parts are what {facts.name} brings back to ", here, ": the ",
              part("sum", "sum"), "."),
        prose(f"A value is a list of {d_value} numbers. Think of it as an arrow. To add arrows, "
              "put the tail of each at the tip of the one before."),
    ]  # fmt: skip


def _length_question(facts: Facts, found: Parts) -> QuizQuestion:
    pair = _surprising_pair(facts, found)
    if pair is None:
        return _longest_question(facts, found)
    more, less = pair
    names = (_option(facts, more), _option(facts, less))
    return choice_question(
        prose(facts.piece(more), f" gets {percent(float(facts.row[more]))}, ", facts.piece(less),
              f" only {percent(float(facts.row[less]))}. Which of them adds the longer arrow?"),
        names[1],
        [names[0], "They are about the same length"],
        hint=prose("A share only shortens an arrow that is there. It does not say how long the "
                   "arrow was."),
        why=prose(_product(facts, found, less), " ", _product(facts, found, more)),
    )  # fmt: skip


def _option(facts: Facts, at: int) -> str:
    return "".join(run.text for run in facts.piece(at))


def _product(facts: Facts, found: Parts, at: int) -> Prose:
    share, length = percent(float(facts.row[at])), signed(float(found.values[at].norm()))
    return prose(facts.piece(at), f": {share} of a value {length} long is "
                 f"{signed(float(found.lengths[at]))}.")  # fmt: skip


def _surprising_pair(facts: Facts, found: Parts) -> tuple[int, int] | None:
    """A piece with a larger share and a shorter arrow than another, the clearest; None if none."""
    best, chosen = 1.0, None
    seen = [at for at in facts.by_weight if float(facts.row[at]) >= LEAST]
    for rank, more in enumerate(seen):
        for less in seen[rank + 1 :]:
            ratio = float(found.lengths[less] / found.lengths[more].clamp(min=1e-9))
            shares = float(facts.row[more] / facts.row[less])
            is_clear = ratio >= LONGER and shares >= LONGER
            if is_clear and _option(facts, more) != _option(facts, less):
                score = min(ratio, 10) * min(shares, 10) * float(found.lengths[less])
                if score > best or chosen is None:
                    best, chosen = score, (more, less)
    return chosen


def _longest_question(facts: Facts, found: Parts) -> QuizQuestion:
    order = found.lengths.argsort(descending=True, stable=True).tolist()
    options = list(dict.fromkeys(_option(facts, at) for at in order if at in facts.by_weight))
    if len(options) < 2:
        return _one_question(facts)
    top = order[0]
    return choice_question(
        prose("Which piece adds the longest arrow to the sum?"),
        options[0],
        options[1:MAX_OPTIONS],
        hint=prose("The length of a part is its share times the length of its value. Start with "
                   "the largest share."),
        why=_product(facts, found, top),
    )  # fmt: skip


def _one_question(facts: Facts) -> QuizQuestion:
    return choice_question(
        prose("How many arrows does ", facts.piece(facts.position), " add up?"),
        "1",
        ["2", "3"],
        hint=prose("Count the pieces that it can see."),
        why=prose("It sees only one piece, so the sum is the value of that piece."),
    )


def _after(facts: Facts, found: Parts) -> list[Prose]:
    long, lengths = signed(float(found.sum.norm())), signed(float(found.lengths.sum()))
    longer = (
        f" The lengths in the last row add up to {lengths}, more than {long}, because the arrows "
        "do not all point the same way."
        if float(found.lengths.sum()) - float(found.sum.norm()) >= SHORTER
        else ""
    )
    paragraphs = [
        prose("Shares decide how much is taken; values decide what. The ", part("sum", "sum"),
              f" is {long} long.{longer} Every head of the layer does this for every piece, at the "
              "same time.")
    ]  # fmt: skip
    pair = _surprising_pair(facts, found)
    if pair is not None and (facts.is_special[pair[0]] or (pair[0] == 0 and facts.is_causal)):
        at = pair[0]
        paragraphs.insert(
            0,
            prose("The value of ", facts.piece(at), " is short: ",
                  f"{signed(float(found.values[at].norm()))}, against "
                  f"{signed(float(found.values[pair[1]].norm()))} for ", facts.piece(pair[1]),
                  ". So a head that finds little can look there and fetch little. Such a place is "
                  "called a resting place, or ",
                  term("attention sink"), "."),
        )  # fmt: skip
    return paragraphs
