"""A comparison in the terminal: the columns that apply, aligned, on lines of 80 columns."""

import io
import math

import pytest
from rich.console import Console

from headwise.comparing.comparison import Comparison
from headwise.drawing.table import Table
from headwise.objectives.evaluation import Estimate
from headwise.views.comparing import comparison_title, reading_line, texts_table

from ..comparing.comparisons import causal, comparison_of, embedding, text_of


def cells(table: Table) -> dict[str, tuple[str, ...]]:
    return {name: tuple(rest) for name, *rest in table.rows}


def test_causal_models_have_perplexities_their_ratio_and_agreement() -> None:
    table = texts_table(causal((0.25, 0.01)))
    assert table.columns == ("", "before", "after", "ratio", "same token", "divergence")
    assert cells(table)["captions"] == (
        *("7.4 ± 1.8", "7.5 ± 1.9", "1.018 ± 0.004", "87.5 ± 1.2%", "0.062 ± 0.003"),
    )
    assert cells(table)["your text"][2] == "1.284 ± 0.013"
    assert set(table.numeric) == set(table.columns[1:])


def test_embedding_models_have_cosines_and_neighbours() -> None:
    table = texts_table(embedding())
    assert table.columns == ("", "cosine to before", "10 nearest kept")
    assert cells(table)["news"] == ("0.938 ± 0.002", "75.0 ± 1.2%")


def test_other_models_have_losses_or_divergences() -> None:
    custom = comparison_of(
        objective="custom loss", unit="custom loss", registers=(text_of("news", 0.5, 0.0625),)
    )
    assert texts_table(custom).columns == ("", "before", "after", "difference")
    assert cells(texts_table(custom))["news"][2] == "0.500 ± 0.062"
    figures = {"agreement": Estimate(1.0, 0.0), "divergence": Estimate(0.5, 0.25)}
    divergence = comparison_of(
        objective="divergence of logits",
        unit="divergence of logits",
        registers=(text_of("news", 0.5, 0.25, before=None, **figures),),
    )
    assert texts_table(divergence).columns == ("", "same class", "divergence")
    assert cells(texts_table(divergence))["news"] == ("100.0 ± 0.0%", "0.500 ± 0.250")


def test_a_single_example_has_no_error_and_small_errors_get_more_decimals() -> None:
    one = causal(registers=(text_of("news", 0.5, math.inf),), all_registers=None)
    assert cells(texts_table(one))["news"][2] == "1.649"
    small = causal(registers=(text_of("news", 1e-5, 2e-6),), all_registers=None)
    assert cells(texts_table(small))["news"][2] == "1.000010 ± 0.000002"


@pytest.mark.parametrize("comparison", [causal((0.25, 0.01)), embedding((0.1, 0.01))])
def test_every_row_fits_on_a_line(comparison: Comparison) -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(texts_table(comparison).to_rich())
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert sum(line.strip().startswith("all registers") for line in lines) == 1
    assert len(lines) == len(comparison.texts) + 5


def test_the_lines_name_the_models_and_the_text() -> None:
    assert comparison_title(causal()) == "[bold]smaller[/bold] compared with [bold]small[/bold]"
    assert reading_line(causal()) == (
        "Measured by next-token loss on 24 passages, at most 2,048 tokens of each kind of text. "
        "± is one standard error; that of the ratio is from paired differences."
    )
    assert "36 sentences" in reading_line(embedding((0.1, 0.01)))
