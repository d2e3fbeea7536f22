"""Step 1: why one head is not enough.

In: Facts, and sentences with a word swapped if there are any. Out: a LessonStep, with one head's
links, how they move with a swap, and the average of several heads' rows.
"""

import math

import torch
from torch import Tensor

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts
from headwise.explorer.lesson.prose import Prose, ProseRun, join_runs, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question
from headwise.explorer.lesson.swaps import (
    Pair,
    Swap,
    pair_figure,
    pair_question,
    swap_figure,
    swap_paragraphs,
    swap_question,
)
from headwise.explorer.lesson.token_text import percent, shown
from headwise.formats import format_count, join_words

MAX_OPTIONS = 4
MAX_HEADS = 3
"""Number of heads whose rows are averaged."""
SHARP = 0.5
"""Least share of a head's best word for the head to count as sharp."""
BLUR = 0.05
"""An average is blurred if its largest share is lower than the heads' by at least this much."""


def why_many(facts: Facts, swap: Swap | None = None, pair: Pair | None = None) -> LessonStep:
    """The step on why one row of shares cannot serve every purpose."""
    heads = sharp_heads(facts)
    rows = [_row_figure(facts.named_head(facts.names[at]), facts.every_row[at]) for at in heads]
    figure = figures.WhyManyFigure(
        place=facts.place,
        weights=facts.word_rows[facts.head].tolist(),
        swap=None if swap is None else swap_figure(swap),
        pair=None if pair is None else pair_figure(pair),
        rows=rows,
        average=_row_figure(None, facts.every_row[heads].mean(0)),
        mean_entropy=math.fsum(row.entropy for row in rows) / len(rows),
        mean_largest=math.fsum(row.largest for row in rows) / len(rows),
    )
    return LessonStep(
        name="why-many",
        title="Why one head is not enough",
        minutes=2.0,
        paragraphs=_opening(facts, is_swapped=(swap or pair) is not None),
        exercise=_exercise(figure),
        question=_question(facts, swap, pair),
        figures=figure,
        after=[*swap_paragraphs(facts, swap, pair), *_blur_paragraphs(facts, figure)],
    )


def sharp_heads(facts: Facts) -> list[int]:
    """The followed head, and the heads that look most at other words, one for each word.

    They are in the followed head's layer if it has enough sharp heads.
    """
    mine = facts.names.index(facts.name)
    best: list[tuple[float, int, int]] = []
    for head, row in enumerate(facts.every_row):
        if head != mine and (words := facts.ordinary_words(row)):
            best.append((float(row[words[0]]), head, words[0]))
    best.sort(key=lambda each: (-each[0], each[1]))
    layer = facts.layer_of[mine]
    near = [each for each in best if facts.layer_of[each[1]] == layer and each[0] >= SHARP]
    chosen = _one_for_each_word(facts, mine, near)
    return chosen if len(chosen) == MAX_HEADS else _one_for_each_word(facts, mine, best)


def _one_for_each_word(facts: Facts, mine: int, best: list[tuple[float, int, int]]) -> list[int]:
    """The followed head, and the best heads for other words: share, head and word, in order."""
    chosen, taken = [mine], set(facts.ordinary_words(facts.every_row[mine])[:1])
    roles = {facts.lead_role(facts.names[mine])}
    for needs_role in (True, False):  # heads of different roles first
        for _, head, word in best:
            role = facts.lead_role(facts.names[head])
            is_other = role is not None and role not in roles
            if word not in taken and len(chosen) < MAX_HEADS and (is_other or not needs_role):
                chosen.append(head)
                taken.add(word)
                roles.add(role)
    return chosen


def _row_figure(head: figures.LessonHead | None, weights: Tensor) -> figures.RowFigure:
    return figures.RowFigure(
        head=head,
        weights=weights.tolist(),
        entropy=float(torch.special.entr(weights).sum()),
        largest=float(weights.max()),
        largest_word=int(weights.argmax()),
    )


def _question(facts: Facts, swap: Swap | None, pair: Pair | None) -> QuizQuestion:
    if pair is not None:
        return pair_question(pair)
    return _look_question(facts) if swap is None else swap_question(facts, swap)


def _opening(facts: Facts, *, is_swapped: bool) -> list[Prose]:
    here = facts.word(facts.here)
    total, per_layer = sum(facts.layers.values()), sorted(set(facts.layers.values()))
    heads = f"{per_layer[0]}" if len(per_layer) == 1 else f"{per_layer[0]} to {per_layer[-1]}"
    layer, head = facts.call.layer, facts.head
    special = _added_words(facts)
    first = prose(
        "To understand ", here, ", a model has to look at the other words. The part of a model "
        "that looks is called an ", term("attention head"), ". For every word, a head has 100% of "
        "attention to give away, and each word of the sentence gets a ", term("share"), " of it.",
    )  # fmt: skip
    layers = format_count(len(facts.layers), "layer")
    stacked: list[str | ProseRun] = (
        [f"{heads} in its only ", term("layer")]
        if len(facts.layers) == 1
        else [
            f"{heads} in each of its ",
            term(layers),
            ", which the text passes one after the other",
        ]
    )
    which = prose(
        f"This model has {format_count(total, 'head')}: ", *stacked, ". The picture shows one of "
        f"them: layer {layer}, head {head}, or {facts.name} for short. (Layers and heads "
        "are counted from 0, everything else from 1.)", *special,
    )  # fmt: skip
    if not is_swapped:
        return [first, which]
    row = facts.here_row
    top = int(row.argmax())
    return [
        first,
        which,
        prose("From ", here, f", this head gives {percent(float(row[top]))} to ",
              _self_or_word(facts, top), "."),
    ]  # fmt: skip


