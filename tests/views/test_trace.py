"""Matrices in the terminal are shown in full, however wide it is."""

import io

import pytest
import torch
from rich.console import Console

from headwise.views.trace import matrix

LABELS = ["[CLS]", "anim", "##al", "because", "貓睡覺", "a", ".", "[SEP]"]


def printed(width: int, title: str = "L3H1") -> str:
    values = torch.arange(64.0).view(8, 8) / 10
    console = Console(file=io.StringIO(), width=width)
    console.print(matrix(title, values, LABELS, LABELS))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [24, 31, 40, 53, 80, 200])
def test_every_number_and_label_is_printed_once_at_any_width(width: int) -> None:
    text = printed(width)
    assert "…" not in text
    numbers = [word for word in text.split() if "." in word and word != "."]
    assert sorted(map(float, numbers)) == sorted(round(n / 10, 2) for n in range(64))
    lines = text.splitlines()
    parts = [at for at, line in enumerate(lines) if line.startswith("L3H1")]
    headings = [word for at in parts for word in lines[at + 2].split()]
    assert headings == LABELS


def test_parts_after_the_first_say_so() -> None:
    assert printed(200).count("L3H1") == 1 and "continued" not in printed(200)
    assert printed(40).count("L3H1, continued") == printed(40).count("L3H1") - 1 > 0
