"""Built-in probe sentences, reproducible from a seed, with relations known by construction.

In: the number of sentences per relation, and a seed. Out: sentences with one arc each. Also
WORKED_SENTENCES, a few sentences written by hand. The words and templates are in templates.py.

Arcs lead from the dependent to its governor: subject, object and adverb to the verb, determiner and
adjective to the noun, a preposition to its noun, a pronoun to its antecedent
(among candidates), a concept to a related one (among unrelated ones of the same kind).
"""

import re
from collections.abc import Iterator
from itertools import cycle
from random import Random

from headwise.probes import templates
from headwise.probes.sentences import Arc, ProbeSentence

RELATIONS = tuple(templates.TEMPLATES)
MOST = 1000  # sentences per relation; every relation's templates can make more distinct ones

_FORMS = {"she": ("her", "was"), "he": ("him", "was"), "they": ("them", "were")}


def builtin_sentences(per_relation: int = 200, seed: int = 0) -> tuple[ProbeSentence, ...]:
    """`per_relation` distinct sentences for each relation (at most `MOST`), relation by relation.

    The sentences of a relation, and the halves they belong to, do not depend on other relations.
    """
    return tuple(
        sentence
        for relation in RELATIONS
        for sentence in _sentences(relation, per_relation, Random(f"{seed} {relation}"))
    )


def _sentences(relation: str, number: int, rng: Random) -> Iterator[ProbeSentence]:
    """Distinct sentences for one relation, from every template and gold candidate in turn."""
    choices = [
        (template, gold)
        for template in templates.TEMPLATES[relation]
        for gold in range(_num_candidates(template) or 1)
    ]
    rng.shuffle(choices)
    seen: set[tuple[str, ...]] = set()
    for template, gold in cycle(choices):
        while (sentence := _fill(relation, _complete(template, gold, rng), rng)).words in seen:
            pass
        seen.add(sentence.words)
        yield sentence
        if len(seen) == number:
            return


def _num_candidates(template: str) -> int:
    """Number of candidates to fill in; 0 if the template has none or marks them itself."""
    return len(re.findall(r"\bC\d", template))


def _complete(template: str, gold: int, rng: Random) -> str:
    """Fill in a template's opening or its candidates, but not its slots."""
    if count := _num_candidates(template):
        choose = _choose_concepts if "D:d" in template else _choose_people
        candidates, phrases = choose(count, gold, rng)
        for index, candidate in enumerate(candidates):
            phrases[f"C{index + 1}"] = f"{candidate}:{'g' if index == gold else 'c'}"
    else:
        phrases = {name: rng.choice(texts) for name, texts in templates.OPENINGS.items()}
    tokens = (token.partition(":") for token in template.split())
    return " ".join(phrases.get(name, name) + colon + mark for name, colon, mark in tokens)


def _choose_people(count: int, gold: int, rng: Random) -> tuple[list[str], dict[str, str]]:
    """People, of whom only the gold one fits the pronoun, and the pronoun's forms.

    The cue is gender (she among men) or number (she among groups). "They" is used only with one
    other person, because two others together could also be "they".
    """
    slots = templates.SLOTS
    women, men, they = (
        [f"the {noun}" for noun in slots[name]] for name in ("WOMEN", "MEN", "GROUPS")
    )
    she, he = [*slots["FEMALE"], *women], [*slots["MALE"], *men]
    cues = [("she", she, he), ("he", he, she), ("she", she, they), ("he", he, they)]
    if count == 2:
        cues += [("they", they, she), ("they", they, he)]
    pronoun, right, wrong = rng.choice(cues)
    people = rng.sample(wrong, count)
    people[gold] = rng.choice(right)
    object_form, was = _FORMS[pronoun]
    return people, {"PRON": pronoun, "OBJ": object_form, "WAS": was}


def _choose_concepts(count: int, gold: int, rng: Random) -> tuple[list[str], dict[str, str]]:
    """A concept's partner among the partners of other concepts, and the concept itself."""
    pairs = rng.sample(rng.choice(templates.RELATED), count)
    source, target = rng.choice([(0, 1), (1, 0)])
    return [pair[target] for pair in pairs], {"D": pairs[gold][source]}


def _fill(relation: str, template: str, rng: Random) -> ProbeSentence:
    """Fill every slot with a different word, and turn the marks into an arc."""
    words: list[str] = []
    positions: dict[str, list[int]] = {"d": [], "g": [], "c": []}
    for token in template.split():
        name, _, mark = token.partition(":")
        if mark:
            positions[mark].append(len(words))
        choices = [word for word in templates.SLOTS.get(name, (name,)) if word not in words]
        words.append(rng.choice(choices or [name]))
    for index, following in enumerate(words[1:]):
        if words[index] == "A":
            words[index] = "an" if following[0] in "aeiou" else "a"
    words[0] = words[0][0].upper() + words[0][1:]
    (dependent,), (governor,) = positions["d"], positions["g"]
    candidates = tuple(sorted([governor, *positions["c"]])) if positions["c"] else ()
    return ProbeSentence(tuple(words), (Arc(relation, dependent, governor, candidates),))


def _worked_sentence(text: str, arcs: str) -> ProbeSentence:
    parsed = []
    for arc in arcs.split(", "):
        relation, dependent, governor, *candidates = arc.split()
        parsed.append(Arc(relation, int(dependent), int(governor), tuple(map(int, candidates))))
    return ProbeSentence(tuple(text.split()), tuple(parsed))


WORKED_SENTENCES = tuple(_worked_sentence(text, arcs) for text, arcs in templates.WORKED.items())
"""Examples for documentation and tests."""
