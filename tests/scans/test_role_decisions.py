"""A head has a role if its measure reaches the threshold and exceeds its baseline."""

import math

import numpy as np
import pandas as pd
import pytest

from headwise.head_table import HeadTable
from headwise.roles import ROLES
from headwise.scans.role_decisions import FLOORS, MARGIN, decide_roles

NAN = math.nan


def table(**columns: list[float]) -> pd.DataFrame:
    size = len(next(iter(columns.values())))
    return pd.DataFrame({"stack": [""] * size, "layer": [0] * size, "head": range(size), **columns})


def roles(**columns: list[float]) -> list[tuple[str, ...]]:
    return list(decide_roles(table(**columns))["roles"])


@pytest.mark.parametrize(
    ("role", "column", "baseline", "threshold"),
    [
        ("positional", "previous", "uniform_previous", 0.5),
        ("positional", "ahead3", "uniform_ahead3", 0.5),
        ("delimiter", "special", "uniform_special", 0.6),
        ("delimiter", "punctuation", "uniform_punctuation", 0.6),
        ("sink", "first", "uniform_first", 0.5),
        ("sink", "first4", "uniform_first4", 0.5),
        ("induction", "induction", "uniform_induction", 0.4),
        ("duplicate", "duplicate", "uniform_duplicate", 0.4),
    ],
)
def test_a_role_needs_its_threshold_and_more_than_its_baseline(
    role: str, column: str, baseline: str, threshold: float
) -> None:
    scores = [threshold, threshold - 0.01, 0.9, NAN]
    table_roles = roles(**{column: scores, baseline: [0.1, 0.1, 0.9, 0.1]})
    assert table_roles == [(role,), (), (), ()]


def test_a_broad_head_is_broader_than_the_median_head() -> None:
    assert roles(normalised_entropy=[0.2, 0.79, 0.95]) == [(), (), ("broad",)]
    assert roles(normalised_entropy=[0.990, 0.991, 0.999]) == [(), (), ()]  # all are alike
    assert roles(normalised_entropy=[0.1, 0.2, 0.77]) == [(), (), ()]


def test_attention_to_the_token_itself_is_not_positional() -> None:
    assert roles(self=[0.9], previous=[0.1], uniform_previous=[0.1]) == [()]


def test_a_head_may_have_several_roles_with_details() -> None:
    df = decide_roles(
        table(previous=[0.6], first=[0.7], uniform_previous=[0.1], uniform_first=[0.1])
    )
    assert df["roles"][0] == ("positional", "sink")
    assert df["positional_detail"][0] == "-1"
    assert df["sink_detail"][0] == "first"
    assert df["sink_threshold"][0] == 0.5
    assert list(df.columns[:4]) == ["stack", "layer", "head", "roles"]


def test_roles_are_in_the_order_of_the_role_table() -> None:
    finds_subjects = relations(("nsubj", 1, 0.9, 0.1, True))
    df = decide_roles(table(normalised_entropy=[0.2, 0.9, 0.3]), finds_subjects)
    assert df["roles"][1] == ("syntactic", "broad")
    scores = [name.removesuffix("_score") for name in df if name.endswith("_score")]
    assert scores == [role for role in ROLES if role in scores]


def test_roles_that_were_not_measured_have_no_columns() -> None:
    df = decide_roles(table(distance=[3.0, 4.0]))
    assert list(df["roles"]) == [(), ()]
    assert not [name for name in df if name.endswith("_score")]


def test_a_role_without_a_baseline_is_not_tested() -> None:
    df = decide_roles(table(previous=[0.9], first=[0.9], uniform_first=[0.1]))
    assert df["roles"][0] == ("sink",)
    assert "positional_score" not in df and "sink_score" in df
    assert "positional" in HeadTable(df, {}).untested_roles


def test_the_baseline_is_that_of_the_best_offset() -> None:
    df = decide_roles(
        table(
            previous=[0.6, 0.2, NAN],
            back2=[0.1, 0.7, NAN],
            uniform_previous=[0.3, 0.3, 0.3],
            uniform_back2=[0.25, 0.25, 0.25],
        )
    )
    np.testing.assert_array_equal(df["positional_baseline"], [0.3, 0.25, NAN])


def relations(
    *rows: tuple[str, int, float, float, bool],
    source: str = "natural",
    p_value: float = 0.0,
    arcs: int = 37,
) -> pd.DataFrame:
    names = ["relation", "head", "accuracy", "baseline_accuracy", "counts"]
    df = pd.DataFrame(rows, columns=names)
    heads = [f"L0H{head}" for head in df["head"]]
    evidence = {"arcs": arcs, "low": 0.4, "high": 0.6, "p_value": p_value}
    return df.assign(reading="governor", name=heads, source=source, **evidence)


