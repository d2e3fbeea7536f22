"""Built-in probe sentences: gold by construction, and reproducible from a seed.

In: the number of sentences per relation, and a seed. Out: sentences with one arc each. Also
WORKED_SENTENCES, a few sentences written by hand. The words and templates are in templates.py.

Arcs lead from the dependent to its governor: subject, object and adverb to the verb, determiner and
adjective to the noun, the object of a preposition to the preposition, a pronoun to its antecedent
(among candidates), a concept to the one related to it (among unrelated ones of the same kind).
"""

from collections.abc import Iterable, Iterator
from itertools import cycle, product
from random import Random
from typing import NamedTuple

from headwise.checks import whole_number
from headwise.probes.sentences import Arc, ProbeSentence
from headwise.probes.templates import (
    CONCEPTS_OF_THREE,
    CONCEPTS_OF_TWO,
    FEMALE,
    GROUPS,
    MALE,
    MEN,
    OPENINGS,
    PRONOUNS_OF_THINGS,
    PRONOUNS_OF_THREE,
    PRONOUNS_OF_TWO,
    RELATED,
    SLOTS,
    SYNTAX,
    WOMEN,
)

PRONOUN, CONCEPT = "pronoun-antecedent", "related-concepts"
RELATIONS = (*SYNTAX, PRONOUN, CONCEPT)
MOST = 1000  # sentences per relation; the smallest grammar has more different ones

_FORMS = {"she": ("her", "was"), "he": ("him", "was"), "they": ("them", "were")}


class _TemplateChoice(NamedTuple):
    """A template, its number of candidates, and which of them is gold."""

    template: str
    candidates: int = 0
    gold: int = 0


def builtin_sentences(per_relation: int = 200, seed: int = 0) -> tuple[ProbeSentence, ...]:
    """`per_relation` different sentences for each relation, shuffled."""
    per_relation = whole_number("per_relation", per_relation, least=1, most=MOST)
    sentences = [
        sentence
        for relation in RELATIONS
        for sentence in _sentences(relation, per_relation, Random(f"{seed} {relation}"))
    ]
    Random(seed).shuffle(sentences)
    return tuple(sentences)


def _sentences(relation: str, number: int, rng: Random) -> Iterator[ProbeSentence]:
    """Different sentences for one relation, from each template in turn."""
    choices = _template_choices(relation)
    rng.shuffle(choices)
    seen: set[tuple[str, ...]] = set()
    for choice in cycle(choices):
        while (sentence := _fill(relation, _complete(relation, choice, rng), rng)).words in seen:
            pass
        seen.add(sentence.words)
        yield sentence
        if len(seen) == number:
            return


def _template_choices(relation: str) -> list[_TemplateChoice]:
    """Each template, with each of its candidates as the gold one."""
    of_two, of_three = {
        PRONOUN: (PRONOUNS_OF_TWO, PRONOUNS_OF_THREE),
        CONCEPT: (CONCEPTS_OF_TWO, CONCEPTS_OF_THREE),
    }.get(relation, ((), ()))
    plain = PRONOUNS_OF_THINGS if relation == PRONOUN else SYNTAX.get(relation, ())
    return [
        *(_TemplateChoice(template) for template in plain),
        *(_TemplateChoice(template, 2, gold) for template, gold in product(of_two, range(2))),
        *(_TemplateChoice(template, 3, gold) for template, gold in product(of_three, range(3))),
    ]


def _complete(relation: str, choice: _TemplateChoice, rng: Random) -> str:
    """The template with its opening and candidates filled in, but not its slots."""
    if not choice.candidates:
        return _replace(choice.template, {name: rng.choice(OPENINGS[name]) for name in OPENINGS})
    return _with_people(choice, rng) if relation == PRONOUN else _with_concepts(choice, rng)


def _replace(template: str, phrases: dict[str, str]) -> str:
    """Replace whole words of the template; a mark after a word stays."""
    pairs = (token.partition(":") for token in template.split())
    return " ".join(phrases.get(name, name) + colon + mark for name, colon, mark in pairs)


