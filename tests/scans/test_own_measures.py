"""A custom measure changes no other measure, and an error names what is wrong with it."""

from typing import Any, ClassVar

import pytest
import torch

from headwise.errors import OptionError, ShapeError
from headwise.measures.counter import MEASURES
from headwise.measures.entropy import Entropy
from headwise.measures.measure import Measure, PairsOf, RowValues, Sums
from headwise.measures.sequence_view import RowLayout, SequenceView, TileWeights
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings

from ..pruning.tiny_models import words_tokenizer
from ..watching.tiny import tiny

TEXT = "w7 w8 w9 w7 w8 w31 w40 w7 w9 w12 w13 w31"


class Largest(Measure):
    """A measure whose sum and pairs have names that headwise's own measures use."""

    columns: ClassVar = {"mine": "Mean number of weights above a half.", "same": "Mean at itself."}

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        return {"previous": lambda places: (torch.arange(len(places)), places)}

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        sums.add("largest", tile.span, (tile.weights > 0.5).sum(-1).to(tile.weights))

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"mine": RowValues(sums["largest"]), "same": RowValues(sums["previous"])}


class Other(Largest):
    columns: ClassVar = {"mine_too": "Mean number of weights above a half, again."}

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"mine_too": RowValues(sums["largest"])}


def table_with(*measures: Any) -> Any:
    model, _ = tiny("gpt2")
    settings = ScanSettings(
        measures=(*MEASURES, *measures), repeats=False, probe=False, compares=False
    )
    return scan(model, TEXT, tokenizer=words_tokenizer(), settings=settings)


def test_sums_and_pairs_of_equal_names_stay_separate() -> None:
    before, after = table_with(), table_with(Largest, Other)
    shared = [name for name in before.df if name != "roles"]
    assert after.df[shared].equals(before.df[shared])
    assert after.df["mine"].equals(after.df["mine_too"].rename("mine"))
    assert after.df["same"].to_numpy() == pytest.approx(before.df["self"].to_numpy(), rel=1e-5)
    assert 0 <= after.df["mine"].min() and after.df["mine"].max() <= 1
    assert after.about["columns"]["mine"] == Largest.columns["mine"]
    assert after.about["settings"]["measures"][-2:] == [f"{__name__}.Largest", f"{__name__}.Other"]


def test_a_single_class_needs_no_tuple_and_headwise_classes_count_as_names() -> None:
    assert ScanSettings(measures=Largest).measures == (Largest,)
    assert ScanSettings(measures=(Entropy, "masses")).measures == ("entropy", "masses")


def test_measures_are_read_only() -> None:
    with pytest.raises(TypeError):
        MEASURES["largest"] = Largest  # type: ignore[index]


class Twice(Largest):
    columns: ClassVar = {"entropy": "A column that Entropy has."}


class Mistyped(Largest):
    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"mine": RowValues(sums["lagrest"])}


class Undescribed(Largest):
    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"other": RowValues(sums["largest"])}


class Misshapen(Largest):
    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        sums.add("largest", tile.span, tile.weights)


@pytest.mark.parametrize(
    ("measure", "error", "facts"),
    [
        (Mistyped, OptionError, "Mistyped.*'lagrest'.*largest"),
        (Undescribed, OptionError, "Undescribed.*'other'.*mine"),
        (Misshapen, ShapeError, "'largest'"),
        (Twice, OptionError, "Twice.*Entropy.*'entropy'"),
        (object(), OptionError, "<object .*Measure"),
        (int, OptionError, "<class 'int'>"),
    ],
)
def test_a_wrong_measure_raises(measure: Any, error: type, facts: str) -> None:
    with pytest.raises(error, match=facts):
        table_with(measure)
