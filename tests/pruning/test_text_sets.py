"""No text serves two steps of pruning, whatever the text and the fold."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from headwise.errors import OptionError
from headwise.pruning.text_sets import (
    FOLDS,
    OWN_TEXT,
    STEPS,
    TextSets,
    builtin_sets,
    other_texts,
    own_sets,
)
from headwise.reading.corpus import MANUAL, PROSE, ROUGH, ROUGH_KINDS
from headwise.reading.python_manual import split_paragraphs

EACH_FOLD = pytest.mark.parametrize("fold", range(FOLDS))


@EACH_FOLD
@pytest.mark.parametrize("is_causal", [False, True])
def test_no_builtin_register_serves_two_steps(fold: int, is_causal: bool) -> None:
    sets = builtin_sets(fold, is_causal=is_causal)
    registers = [name for step in STEPS for name in getattr(sets, step)]
    known = {*PROSE, MANUAL, *(ROUGH_KINDS if is_causal else [ROUGH])}
    assert Counter(registers) == Counter(known) and all(getattr(sets, step) for step in STEPS)
    documents = [text for step in STEPS for texts in getattr(sets, step).values() for text in texts]
    assert len(documents) == len(set(documents)) and all(documents)


@pytest.mark.parametrize("is_causal", [False, True])
def test_each_prose_register_reports_in_exactly_one_fold(is_causal: bool) -> None:
    folds = [builtin_sets(fold, is_causal=is_causal) for fold in range(FOLDS)]
    assert Counter(name for sets in folds for name in sets.report) == Counter(PROSE)


@EACH_FOLD
def test_rough_text_and_the_manual_serve_one_step(fold: int) -> None:
    assert {*ROUGH_KINDS, MANUAL} < {*builtin_sets(fold, is_causal=True).choose}
    encoder = builtin_sets(fold, is_causal=False)
    assert ROUGH in encoder.choose and MANUAL in encoder.shrink


def test_other_text_has_every_prose_register_and_the_manual() -> None:
    assert {*other_texts()} == {*PROSE, MANUAL}


# The user's text.


def paragraphs_of(sets: TextSets) -> dict[str, list[str]]:
    """The paragraphs of each step."""
    return {
        step: [part for text in getattr(sets, step)[OWN_TEXT] for part in split_paragraphs(text)]
        for step in STEPS
    }


def assert_divided(sets: TextSets, paragraphs: Sequence[str]) -> None:
    """Every paragraph serves one step, or choosing and fitting; every step has some."""
    assert all(list(getattr(sets, step)) == [OWN_TEXT] for step in STEPS)
    parts = paragraphs_of(sets)
    assert all(parts.values()) and parts["choose"] == parts["fit"]
    for one, other in combinations(STEPS[1:], 2):
        assert not {*parts[one]} & {*parts[other]}
    together = [part for step in STEPS[1:] for part in parts[step]]
    assert sorted(together) == sorted(paragraphs)


words = st.sampled_from("one two three four five six seven eight nine ten".split())
documents = st.lists(st.lists(st.lists(words, max_size=40), max_size=7), max_size=9)


@given(documents, st.integers(0, 99))
def test_no_paragraph_of_the_users_text_serves_two_steps(
    texts: list[list[list[str]]], seed: int
) -> None:
    numbered = [
        [" ".join([f"p{place}q{number}", *rest]) for number, rest in enumerate(parts)]
        for place, parts in enumerate(texts)
    ]
    paragraphs = [part for parts in numbered for part in parts]
    given_texts = ["\n\n".join(parts) for parts in numbered]
    if len(paragraphs) < 4:
        with pytest.raises(OptionError, match=f"a text of {len(paragraphs)} paragraph.* 4 parts"):
            own_sets(given_texts, seed)
    else:
        assert_divided(own_sets(given_texts, seed), paragraphs)


@pytest.mark.parametrize("seed", range(5))
def test_paragraphs_of_any_length_can_be_divided(seed: int) -> None:
    paragraphs = ["a b", "c d", "e f", "g " * 2000]
    assert_divided(own_sets(["\n\n".join(paragraphs)], seed), [part.strip() for part in paragraphs])
    two = ["a b c", "\n\n".join(paragraphs)]  # a short document and a long one
    assert_divided(own_sets(two, seed), ["a b c", *(part.strip() for part in paragraphs)])


def test_a_repeated_paragraph_serves_one_step() -> None:
    paragraphs = [f"paragraph {number}" for number in range(9)]
    repeated = ["\n\n".join(paragraphs), "\n\n".join([*paragraphs[::-1], "Paragraph 3."])]
    assert_divided(own_sets(repeated, 0), paragraphs)
    with pytest.raises(OptionError, match="a text of 3 paragraphs"):
        own_sets(["\n\n".join(paragraphs[:3] * 4)], 0)


def test_documents_stay_whole_if_there_are_enough() -> None:
    texts = [f"start {number}\n\nend {number}" for number in range(12)]
    sets = own_sets(texts, 0)
    assert all({*getattr(sets, step)[OWN_TEXT]} <= {*texts} for step in STEPS)
    sizes = {step: len(getattr(sets, step)[OWN_TEXT]) for step in STEPS}
    assert sizes["fit"] > max(sizes["report"], sizes["decide"], sizes["shrink"])


def test_only_the_seed_decides_which_text_serves_which_step() -> None:
    texts = [f"text {number}" for number in range(12)]
    assert own_sets(texts, 3) == own_sets(list(texts), 3) != own_sets(texts, 4)


def test_whole_texts_are_divided_unchanged() -> None:
    texts = [f"first {number}\n\n  second\n" for number in range(4)]
    sets = own_sets(texts, 0, keeps_whole=True)
    parts = [getattr(sets, step)[OWN_TEXT] for step in STEPS]
    assert parts[0] == parts[1] and {len(part) for part in parts} == {1}
    assert sorted(text for part in parts[1:] for text in part) == texts
    with pytest.raises(OptionError, match=r"^3 examples .* 4 parts"):
        own_sets([*texts[:3], texts[1].upper()], 0, keeps_whole=True)
