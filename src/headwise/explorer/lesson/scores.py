"""Step 3: from scores to shares.

In: Facts. Out: a LessonStep, with a row of scores that the learner can drag.
"""

import math
from typing import NamedTuple

from torch import Tensor

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.prose import Prose, ProseRun, part, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question
from headwise.explorer.lesson.token_text import number, percent, signed
from headwise.formats import format_count, replace_nonfinite

LARGEST_POWER = 1e9
"""Larger powers of e are not written out."""
SMALLEST_POWER = 0.1
"""No share is worked out from a smaller sum of powers: it has too few digits."""
DROP = 1.0
"""How far the question moves a score, after scaling."""
APART = 0.04
"""Shares offered as answers differ by at least this much."""
SEEN = 0.05
"""Least change of a share that the question asks about."""


def scores(facts: Facts) -> LessonStep:
    """The step on scores, the power of e, and shares."""
    scoring, leader = facts.scoring, facts.by_weight[0]
    logits = scoring.logits(scoring.scores)
    powers = logits.exp()
    total = float(powers.sum()) + (0 if scoring.sink is None else math.exp(min(scoring.sink, 50)))
    drop = _choose_drop(facts)
    d_key = facts.call.queries.shape[-1]
    return LessonStep(
        name="scores",
        title="From scores to shares",
        minutes=2.0,
        paragraphs=[
            _score_paragraph(facts, logits),
            _power_paragraph(facts, powers, total),
            _share_paragraph(facts, powers, total),
        ],
        exercise=_exercise(facts, drop),
        question=_drop_question(facts, drop),
        figures=figures.ScoresFigure(
            place=facts.place,
            d_key=d_key,
            scores=scoring.scores.tolist(),
            scale=scoring.scale,
            is_root=math.isclose(scoring.scale, 1 / math.sqrt(d_key), rel_tol=1e-6),
            softcap=scoring.softcap,
            added=replace_nonfinite(scoring.added.tolist()),
            sink=scoring.sink,
            scaled=replace_nonfinite(logits.tolist()),
            powers=[
                value if hidden > -math.inf and value < LARGEST_POWER else None
                for value, hidden in zip(powers.tolist(), logits.tolist(), strict=True)
            ],
            total=total if total < LARGEST_POWER else None,
            weights=facts.row.tolist(),
            leader=leader,
            dragged=leader if drop is None else drop.key,
            change=0.0 if drop is None else drop.change,
        ),
        after=_after(facts),
    )


def _score_paragraph(facts: Facts, logits: Tensor) -> Prose:
    scoring, here = facts.scoring, facts.piece(facts.position)
    d_key = facts.call.queries.shape[-1]
    if scoring.scale == 1:
        divided = "This model takes the dot products as they are: each is a "
    elif math.isclose(scoring.scale, 1 / math.sqrt(d_key), rel_tol=1e-6):
        divided = (
            f"Divided by √{d_key} ({math.sqrt(d_key):.2f}), so that long lists do not make huge "
            "sums, each dot product becomes a "
        )
    else:
        divided = f"Multiplied by {number(scoring.scale)}, each dot product becomes a "
    parts: list[str | ProseRun | Prose] = [
        prose("The ", part("query", "query"), " of ", here, " meets every key. ", divided,
              term("score"), ": "),
        _pair(facts, [signed(float(logits[at]), 1) for at in facts.by_weight[:2]]),
        ".",
    ]  # fmt: skip
    if scoring.softcap is not None:
        parts.append(f" A cap bends large scores: none passes {number(scoring.softcap)}.")
    if any(value not in (0.0, -math.inf) for value in scoring.added.tolist()):
        parts.append(" This model also adds a number that depends on the distance.")
    if scoring.sink is not None:
        parts.append(
            f" One more score, {signed(scoring.sink, 1)}, belongs to no piece: a sink that takes "
            "a share, too."
        )
    hidden = len(logits) - len(facts.by_weight)
    if hidden:
        parts.append(
            f" {format_count(hidden, 'piece')} {'comes' if hidden == 1 else 'come'} later in the "
            "text and cannot be seen from here."
            if facts.is_causal
            else f" {format_count(hidden, 'piece')} cannot be seen from here."
        )
    return prose(*parts)


def _pair(facts: Facts, values: list[str]) -> Prose:
    """The two leading pieces, each with a value."""
    runs: list[str | ProseRun | Prose] = []
    for at, value in zip(facts.by_weight, values, strict=False):
        runs += [", " if runs else "", facts.piece(at), f" {value}"]
    return prose(*runs)


def _power_paragraph(facts: Facts, powers: Tensor, total: float) -> Prose:
    first = prose("Then the number e, 2.718, is raised to each score. ", term("e to the score"),
                  " is never negative and stretches the lead")  # fmt: skip
    if total >= LARGEST_POWER:
        return prose(first, ". (The numbers are too large to print here.)")
    if facts.sees_one:
        return prose(first, ".")
    lead, second = (round_power(float(powers[at])) for at in facts.by_weight[:2])
    return prose(first, f": {lead} against {second}.")


