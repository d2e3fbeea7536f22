"""Sentences with one word swapped, and how a head's links move with the swap.

In: Facts, and the other sentence. Out: a Swap or a Pair, questions and sentences about them.
"""

import difflib
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from headwise.explorer.api_types import BuiltinPair
from headwise.explorer.lesson import figures
from headwise.explorer.lesson.choice import Choice
from headwise.explorer.lesson.facts import (
    Facts,
    LessonText,
    batch_steps,
    lesson_facts,
    read_lesson_text,
)
from headwise.explorer.lesson.prose import Prose, ProseRun, join_runs, part, prose
from headwise.explorer.lesson.quiz import QuizQuestion, choice_question
from headwise.explorer.lesson.token_text import percent, shown
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.objectives.scored_model import ScoredModel
from headwise.tracing.trace import trace

APART = 0.1
"""Shares offered as answers differ by at least this much."""
MOVED = 0.03
"""Least change of a share that a sentence mentions."""


@dataclass(frozen=True, eq=False)
class Swap:
    """The sentence with another word, read in the same head."""

    text: str
    read: LessonText
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
    read = read_lesson_text(facts.scored, other)
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


@dataclass(frozen=True, eq=False)
class Pair:
    """A second sentence, and the same with one word changed, in a head of its own."""

    facts: Facts
    swap: Swap


def read_pair(scored: ScoredModel, pair: BuiltinPair, table: HeadTable | None) -> Pair | None:
    """Both sentences of a pair, in the pair's head."""
    head = HeadId.parse(pair.head or "")
    groups = read_lesson_text(scored, pair.text).groups
    choice = Choice(head.layer, head.head, groups[pair.source][0])
    facts = lesson_facts(scored, pair.text, choice, table)
    swap = read_swap(facts, pair.other)
    return None if swap is None else Pair(facts, swap)


def pair_figure(pair: Pair) -> figures.PairFigure:
    """The second pair as the browser receives it."""
    facts = pair.facts
    return figures.PairFigure(
        head=facts.lesson_head(facts.head),
        words=list(facts.words),
        word=facts.here,
        weights=facts.word_rows[facts.head].tolist(),
        swap=swap_figure(pair.swap),
    )


def swap_figure(swap: Swap) -> figures.SwapFigure:
    """The swapped sentence as the browser receives it."""
    return figures.SwapFigure(
        text=swap.text,
        words=list(swap.read.stage.words or swap.read.stage.pieces),
        word=swap.here,
        weights=swap.weights.tolist(),
        aligned=[[one, other] for one, other in swap.aligned],
    )


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
                new = [ProseRun(shown(swap.words[other]), "word", f"other {other}")]
            return at, old, new
    return len(words), prose("nothing"), prose("nothing")


def _watched(facts: Facts, swap: Swap) -> int:
    """The word whose share the swap is about: the largest that both sentences have."""
    row = facts.here_row
    order: list[int] = [*facts.ordinary_words(row), *row.argsort(descending=True).tolist()]
    return next(at for at in order if at in swap.partner)


def swap_question(facts: Facts, swap: Swap) -> QuizQuestion:
    """Ask what the swap does to the share of the leading word."""
    watched = _watched(facts, swap)
    before, after = float(facts.here_row[watched]), _after_swap(swap, watched)
    texts = [_change_text(before, value) for value in _offers(before, after)]
    _, old, new = _swapped_words(facts, swap)
    if _is_hidden(facts, swap):
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


def pair_question(pair: Pair) -> QuizQuestion:
    """Ask what happens to a word's share in the second sentence."""
    facts, swap = pair.facts, pair.swap
    watched = _watched(facts, swap)
    before, after = float(facts.here_row[watched]), _after_swap(swap, watched)
    texts = [_change_text(before, value) for value in _offers(before, after)]
    _, old, new = _swapped_words(facts, swap)
    old, new = _without_target(old), _without_target(new)
    name = _without_target(facts.word(watched))
    return choice_question(
        prose(part("Another sentence", "view pair"), f", read by {facts.name}: “{_text(facts)}” ",
              "There, ", old, f" gives {percent(before)} to ", name, ". Now we write ", new,
              " instead of ", old, ". What happens to the share of ", name, "?"),
        texts[0],
        texts[1:],
        hint=prose("Who is meant by ", new, "? The head sees the new word, too."),
        why=_without_target(_moves(facts, swap, watched)),
    )  # fmt: skip


def _is_hidden(facts: Facts, swap: Swap) -> bool:
    """Whether the swapped word comes after the followed word and cannot be seen from it."""
    return facts.is_causal and _swapped_words(facts, swap)[0] > facts.here


def _text(facts: Facts) -> str:
    """The sentence, without special tokens."""
    words = [word for word in facts.words if word.kind != "special"]
    return "".join(" " * (word.space and at > 0) + word.text for at, word in enumerate(words))


def _without_target(runs: Prose) -> Prose:
    """Runs that light up nothing: their words are not in the picture."""
    return [ProseRun(run.text, run.kind) for run in runs]


def _after_swap(swap: Swap, watched: int) -> float:
    return float(swap.weights[swap.here, swap.partner[watched]])


def _offers(before: float, after: float) -> list[float]:
    """The right share and two wrong ones that differ clearly."""
    options: list[float] = [after]
    for value in (before, 0.05, before / 2, min(0.95, before + 0.2), 0.9, 0.4):
        if len(options) < 3 and all(abs(value - other) >= APART for other in options):
            options.append(value)
    return options


def _change_text(before: float, after: float) -> str:
    if abs(after - before) < 0.02:
        return f"It stays near {percent(before)}"
    return f"It {'rises' if after > before else 'falls'} to about {percent(after)}"


def _moves(facts: Facts, swap: Swap, watched: int) -> Prose:
    """The shares that the swap moved most, in points, and no more."""
    if _is_hidden(facts, swap):
        return prose(facts.word(watched), f" keeps its {percent(float(facts.here_row[watched]))}: "
                     "from ", facts.word(facts.here), ", this model cannot see the swapped word. "
                     "It reads from left to right.")  # fmt: skip
    row = facts.here_row
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


def _most_gained(pair: Pair) -> int:
    """The word that gains most by the swap."""
    row, swap = pair.facts.here_row, pair.swap
    return max(
        swap.partner, key=lambda at: float(swap.weights[swap.here, swap.partner[at]] - row[at])
    )


def swap_paragraphs(facts: Facts, swap: Swap | None, pair: Pair | None) -> list[Prose]:
    """Sentences on each swap, and on links, which prove nothing."""
    paragraphs = []
    if pair is not None:
        new = _without_target(_swapped_words(pair.facts, pair.swap)[2])
        gained = _without_target(pair.facts.word(_most_gained(pair)))
        paragraphs.append(
            prose("With ", new, f", the link of {pair.facts.name} moves to ", gained, ".")
        )
    if pair is not None and swap is not None:
        _, old, new = _swapped_words(facts, swap)
        paragraphs.append(
            prose("Not every swap is as clear. In our sentence, write ", new, " for ", old, ": ",
                  _moves(facts, swap, _watched(facts, swap)))
        )  # fmt: skip
    if swap is not None:
        paragraphs.append(
            prose("A link shows where a head looks. It does not prove that the model has "
                  "understood what ", facts.word(facts.here), " means.")
        )  # fmt: skip
    return paragraphs
