"""The worked example, in the library and as its script prints it, and the table of shapes."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

from headwise.attention.reference import layer_by_definition
from headwise.attention.worked_example import cat_sleeps, dimensions

EXAMPLES = Path(__file__).parents[2] / "examples"


def rounded(tensor: torch.Tensor) -> list[list[float]]:
    return [[round(value, 2) for value in row] for row in tensor.tolist()]


def test_cat_sleeps_has_the_numbers_worked_out_by_hand() -> None:
    layer, tokens, x = cat_sleeps()
    first, second = layer_by_definition(layer, x).heads
    assert tokens == ["Cat", "sleeps"]
    assert first.scores.tolist() == [[5.0, 0.0], [0.0, 0.0]]
    assert rounded(first.scaled) == [[3.54, 0.0], [0.0, 0.0]]
    assert rounded(first.weights) == [[0.97, 0.03], [0.5, 0.5]]
    assert rounded(first.mixed) == [[0.97, 1.94], [0.5, 1.0]]
    assert second.scores.tolist() == [[0.0, 0.0], [0.0, 5.0]]
    assert rounded(second.weights) == [[0.5, 0.5], [0.03, 0.97]]


def test_every_output_column_of_cat_sleeps_holds_both_heads() -> None:
    layer, _, x = cat_sleeps()
    steps = layer_by_definition(layer, x)
    assert all((part.abs() > 0.2).all() for part in steps.contributions)
    torch.testing.assert_close(layer(x[None])[0], steps.output)
    torch.testing.assert_close(sum(steps.contributions), steps.output)


def test_the_table_of_shapes_is_the_textbooks() -> None:
    shapes = {row.step.strip(): row.shape for row in dimensions(4, 16, 512, 4)}
    assert shapes == {
        "input": (4, 16, 512),
        "queries (keys, values)": (4, 16, 512),
        "split into heads": (4, 16, 4, 128),
        "heads before positions": (4, 4, 16, 128),
        "scores": (4, 4, 16, 16),
        "weights": (4, 4, 16, 16),
        "mixed": (4, 4, 16, 128),
        "positions before heads": (4, 16, 4, 128),
        "concat": (4, 16, 512),
        "output": (4, 16, 512),
    }


def test_the_example_prints_the_numbers_of_the_worked_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["cat_sleeps.py"])
    example = runpy.run_path(str(EXAMPLES / "cat_sleeps.py"), run_name="__main__")
    printed = capsys.readouterr().out
    expected = ["5.00", "3.54", "0.97", "0.03", "1.94", "largest difference"]
    assert [text for text in expected if text not in printed] == []
    layer, tokens, x = cat_sleeps()
    assert example["TOKENS"] == tokens and torch.equal(example["X"], x)
    weights = example["make_layer"]().state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in layer.state_dict().items())


def test_the_picture_loads_nothing_from_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "cat.svg"
    monkeypatch.setattr(sys, "argv", ["cat_sleeps.py", "--svg", str(picture)])
    runpy.run_path(str(EXAMPLES / "cat_sleeps.py"), run_name="__main__")
    svg = picture.read_text("utf-8")
    assert "0.97" in svg
    assert "url(http" not in svg and "@font-face" not in svg
