"""Step 7: what heads learned, and which we can spare.

In: Facts, and the effects of silencing (silencing.py). Out: a LessonStep.
"""

from collections import Counter
from dataclasses import replace

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.figures import StepAnswer
from headwise.explorer.lesson.prose import Prose, ProseRun, part, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion
from headwise.explorer.lesson.silencing import (
    DRAWS,
    Baseline,
    Effects,
    Measured,
    prompt_end,
)
from headwise.explorer.lesson.token_text import number, ordinal, percent, shown, signed
from headwise.formats import format_count
from headwise.roles import ROLES

ENOUGH = 0.9
"""Cosine down to which a sentence's embedding counts as nearly the same."""
SOME = 0.2
"""Cosine from which an embedding clearly has something of the unchanged one."""
NATS = 0.5
"""Divergence up to which a prediction counts as nearly the same."""
PARTS = 4
"""Number of ranges that the question offers, besides "none"."""


def spare_outline(facts: Facts, baseline: Baseline) -> StepAnswer:
    """The step on the roles of heads, as far as it is known before heads are silenced."""
    end = ", until another word takes over." if baseline.next else "."
    total = sum(facts.layers.values())
    place = facts.names.index(facts.name)
    asked = prose(f"We silence heads together, the least missed first, {_rule(baseline)}. How many "
                  f"of the {format_count(total, 'head')} can be silent?")  # fmt: skip
    return StepAnswer(
        name="spare",
        title="What heads learned, and which we can spare",
        minutes=2.0,
        paragraphs=[_roles_paragraph(facts), _answer_paragraph(facts, baseline)],
        exercise=prose("Choose one head to silence it alone. Then move the slider to silence the "
                       "least missed heads together", end),
        question=figures.QuestionAnswer(asked, "choice", _options(total)),
        figures=figures.WaitingFigure(
            facts.place, facts.named_head(facts.name), facts.every_row[place].tolist()
        ),
    )  # fmt: skip


def spare(facts: Facts, measured: Measured) -> LessonStep:
    """The step on the roles of heads and the effect of silencing them."""
    outline = spare_outline(facts, measured.baseline)
    figure = _figure(facts, measured)
    limit = _limit(figure)
    figure = replace(figure, limit=limit)
    known = {"figures": figure, "question": _limit_question(outline.question, figure, measured)}
    return LessonStep(**{**vars(outline), **known}, after=_after(facts, figure))


def _figure(facts: Facts, measured: Measured) -> figures.SpareFigure:
    alone, order = measured.alone, measured.order
    rank = {index: len(order) - place for place, index in enumerate(order)}
    names = [f"{layer}H{head}" for layer, head in measured.heads]
    return figures.SpareFigure(
        place=facts.place,
        unit=alone.unit,
        unchanged=measured.baseline.unchanged,
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
        line=_line(measured.baseline),
        next=measured.baseline.next,
        last=facts.word_of[prompt_end(facts) - 1],
        together=[_together(facts, measured, step) for step in range(len(measured.counts))],
        limit=-1,
        draws=DRAWS,
        weights=facts.every_row.tolist(),
        alone=_alone_sentence(measured),
    )


def _line(baseline: Baseline) -> float | None:
    if baseline.next:
        return None
    lines = {"cosine": ENOUGH, "nats": NATS, "loss": baseline.unchanged * 1.1}
    return lines[baseline.unit]


def _room(baseline: Baseline) -> float:
    """How far the answer may move before it counts as changed."""
    rooms = {"cosine": 1 - ENOUGH, "nats": NATS, "loss": 0.1 * abs(baseline.unchanged)}
    return rooms[baseline.unit]


