"""A measure of one's own changes no other, and its mistakes are told in one sentence."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch

from headwise.errors import OptionError, ShapeError
from headwise.measures.counter import MEASURES
from headwise.measures.measure import Measure, PairsOf, RowValues
from headwise.measures.row_layout import RowLayout
from headwise.measures.sequence_view import SequenceView, Sums, TileWeights
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings

from ..pruning.subjects import words_tokenizer
from ..watching.tiny import tiny

TEXT = "w7 w8 w9 w7 w8 w31 w40 w7 w9 w12 w13 w31"


class Largest(Measure):
    """Names its sum and its pairs as headwise's own measures do theirs."""

    columns: ClassVar = {"mine": "Mean number of weights above a half.", "same": "Mean at itself."}

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        return {"previous": lambda places: (torch.arange(len(places)), places)}

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        sums.add("largest", tile.span, (tile.weights > 0.5).sum(-1).to(tile.weights))

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"mine": RowValues(sums["largest"]), "same": RowValues(sums["previous"])}


class Other(Largest):
    columns: ClassVar = {"mine_too": "The same once more."}

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"mine_too": RowValues(sums["largest"])}


@pytest.fixture(autouse=True)
def _measures_as_they_were() -> Iterator[None]:
    before = dict(MEASURES)
    yield
    MEASURES.clear()
    MEASURES.update(before)


def table_of() -> Any:
    model, _ = tiny("gpt2")
    settings = ScanSettings(repeats=False, probe=False, compares=False)
    return scan(model, TEXT, tokenizer=words_tokenizer(), settings=settings)


def test_sums_and_pairs_of_equal_names_are_kept_apart() -> None:
    before = table_of()
    MEASURES["largest"], MEASURES["other"] = Largest, Other
    after = table_of()
    shared = [name for name in before.df if name != "roles"]
    assert after.df[shared].equals(before.df[shared])
    assert after.df["mine"].equals(after.df["mine_too"].rename("mine"))
    assert after.df["same"].to_numpy() == pytest.approx(before.df["self"].to_numpy(), rel=1e-5)
    assert 0 <= after.df["mine"].min() and after.df["mine"].max() <= 1


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
    ("made", "error", "words"),
    [
        (Mistyped, OptionError, "Mistyped reads a sum 'lagrest' that nothing was added to: there"),
        (Undescribed, OptionError, "Undescribed gives a column 'other', which its columns do not"),
        (Misshapen, ShapeError, "a share of 'largest' is .*: give one number a head and row"),
        (object(), OptionError, r"MEASURES\['mine'\] is <object .*: give a subclass of Measure"),
    ],
)
def test_a_mistake_in_a_measure_is_one_sentence(made: Any, error: type, words: str) -> None:
    MEASURES["mine"] = made
    with pytest.raises(error, match=words):
        table_of()
