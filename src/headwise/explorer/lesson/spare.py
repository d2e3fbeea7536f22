"""Step 7: what heads learned, and which we can spare.

In: Facts, and the effects of silencing (silencing.py). Out: a LessonStep.
"""

from collections import Counter
from dataclasses import dataclass, replace

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.prose import Prose, ProseRun, part, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion
from headwise.explorer.lesson.silencing import (
    DRAWS,
    Effects,
    Measured,
    Unit,
    prompt_end,
)
from headwise.explorer.lesson.token_text import number, ordinal, percent, shown, signed
from headwise.formats import format_count, join_words

ENOUGH = 0.9
"""Cosine down to which a sentence's embedding counts as nearly the same."""
SOME = 0.2
"""Cosine from which an embedding clearly has something of the unchanged one."""
NATS = 0.5
"""Divergence up to which a prediction counts as nearly the same."""
MAX_OPTIONS = 4


def spare(facts: Facts, measured: Measured) -> LessonStep:
    """The step on the roles of heads and the effect of silencing them."""
    figure = _figure(facts, measured)
    limit = _limit(figure)
    figure = replace(figure, limit=limit.step)
    return LessonStep(
        name="spare",
        title="What heads learned, and which we can spare",
        minutes=2.0,
        paragraphs=[_roles_paragraph(facts), _answer_paragraph(facts, figure)],
        exercise=prose("Choose one head to silence it alone. Then move the slider to silence the "
                       "least missed heads together",
                       ", until another word takes over." if figure.next else "."),
        question=_limit_question(figure, limit),
        figures=figure,
        after=_after(facts, figure),
    )  # fmt: skip


def _figure(facts: Facts, measured: Measured) -> figures.SpareFigure:
    alone, order = measured.alone, measured.order
    rank = {index: len(order) - place for place, index in enumerate(order)}
    names = [f"{layer}H{head}" for layer, head in measured.heads]
    return figures.SpareFigure(
        place=facts.place,
        unit=alone.unit,
        unchanged=measured.unchanged,
        layers=list(facts.layers),
        heads=[
            figures.SpareHeadFigure(
                head=facts.named_head(name),
                rank=rank[index],
                value=float(alone.values[index]),
                effect=float(alone.effects[index]),
                next=_next(alone, index),
                likeliest=_likeliest(facts, alone, index),
            )
            for index, name in enumerate(names)
        ],
        order=order,
        line=_line(alone.unit, measured),
        next=measured.next,
        last=facts.word_of[prompt_end(facts) - 1],
        together=[_together(facts, measured, step) for step in range(len(measured.counts))],
        limit=-1,
        draws=DRAWS,
        weights=facts.every_row.tolist(),
    )


def _line(unit: Unit, measured: Measured) -> float | None:
    if measured.next:
        return None
    return {"cosine": ENOUGH, "nats": NATS, "loss": measured.unchanged * 1.1}[unit]


def _next(effects: Effects, run: int) -> list[float]:
    return [] if effects.probabilities is None else effects.probabilities[run].tolist()


def _likeliest(facts: Facts, effects: Effects, run: int) -> figures.NextFigure | None:
    if effects.tops is None or effects.top_probabilities is None:
        return None
    return facts.token(int(effects.tops[run]), float(effects.top_probabilities[run]))


def _together(facts: Facts, measured: Measured, step: int) -> figures.TogetherFigure:
    effects, random = measured.together, measured.random
    is_all = step == len(measured.counts) - 1
    draws = [] if is_all else list(range(step * DRAWS, (step + 1) * DRAWS))
    kept = 0
    if random.tops is not None:
        kept = sum(int(random.tops[draw]) == measured.top for draw in draws)
    return figures.TogetherFigure(
        count=measured.counts[step],
        value=float(effects.values[step]),
        effect=float(effects.effects[step]),
        next=_next(effects, step),
        likeliest=_likeliest(facts, effects, step),
        random=[float(random.values[draw]) for draw in draws],
        random_next=[_next(random, draw)[0] for draw in draws] if measured.next else [],
        random_kept=kept,
    )


