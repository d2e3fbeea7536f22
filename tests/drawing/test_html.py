"""Names and tokens that look like markup are printed as they are."""

import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from rich.console import Console

from headwise.planning.plans import plan
from headwise.views.heads import leaders
from headwise.views.plan import comparison
from headwise.views.trace import matrix

from ..report.report_cases import relations_of, table_of

ODD = ("[red]x[/red]", "[/INST]", "\\[b]", "a\\")


def printed(table: Any) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", ODD)
def test_names_are_printed_unchanged(name: str) -> None:
    assert name in printed(comparison([replace(plan("768/12x12"), name=name)]))
    assert name in printed(leaders(relations_of(table_of(), name)))
    shown = printed(matrix("weights", torch.eye(2), [name, "row"], ["column", f"{name}s"]))
    assert f"{name} " in shown and f"{name}s" in shown
