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

from .records import QUALITY, cut_scores, prune_record, score, text_use


def test_record_survives_its_file(tmp_path: Path) -> None:
    record = prune_record(
        refit=(
            LayerFit("L0", "weights", 0.1, 1.0, 0.5, True),
            LayerFit("L1", "nothing", None, 1.0, 1.0, False),
        ),
        speed=(Speed(16, 512, 2.0, 1.0, 2.0, 0.1),),
        onnx_difference=1e-6,
    )
    record.write(tmp_path)
    assert PruneRecord.read(tmp_path) == record


def test_scores_on_other_text_and_on_registers_survive_the_file(tmp_path: Path) -> None:
    registers = {"news": cut_scores(0.0, 0.2, 0.1), "law": cut_scores(0.0, 0.4, 0.3)}
    quality = replace(QUALITY, other=cut_scores(0.0, 0.3, 0.2), other_registers=registers)
    record = prune_record(quality=quality)
    record.write(tmp_path)
    assert PruneRecord.read(tmp_path) == record
    assert json.loads(record.to_json())["quality"]["other_registers"]["law"]["final"]["loss"] == 0.3


def test_optional_scores_stay_none(tmp_path: Path) -> None:
    quality = replace(QUALITY, floor=None, correction="none", is_dropped=True, random=())
    record = prune_record(quality=quality)
    record.write(tmp_path)
    quality = PruneRecord.read(tmp_path).quality
    assert quality == record.quality
    assert quality.other is None and quality.floor is None and quality.random_median is None


def test_json_is_strict_and_missing_numbers_become_nan(tmp_path: Path) -> None:
    unknown = Score(math.inf, math.nan, -math.inf, math.inf)
    scores = replace(QUALITY.scores, cut=unknown)
    quality = replace(
        QUALITY,
        scores=scores,
        registers={"news": scores},
        random=(score(0.5), unknown),
        random_lead=math.nan,
        random_lead_se=math.inf,
    )
    record = prune_record(quality=quality)
    values = json.loads(record.to_json(), parse_constant=pytest.fail)
    assert set(values["quality"]["scores"]["cut"].values()) == {None}
    record.write(tmp_path)
    quality = PruneRecord.read(tmp_path).quality
    assert math.isnan(quality.scores.cut.loss) and math.isnan(quality.registers["news"].cut.value)
    assert math.isnan(quality.random[1].value) and quality.random[0] == score(0.5)
    assert math.isnan(quality.random_lead) and math.isnan(quality.random_lead_se)
    assert not quality.beats_random


@pytest.mark.parametrize(
    ("error", "text"),
    [(0.02, "634.27 ± 0.02"), (math.inf, "634.2726"), (0.0, "634.2726"), (1e-7, "634.2726")],
)
def test_scores_are_written_with_errors_that_are_known(error: float, text: str) -> None:
    assert Score(6.45, error, 634.27261, error).text == text


def test_median_of_random_cuts_is_the_lower_middle_score() -> None:
    for losses, median in (((0.4, 0.1, 9.0), 0.4), ((0.4, 0.1), 0.1), ((7.0,), 7.0)):
        quality = replace(QUALITY, random=tuple(map(score, losses)))
        assert quality.random_median == score(median)


@pytest.mark.parametrize(("lead", "error", "beats"), [(0.3, 0.1, True), (0.2, 0.1, False)])
def test_a_cut_beats_random_ones_by_two_standard_errors(
    lead: float, error: float, beats: bool
) -> None:
    quality = replace(QUALITY, random_lead=lead, random_lead_se=error)
    assert quality.beats_random == beats
    assert replace(quality, random=()).beats_random  # nothing to compare with


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


def test_json_names_the_registers_of_every_step(tmp_path: Path) -> None:
    record = prune_record(text=text_use("news", "law"))
    text = json.loads(record.to_json())["text"]
    assert list(text) == ["choose", "fit", "shrink", "decide", "report"]
    assert all(part["registers"] == ["news", "law"] for part in text.values())
    record.write(tmp_path)
    assert PruneRecord.read(tmp_path).text == record.text
    assert not record.text.is_given and text_use().is_given