def _mark(phrases: Iterable[str], slot: str, gold: int) -> dict[str, str]:
    """Candidates by slot name, marked g (gold) or c."""
    return {
        f"{slot}{index + 1}": f"{phrase}:{'g' if index == gold else 'c'}"
        for index, phrase in enumerate(phrases)
    }


def _with_people(choice: _TemplateChoice, rng: Random) -> str:
    """Fill in people such that the pronoun can only mean the gold one.

    The cue is gender (she among men) or number (she among groups). "They" is used only with one
    other person: two others together could also be "they".
    """
    women, men, they = ([f"the {noun}" for noun in nouns] for nouns in (WOMEN, MEN, GROUPS))
    she, he = [*FEMALE, *women], [*MALE, *men]
    cues = [("she", she, he), ("he", he, she), ("she", she, they), ("he", he, they)]
    if choice.candidates == 2:
        cues += [("they", they, she), ("they", they, he)]
    pronoun, right, wrong = rng.choice(cues)
    people = rng.sample(wrong, choice.candidates)
    people[choice.gold] = rng.choice(right)
    object_form, was = _FORMS[pronoun]
    pronouns = {"PRON": pronoun, "OBJ": object_form, "WAS": was}
    return _replace(choice.template, pronouns | _mark(people, "N", choice.gold))


def _with_concepts(choice: _TemplateChoice, rng: Random) -> str:
    """Fill in a concept, its partner, and the partners of other concepts."""
    pairs = rng.sample(rng.choice(RELATED), choice.candidates)
    source, target = rng.choice([(0, 1), (1, 0)])
    concepts = _mark((pair[target] for pair in pairs), "C", choice.gold)
    return _replace(choice.template, {"D": pairs[choice.gold][source], **concepts})


def _fill(relation: str, template: str, rng: Random) -> ProbeSentence:
    """Fill every slot with a different word; the marks become the arc."""
    words: list[str] = []
    positions: dict[str, list[int]] = {"d": [], "g": [], "c": []}
    for token in template.split():
        name, _, mark = token.partition(":")
        if mark:
            positions[mark].append(len(words))
        choices = [word for word in SLOTS.get(name, (name,)) if word not in words]
        words.append(rng.choice(choices or [name]))
    for index, following in enumerate(words[1:]):
        if words[index] == "A":
            words[index] = "an" if following[0] in "aeiou" else "a"
    words[0] = words[0][0].upper() + words[0][1:]
    (dependent,), (governor,) = positions["d"], positions["g"]
    candidates = tuple(sorted([governor, *positions["c"]])) if positions["c"] else ()
    return ProbeSentence(tuple(words), (Arc(relation, dependent, governor, candidates),))


def _sentence_with(text: str, *arcs: Arc) -> ProbeSentence:
    return ProbeSentence(tuple(text.split()), arcs)


# Examples for documentation and tests; "subject-predicate" joins a subject to its predicate.
WORKED_SENTENCES = (
    _sentence_with(
        "The cat sat down",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 2),
        Arc("verb-modifier", 3, 2),
    ),
    _sentence_with(
        "The animal didn't cross the street because it was too tired .",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 3),
        Arc("determiner-noun", 4, 5),
        Arc("verb-object", 5, 3),
        Arc("pronoun-antecedent", 7, 1, (1, 5)),
        Arc("subject-verb", 7, 8),
        Arc("subject-predicate", 7, 10),
    ),
    _sentence_with(
        "The scientist who reviewed the paper said it was flawed",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 6),
        Arc("determiner-noun", 4, 5),
        Arc("verb-object", 5, 3),
        Arc("pronoun-antecedent", 7, 5, (1, 5)),
        Arc("subject-verb", 7, 8),
        Arc("subject-predicate", 7, 9),
    ),
    _sentence_with(
        "The agent opened a pull request because the test suite was green .",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 2),
        Arc("determiner-noun", 3, 5),
        Arc("verb-object", 5, 2),
        Arc("determiner-noun", 7, 9),
        Arc("subject-verb", 9, 10),
        Arc("subject-predicate", 9, 11),
    ),
    _sentence_with(
        "The agent merged the pull request after review",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 2),
        Arc("determiner-noun", 3, 5),
        Arc("verb-object", 5, 2),
        Arc("preposition-object", 7, 6),
    ),
)
