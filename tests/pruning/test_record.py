"""PruneRecord: what is written is read back, and other files raise."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from headwise.errors import OptionError
from headwise.pruning.export.sizes import Speed
from headwise.pruning.record import PruneRecord, Score
from headwise.pruning.refit.refit import LayerFit

from .records import QUALITY, prune_record, score


def test_record_survives_its_file(tmp_path: Path) -> None:
    record = prune_record(
        refit=(LayerFit("L0", 0.1, 1.0, 0.5, True), LayerFit("L1", None, 1.0, 1.0, False)),
        speed=(Speed(16, 512, 2.0, 1.0, 2.0, 0.1),),
        onnx_difference=1e-6,
    )
    record.write(tmp_path)
    assert PruneRecord.read(tmp_path) == record


def test_optional_scores_stay_none(tmp_path: Path) -> None:
    record = prune_record(quality=replace(QUALITY, refitted=None, floor=None, refit_dropped=True))
    record.write(tmp_path)
    assert PruneRecord.read(tmp_path) == record
    assert record.quality.final == QUALITY.cut and QUALITY.final == QUALITY.refitted


def test_json_is_strict_and_missing_numbers_become_nan(tmp_path: Path) -> None:
    unknown = Score(math.inf, math.nan, -math.inf)
    record = prune_record(quality=replace(QUALITY, cut=unknown, random=(unknown, score(0.5))))
    values = json.loads(record.to_json(), parse_constant=pytest.fail)
    assert values["quality"]["cut"] == {"loss": None, "loss_se": None, "value": None}
    record.write(tmp_path)
    quality = PruneRecord.read(tmp_path).quality
    assert math.isnan(quality.cut.loss) and math.isnan(quality.random[0].value)
    assert quality.random[1] == score(0.5)


def test_amount_is_stored_by_its_name_alone() -> None:
    values = json.loads(prune_record().to_json())
    assert values["amount"] == {"cut": 2} and values["heads_cut"] == "L0H3 L2H0"


@pytest.mark.parametrize("text", ['"a text"', "[]", "{}", "not json", '{"quality": {"unit": 1}}'])
def test_files_of_other_kinds_raise(tmp_path: Path, text: str) -> None:
    (tmp_path / "prune.json").write_text(text, "utf-8")
    with pytest.raises(OptionError, match=r"prune\.json .*record"):
        PruneRecord.read(tmp_path)


def test_folder_without_a_record_raises(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no prune\.json"):
        PruneRecord.read(tmp_path)