def _roles_paragraph(facts: Facts) -> Prose:
    start = "Nobody gave the heads their jobs; they came about in training. "
    if facts.roles is None:
        return prose(start, "Some heads look one word back, some rest, some link a verb to its "
                     "subject. Press Find roles in the tab Heads, and this step names such ",
                     term("roles"), ".")  # fmt: skip
    counts = Counter(role for roles in facts.roles.values() for role in roles)
    without = sum(not roles for roles in facts.roles.values())
    commonest = [f"{role} ({count})" for role, count in counts.most_common(3)]
    total = sum(facts.layers.values())
    are = "The commonest is" if len(commonest) == 1 else "The commonest are"
    listed = f"{are} {join_words(commonest)}. " if commonest else ""
    several = any(len(roles) > 1 for roles in facts.roles.values())
    twice = " A head with several roles counts in each." if several else ""
    return prose(
        start, "A ", term("role"), f" names where a head looks, measured on many texts. {listed}"
        f"{without} of the {format_count(total, 'head')} {'has' if without == 1 else 'have'} no "
        f"clear role.{twice}"
    )  # fmt: skip


def _answer_paragraph(facts: Facts, figure: figures.SpareFigure) -> Prose:
    start = prose("A role does not show that the model needs the head. So we ", term("silence"),
                  " heads: a silent head adds nothing. Then the model reads the sentence again, "
                  "and we compare its answer. ")  # fmt: skip
    if figure.next:
        top = figure.next[0]
        return prose(start, "Here the model reads up to ", facts.word(figure.last), " and predicts "
                     "the next word: ", _token(top.token),
                     f", {percent(top.probability)}.")  # fmt: skip
    if figure.unit == "cosine":
        return prose(start, "Here the answer is one long list of numbers for the whole sentence. "
                     "We compare two such lists by their ", term("cosine"),
                     f": 1 means that nothing has changed. {_scale(figure)}")  # fmt: skip
    if figure.unit == "loss":
        return prose(start, f"Here the answer is a loss, {number(figure.unchanged)} with all "
                     f"heads. {_scale(figure)}")  # fmt: skip
    return prose(start, "Here the answer is a prediction for every token. The change is measured "
                 f"in nats: 0 means that nothing has changed. {_scale(figure)}")  # fmt: skip


def _scale(figure: figures.SpareFigure) -> str:
    """The value with all heads silent, and the line that the question draws."""
    last = figure.together[-1]
    rest = ""
    if not _is_like(figure, last):
        is_cosine = figure.unit == "cosine"
        value = signed(last.value) if is_cosine else number(last.value)
        still = ": the words alone still say something" if is_cosine and last.value >= SOME else ""
        rest = f"With all {format_count(last.count, 'head')} silent it is {value}{still}. "
    line = str(ENOUGH if figure.unit == "cosine" else NATS)
    if figure.unit == "loss":
        line = "a change of a tenth"
    return f"{rest}We draw the line at {line}; that is our choice."


def _token(text: str) -> ProseRun:
    return ProseRun(shown(text), "word")


@dataclass(frozen=True)
class _Limit:
    """How many of the least missed heads can be silenced together until the answer changes."""

    step: int
    """Index of the last step that is still like the unchanged answer; -1 for none."""
    rule: str
    """When the answer counts as changed."""


def _is_like(figure: figures.SpareFigure, step: figures.TogetherFigure) -> bool:
    if figure.next and step.likeliest is not None:
        return step.likeliest.token == figure.next[0].token
    if figure.unit == "cosine":
        return step.value >= ENOUGH
    if figure.unit == "loss":
        return step.effect <= 0.1 * abs(figure.unchanged)
    return step.value <= NATS


def _limit(figure: figures.SpareFigure) -> _Limit:
    last = -1
    for index, step in enumerate(figure.together):
        if not _is_like(figure, step):
            break
        last = index
    if figure.next:
        rule = "until another next word becomes the likeliest"
    elif figure.unit == "cosine":
        rule = f"until the cosine falls below {ENOUGH}"
    elif figure.unit == "loss":
        rule = "until the loss moves by more than a tenth"
    else:
        rule = f"until the prediction moves by more than {NATS} nats"
    return _Limit(last, rule)