def _added_words(facts: Facts) -> Prose:
    """The words that the model adds, and where heads rest."""
    first, last = facts.added
    if first and last:
        runs = prose(" ", facts.word(0), " and ", facts.word(len(facts.words) - 1),
                     " are not words; the model adds them to mark the beginning and the end."
                     )  # fmt: skip
    elif first or last:
        side, at = ("beginning", 0) if first else ("end", len(facts.words) - 1)
        runs = prose(" ", facts.word(at), f" is not a word; the model adds it to mark the {side}.")
    else:
        runs = prose()
    if not first and not facts.is_causal:
        return runs
    return prose(
        runs,
        " A head that finds little often rests on ",
        "" if first else "the first word, ",
        facts.word(0),
        " (dashed).",
    )


def _self_or_word(facts: Facts, at: int) -> Prose:
    return prose("the word itself") if at == facts.here else facts.word(at)


def _look_question(facts: Facts) -> QuizQuestion:
    row, here = facts.here_row, facts.here
    ordinary = facts.ordinary_words(row)
    if len(ordinary) < 2:
        return _count_question(facts)
    top = ordinary[0]
    texts = {shown(facts.words[top].text): top}
    for at in [*ordinary[1:2], *sorted(ordinary[2:], key=lambda at: -len(facts.words[at].text))]:
        texts.setdefault(shown(facts.words[at].text), at)
    if len(texts) < 2:
        return _count_question(facts)
    right, *wrong = list(texts)[:MAX_OPTIONS]
    roles = facts.lesson_head(facts.head).roles
    hint = (
        prose(f"On many texts, this head's role is \u201c{roles[0]}\u201d. ") if roles else prose()
    )
    return choice_question(
        prose("Guess first: which other word gets the largest share from ", facts.word(here), "?"),
        right,
        wrong,
        hint=prose(hint, "Which of these words would help you most to understand ",
                   facts.word(here), "?"),
        why=prose(facts.word(top), f" gets {percent(float(row[top]))} of the attention of ",
                  facts.word(here), f" in {facts.name}."),
    )  # fmt: skip


def _count_question(facts: Facts) -> QuizQuestion:
    count = facts.num_heads
    return choice_question(
        prose(f"Layer {facts.call.layer} has {format_count(count, 'head')}. How many rows of "
              "shares does each word have in this layer?"),
        f"{count:,}",
        [f"{wrong:,}" for wrong in (count + 1, count + 2, 2 * count + 1)],
        hint=prose("Every head makes a row of its own for every word."),
        why=prose(f"One row for each head: {count}."),
    )  # fmt: skip


def _exercise(figure: figures.WhyManyFigure) -> Prose:
    views = ["One head"]
    if figure.pair:
        views.append("He or she")
    views += [*(["Swap"] if figure.swap else []), f"{len(figure.rows)} heads"]
    if len(figure.rows) == 1:
        views.pop()
    if len(views) == 1:
        return prose("Point at other words, or tap them, to see where they look.")
    return prose(
        f"Switch between {join_words(views)} above the picture. Point at other words, or tap them."
    )


def _blur_paragraphs(facts: Facts, figure: figures.WhyManyFigure) -> list[Prose]:
    here, average, rows = facts.word(facts.here), figure.average, figure.rows
    if facts.sees_one:
        return [
            prose("From ", here, " only one word can be seen, so every head gives it 100%. Choose "
                  "a later word, and the heads will differ.")
        ]  # fmt: skip
    if len(rows) == 1:
        return [
            prose("In this model, all heads look most at the same word from ", here, ".")
            if sum(facts.layers.values()) > 1
            else prose("This model has only one head, so its one row serves every purpose.")
        ]
    looks = []
    for head in sharp_heads(facts):
        row = facts.every_row[head]
        top = next(iter(facts.ordinary_words(row)), int(row.argmax()))
        looks.append(
            prose(f"{facts.names[head]} gives {percent(float(row[top]))} to ",
                  _self_or_word(facts, top))
        )  # fmt: skip
    several, tops = {2: "two", 3: "three"}[len(rows)], []
    for head in sharp_heads(facts):
        row = facts.every_row[head]
        tops.append(float(row[next(iter(facts.ordinary_words(row)), int(row.argmax()))]))
    mean = math.fsum(tops) / len(tops)
    blur = (
        f"To see what that costs, we average the {several} rows: no word gets more than "
        f"{percent(average.largest)}, while the {several} heads give the words named above "
        f"{percent(mean)} on average."
        if mean - average.largest >= BLUR
        else f"The average of the {several} rows, in the picture, serves none of them exactly."
    )
    return [
        prose("A head can spend its 100% only once. Other heads spend theirs elsewhere: from ",
              here, ", ", join_runs(looks), f". {_when(facts)}"),
        prose(f"With a single head, one row would have to serve for all of these. {blur} (A model "
              "trained with one head would find its own compromise; this is only a picture of the "
              "problem.)"),
    ]  # fmt: skip


def _when(facts: Facts) -> str:
    """Whether the heads of the average work at the same time."""
    layers = sorted({facts.layer_of[head] for head in sharp_heads(facts)})
    if len(layers) == 1:
        return "They are in the same layer and work at the same time."
    names = join_words([str(layer) for layer in layers])
    if facts.num_heads == 1:
        return f"They are in layers {names}, so they work one after the other."
    return f"They are in layers {names}; step 5 shows heads that work at the same time."
