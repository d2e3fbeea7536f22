"""What cannot be read as a head or a table of heads is met with one sentence."""

from pathlib import Path

import pytest

from headwise.errors import OptionError
from headwise.heads import HeadId, HeadTable, check_head


def test_a_broken_parquet_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "heads.parquet"
    file.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(OptionError, match=r"heads\.parquet cannot be read as a head table: \S"):
        HeadTable.read(file)


def test_a_folder_without_a_scan_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"holds no scan: it has no heads\.parquet"):
        HeadTable.read(tmp_path)


def test_a_head_of_a_layer_that_there_is_not_hears_which_the_model_has() -> None:
    with pytest.raises(OptionError, match="is not in this model: its layers are L0, L1"):
        check_head(HeadId(3, 0), {"L0": 2, "L1": 2})
