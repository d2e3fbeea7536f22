"""Probe sentences made for headwise: gold by construction, the same for the same seed.

In: the number of sentences per relation, and a seed. Out: sentences with one arc each; and a few
sentences written out by hand. Tokenizers and models are not used here.

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
MOST = 1000  # sentences per relation; the smallest grammar makes more, all different

_FORMS = {"she": ("her", "was"), "he": ("him", "was"), "they": ("them", "were")}


class TemplateChoice(NamedTuple):
    """A template, how many candidates are still to be put in, and which of them is gold."""

    template: str
    candidates: int = 0
    gold: int = 0


def builtin_sentences(per_relation: int = 200, seed: int = 0) -> tuple[ProbeSentence, ...]:
    """`per_relation` different sentences for each relation, shuffled."""
    per_relation = whole_number("per_relation", per_relation, least=1, most=MOST)
    made = [
        sentence
        for relation in RELATIONS
        for sentence in _sentences(relation, per_relation, Random(f"{seed} {relation}"))
    ]
    Random(seed).shuffle(made)
    return tuple(made)


def _sentences(relation: str, number: int, rng: Random) -> Iterator[ProbeSentence]:
    """Different sentences for one relation, its recipes taking turns."""
    recipes = _recipes(relation)
    rng.shuffle(recipes)
    seen: set[tuple[str, ...]] = set()
    for recipe in cycle(recipes):
        while (sentence := fill(relation, _complete(relation, recipe, rng), rng)).words in seen:
            pass
        seen.add(sentence.words)
        yield sentence
        if len(seen) == number:
            return


def _recipes(relation: str) -> list[TemplateChoice]:
    """Everything that takes turns: each template, with each of its candidates as the gold one."""
    of_two, of_three = {
        PRONOUN: (PRONOUNS_OF_TWO, PRONOUNS_OF_THREE),
        CONCEPT: (CONCEPTS_OF_TWO, CONCEPTS_OF_THREE),
    }.get(relation, ((), ()))
    plain = PRONOUNS_OF_THINGS if relation == PRONOUN else SYNTAX.get(relation, ())
    return [
        *(TemplateChoice(template) for template in plain),
        *(TemplateChoice(template, 2, gold) for template, gold in product(of_two, range(2))),
        *(TemplateChoice(template, 3, gold) for template, gold in product(of_three, range(3))),
    ]


def _complete(relation: str, recipe: TemplateChoice, rng: Random) -> str:
    """The recipe's template with its opening and candidates, and only slots left to fill."""
    if not recipe.candidates:
        return _replace(recipe.template, {name: rng.choice(OPENINGS[name]) for name in OPENINGS})
    return _with_people(recipe, rng) if relation == PRONOUN else _with_concepts(recipe, rng)


def _replace(template: str, phrases: dict[str, str]) -> str:
    """The template with whole words replaced; a mark behind the word stays."""
    pairs = (token.partition(":") for token in template.split())
    return " ".join(phrases.get(name, name) + colon + mark for name, colon, mark in pairs)


def _marked(phrases: Iterable[str], slot: str, gold: int) -> dict[str, str]:
    """Candidates by the name of their slot, each with its mark."""
    return {
        f"{slot}{place + 1}": f"{phrase}:{'g' if place == gold else 'c'}"
        for place, phrase in enumerate(phrases)
    }


def _with_people(recipe: TemplateChoice, rng: Random) -> str:
    """The template with people of whom only the gold one can be meant by its pronoun.

    The cue is gender (she among men) or number (she among groups). "They" among single people is
    used where there is one other: two others together could be "they" too.
    """
    she, he, they = [*FEMALE, *_with_the(WOMEN)], [*MALE, *_with_the(MEN)], _with_the(GROUPS)
    cues = [("she", she, he), ("he", he, she), ("she", she, they), ("he", he, they)]
    if recipe.candidates == 2:
        cues += [("they", they, she), ("they", they, he)]
    pronoun, right, wrong = rng.choice(cues)
    people = rng.sample(wrong, recipe.candidates)
    people[recipe.gold] = rng.choice(right)
    object_form, was = _FORMS[pronoun]
    pronouns = {"PRON": pronoun, "OBJ": object_form, "WAS": was}
    return _replace(recipe.template, pronouns | _marked(people, "N", recipe.gold))


def _with_the(nouns: list[str]) -> list[str]:
    return [f"the {noun}" for noun in nouns]


def _with_concepts(recipe: TemplateChoice, rng: Random) -> str:
    """The template with a concept, the one related to it, and the partners of other concepts."""
    pairs = rng.sample(rng.choice(RELATED), recipe.candidates)
    asks, answers = rng.choice([(0, 1), (1, 0)])
    concepts = _marked((pair[answers] for pair in pairs), "C", recipe.gold)
    return _replace(recipe.template, {"D": pairs[recipe.gold][asks], **concepts})


def fill(relation: str, template: str, rng: Random) -> ProbeSentence:
    """The template with a different word in every slot, and the arc that its marks draw."""
    words: list[str] = []
    marked: dict[str, list[int]] = {"d": [], "g": [], "c": []}
    for token in template.split():
        name, _, mark = token.partition(":")
        if mark:
            marked[mark].append(len(words))
        choices = [word for word in SLOTS.get(name, (name,)) if word not in words]
        words.append(rng.choice(choices or [name]))
    for place, following in zip(range(len(words) - 1), words[1:], strict=True):
        if words[place] == "A":
            words[place] = "an" if following[0] in "aeiou" else "a"
    words[0] = words[0][0].upper() + words[0][1:]
    (dependent,), (governor,) = marked["d"], marked["g"]
    candidates = tuple(sorted([governor, *marked["c"]])) if marked["c"] else ()
    return ProbeSentence(tuple(words), (Arc(relation, dependent, governor, candidates),))


def _written(text: str, *arcs: Arc) -> ProbeSentence:
    return ProbeSentence(tuple(text.split()), arcs)


# Sentences to look at one by one; "subject-predicate" joins a subject to what is said of it.
WORKED_SENTENCES = (
    _written(
        "The cat sat down",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 2),
        Arc("verb-modifier", 3, 2),
    ),
    _written(
        "The animal didn't cross the street because it was too tired .",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 3),
        Arc("determiner-noun", 4, 5),
        Arc("verb-object", 5, 3),
        Arc("pronoun-antecedent", 7, 1, (1, 5)),
        Arc("subject-verb", 7, 8),
        Arc("subject-predicate", 7, 10),
    ),
    _written(
        "The scientist who reviewed the paper said it was flawed",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 6),
        Arc("determiner-noun", 4, 5),
        Arc("verb-object", 5, 3),
        Arc("pronoun-antecedent", 7, 5, (1, 5)),
        Arc("subject-verb", 7, 8),
        Arc("subject-predicate", 7, 9),
    ),
    _written(
        "The agent opened a pull request because the test suite was green .",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 2),
        Arc("determiner-noun", 3, 5),
        Arc("verb-object", 5, 2),
        Arc("determiner-noun", 7, 9),
        Arc("subject-verb", 9, 10),
        Arc("subject-predicate", 9, 11),
    ),
    _written(
        "The agent merged the pull request after review",
        Arc("determiner-noun", 0, 1),
        Arc("subject-verb", 1, 2),
        Arc("determiner-noun", 3, 5),
        Arc("verb-object", 5, 2),
        Arc("preposition-object", 7, 6),
    ),
)