@pytest.mark.parametrize(
    ("role", "relation"),
    [
        ("syntactic", "nsubj"),
        ("semantic", "related-concepts"),
        ("coreference", "coreference"),
    ],
)
def test_a_relation_needs_the_floor_the_margin_and_more_than_luck(role: str, relation: str) -> None:
    floor = FLOORS[role]
    rows = [
        (relation, 0, floor, 0.1, True),
        (relation, 1, floor - 0.01, 0.1, True),
        (relation, 2, 0.95, 0.8, True),
        (relation, 3, 0.89, 0.8, True),
        (relation, 4, 0.95, 0.1, False),
    ]
    df = decide_roles(table(distance=[1.0] * 6), relations(*rows))
    assert list(df["roles"]) == [(role,), (), (role,), (), (), ()]
    assert df[f"{role}_counts"].tolist() == [True, True, True, True, False, False]
    thresholds = [floor, floor, 0.8 + MARGIN, 0.8 + MARGIN, floor, NAN]
    np.testing.assert_allclose(df[f"{role}_threshold"], thresholds)
    assert df[f"{role}_relation"].tolist() == [relation] * 5 + [""]
    assert df[f"{role}_arcs"].tolist()[:5] == [37] * 5
    assert df[f"{role}_low"].tolist()[:5] == [0.4] * 5


def test_the_detail_names_the_relation_that_decides() -> None:
    rows = relations(
        ("obl", 0, 0.45, 0.05, True),  # a larger lead, but under the floor
        ("nsubj", 0, 0.70, 0.50, True),
        ("amod", 0, 0.99, 0.10, False),  # the largest lead, but it may be luck
        ("det", 0, 0.75, 0.60, True),  # a larger accuracy, but a smaller lead
    )
    df = decide_roles(table(distance=[1.0]), rows)
    assert df["syntactic_detail"][0] == "nsubj (verb -> subject)"
    assert df["roles"][0] == ("syntactic",)
    assert bool(df["syntactic_counts"][0])


def test_relations_decide_only_the_roles_that_they_test() -> None:
    df = decide_roles(table(distance=[1.0]), relations(("obj", 0, 0.9, 0.1, True)))
    assert [name for name in df if name.endswith("_score")] == ["syntactic_score"]


def test_relations_of_the_users_own_give_no_role() -> None:
    rows = relations(("gene-protein", 0, 0.99, 0.1, True), source="treebank")
    df = decide_roles(table(distance=[1.0]), rows)
    assert df["roles"][0] == ()
    assert not [name for name in df if name.endswith("_score")]


def test_a_treebank_of_the_users_own_gives_syntactic_roles() -> None:
    rows = relations(("obj", 0, 0.9, 0.1, True), source="treebank")
    assert decide_roles(table(distance=[1.0]), rows)["roles"][0] == ("syntactic",)


@pytest.mark.parametrize(("p_value", "has_role"), [(0.01, True), (0.2, False)])
def test_a_head_at_its_baseline_in_controlled_sentences_has_no_role(
    p_value: float, has_role: bool
) -> None:
    natural = relations(("obj", 0, 0.9, 0.1, True), ("obj", 1, 0.9, 0.1, True))
    controlled = relations(("verb-object", 0, 0.5, 0.1, True), source="controlled", p_value=p_value)
    elsewhere = relations(("verb-object", 1, 0.5, 0.1, True), source="controlled", p_value=0.9)
    df = decide_roles(table(distance=[1.0, 1.0]), pd.concat([natural, controlled, elsewhere]))
    assert list(df["roles"]) == [("syntactic",) * has_role, ()]


@pytest.mark.parametrize(("reading", "has_role"), [("dependent", True), ("governor", False)])
def test_a_taste_for_function_words_gives_no_role(reading: str, has_role: bool) -> None:
    rows = relations(("cc", 0, 0.9, 0.1, True)).assign(reading=reading)
    assert decide_roles(table(distance=[1.0]), rows)["roles"][0] == ("syntactic",) * has_role


@pytest.mark.parametrize(("arcs", "has_role"), [(100, True), (99, False)])
def test_a_relation_without_controlled_sentences_needs_a_hundred_natural_arcs(
    arcs: int, has_role: bool
) -> None:
    rows = pd.concat(
        [
            relations(("obl", 0, 0.9, 0.1, True), arcs=arcs),
            relations(("verb-object", 0, 0.1, 0.1, False), source="controlled", p_value=1.0),
        ]
    )
    assert decide_roles(table(distance=[1.0]), rows)["roles"][0] == ("syntactic",) * has_role


def test_controlled_sentences_alone_give_no_role() -> None:
    rows = relations(("related-concepts", 0, 0.99, 0.1, True), source="controlled")
    assert decide_roles(table(distance=[1.0]), rows)["roles"][0] == ()


def test_heads_with_the_same_number_in_different_layers_have_their_own_roles() -> None:
    df = pd.DataFrame({"stack": ["", ""], "layer": [0, 1], "head": [2, 2], "distance": [1.0, 1.0]})
    rows = relations(("obj", 2, 0.2, 0.1, True), ("obj", 2, 0.9, 0.1, True))
    rows["name"] = ["L0H2", "L1H2"]
    assert list(decide_roles(df, rows)["roles"]) == [(), ("syntactic",)]
