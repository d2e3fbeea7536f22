"""A head has one name everywhere, and a table of heads is checked, sorted and never loses a bit."""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, strategies as st

from headwise.errors import OptionError, OutputError
from headwise.head_table import HeadTable
from headwise.heads import HeadId, parse_heads

ODD_NUMBERS = [-0.0, math.nan, math.inf, -math.inf, 5e-324, 0.1 + 0.2, *[1e22] * 9]
SUFFIXES = ("parquet", "csv", "json")
LAYERS, HEADS = 3, 5
ONE: dict[Any, Any] = {"stack": [""], "layer": [0], "head": [0]}

head_ids = st.builds(HeadId, st.integers(0, 200), st.integers(0, 200), st.text(max_size=5))
role_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=";"), min_size=1)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)  # fmt: skip
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "entropy": st.floats(),
    'a "quoted", name': st.floats(width=32),
    "count": st.integers(-(2**63), 2**63 - 1),
    "is_kept": st.booleans(),
    "digits": st.sampled_from(["1", "2.50", "nan", "", "True", "007", "-1"]),
    "induction_detail": st.text(max_size=7),
    "roles": st.lists(role_names, max_size=3),
}


@st.composite
def makings(draw: st.DrawFn) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Random tables: every kind of column, heads in any order, some missing."""
    heads = draw(st.lists(head_ids, min_size=1, max_size=7, unique=True))
    some = draw(st.lists(st.sampled_from(sorted(CELLS)), unique=True))
    of_all = {"min_size": len(heads), "max_size": len(heads)}
    columns = {name: draw(st.lists(CELLS[name], **of_all)) for name in some}
    return frame(heads, columns), draw(st.dictionaries(st.text(max_size=5), plain_json, max_size=3))


def frame(heads: list[HeadId], columns: dict[str, Any]) -> pd.DataFrame:
    place = {name: [getattr(head, name) for head in heads] for name in ("stack", "layer", "head")}
    return pd.DataFrame(place | columns)


def small(**columns: list[Any]) -> HeadTable:
    """Three layers of five heads; without other columns, `entropy` counts the rows."""
    heads = [HeadId(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    measures = columns or {"entropy": [float(row) for row in range(len(heads))]}
    return HeadTable(frame(heads, measures), {"model": "small", "tokens": 1009})


def of_names(names: list[str], **columns: list[Any]) -> HeadTable:
    return HeadTable(frame([HeadId.parse(name) for name in names], columns), {})


def two_stacks() -> HeadTable:
    """An encoder of 2 layers, listed first, and a cross of 1; `size` differs in every row."""
    names = ["encoder.L0H0", "encoder.L0H1", "encoder.L1H0", "cross.L0H0"]
    return of_names(names, size=[2.0, 3.0, 5.0, 7.0])


# --- One head ---


@given(head_ids)
@example(HeadId(3, 11))
@example(HeadId(0, 2, "a.L0H1"))
@example(HeadId(0, 2, "two\nlines"))
def test_a_head_is_read_back_from_its_own_name(head: HeadId) -> None:
    assert HeadId.parse(str(head)) == head


def test_a_head_is_written_layer_first_and_stack_before_it() -> None:
    assert str(HeadId(3, 11)) == "L3H11"
    assert str(HeadId(3, 11, "encoder")) == "encoder.L3H11"


@pytest.mark.parametrize("text", ["L3", "3.11", "l3h11", "L3H11 ", "L-1H0", ".L3H11", "", "L٣H1"])
def test_parse_rejects_malformed_head_names(text: str) -> None:
    with pytest.raises(OptionError, match=r"L3H11.*encoder\.L3H11"):
        HeadId.parse(text)


@pytest.mark.parametrize("numbers", [(-1, 2), (2, -1)])
def test_a_head_counts_from_zero(numbers: tuple[int, int]) -> None:
    name = "L{}H{}".format(*numbers)
    with pytest.raises(OptionError, match=f"{name}.* 0"):
        HeadId(*numbers)


def test_heads_sort_by_stack_then_layer_then_head_as_numbers() -> None:
    names = ["L2H10", "L10H2", "decoder.L0H3", "encoder.L0H1", "encoder.L1H0"]
    heads = parse_heads(names)
    assert sorted(reversed(heads)) == list(heads)
    assert heads[0] < heads[1] and heads[1] >= heads[0]
    assert len({*heads, HeadId(2, 10)}) == len(heads)


@pytest.mark.parametrize(
    "given_as",
    [
        "L0H1 L2H3, L4H0",
        " L0H1,L2H3\nL4H0 L0H1 ",
        ["L0H1", HeadId(2, 3), "L4H0", "L2H3"],
        ["L0H1,L2H3", "L4H0"],
        (HeadId(0, 1), HeadId(2, 3), HeadId(4, 0)),
    ],
)
def test_heads_are_read_from_a_text_or_a_list_each_once(given_as: Any) -> None:
    assert parse_heads(given_as) == (HeadId(0, 1), HeadId(2, 3), HeadId(4, 0))


def test_no_heads_are_read_from_an_empty_text() -> None:
    assert parse_heads("") == parse_heads([]) == ()


# --- Contents of a table ---


@given(makings(), st.randoms())
def test_rows_are_sorted_within_stacks_that_keep_their_order(making: Any, random: Any) -> None:
    table = HeadTable(*making)
    stacks = list(table.stacks)
    places = [(stacks.index(head.stack), head.layer, head.head) for head in table.heads]
    assert places == sorted(places)
    order = sorted(range(len(table)), key=lambda row: (places[row][0], random.random()))
    assert HeadTable(table.df.iloc[order], table.about) == table


def test_the_place_and_the_roles_come_first() -> None:
    df = pd.DataFrame({"entropy": [1.0], "head": [2], "roles": [["sink"]], "layer": [3]})
    table = HeadTable(df.assign(stack="", share=0.5), {})
    assert list(table.df.columns) == ["stack", "layer", "head", "roles", "entropy", "share"]
    assert table.df["roles"].tolist() == [("sink",)]


def test_heads_without_a_column_of_roles_have_none() -> None:
    assert small().df["roles"].tolist() == [()] * (LAYERS * HEADS)


def test_every_kind_of_column_has_one_dtype() -> None:
    df = pd.DataFrame(
        {
            "stack": [None, None],
            "layer": np.array([0, 0], dtype=np.uint8),
            "head": pd.array([0, 1], dtype="Int64"),
            "half": np.array([0.5, math.inf], dtype=np.float16),
            "gap": pd.Series([None, 1.5], dtype="object"),
            "is_cut": pd.array([True, False], dtype="boolean"),
            "detail": pd.Categorical(["-1", None]),
        }
    )
    table = HeadTable(df.astype({"stack": "object"}), {})
    dtypes = dict(zip(table.df.columns, map(str, table.df.dtypes), strict=True))
    assert dtypes == {
        "stack": "str", "layer": "int64", "head": "int64", "roles": "object", "half": "float64",
        "gap": "float64", "is_cut": "bool", "detail": "str",
    }  # fmt: skip
    assert table.df["detail"].tolist() == ["-1", ""]
    assert table.df["gap"].isna().tolist() == [True, False]


def test_a_table_keeps_copies() -> None:
    df = pd.DataFrame({"stack": [""], "layer": [0], "head": [0], "share": [0.5]})
    about = {"settings": {"seed": 7}}
    table = HeadTable(df, about)
    df.loc[0, "share"] = 0.25
    about["settings"]["seed"] = 11
    assert table["L0H0"]["share"] == 0.5
    assert table.about == {"settings": {"seed": 7}}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"stack": [""], "head": [0]}, "layer$"),
        ({"layer": [0]}, "stack.*head$"),
        ({"stack": [], "layer": [], "head": []}, "no rows"),
        (ONE | {7: [1], "7": [2]}, "2 columns.*'7'"),
        (ONE | {"layer": [0.0]}, "'layer'.*float64.* int"),
        (ONE | {"stack": [3]}, "'stack'.*int64.* text"),
        (ONE | {"head": pd.array([None], dtype="Int64")}, "'head'.*Int64.* int.*missing"),
        (ONE | {"head": [-2]}, "L0H-2"),
        ({name: ONE[name] * 2 for name in ONE}, "L0H0.* 2 rows"),
        (ONE | {"x": [1j]}, "'x'.*complex128.*numbers, bool or text"),
        (ONE | {"x": [{}]}, "'x'.*object.*numbers, bool or text"),
        (ONE | {"roles": ["sink"]}, "^'sink'.*roles"),
        (ONE | {"roles": [[""]]}, "roles"),
        (ONE | {"roles": [["a;b"]]}, "a;b.*';'"),
        (ONE | {"roles": [[7]]}, r"^\[7\].*roles"),
    ],
)
def test_invalid_tables_raise(columns: dict[Any, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        HeadTable(pd.DataFrame(columns), {})


@pytest.mark.parametrize(
    ("value", "message"), [(math.nan, "Out of range float"), ({1, 2}, "set is not JSON")]
)
def test_about_must_be_json(value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=f"about.*JSON.*{message}"):
        HeadTable(small().df, {"settings": value})


# --- Queries on a table ---


def test_a_head_is_found_by_its_name_or_its_id() -> None:
    table = small()
    assert len(table) == len(table.heads) == LAYERS * HEADS
    assert table["L1H3"]["entropy"] == table[HeadId(1, 3)]["entropy"] == 1 * HEADS + 3
    assert table["L1H3"].name == "L1H3"
    assert table.heads[HEADS + 3] == HeadId(1, 3)
    assert two_stacks()["encoder.L1H0"]["size"] == 5.0


@pytest.mark.parametrize(
    ("table", "name", "message"),
    [
        (small(), "L9H0", r"^L9H0.*layers 0\.\.2, heads 0\.\.4$"),
        (small(), "encoder.L0H0", r"^encoder\.L0H0.*one stack"),
        (two_stacks(), "cross.L1H0", r"layers 0\.\.0, heads 0\.\.0$"),
        (two_stacks(), "L1H0", "^L1H0.*encoder, cross$"),
    ],
)
def test_missing_head_raises_with_the_extent_of_the_table(
    table: HeadTable, name: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        table[name]


def test_top_lists_the_largest_values_without_nan() -> None:
    values = [math.nan, 2.0, 7.0, 2.0, math.inf, *[-1.0] * 10]
    top = small(share=values).top("share", 4)
    assert list(top.columns) == ["name", "share", "roles"]
    assert top["name"].tolist() == ["L0H4", "L0H2", "L0H1", "L0H3"]
    assert top["share"].tolist() == [math.inf, 7.0, 2.0, 2.0]
    assert len(small(share=values).top("share", 100)) == LAYERS * HEADS - 1
    tied = of_names([f"L{layer}H0" for layer in range(101)], share=[0, 1] * 50 + [0])
    assert tied.top("share", 50)["name"].tolist() == [f"L{layer}H0" for layer in range(1, 101, 2)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("entropi", "^'entropi'.* entropy"),
        ("xyz", "^'xyz'.* stack, layer, head, roles, entropy$"),
        ("stack", "'stack'.*text"),
        ("roles", "'roles'.*roles"),
    ],
)
def test_top_and_grid_need_a_column_of_numbers(column: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        small().top(column)
    with pytest.raises(OptionError, match=message):
        small().grid(column)


def test_top_needs_a_count_of_at_least_one() -> None:
    with pytest.raises(OptionError, match=r"count.*-2.* 1"):
        small().top("entropy", -2)


def test_heads_are_found_by_any_of_their_roles() -> None:
    table = of_names(["L0H0", "L0H1", "L1H0"], roles=[["sink"], [], ["my own", "sink"]])
    assert table.with_role("sink") == parse_heads("L0H0 L1H0")
    assert table.with_role("my own") == parse_heads("L1H0")
    assert table.with_role("broad") == ()


def test_heads_without_a_role_and_layers_of_all_stacks_are_counted() -> None:
    table = small(roles=[["sink"] if row % 2 else [] for row in range(LAYERS * HEADS)])
    sinks = {*table.with_role("sink")}
    assert table.without_role == tuple(head for head in table if head not in sinks)
    assert (table.num_layers, two_stacks().num_layers) == (LAYERS, 3)


def test_unknown_role_raises_with_the_closest_known_role() -> None:
    with pytest.raises(OptionError, match=r"'positionl'.* positional\?$"):
        small().with_role("positionl")


def test_a_grid_has_layers_down_and_heads_across() -> None:
    expected = np.arange(LAYERS * HEADS, dtype=np.float64).reshape(LAYERS, HEADS)
    np.testing.assert_array_equal(small().grid("entropy"), expected)


def test_grid_is_nan_for_missing_heads() -> None:
    grid = two_stacks().grid("size", "encoder")
    np.testing.assert_array_equal(grid, [[2.0, 3.0], [5.0, math.nan]])
    one = of_names(["encoder.L2H1"], size=[11])
    np.testing.assert_array_equal(
        one.grid("size"), [[math.nan] * 2, [math.nan] * 2, [math.nan, 11]]
    )


@pytest.mark.parametrize("stack", ["", "decoder"])
def test_a_grid_of_several_stacks_needs_the_name_of_one(stack: str) -> None:
    message = f"'{stack}'.*encoder, cross"
    with pytest.raises(OptionError, match=message):
        two_stacks().grid("size", stack)


def test_tables_are_equal_if_values_and_about_are() -> None:
    assert small(x=[math.nan] * 15) == small(x=[math.nan] * 15)
    assert small() == HeadTable(small().df, small().about)
    assert small() != HeadTable(small().df, {})
    assert small() != HeadTable(small().df.assign(entropy=0.5), small().about)
    assert small(x=[1] * 15) != small(x=[1.0] * 15)
    assert small(x=[1] * 15) != small(x=["1"] * 15)
    assert small() != "a table"


def test_a_table_prints_as_one_line_and_shows_itself_in_a_notebook() -> None:
    assert repr(small()) == "HeadTable(15 heads, 5 columns, model='small')"
    assert repr(two_stacks()) == "HeadTable(4 heads, 5 columns)"
    html = of_names(["<b>.L0H0"])._repr_html_()
    assert "<table" in html
    assert "&lt;b&gt;" in html
    html = of_names(["<b>.L0H0"])["<b>.L0H0"]._repr_html_()  # a head alone
    assert "&lt;b&gt;.L0H0" in html and "<b>" not in html


# --- Files ---


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(making=makings())
@example(making=(small(x=ODD_NUMBERS).df, {}))
@example(making=(of_names(['a,"b";\r\n.L0H0'], roles=[["c,d", 'e"f', "\r"]]).df, {"é": [None]}))
def test_a_table_is_read_back_as_it_was_written(suffix: str, making: Any) -> None:
    table = HeadTable(*making)
    with tempfile.TemporaryDirectory() as folder:
        table.write(Path(folder) / f"heads.{suffix}")
        again = HeadTable.read(Path(folder) / f"heads.{suffix}")
    assert again == table
    for name in table.df.select_dtypes("float"):  # -0.0 equals 0.0
        signs = np.signbit(table.df[name].dropna())
        assert np.signbit(again.df[name].dropna()).tolist() == signs.tolist()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_of_long_texts_is_read_back_too(suffix: str, tmp_path: Path) -> None:
    table = small(
        words=["a line\n" * 20_011] * (LAYERS * HEADS)
    )  # longer than the block a CSV reader reads
    table.write(tmp_path / f"heads.{suffix}")
    assert HeadTable.read(tmp_path / f"heads.{suffix}") == table


def test_others_can_read_the_parquet_file(tmp_path: Path) -> None:
    table = of_names(["L0H0", "L0H1"], roles=[[], ["sink"]], share=[0.5, math.nan])
    table.write(tmp_path / "heads.parquet")
    held = pq.read_table(tmp_path / "heads.parquet")
    assert held.schema.field("roles").type == pa.list_(pa.field("element", pa.string()))
    assert json.loads(held.schema.metadata[b"headwise"]) == table.about
    pq.write_table(held.replace_schema_metadata(None), tmp_path / "foreign.parquet")
    assert HeadTable.read(tmp_path / "foreign.parquet") == table


def test_others_can_read_the_csv_file(tmp_path: Path) -> None:
    table = of_names(["L0H0", "L0H1"], roles=[["sink", "broad"], []], share=[0.1, math.nan])
    table.write(tmp_path / "heads.csv")
    lines = (tmp_path / "heads.csv").read_text("utf-8").splitlines()
    assert lines == ["stack,layer,head,roles,share", ",0,0,sink;broad,0.1", ",0,1,,"]


def test_others_can_read_the_json_file(tmp_path: Path) -> None:
    of_names(["L0H0"], share=[math.inf], gap=[math.nan]).write(tmp_path / "heads.json")
    held = json.loads((tmp_path / "heads.json").read_text("utf-8"), parse_constant=pytest.fail)
    expected = {"stack": "", "layer": 0, "head": 0, "roles": [], "share": "inf", "gap": None}
    assert held["heads"] == [expected]


def test_json_has_every_digit_and_text_for_infinities(tmp_path: Path) -> None:
    tiny = 1.2345678901234567e-13
    table = of_names(["L0H0", "L0H1"], fisher=[tiny, math.nan])
    made = json.loads(table.to_json())
    assert [row["fisher"] for row in made["heads"]] == [tiny, None]
    table.write(tmp_path / "heads.json")
    assert (tmp_path / "heads.json").read_text("utf-8") == table.to_json()


def test_a_csv_file_without_its_companion_loses_only_kinds_and_about(
    tmp_path: Path,
) -> None:
    table = of_names(
        ["L0H0", "L0H1"], roles=[[], ["sink"]], share=[0.1, math.nan], is_cut=[True, False],
        words=["a", ""],
    )  # fmt: skip
    table.write(tmp_path / "heads.csv")
    HeadTable(table.df, {"model": "m"}).write(tmp_path / "heads.csv", force=True)
    assert HeadTable.read(tmp_path / "heads.csv").about == {"model": "m"}
    (tmp_path / "heads.about.json").unlink()
    assert HeadTable.read(tmp_path / "heads.csv") == table


def test_an_edited_csv_file_is_held_to_the_kinds_in_its_companion(tmp_path: Path) -> None:
    path = tmp_path / "heads.csv"
    of_names(["L0H2"], share=[0.5], digits=["007"]).write(path)
    path.write_text("digits,head,stack,layer,share,mine\n010,3,,1,,7\n")
    assert HeadTable.read(path) == of_names(["L1H3"], digits=["010"], share=[math.nan], mine=[7])
    path.write_text("stack,layer,head,share\n,0,0,much\n")
    with pytest.raises(OptionError, match=r"heads\.csv.*double.*'much'"):
        HeadTable.read(path)


def test_a_csv_file_that_a_spreadsheet_saved_is_read(tmp_path: Path) -> None:
    (tmp_path / "heads.csv").write_text("\ufeffstack,layer,head,mine\n,0,2,0.5\n", "utf-8")
    assert HeadTable.read(tmp_path / "heads.csv")["L0H2"]["mine"] == 0.5


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_is_overwritten_unless_forced(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"heads.{suffix}"
    small().write(str(path))
    with pytest.raises(OptionError, match=rf"heads\.{suffix}.*force=True"):
        two_stacks().write(path)
    assert HeadTable.read(str(path)) == small()
    two_stacks().write(path, force=True)
    assert HeadTable.read(path) == two_stacks()


def test_a_companion_is_not_overwritten_either(tmp_path: Path) -> None:
    (tmp_path / "heads.about.json").write_text("mine")
    with pytest.raises(OptionError, match=r"heads\.about\.json.*force=True"):
        small().write(tmp_path / "heads.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["heads.about.json"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no room")

    path = tmp_path / "heads.json"
    small().write(path)
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OutputError, match=r"heads\.json.*no room"):
        two_stacks().write(path, force=True)
    assert HeadTable.read(path) == small()
    assert [file.name for file in tmp_path.iterdir()] == ["heads.json"]


def test_the_suffix_decides_the_format(tmp_path: Path) -> None:
    small().write(tmp_path / "HEADS.JSON")
    assert HeadTable.read(tmp_path / "HEADS.JSON") == small()
    message = r"heads\.xlsx .* \.parquet, \.csv, \.json"
    with pytest.raises(OptionError, match=message):
        small().write(tmp_path / "heads.xlsx")
    with pytest.raises(OptionError, match=message):
        HeadTable.read("heads.xlsx")


def test_missing_folders_and_files_raise(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"heads\.csv.*no does not exist"):
        small().write(tmp_path / "no" / "heads.csv")
    with pytest.raises(OptionError, match=r"heads\.csv does not exist"):
        HeadTable.read(tmp_path / "heads.csv")


def test_a_table_needs_no_torch() -> None:
    code = "import sys, headwise.heads, headwise.views.heads; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_top_ranks_a_column_whose_name_is_a_parameter_of_pandas() -> None:
    df = pd.DataFrame({"stack": "", "layer": [0, 0], "head": [0, 1], "self": [0.1, 0.7]})
    assert HeadTable(df, {}).top("self", 1)["name"].tolist() == ["L0H1"]