def _alone_sentence(measured: Measured) -> str:
    """How much single heads matter, so that the learner can reason about many."""
    baseline, alone = measured.baseline, measured.alone
    total = len(measured.heads)
    if alone.tops is not None and baseline.top is not None:
        changed = int((alone.tops != baseline.top).sum())
        return f"Silenced alone, {changed:,} of the {format_count(total, 'head')} change the word."
    effects = alone.effects.sort().values
    return (
        f"Silenced alone, half of the heads move the answer by {number(float(effects[total // 2]))}"
        f" or less, the most missed by {number(float(effects[-1]))}. The line leaves room for "
        f"{number(_room(baseline))}."
    )


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
        kept = sum(int(random.tops[draw]) == measured.baseline.top for draw in draws)
    return figures.TogetherFigure(
        count=measured.counts[step],
        value=float(effects.values[step]),
        effect=float(effects.effects[step]),
        next=_next(effects, step),
        likeliest=_likeliest(facts, effects, step),
        random=[float(random.values[draw]) for draw in draws],
        random_next=[_next(random, draw)[0] for draw in draws] if measured.baseline.next else [],
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
    commonest = [f"{role} ({count} {'head' if count == 1 else 'heads'}), which "
                 f"{ROLES[role].phrase}" for role, count in counts.most_common(3)]  # fmt: skip
    total = sum(facts.layers.values())
    are = "The commonest is" if len(commonest) == 1 else "The commonest are:"
    listed = f"{are} {'; '.join(commonest)}. " if commonest else ""
    several = any(len(roles) > 1 for roles in facts.roles.values())
    twice = " A head with several roles counts in each." if several else ""
    return prose(
        start, "A ", term("role"), f" names where a head tends to look, measured on other texts. "
        f"{listed}{without} of the {format_count(total, 'head')} "
        f"{'has' if without == 1 else 'have'} no clear role.{twice}"
    )  # fmt: skip


def _answer_paragraph(facts: Facts, baseline: Baseline) -> Prose:
    start = prose("A role does not show that the model needs the head. So we ", term("silence"),
                  " heads: a silent head adds nothing. Then the model reads the sentence again, "
                  "and we compare its answer. ")  # fmt: skip
    if baseline.next:
        top = baseline.next[0]
        last = facts.word_of[prompt_end(facts) - 1]
        return prose(start, "Here the model reads up to ", facts.word(last), " and predicts "
                     "the next word: ", _token(top.token),
                     f", {percent(top.probability)}.")  # fmt: skip
    scale = _scale(baseline, sum(facts.layers.values()))
    if baseline.unit == "cosine":
        return prose(start, "Here the answer is one long list of numbers for the whole sentence. "
                     "We compare two such lists by their ", term("cosine"),
                     f": 1 means that nothing has changed. {scale}")  # fmt: skip
    if baseline.unit == "loss":
        return prose(start, f"Here the answer is a loss, {number(baseline.unchanged)} with all "
                     f"heads. {scale}")  # fmt: skip
    return prose(start, "Here the answer is a prediction for every token. The change is measured "
                 f"in nats: 0 means that nothing has changed. {scale}")  # fmt: skip


def _scale(baseline: Baseline, total: int) -> str:
    """The value with all heads silent, and the line that the question draws."""
    last, rest = float(baseline.silent.values[0]), ""
    if float(baseline.silent.effects[0]) > _room(baseline):
        is_cosine = baseline.unit == "cosine"
        value = signed(last) if is_cosine else number(last)
        still = ": the words alone still say something" if is_cosine and last >= SOME else ""
        rest = f"With all {format_count(total, 'head')} silent it is {value}{still}. "
    line = str(ENOUGH if baseline.unit == "cosine" else NATS)
    if baseline.unit == "loss":
        line = "a change of a tenth"
    return f"{rest}We draw the line at {line}; that is our choice."


def _token(text: str) -> ProseRun:
    return ProseRun(shown(text), "word")


def _is_like(figure: figures.SpareFigure, step: figures.TogetherFigure) -> bool:
    if figure.next and step.likeliest is not None:
        return step.likeliest.token == figure.next[0].token
    if figure.unit == "cosine":
        return step.value >= ENOUGH
    if figure.unit == "loss":
        return step.effect <= 0.1 * abs(figure.unchanged)
    return step.value <= NATS


def _limit(figure: figures.SpareFigure) -> int:
    """Index of the last step that is still like the unchanged answer; -1 for none."""
    last = -1
    for index, step in enumerate(figure.together):
        if not _is_like(figure, step):
            break
        last = index
    return last


def _rule(baseline: Baseline) -> str:
    """When the answer counts as changed."""
    if baseline.next:
        return "until another next word becomes the likeliest"
    return {
        "cosine": f"until the cosine falls below {ENOUGH}",
        "loss": "until the loss moves by more than a tenth",
        "nats": f"until the prediction moves by more than {NATS} nats",
    }[baseline.unit]


def _limit_question(
    asked: figures.QuestionAnswer, figure: figures.SpareFigure, measured: Measured
) -> QuizQuestion:
    steps, total = figure.together, len(figure.heads)
    count = 0 if figure.limit < 0 else steps[figure.limit].count
    right = sum(count > end for end in [0, *_range_ends(total)])
    effects = measured.alone.effects.sort().values
    hint = f"{figure.alone} But small changes add up."
    if not figure.next:
        added = int((effects.cumsum(0) <= _room(measured.baseline)).sum())
        hint = (f"{figure.alone} If their changes only added up, that would be enough for "
                f"{format_count(added, 'head')}.")  # fmt: skip
    why = _limit_sentence(figure)
    return QuizQuestion(asked.text, "choice", asked.options, right, 0.0, prose(hint), why)


def _range_ends(total: int) -> list[int]:
    """The last number of each range that the question offers.

    >>> _range_ends(72), _range_ends(2)
    ([18, 36, 54, 72], [1, 2])
    """
    return sorted({max(1, round(total * part / PARTS)) for part in range(1, PARTS + 1)})


def _options(total: int) -> list[str]:
    """Ranges of numbers of heads, known before anything is measured."""
    ends = _range_ends(total)
    firsts = [1, *(end + 1 for end in ends)]
    ranges = [
        f"{first:,}" if first == end else f"{first:,} to {end:,}"
        for first, end in zip(firsts, ends, strict=False)
    ]
    return ["None of them", *ranges]


def _limit_sentence(figure: figures.SpareFigure) -> Prose:
    steps = figure.together
    if figure.limit < 0:
        first = steps[0]
        return prose(f"Already with {format_count(first.count, 'head')} silent, the answer has "
                     f"changed: {_value(figure, first)}.")  # fmt: skip
    last = steps[figure.limit]
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
