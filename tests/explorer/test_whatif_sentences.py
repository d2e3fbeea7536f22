"""Sentences of What if for every outcome, and the addresses of What if and Plan."""

from typing import Any

import pytest

from .stage_modules import run

WHATIF, PLAN = "../whatif", "../plan"
NAMES = ["Mary", "John"]


def spoken(
    before: list[float],
    after: list[float],
    draws: list[float] | None,
    *,
    changed: int = 3,
    likeliest: list[str] | None = None,
    what: str = "next",
    names: list[str] = NAMES,
) -> tuple[str, str]:
    """Headline and sub of a prediction beside random draws of the first name's probability."""
    data = {
        "prediction": {"what": what, "names": names, "before": before, "after": after},
        "random": None
        if draws is None
        else {
            "heads": [["L0H0"]] * len(draws),
            "names": names,
            "values": [draws, draws],
            "likeliest": likeliest or ["Mary"] * len(draws),
        },
        "changed": changed,
    }
    head = run(
        {f"{WHATIF}/whatif_sentences": "predictionHead", "sentences": "plain"},
        """const head = predictionHead(data.prediction, data.random, data.changed, 270);
        return [plain(head.headline), plain(head.sub)];""",
        data,
    )
    return head[0], head[1]


def test_a_turn_stands_beside_random_heads_that_do_not_turn() -> None:
    headline, sub = spoken([0.92, 0.002], [0.11, 0.38], [0.86, 0.97, 0.9] + [0.9] * 7)
    assert headline == "The next word turns from Mary to John"
    assert sub == (
        "Mary falls from 92% to 11%. With three heads picked at random, ten times, it stays "
        "between 86% and 97%."
    )


def test_a_change_within_the_random_range_says_so() -> None:
    headline, sub = spoken([0.92, 0.02], [0.9, 0.03], [0.88, 0.93], changed=1)
    assert headline == "Hardly any change"
    assert sub == (
        "Mary falls from 92% to 90%. With one head picked at random, twice, it is between 88% "
        "and 93%. The change is no larger than with random heads."
    )


def test_random_heads_that_turn_the_word_too_are_counted() -> None:
    likeliest = ["Mary"] * 7 + ["John"] * 3
    _, sub = spoken([0.5, 0.3], [0.1, 0.6], [0.4] * 7 + [0.2] * 3, changed=12, likeliest=likeliest)
    assert "With 12 heads picked at random, ten times, it is between 20% and 40%" in sub
    assert sub.endswith(", and another is likeliest in three of them.")


def test_a_large_change_within_the_random_range_is_not_called_small() -> None:
    headline, sub = spoken([0.92, 0.02], [0.4, 0.3], [0.3, 0.6], changed=90)
    assert headline == "No more change than with random heads"
    assert sub.startswith("Mary falls from 92% to 40%. With 90 heads picked at random, twice")
    headline, sub = spoken([0.42, 0.4], [0.4, 0.41], [0.39, 0.44], likeliest=["Mary", "John"])
    assert headline == "Hardly any change"
    assert sub.startswith("Mary falls from 42% to 40%; likeliest is now John. With three heads")
    headline, _ = spoken([0.42, 0.4], [0.4, 0.41], [0.39, 0.44])
    assert headline == "The next word turns from Mary to John"  # no draw turns it


def test_a_change_beyond_the_random_range_names_its_direction() -> None:
    assert spoken([0.92, 0.02], [0.6, 0.3], [0.9, 0.95])[0] == "Mary becomes less likely"
    assert spoken([0.6, 0.02], [0.9, 0.03], [0.6, 0.7])[0] == "Mary becomes more likely"


@pytest.mark.parametrize(
    ("name", "blank"),
    [
        (r"\n", "a new line"),
        (r"\n\n", "an empty line"),
        (r"\n\n\n", "empty lines"),
        ("\u0120", "a space"),
        ("\u0120\u0120", "a blank"),
    ],
)
def test_new_lines_and_spaces_are_not_called_words(name: str, blank: str) -> None:
    names = [name, "The"]
    start = blank[0].upper() + blank[1:]
    headline, sub = spoken([0.5, 0.1], [0.5, 0.1], None, changed=0, names=names)
    assert headline == "Switch heads off, and see what changes"
    assert sub == (
        f"With all 270 heads on, {blank} is most likely to come next (50%), then The (10%)."
    )
    headline, sub = spoken([0.5, 0.1], [0.3, 0.1], None, names=names)
    assert headline == f"{start} becomes less likely"
    assert sub == f"The probability of {blank} falls from 50% to 30%."
    assert spoken([0.5, 0.1], [0.1, 0.5], None, names=names)[0] == (
        f"The becomes likelier than {blank}"
    )
    assert spoken([0.1, 0.5], [0.5, 0.1], None, names=names)[0] == (
        f"{start} becomes likelier than The"
    )


def test_nothing_that_changed_stays() -> None:
    headline, sub = spoken([0.92, 0.02], [0.921, 0.02], [0.92] * 10)
    assert headline == "Hardly any change"
    assert sub.startswith(
        "Mary stays at 92%. With three heads picked at random, ten times, it is at 92%."
    )


def test_all_heads_have_no_random_control_and_an_answer_that_is_awaited_none_yet() -> None:
    _, every = spoken([0.92, 0.02], [0.01, 0.02], [], changed=270)
    assert every.endswith("Every head is changed, so no random choice is left to compare with.")
    _, awaited = spoken([0.92, 0.02], [0.01, 0.02], None)
    assert awaited == "Mary falls from 92% to 1%."


