"""Planted truth: heads made by hand are named for what they do; their shuffled twins are not."""

import pytest

from headwise.head_table import HeadTable
from headwise.scans.scan import ScanJob, ScanSettings, run_scan

from .planted import PLANTED, TWINS, model, sentences, texts, tokenizer


@pytest.fixture(scope="module")
def table() -> HeadTable:
    settings = ScanSettings(compares=False)
    task = ScanJob(
        model=model(),
        tokenizer=tokenizer(),
        texts=texts(),
        treebank=sentences(),
        settings=settings,
    )
    scan = run_scan(task)
    assert scan is not None
    return scan.table


@pytest.mark.parametrize(("place", "role"), PLANTED.items())
def test_a_planted_head_is_named(table: HeadTable, place: tuple[int, int], role: str) -> None:
    row = table["L{}H{}".format(*place)]
    assert role in row["roles"], row[f"{role}_score"]


@pytest.mark.parametrize(("place", "role"), TWINS.items())
def test_shuffled_head_lacks_the_role(table: HeadTable, place: tuple[int, int], role: str) -> None:
    row = table["L{}H{}".format(*place)]
    assert role not in row["roles"], row[f"{role}_score"]


def test_windows_too_short_for_induction_leave_it_untested() -> None:
    settings = ScanSettings(compares=False, length=4)
    task = ScanJob(model=model(), tokenizer=tokenizer(), texts=texts(), settings=settings)
    short = run_scan(task).table
    assert short.df["induction"].isna().all()
    assert "induction" in short.untested_roles


def test_roles_are_found_whichever_measures_are_chosen() -> None:
    settings = ScanSettings(compares=False, repeats=False, measures=("offsets", "masses"))
    task = ScanJob(model=model(), tokenizer=tokenizer(), texts=texts(), settings=settings)
    table = run_scan(task).table
    assert "positional" in table["L0H0"]["roles"]
    assert "sink" in table["L0H1"]["roles"] and "delimiter" in table["L0H2"]["roles"]
    assert "duplicate" in table.untested_roles


def test_the_head_one_back_looks_one_back(table: HeadTable) -> None:
    row = table["L0H0"]
    assert row["best_offset"] == -1
    assert row["positional_detail"] == "-1"
    assert row["previous"] > 0.99
    assert row["entropy"] < 0.1


def test_the_relation_is_named_with_the_role(table: HeadTable) -> None:
    row = table["L2H0"]
    assert row["syntactic_detail"] == "nsubj (verb -> subject)"
    assert row["syntactic_score"] > 0.95 > row["syntactic_baseline"] + 0.3
