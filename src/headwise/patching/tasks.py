"""Built-in prompt tasks: pairs of prompts with gold answers, written for headwise.

In: the name of a task and a model. Out: those of the task's pairs that the model's tokenizer can
align. Nothing is random: words and templates take turns, so that the first pairs of a task already
use each of its templates. The words are in `task_words.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.formats import join_words
from headwise.models.loaded import LoadedModel
from headwise.patching import task_words as words
from headwise.patching.alignment import BLANK, AlignmentError, PairReader
from headwise.patching.prompts import PromptPair

FEWEST_PAIRS = 8
"""Minimum number of pairs that must align: with fewer, a few words would decide the result."""


@dataclass(frozen=True)
class PromptTask:
    """A set of prompt pairs that ask for one ability."""

    name: str
    description: str
    """The ability, as a noun phrase."""
    pairs: tuple[PromptPair, ...]
    masked: tuple[PromptPair, ...] = ()
    """Pairs for masked models, with the answer's place as ___; empty if there are none."""


def find_task(name: str) -> PromptTask:
    """The built-in task with this name; raises OptionError if it is unknown."""
    if name not in TASKS:
        near = get_close_matches(str(name), TASKS, n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise OptionError(
            f"task is {name!r}, which is unknown: {guess}choose from {', '.join(TASKS)}",
            option="task",
        )
    return TASKS[name]


def task_pairs(name: str, loaded: LoadedModel, count: int | None = None) -> tuple[PromptPair, ...]:
    """Pairs of a built-in task that align in this model's tokenizer, `count` of them or all.

    The templates of the task share `count` about equally. Raises OptionError if fewer than
    `FEWEST_PAIRS` pairs align, or fewer than `count`.
    """
    task = find_task(name)
    if count is not None:
        whole_number("count", count, least=1)
    reader = PairReader(loaded)
    pairs = task.masked if reader.predicts_masked else task.pairs
    if not pairs:
        masked = join_words([each.name for each in TASKS.values() if each.masked], "or")
        raise OptionError(
            f"task is {name!r}, which has no prompts for masked models such as {loaded.name}: "
            f"use {masked}",
            option="task",
        )
    aligned, reasons = _split_aligned(reader, pairs)
    if len(aligned) < FEWEST_PAIRS:
        raise OptionError(
            f"task is {name!r}, of which {len(aligned)} of {len(pairs)} pairs suit the tokenizer "
            f"of {loaded.name}, but {FEWEST_PAIRS} are needed: {reasons[0]}",
            option="task",
        )
    if count is not None and count > len(aligned):
        raise OptionError(
            f"count is {count}: the task {name} has {len(aligned)} pairs for {loaded.name}, so use "
            "at most as many",
            option="count",
        )
    return tuple(aligned[:count])


def _split_aligned(
    reader: PairReader, pairs: Sequence[PromptPair]
) -> tuple[list[PromptPair], list[str]]:
    """The pairs that align, and for each of the others the reason why it does not."""
    aligned, reasons = [], []
    for number, pair in enumerate(pairs, 1):
        try:
            reader.read(pair, f"pair {number}")
        except AlignmentError as err:
            reasons.append(str(err))
            continue
        if all(reader.keeps_tokens(pair.clean, word) for word in (pair.answer, pair.instead)):
            aligned.append(pair)
        else:
            reasons.append(f"pair {number} has an answer that changes the tokens before it")
    return aligned, reasons


def _indirect_object() -> PromptTask:
    people = [*words.WOMEN.split(), *words.MEN.split()]
    pairs = []
    for turn in range(12):
        for place, template in enumerate(words.INDIRECT_OBJECT):
            number = turn * len(words.INDIRECT_OBJECT) + place
            giver = people[number % len(people)]
            taker = people[(7 * number + 2 * (number // len(people)) + 3) % len(people)]
            first, second = (giver, taker) if (turn + place) % 2 else (taker, giver)
            clean, corrupted = (
                template.format(FIRST=first, SECOND=second, GIVER=name) for name in (giver, taker)
            )
            pairs.append(PromptPair(clean, corrupted, f" {taker}", f" {giver}"))
    description = "the one of two people who has not been mentioned twice"
    return PromptTask("indirect-object", description, tuple(pairs))


def _greater_than() -> PromptTask:
    """Ends of ranges, one digit each; half of the prompts ask for years, half for pages and so on.

    Tokenizers cut years differently, so the answer is only the digit that decides: that of the
    decade, after the century is given. It is one more than the digit of the clean start. `instead`
    is one more than that of the corrupted start, and is less than the clean start: after "from 1752
    to 17", "6" is right and "3" is not; after "from 1722 to 17" both are, but "3" is nearer. A year
    is used only if the tokenizer splits it into digits. Ranges such as "pages 5-" suit the others.
    """
    pairs = []
    for turn in range(8):
        for place, template in enumerate((*words.YEARS, *words.RANGES)):
            start = 4 + turn % 4
            lower = start - 2 - turn // 4
            digits = {"CENTURY": 16 + (turn + place) % 3, "DIGIT": 1 + (3 * turn + place) % 8}
            clean, corrupted = (template.format(START=digit, **digits) for digit in (start, lower))
            pairs.append(PromptPair(clean, corrupted, str(start + 1), str(lower + 1)))
    return PromptTask("greater-than", "an end that is greater than the start", tuple(pairs))


def _agreement() -> PromptTask:
    lists = {"THING": words.THINGS, "PLACE": words.PLACES}
    lists |= {"PERSON": words.PEOPLE, "TOWN": words.TOWNS}
    nouns = {slot: [noun.split("/") for noun in text.split()] for slot, text in lists.items()}
    pairs, masked = [], []
    for turn in range(16):
        is_plural, distractor = (turn // 2) % 2, turn % 2
        for place, (start, verbs, end) in enumerate(words.AGREEMENT):
            forms = {
                slot: listed[(3 * turn + 5 * place) % len(listed)] for slot, listed in nouns.items()
            }
            others = {slot: forms[slot][distractor] for slot in ("PLACE", "TOWN")}
            clean, corrupted = (
                start.format(**{slot: both[number] for slot, both in forms.items()} | others)
                for number in (is_plural, 1 - is_plural)
            )
            singular, plural = (f" {verb}" for verb in verbs.split("/"))
            answers = (plural, singular) if is_plural else (singular, plural)
            pairs.append(PromptPair(clean, corrupted, *answers))
            masked.append(_with_blank(pairs[-1], end))
    description = "a verb that agrees with its subject, across another noun"
    return PromptTask("agreement", description, tuple(pairs), tuple(masked))


def _pronoun() -> PromptTask:
    women, men = words.WOMEN.split(), words.MEN.split()
    pairs, masked = [], []
    for turn in range(16):
        for place, (start, end) in enumerate(words.PRONOUN):
            woman = women[(3 * turn + 5 * place) % len(women)]
            man = men[(7 * turn + place) % len(men)]
            choices = [(woman, " she"), (man, " he")]
            (name, pronoun), (other, instead) = choices[:: 1 if (turn + place) % 2 else -1]
            clean, corrupted = (start.format(NAME=each) for each in (name, other))
            pairs.append(PromptPair(clean, corrupted, pronoun, instead))
            masked.append(_with_blank(pairs[-1], end))
    return PromptTask("pronoun", "the pronoun for a name", tuple(pairs), tuple(masked))


def _with_blank(pair: PromptPair, end: str) -> PromptPair:
    """The pair for masked models: the answer's place, then the end of the sentence."""
    clean, corrupted = (f"{prompt} {BLANK} {end}" for prompt in (pair.clean, pair.corrupted))
    return PromptPair(clean, corrupted, pair.answer, pair.instead)


def _induction() -> PromptTask:
    """Words in no meaningful order, twice, and the start of a third round.

    The corrupted prompt ends in another of the words, so that the word after that one comes next.
    """
    objects = words.OBJECTS.split()
    steps = (3, 7, 9, 11, 13, 17)  # each has no divisor in common with the 40 objects
    pairs = []
    for turn in range(72):
        length = 5 + turn % 3
        sequence = [objects[(7 * turn + steps[turn % 6] * k) % len(objects)] for k in range(length)]
        last = 2 + turn // 3 % (length - 3)
        others = [place for place in range(length - 1) if place not in (last - 1, last)]
        other = others[turn // 2 % len(others)]
        text = ". ".join(2 * [" ".join(sequence)] + [" ".join(sequence[:last])])
        clean, corrupted = (f"{text} {sequence[place]}" for place in (last, other))
        pairs.append(
            PromptPair(clean, corrupted, f" {sequence[last + 1]}", f" {sequence[other + 1]}")
        )
    return PromptTask("induction", "the next word of a repeated sequence", tuple(pairs))


def _capitals() -> PromptTask:
    countries = [pair.split("/") for pair in words.CAPITALS.split()]
    pairs = []
    for turn in range(len(countries)):
        for place, template in enumerate(words.COUNTRY_TEMPLATES):
            country, capital = countries[turn]
            other, instead = countries[(turn + 5 * place + 3) % len(countries)]
            clean, corrupted = (template.format(COUNTRY=name) for name in (country, other))
            pairs.append(PromptPair(clean, corrupted, f" {capital}", f" {instead}"))
    return PromptTask("capitals", "the capital of a country", tuple(pairs))


TASKS: Mapping[str, PromptTask] = MappingProxyType(
    {
        task.name: task
        for task in (
            *(_indirect_object(), _greater_than(), _agreement()),
            *(_pronoun(), _induction(), _capitals()),
        )
    }
)
"""The built-in tasks by name."""
