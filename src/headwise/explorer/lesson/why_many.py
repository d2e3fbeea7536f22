"""Step 1: why one head is not enough.

In: Facts, and the same sentence with another word if there is one. Out: a LessonStep, with one
head's links, how they move when the word is swapped, and the average of all heads' rows.
"""

import difflib
import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.explorer.lesson import figures
from headwise.explorer.lesson.facts import Facts, ReadText, batch_steps, read_text
from headwise.explorer.lesson.prose import Prose, Run, join_runs, prose, term
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, choice_question
from headwise.explorer.lesson.token_text import percent, shown
from headwise.formats import format_count, join_words
from headwise.tracing.trace import trace

APART = 0.1
"""Shares offered as answers differ by at least this much."""
MOVED = 0.03
"""Least change of a share that a sentence mentions."""
MAX_OPTIONS = 4
MAX_HEADS = 3
"""Number of heads whose rows are averaged."""


@dataclass(frozen=True, eq=False)
class Swap:
    """The sentence with another word, read in the same head."""

    text: str
    read: ReadText
    weights: Float[Tensor, "row column"]
    aligned: list[tuple[int | None, int | None]]
    here: int
    """Index of the followed word in the other sentence."""

    @cached_property
    def partner(self) -> dict[int, int]:
        """Words of the other sentence, by their partners' indices in the first."""
        return {one: other for one, other in self.aligned if one is not None and other is not None}

    @property
    def words(self) -> list[str]:
        """The texts of the other sentence's words."""
        return [word.text for word in self.read.stage.words or self.read.stage.pieces]


def read_swap(facts: Facts, other: str) -> Swap | None:
    """The other sentence in the lesson's head; None if it lacks the followed word."""
    read = read_text(facts.scored, other)
    words = read.stage.words or read.stage.pieces
    aligned = align(
        [word.text.lower() for word in facts.words], [word.text.lower() for word in words]
    )
    here = dict(aligned).get(facts.here)
    if here is None:
        return None
    scored = facts.scored
    traced = trace(scored.model, read.inputs, layer=facts.call.layer, tokenizer=scored.tokenizer)
    weights = read.by_word(batch_steps(traced)["weights"].double())[facts.head]
    return Swap(other, read, weights, aligned, here)


def align(one: list[str], other: list[str]) -> list[tuple[int | None, int | None]]:
    """Pairs of indices of words that both texts have, or that took each other's place.

    >>> align("it was tired".split(), "it was too wide".split())
    [(0, 0), (1, 1), (2, 2), (None, 3)]
    """
    pairs: list[tuple[int | None, int | None]] = []
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for _, start, stop, other_start, other_stop in matcher.get_opcodes():
        for step in range(max(stop - start, other_stop - other_start)):
            at, there = start + step, other_start + step
            pairs.append((at if at < stop else None, there if there < other_stop else None))
    return pairs


def why_many(facts: Facts, swap: Swap | None = None) -> LessonStep:
    """The step on why one row of shares cannot serve every purpose."""
    heads = sharp_heads(facts)
    rows = [_row_figure(facts.named_head(facts.names[at]), facts.every_row[at]) for at in heads]
    figure = figures.WhyManyFigure(
        place=facts.place,
        weights=facts.word_rows[facts.head].tolist(),
        swap=None if swap is None else _swap_figure(swap),
        rows=rows,
        average=_row_figure(None, facts.every_row[heads].mean(0)),
        mean_entropy=math.fsum(row.entropy for row in rows) / len(rows),
        mean_largest=math.fsum(row.largest for row in rows) / len(rows),
    )
    return LessonStep(
        name="why-many",
        title="Why one head is not enough",
        minutes=2.0,
        paragraphs=_opening(facts, is_swapped=swap is not None),
        exercise=_exercise(figure),
        question=_look_question(facts) if swap is None else _swap_question(facts, swap),
        figures=figure,
        after=[*_swap_paragraphs(facts, swap), *_blur_paragraphs(facts, figure)],
    )


def sharp_heads(facts: Facts) -> list[int]:
    """The followed head, and the heads that look most at other words, one for each word."""
    mine = facts.names.index(facts.name)
    chosen, taken = [mine], set(facts.ordinary_words(facts.every_row[mine])[:1])
    roles = {facts.lead_role(facts.names[mine])}
    best: list[tuple[float, int, int]] = []
    for head, row in enumerate(facts.every_row):
        if head != mine and (words := facts.ordinary_words(row)):
            best.append((float(row[words[0]]), head, words[0]))
    best.sort(key=lambda each: (-each[0], each[1]))
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


def _swap_figure(swap: Swap) -> figures.SwapFigure:
    return figures.SwapFigure(
        text=swap.text,
        words=list(swap.read.stage.words or swap.read.stage.pieces),
        word=swap.here,
        weights=swap.weights.tolist(),
        aligned=[[one, other] for one, other in swap.aligned],
    )


def _row(facts: Facts) -> Float[Tensor, " column"]:
    return facts.word_rows[facts.head, facts.here]


def _opening(facts: Facts, *, is_swapped: bool) -> list[Prose]:
    here, row = facts.word(facts.here), _row(facts)
    total, per_layer = sum(facts.layers.values()), sorted(set(facts.layers.values()))
    heads = f"{per_layer[0]}" if len(per_layer) == 1 else f"{per_layer[0]} to {per_layer[-1]}"
    layer, head = facts.call.layer, facts.head
    first = prose(
        "To understand ", here, ", a model has to look at the other words. The part of a model "
        "that looks is called an ", term("attention head"), ". From every word, a head has 100% of "
        "its attention to give away, and each word gets a ", term("share"), " of it.",
    )  # fmt: skip
    which = (
        f"This model has {format_count(total, 'head')}, in "
        f"{format_count(len(facts.layers), 'layer')} of {heads}. The picture shows one of them: "
        f"layer {layer}, head {head}, or {facts.name} for short. (Counting starts at 0.)"
    )
    if not is_swapped:
        return [first, prose(which)]
    top = int(row.argmax())
    return [
        first,
        prose(which, " From ", here, f", {percent(float(row[top]))} goes to ",
              _self_or_word(facts, top), "."),
    ]  # fmt: skip


