"""Which roles a table decides, and a scan's folder read as its table."""

from pathlib import Path

import pandas as pd

from headwise.head_table import HeadTable
from headwise.roles import ROLES


def table(**columns: float) -> HeadTable:
    df = pd.DataFrame({"stack": "", "layer": 0, "head": [0, 1], "roles": [["sink"], []]})
    return HeadTable(df.assign(**columns), {})


def test_the_folder_of_a_scan_is_read_as_its_table(tmp_path: Path) -> None:
    table().write(tmp_path / "heads.parquet")
    assert HeadTable.read(tmp_path) == table()


def test_a_table_without_scores_counts_as_tested_for_every_role() -> None:
    assert table().held_roles == ("sink",)
    assert table().untested_roles == ()
    assert table().missed_roles == tuple(role for role in ROLES if role != "sink")


def test_roles_without_a_score_are_untested_if_others_have_one() -> None:
    scored = table(sink_score=0.9, induction_score=0.1)
    assert (scored.held_roles, scored.missed_roles) == (("sink",), ("induction",))
    others = [role for role in ROLES if role not in ("sink", "induction")]
    assert scored.untested_roles == tuple(others)