@pytest.mark.parametrize(
    ("what", "start"),
    [
        ("next", "the next word is most likely"),
        ("masked", "the masked word is most likely"),
        ("end", "the last word is most likely"),
        ("class", "the likeliest class is"),
    ],
)
def test_the_unchanged_model_names_its_likeliest_two(what: str, start: str) -> None:
    headline, sub = spoken([0.6, 0.004], [0.6, 0.004], None, changed=0, what=what)
    assert headline == "Switch heads off, and see what changes"
    assert sub == f"With all 270 heads on, {start} Mary (60%), then John (less than 1%)."


def similarity(before: Any, after: Any, values: Any, changed: int = 2) -> tuple[str, str]:
    random = values and {
        "heads": [["L0H0"]] * len(values[0]),
        "names": [],
        "values": values,
        "likeliest": [],
    }
    data = {"similarity": {"before": before, "after": after}, "random": random, "changed": changed}
    head = run(
        {f"{WHATIF}/whatif_sentences": "similarityHead", "sentences": "plain"},
        """const head = similarityHead(data.similarity, data.random, data.changed, 72);
        return [plain(head.headline), plain(head.sub)];""",
        data,
    )
    return head[0], head[1]


def test_the_pair_of_sentences_that_moves_most_is_named() -> None:
    before = [[1, 0.8, 0.1], [0.8, 1, 0.2], [0.1, 0.2, 1]]
    after = [[1, 0.78, 0.1], [0.78, 1, -0.05], [0.1, -0.05, 1]]
    values = [[0.8, 0.79], [0.1, 0.1], [0.19, 0.21]]
    headline, sub = similarity(before, after, values)
    assert headline == "Sentences 2 and 3 become less alike"
    assert sub == (
        "The cosine of sentences 2 and 3 falls from 0.200 to \N{MINUS SIGN}0.050. With two heads "
        "picked at random, twice, it stays between 0.190 and 0.210."
    )
    headline, sub = similarity(before, before, None, changed=0)
    assert headline == "Switch heads off, and see what changes"
    assert sub == ("With all 72 heads on, sentences 1 and 2 are most alike: their cosine is 0.800.")
    headline, sub = similarity(before, before, values)
    assert headline == "Hardly any change" and "No cosine moves" in sub
    near = [[1, 0.78, 0.1], [0.78, 1, 0.2], [0.1, 0.2, 1]]
    headline, sub = similarity(before, near, [[0.77, 0.81], *values[1:]])
    assert headline == "Hardly any change"
    assert sub.startswith(
        "The cosine of sentences 1 and 2 falls from 0.800 to 0.780. With two heads"
    )
    tiny = [[1, 0.798, 0.1], [0.798, 1, 0.2], [0.1, 0.2, 1]]
    headline, sub = similarity(before, tiny, [[0.799, 0.801], *values[1:]])
    assert headline == "Hardly any change"
    assert sub.startswith("The cosine of sentences 1 and 2 falls from 0.800 to 0.798.")
    alike = "Sentences 1 and 2 become more alike"
    for cosine, expected in ((0.819, "Hardly any change"), (0.82, alike)):
        little = [[1, cosine, 0.1], [cosine, 1, 0.2], [0.1, 0.2, 1]]
        headline, _ = similarity(before, little, [[0.79, 0.801], *values[1:]])
        assert headline == expected
    headline, _ = similarity(before, after, [*values[:2], [-0.1, 0.21]])
    assert headline == "No more change than with random heads"
    headline, sub = similarity([[1]], [[1]], None)
    assert headline == "One sentence alone"


def test_factors_are_read_from_and_written_to_an_address() -> None:
    offs = ["L1H5,L23H3*0.5", "L9H9,L1H1*1,L1H2*-3,L1H3*99,L1H4*x", ""]
    read = run(
        {f"{WHATIF}/gates": "readFactors, writeFactors"},
        """return data.map((off) => {
          const factors = readFactors(off, (name) => name !== "L9H9");
          return [[...factors], writeFactors(factors)];
        });""",
        offs,
    )
    assert read[0] == [[["L1H5", 0], ["L23H3", 0.5]], "L1H5,L23H3*0.5"]
    assert read[1] == [[["L1H2", 0], ["L1H3", 2], ["L1H4", 0]], "L1H2,L1H3*2,L1H4"]
    assert read[2] == [[], ""]


def test_many_changed_heads_are_counted_and_some_named() -> None:
    off = ",".join(f"L0H{head}" for head in range(11)) + ",L1H0*0.5"
    count, names = run(
        {f"{WHATIF}/gates": "readFactors, countChanged, nameChanged"},
        """const factors = readFactors(data, () => true);
        return [countChanged(factors, 1024), nameChanged(factors)];""",
        off,
    )
    assert count == "11 of 1,024 heads off, 1 scaled"
    assert names.startswith("L0H0, L0H1, L0H2") and names.endswith("L0H7 and 4 more")


def test_sizes_of_a_plan_are_read_from_and_written_to_an_address() -> None:
    written = ["heads.16,layers.30", "heads.7,kv_heads.3", "causal.0,d_key.64", "heads.x,evil.2"]
    read = run(
        {f"{PLAN}/plan_sizes": "readSizes, writeSizes, planQuery, USUAL"},
        """return data.map((text) => {
          const sizes = readSizes(text, USUAL);
          return [writeSizes(sizes, USUAL), planQuery(sizes)];
        });""",
        written,
    )
    assert read[0][0] == "heads.16,kv_heads.16,layers.30"
    assert read[1][1]["kv_heads"] == 7 and read[1][1]["d_key"] == 110
    assert read[2][0] == "d_key.64,causal.0" and read[2][1]["is_causal"] == 0
    assert read[3][0] == "" and "d_key" not in read[3][1]