def _self_or_word(facts: Facts, at: int) -> Prose:
    return prose("the word itself") if at == facts.here else facts.word(at)


def _swapped_words(facts: Facts, swap: Swap) -> tuple[int, Prose, Prose]:
    """Index of the first changed word, and the words before and after the swap."""
    words = [word.text.lower() for word in facts.words]
    others = [word.lower() for word in swap.words]
    for one, other in swap.aligned:
        if one is None or other is None or words[one] != others[other]:
            at = len(words) if one is None else one
            old = prose("nothing") if one is None else facts.word(one)
            new = prose("nothing")
            if other is not None:
                new = [Run(shown(swap.words[other]), "word", f"other {other}")]
            return at, old, new
    return len(words), prose("nothing"), prose("nothing")


def _watched(facts: Facts, swap: Swap) -> int:
    """The word whose share the swap is about: the largest that both sentences have."""
    row = _row(facts)
    order: list[int] = [*facts.ordinary_words(row), *row.argsort(descending=True).tolist()]
    return next(at for at in order if at in swap.partner)


def _swap_question(facts: Facts, swap: Swap) -> QuizQuestion:
    watched = _watched(facts, swap)
    before, after = (
        float(_row(facts)[watched]),
        float(swap.weights[swap.here, swap.partner[watched]]),
    )
    options: list[float] = [after]
    for value in (before, 0.05, before / 2, min(0.95, before + 0.2), 0.9, 0.4):
        if len(options) < 3 and all(abs(value - other) >= APART for other in options):
            options.append(value)
    texts = [_change_text(before, value) for value in options]
    at, old, new = _swapped_words(facts, swap)
    is_hidden = facts.is_causal and at > facts.here
    if is_hidden:
        hint = prose("This model reads from left to right. From ", facts.word(facts.here),
                     " it sees only the words before it.")  # fmt: skip
    else:
        hint = prose(
            "Put yourself in the reader's place: with ", new, ", do you still think of ",
            facts.word(watched), "? The head sees the new word, too."
        )  # fmt: skip
    return choice_question(
        prose("We swap one word: ", new, " instead of ", old, ". What happens to the share that ",
              facts.word(watched), " gets from ", facts.word(facts.here), "?"),
        texts[0],
        texts[1:],
        hint=hint,
        why=_moves(facts, swap, watched),
    )  # fmt: skip


def _change_text(before: float, after: float) -> str:
    if abs(after - before) < 0.02:
        return f"It stays near {percent(before)}"
    return f"It {'rises' if after > before else 'falls'} to about {percent(after)}"


def _moves(facts: Facts, swap: Swap, watched: int) -> Prose:
    """What the swap moved, in points, and no more."""
    row = _row(facts)
    pairs = [
        (one, float(swap.weights[swap.here, other] - row[one]))
        for one, other in swap.partner.items()
    ]
    before, after = float(row[watched]), float(swap.weights[swap.here, swap.partner[watched]])
    sentence = prose(facts.word(watched), f" goes from {percent(before)} to {percent(after)}.")
    gains = sorted((pair for pair in pairs if pair[0] != watched), key=lambda pair: -abs(pair[1]))
    told = [
        prose(
            facts.word(one), f" {'gains' if change > 0 else 'loses'} {abs(change) * 100:.0f} points"
        )
        for one, change in gains[:3]
        if abs(change) >= MOVED
    ]
    return prose(sentence, " ", join_runs(told), ".") if told else sentence


def _look_question(facts: Facts) -> QuizQuestion:
    row, here = _row(facts), facts.here
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
    hint = prose(f"On many texts, this head is {roles[0]}. ") if roles else prose()
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
    views = ["One head", *(["Swap"] if figure.swap else []), f"{len(figure.rows)} heads"]
    if len(figure.rows) == 1:
        views.pop()
    if len(views) == 1:
        return prose("Point at other words to see where they look.")
    return prose(f"Switch between {join_words(views)} above the picture. Point at other words.")


def _swap_paragraphs(facts: Facts, swap: Swap | None) -> list[Prose]:
    special = next((at for at, word in enumerate(facts.words) if word.kind == "special"), None)
    if swap is None or special is None:
        return []
    return [
        prose(
            facts.word(special), " is not a word of the sentence. The model adds it to every text, "
            "and a head that finds little rests there. A link shows where the head looks. It does "
            "not prove that the model has understood what ", facts.word(facts.here), " means."
        )
    ]  # fmt: skip


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
    looks = [
        prose(
            f"{row.head.name} gives {percent(row.largest)} to ",
            _self_or_word(facts, row.largest_word),
        )
        for row in rows
        if row.head is not None
    ]
    several = {2: "Two", 3: "Three"}[len(rows)]
    return [
        prose("A head can spend its 100% only once, but ", here, " needs several links at the same "
              f"time. {several} heads share the work: ", join_runs(looks), "."),
        prose("With a single head, one row would have to serve for all of these. It would be like "
              "their average, and that is a blur: its largest share is "
              f"{percent(average.largest)}, while the heads reach {percent(figure.mean_largest)} "
              f"on average. It is like looking evenly at {math.exp(average.entropy):.1f} words at "
              f"once, instead of {math.exp(figure.mean_entropy):.1f}. Several heads each stay "
              "sharp."),
    ]  # fmt: skip
