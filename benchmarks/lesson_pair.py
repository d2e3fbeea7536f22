"""Search minilm for the pair of sentences in which a head's link moves most cleanly.

In: the pairs of the corpus in which a changed word changes what a pronoun stands for: passages of
balanced_coreference.txt, and controlled sentences with another pronoun. Out: a table of the best
heads and pairs. A link moves from one candidate to the other by the smaller of what the first loses
and what the second gains; it is clean if the favoured candidate changes, too.

    python benchmarks/lesson_pair.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from headwise.explorer.maps import MapOptions, map_weights
from headwise.explorer.model_facts import BUILTIN_TEXT, OTHER_BUILTIN_TEXT
from headwise.explorer.text_analysis import TextAnalysis, analyse_text
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.probes.builtin import builtin_sentences
from headwise.probes.natural import balanced_sentences
from headwise.probes.sentences import ProbeSentence
from headwise.probes.templates import AGREEMENT, SLOTS
from headwise.reading.words import join_with_spaces

SHOWN = 12
PER_RELATION = 400
"""Number of controlled sentences to choose from."""
SWAPS = {"she": "he", "he": "she"}
KINDS = {"she": ("FEMALE", "WOMEN"), "he": ("MALE", "MEN")}
"""Lists of words that a pronoun can stand for."""


@dataclass(frozen=True)
class Pair:
    """Two texts, the pronoun, and the candidate that each text means."""

    kind: str
    texts: tuple[str, str]
    sources: tuple[str, str]
    """The pronoun in each text."""
    turn: int
    """Number of earlier places at which the pronoun's word occurs."""
    candidates: tuple[str, str]

    @property
    def changed(self) -> int:
        """Number of words that differ."""
        return sum(one != other for one, other in zip(*map(str.split, self.texts), strict=False))


@dataclass(frozen=True)
class Result:
    """A head's shares from the pronoun to both candidates, in both texts."""

    pair: Pair
    head: str
    shares: tuple[tuple[float, float], tuple[float, float]]

    @property
    def moved(self) -> float:
        """The smaller of what the first candidate loses and what the second gains."""
        (first, second), (other_first, other_second) = self.shares
        return min(first - other_first, other_second - second)

    @property
    def is_clean(self) -> bool:
        """Whether each text's own candidate gets more than the other one."""
        return self.shares[0][0] > self.shares[0][1] and self.shares[1][1] > self.shares[1][0]


def written(sentence: ProbeSentence) -> str:
    """The sentence as text."""
    return sentence.text or join_with_spaces(sentence.words)


def natural_pairs() -> Iterator[Pair]:
    """Passages that differ in a few words, which change what the pronoun stands for."""
    for one, other in pairwise(balanced_sentences()):
        arcs = one.arcs[0], other.arcs[0]
        golds = one.words[arcs[0].governor], other.words[arcs[1].governor]
        if one.group == other.group and golds[0] != golds[1]:
            source = one.words[arcs[0].dependent]
            turn = one.words[: arcs[0].dependent].count(source)
            yield Pair("natural", (written(one), written(other)), (source,) * 2, turn, golds)


def controlled_pairs() -> Iterator[Pair]:
    """Controlled sentences with two candidates, once with the pronoun of each."""
    for sentence in builtin_sentences(per_relation=PER_RELATION, seed=1):
        arc = sentence.arcs[0]
        pronoun = sentence.words[arc.dependent]
        if arc.relation != AGREEMENT or len(arc.candidates) != 2 or pronoun not in SWAPS:
            continue
        (other,) = set(arc.candidates) - {arc.governor}
        fitting = [word for kind in KINDS[SWAPS[pronoun]] for word in SLOTS[kind]]
        if sentence.words[other] in fitting:
            words = list(sentence.words)
            words[arc.dependent] = SWAPS[pronoun]
            texts = join_with_spaces(sentence.words), join_with_spaces(words)
            golds = sentence.words[arc.governor], sentence.words[other]
            yield Pair("controlled", texts, (pronoun, SWAPS[pronoun]), 0, golds)


def builtin_pair() -> Pair:
    """The pair that the explorer opens on."""
    return Pair(
        "built-in", (BUILTIN_TEXT, OTHER_BUILTIN_TEXT), ("it", "it"), 0, ("animal", "street")
    )


def find_word(analysis: TextAnalysis, word: str, turn: int = 0) -> int:
    """Index of a word among the text's words, the `turn`-th of its places."""
    texts = [each.text.removesuffix("'s").lower() for each in analysis.stage.words]
    name = word.removesuffix("'s").lower()
    return [place for place, text in enumerate(texts) if text == name][turn]


def pronoun_shares(analysis: TextAnalysis, source: str, pair: Pair) -> Tensor:
    """Shares from the pronoun to both candidates in every head, `[heads, 2]`."""
    at = find_word(analysis, source, pair.turn)
    places = [find_word(analysis, word) for word in pair.candidates]
    row, options = slice(at, at + 1), MapOptions(is_by_word=True)
    layers = analysis.calls
    rows = [map_weights(analysis, layer, options, row, slice(None))[:, 0] for layer in layers]
    return torch.cat(rows)[:, places]


def measure(scored: ScoredModel, pair: Pair) -> list[Result]:
    """The pair's results in every head."""
    readings = [analyse_text(scored, text) for text in pair.texts]
    both = [
        pronoun_shares(reading, source, pair).tolist()
        for reading, source in zip(readings, pair.sources, strict=True)
    ]
    names = [str(head) for head in readings[0].table.heads]
    return [
        Result(pair, name, (tuple(one), tuple(other)))
        for name, one, other in zip(names, *both, strict=True)
    ]


def show(title: str, results: list[Result]) -> None:
    """Print the results whose links move most."""
    print(f"\n{title}: {len({result.pair.texts for result in results})} pairs")
    for result in sorted(results, key=lambda one: -one.moved)[:SHOWN]:
        (first, second), (other_first, other_second) = result.shares
        one, other = result.pair.candidates
        print(
            f"{result.head:6} {one} {first:.0%} -> {other_first:.0%}, {other} {second:.0%} -> "
            f"{other_second:.0%}{', clean' if result.is_clean else ''}: {result.pair.texts[1]}"
        )


def main() -> None:
    """Measure all pairs and print the best of each kind."""
    scored = open_scored_model("minilm")
    pairs = [builtin_pair(), *natural_pairs(), *controlled_pairs()]
    results = [result for pair in pairs for result in measure(scored, pair)]
    show("built-in", [one for one in results if one.pair.kind == "built-in"])
    natural = [one for one in results if one.pair.kind == "natural"]
    show("natural", natural)
    show("natural, clean", [one for one in natural if one.is_clean])
    show("natural, one word", [one for one in natural if one.pair.changed == 1])
    controlled = [one for one in results if one.pair.kind == "controlled"]
    show("controlled, another pronoun", controlled)
    show("controlled, clean, L3H1", [o for o in controlled if o.is_clean and o.head == "L3H1"])


if __name__ == "__main__":
    main()
