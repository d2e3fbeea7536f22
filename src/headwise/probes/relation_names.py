"""Names of relations in plain words, and which role each relation is evidence for.

The syntactic relations are those of Universal Dependencies v2
(https://universaldependencies.org/u/dep/). Other relations, such as a user's own, have no role.
"""

from headwise.probes.natural import CONCEPTS, COREFERENCE
from headwise.probes.scoring import ArcReading
from headwise.probes.templates import AGREEMENT

WORDS = {
    COREFERENCE: ("pronoun", "noun"),
    "acl": ("clause", "noun"),
    "advcl": ("adverbial clause", "verb"),
    "advmod": ("adverb", "modified word"),
    "amod": ("adjective", "noun"),
    "appos": ("apposition", "noun"),
    "aux": ("auxiliary", "verb"),
    "case": ("preposition", "noun"),
    "cc": ("conjunction", "conjunct"),
    "ccomp": ("clausal complement", "verb"),
    "compound": ("compound part", "noun"),
    "conj": ("later conjunct", "first conjunct"),
    "cop": ("copula", "predicate"),
    "csubj": ("clausal subject", "verb"),
    "det": ("determiner", "noun"),
    "discourse": ("interjection", "clause"),
    "expl": ("expletive", "verb"),
    "fixed": ("later word", "first word"),
    "flat": ("later name", "first name"),
    "iobj": ("indirect object", "verb"),
    "list": ("list item", "first item"),
    "mark": ("subordinator", "clause"),
    "nmod": ("noun modifier", "noun"),
    "nsubj": ("subject", "verb"),
    "nummod": ("number", "noun"),
    "obj": ("object", "verb"),
    "obl": ("oblique noun", "verb"),
    "parataxis": ("paratactic clause", "clause"),
    "vocative": ("form of address", "clause"),
    "xcomp": ("complement", "verb"),
}
"""The dependent and the governor of each relation in plain words."""
SYNTACTIC = frozenset(WORDS) - {COREFERENCE}
"""Relations of Universal Dependencies."""
FUNCTION_WORDS = frozenset({"aux", "case", "cc", "cop", "det", "mark"})
"""Relations whose dependents are a few very common words."""
CONTROLLED = {
    "nsubj": "subject-verb",
    "obj": "verb-object",
    "det": "determiner-noun",
    "amod": "adjective-noun",
    "advmod": "verb-modifier",
    "case": "preposition-object",
    CONCEPTS: CONCEPTS,
    COREFERENCE: AGREEMENT,
}
"""The relation in the controlled sentences that corresponds to a relation in natural ones."""


def role_of_relation(relation: str, reading: ArcReading | str) -> str | None:
    """The role that a relation in one reading is evidence for; None if it gives no role.

    Governors that look at function words give none: a head that favors "and", whichever word
    attends, finds most conjunctions, and heads of untrained models do that.

    >>> role_of_relation("det", "dependent"), role_of_relation("det", "governor")
    ('syntactic', None)
    """
    if relation in FUNCTION_WORDS and reading == "governor":
        return None
    if relation in SYNTACTIC:
        return "syntactic"
    return {COREFERENCE: "coreference", CONCEPTS: "semantic"}.get(relation)


def describe_relation(relation: str, reading: ArcReading | str) -> str:
    """A relation and who looks at whom, in plain words if it has any.

    >>> describe_relation("obj", "governor"), describe_relation("obj", "dependent")
    ('obj (verb -> object)', 'obj (object -> verb)')
    """
    by = "by column" if reading == "column" else ""
    if relation not in WORDS:
        return ", ".join(filter(None, [relation, by]))
    words = WORDS[relation] if reading == "dependent" else WORDS[relation][::-1]
    return f"{relation} ({', '.join(filter(None, [' -> '.join(words), by]))})"
