"""Examples are sentences in which the head does what its role says and position does not."""

import re

import pandas as pd
import torch

from headwise.probes.scoring import RelationScores
from headwise.probes.sentences import Arc, ProbeSentence
from headwise.scans.examples import _cut_out, find_examples
from headwise.scans.gold_sentences import GoldSentences

NUM_HEADS = 3


def sentence(words: str, dependent: int, governor: int) -> ProbeSentence:
    return ProbeSentence(tuple(words.split()), (Arc("obj", dependent, governor),))


SENTENCES = [
    sentence("we saw him", 2, 1),  # short, and the word before is the verb
    sentence("they bought the old green boat last May", 5, 1),
    sentence("she sold it to a man in Cork", 2, 1),
    sentence("he would read most of the book by noon", 6, 2),
    sentence("they will paint the whole kitchen floor soon", 6, 2),
]


def weights(finder: int, found: ProbeSentence, is_found: bool) -> torch.Tensor:
    """Every word looks at its neighbour; the finder's dependent looks at its governor."""
    size = len(found.words)
    every = torch.eye(size).roll(-1, 0).expand(NUM_HEADS, size, size).clone()
    (arc,) = found.arcs
    if is_found:
        every[finder, arc.dependent] = torch.eye(size)[arc.governor]
    return every


def examples(found_in: set[int]) -> dict[str, dict[str, object]]:
    scores = RelationScores(NUM_HEADS, is_causal=False)
    for index, each in enumerate(SENTENCES):
        scores.add(index, each, weights(1, each, index in found_in))
    df = pd.DataFrame(
        {
            "stack": "",
            "layer": 0,
            "head": range(NUM_HEADS),
            "roles": [(), ("syntactic",), ("positional",)],
            "syntactic_relation": "obj",
            "syntactic_reading": "dependent",
            "syntactic_source": "natural",
        }
    )
    gold = GoldSentences(SENTENCES, {})
    return find_examples(df, {"natural|": scores}, {"natural": gold})


def test_the_shortest_sentence_that_the_best_guess_misses_is_the_example() -> None:
    found = examples({0, 1, 2, 3, 4})
    assert found == {
        "L0H1": {
            "syntactic": {
                "text": "he would read most of the book by noon",
                "looks": (26, 30),
                "at": (9, 13),
            }
        }
    }


def test_a_head_has_no_example_in_sentences_that_it_misses() -> None:
    assert examples({1})["L0H1"]["syntactic"]["text"].startswith("they bought")
    assert examples({0, 2}) == {}


def test_an_example_from_a_longer_text_is_cut_to_the_sentences_around_it() -> None:
    text = "It rained. Ann left. Later Eve found her coat in the hall. It was wet."
    words = tuple(re.findall(r"\w+|\.", text))
    sentence = ProbeSentence(words, (Arc("coreference", 9, 3, (3, 7)),), text)
    found = _cut_out(sentence, sentence.arcs[0], is_upward=True)
    assert found.text == "Ann left. Later Eve found her coat in the hall."
    assert [found.text[slice(*span)] for span in (found.looks, found.at)] == ["her", "Ann"]
