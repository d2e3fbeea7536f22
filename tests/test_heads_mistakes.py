"""Values and files that are not heads or head tables raise one-sentence errors."""

from pathlib import Path

import pandas as pd
import pytest

from headwise.errors import OptionError
from headwise.head_table import HeadTable
from headwise.heads import HeadId, check_head


def test_broken_parquet_file_raises(tmp_path: Path) -> None:
    file = tmp_path / "heads.parquet"
    file.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(OptionError, match=r"heads\.parquet.*: \S"):
        HeadTable.read(file)


def test_folder_without_a_scan_raises_with_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"heads\.parquet"):
        HeadTable.read(tmp_path)


def test_head_of_a_missing_layer_raises_with_the_layers() -> None:
    with pytest.raises(OptionError, match=r"L3H0.*L0, L1"):
        check_head(HeadId(3, 0), {"L0": 2, "L1": 2})


def test_layer_and_head_must_be_whole_numbers() -> None:
    with pytest.raises(OptionError, match=r"layer.*1\.5"):
        HeadId(1.5, 2)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"head.*'11'"):
        HeadId(3, "11")  # type: ignore[arg-type]
    assert HeadId(0, 0).__lt__(3) is NotImplemented


def test_table_is_a_collection_of_heads() -> None:
    table = HeadTable(pd.DataFrame({"stack": "", "layer": [1, 0], "head": [2, 3]}), {})
    assert "L1H2" in table and HeadId(0, 3) in table and "L1H3" not in table
    assert list(map(str, table)) == ["L0H3", "L1H2"]
    for wrong in (0, (0, 1)):
        with pytest.raises(OptionError, match="'L3H11'"):
            table[wrong]  # type: ignore[index]
    with pytest.raises(OptionError, match=r"'encoder'.*one stack"):
        table.of_stack("encoder")


def test_about_must_be_a_dict() -> None:
    rows = pd.DataFrame({"stack": "", "layer": [1], "head": [2]})
    with pytest.raises(OptionError, match=r"about.*None.* dict"):
        HeadTable(rows, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("heads.parquet", "no parquet", "magic bytes"),
        ("heads.json", "{", "Expecting property name"),
        ("heads.json", "[]", "list indices"),
        ("heads.json", '{"columns": {}, "about": {}}', "'heads'"),
        ("heads.json", '{"columns": {}, "about": {}, "heads": []}', "stack"),
        ("heads.json", '{"columns": {"x": "int"}, "heads": [{"x": "y"}]}', "invalid literal"),
        ("heads.csv", "", "Empty CSV"),
        ("heads.csv", "stack,layer,head\n,1\n", "Expected 3 columns, got 2"),
        ("heads.csv", "stack,layer,head\n,x,1\n", "'layer' is .* int"),
        ("heads.csv", "stack,layer,head,head\n,1,1,2\n", "2 columns.*'head'"),
    ],
)
def test_unreadable_files_raise_with_the_reason(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(OptionError, match=f"{name}.*{message}"):
        HeadTable.read(tmp_path / name)


def test_missing_roles_raise() -> None:
    rows = pd.DataFrame({"stack": "", "layer": [0], "head": [0], "roles": [float("nan")]})
    with pytest.raises(OptionError, match=r"nan.*roles"):
        HeadTable(rows, {})


def test_error_lists_only_some_of_many_columns() -> None:
    rows = pd.DataFrame(
        {"stack": "", "layer": [0], "head": [0]} | {f"m{n}": [0.5] for n in range(40)}
    )
    with pytest.raises(OptionError, match=r"stack, .*, m7.* 32 more"):
        HeadTable(rows, {}).top("xyzzy")