def round_power(value: float) -> str:
    """A power of e as the figure prints it.

    >>> round_power(46.2), round_power(6.94), round_power(0.3), round_power(0.04)
    ('46', '6.9', '0.3', '<0.1')
    """
    if value < 0.05:
        return "<0.1"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def _share_paragraph(facts: Facts, powers: Tensor, total: float) -> Prose:
    shares = [percent(float(facts.row[at])) for at in facts.by_weight[:2]]
    by = ""
    if SMALLEST_POWER <= total < LARGEST_POWER:
        lead, whole = round_power(float(powers[facts.by_weight[0]])), round_power(total)
        if percent(_value_of(lead) / _value_of(whole)) == shares[0]:
            by = f" ({lead} / {whole} = {shares[0]})"
    return prose(
        f"Each is divided by the sum of all of them{by}. So they become ", term("shares"),
        " of 100%: ",
        _pair(facts, shares), ". The two moves together are called ", term("softmax"), "."
    )  # fmt: skip


def _value_of(printed: str) -> float:
    return float(printed.replace(",", "").replace("<0.1", "0"))


class _Drop(NamedTuple):
    key: int
    change: float
    """Change of the scaled score: -DROP, or DROP for a piece that leads too far."""
    scaled: float
    after: float
    """The piece's share after the change."""


def _choose_drop(facts: Facts) -> _Drop | None:
    """The move of one score that changes its share most, down for the leader; None if all stay."""
    scoring = facts.scoring
    moves = []
    for rank, key in enumerate(facts.by_weight):
        change = -DROP if rank == 0 else DROP
        moved = scoring.scores.clone()
        moved[key] += change / scoring.scale
        after = float(scoring.weights(moved)[key])
        gain = abs(after - float(facts.row[key]))
        scaled = float(scoring.logits(scoring.scores)[key])
        moves.append((gain, _Drop(key, change, scaled, after)))
    if moves[0][0] >= SEEN:
        return moves[0][1]
    gain, best = max(moves, key=lambda move: move[0])
    return best if gain >= SEEN else None


def _drop_question(facts: Facts, drop: _Drop | None) -> QuizQuestion:
    if drop is None:
        return _seen_question(facts)
    key, scoring = drop.key, facts.scoring
    before, after = float(facts.row[key]), drop.after
    name, goes = facts.piece(key), "falls" if drop.change < 0 else "rises"
    options: list[float] = [after]
    grown = before * math.exp(drop.change)
    for value in (before + 0.01 * math.copysign(1, drop.change), grown, before / 2, 0.9, 0.5, 0.1):
        if len(options) < 3 and 0 < value < 1 and all(
            abs(value - other) >= APART for other in options
        ):  # fmt: skip
            options.append(value)
    texts = [percent(value) for value in options]
    moved = scoring.scores.clone()
    moved[key] += drop.change / scoring.scale
    logits = scoring.logits(moved)
    powers = logits.exp()
    total = float(powers.sum()) + (0 if scoring.sink is None else math.exp(min(scoring.sink, 50)))
    new = float(logits[key])
    why = prose(f"The share {goes} from {percent(before)} to {percent(after)}.")
    if total < LARGEST_POWER and float(powers[key]) >= 0.05:
        power = round_power(float(powers[key]))
        why = prose(f"e to the {signed(new, 1)} is {power}; {power} of {round_power(total)} is "
                    f"{percent(after)}. The sum changes, too.")  # fmt: skip
    factor = "2.7 times smaller" if drop.change < 0 else "2.7 times larger"
    capped = "" if scoring.softcap is None else "about "
    return choice_question(
        prose("The score of ", name, f" {goes} by 1, from {signed(drop.scaled, 1)} to "
              f"{signed(new, 1)}. Its share is {percent(before)}. What does it become?"),
        texts[0],
        texts[1:],
        hint=prose(f"One point makes e to the score {capped}{factor}. But the sum that you divide "
                   "by changes with it."),
        why=why,
    )  # fmt: skip


def _seen_question(facts: Facts) -> QuizQuestion:
    """For a row that is all or nothing: no score could be moved far enough to show."""
    seen, total, here = len(facts.by_weight), len(facts.row), facts.piece(facts.position)
    wrong = [count for count in dict.fromkeys((1, total, total + 1, total + 2)) if count != seen]
    why = (
        f"All {total}: nothing is hidden here." if seen == total
        else f"{seen} of {total}: later pieces are hidden before the softmax."
    )  # fmt: skip
    return choice_question(
        prose("How many pieces can ", here, " look at in this row, itself included?"),
        str(seen),
        [str(count) for count in wrong[:2]],
        hint=prose("Count the pieces that have a score."),
        why=prose(why),
    )


def _exercise(facts: Facts, drop: _Drop | None) -> Prose:
    if facts.sees_one and facts.scoring.sink is None:
        return prose("Move the score: alone in its row, the piece keeps its 100%.")
    start = "" if drop is None else "The bars now show the answer; Reset brings back the model's. "
    return prose(start, "Drag any bar, or move the temperature, and watch the shares.")


def _after(facts: Facts) -> list[Prose]:
    scoring = facts.scoring
    paragraphs = []
    if facts.sees_one and scoring.sink is None:
        paragraphs.append(
            prose("Its share is 100% whatever the score is: there is no other piece to share with.")
        )
    elif scoring.softcap is None and scoring.sink is None:
        paragraphs.append(
            prose("Only differences count: raise all scores by 1, and no share moves. Raise one, "
                  "and its piece takes from all the others, in proportion to what they had.")
        )  # fmt: skip
    else:
        paragraphs.append(
            prose("Raise one score, and its piece takes from all the others, in proportion to what "
                  "they had.")
        )  # fmt: skip
    paragraphs.append(
        prose("A ", term("temperature"), " divides all scores before the softmax. Above 1, the "
              "shares move closer together. Below 1, they move apart; near 0, the leader takes "
              "nearly everything.")
    )  # fmt: skip
    return paragraphs