def _limit_question(figure: figures.SpareFigure, limit: _Limit) -> QuizQuestion:
    steps, total = figure.together, len(figure.heads)
    right = 0 if limit.step < 0 else steps[limit.step].count
    counts = [0, *(step.count for step in steps)]
    at = counts.index(right)
    gap = max(1, len(counts) // 4)
    near = [counts[(at + turn * gap) % len(counts)] for turn in range(1, MAX_OPTIONS)]
    offered = sorted({right, *near})
    median = sorted(head.effect for head in figure.heads)[total // 2]
    return QuizQuestion(
        prose(f"We silence heads together, the least missed first, {limit.rule}. How many of the "
              f"{format_count(total, 'head')} can be silent?"),
        "choice",
        [_count_text(count, total) for count in offered],
        offered.index(right),
        0.0,
        hint=prose(f"Silenced alone, half of the heads move the answer by {number(median)} or "
                   "less. But small changes add up."),
        why=_limit_sentence(figure, limit),
    )  # fmt: skip


def _count_text(count: int, total: int) -> str:
    if count == 0:
        return "None of them"
    return f"All {count:,}" if count == total else f"About {count:,}"


def _limit_sentence(figure: figures.SpareFigure, limit: _Limit) -> Prose:
    steps = figure.together
    if limit.step < 0:
        first = steps[0]
        return prose(f"Already with {format_count(first.count, 'head')} silent, the answer has "
                     f"changed: {_value(figure, first)}.")  # fmt: skip
    last = steps[limit.step]
    sentence = f"With the {last.count:,} least missed of {len(figure.heads):,} silent: "
    random = _random_sentence(figure, last)
    return prose(sentence, f"{_value(figure, last)}.", " " if random else "", random)


def _value(figure: figures.SpareFigure, step: figures.TogetherFigure) -> str:
    if figure.next and step.likeliest is not None:
        token, share = shown(step.likeliest.token), percent(step.likeliest.probability)
        return f"next word {token}, {share}"
    if figure.unit == "cosine":
        return f"cosine {step.value:.2f}"
    return f"{'loss' if figure.unit == 'loss' else 'nats'} {number(step.value)}"


def _random_sentence(figure: figures.SpareFigure, step: figures.TogetherFigure) -> Prose:
    if not step.random:
        return prose()
    start = f"With {step.count:,} heads picked at random, ten times: "
    if figure.next:
        return prose(start, "the likeliest word stays ", _token(figure.next[0].token),
                     f" in {step.random_kept} of 10.")  # fmt: skip
    low, high = min(step.random), max(step.random)
    if figure.unit == "cosine":
        return prose(start, f"{low:.2f} to {high:.2f}.")
    return prose(start, f"{number(low)} to {number(high)}.")


def _after(facts: Facts, figure: figures.SpareFigure) -> list[Prose]:
    most = figure.heads[figure.order[-1]]
    mine = next(head for head in figure.heads if head.head.name == facts.name)
    total = len(figure.heads)
    paragraphs = []
    if total > 1:
        others = "" if mine is most else (
            f" {facts.name}, the head that you followed, is the {ordinal(mine.rank)} most missed "
            f"of {total}."
        )  # fmt: skip
        count = 0 if figure.limit < 0 else figure.together[figure.limit].count
        effect = "with little change"
        if figure.line is None:
            effect = "while the same word stays likeliest"
        spared = (
            ""
            if count == 0
            else f" {'Many' if 3 * count >= total else 'Some'} can be silent {effect}, perhaps "
            "because others carry nearly the same, or because they rest."
        )
        paragraphs.append(
            prose("Heads differ in worth. The most missed is ",
                  part(most.head.name, f"head {most.head.name}"), f".{others}{spared}")
        )  # fmt: skip
    paragraphs.append(
        prose("Read this with care. The order was measured on this one sentence; another sentence "
              "needs other heads. And two heads with the same job both look spare, until both are "
              "silent. To cut heads for good, headwise prune judges them together on many texts.")
    )  # fmt: skip
    return paragraphs
