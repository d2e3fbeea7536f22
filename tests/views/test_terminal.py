"""Progress without a terminal: a line per stage, repeated while a stage takes long."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from headwise.errors import OptionError
from headwise.views.terminal import SECONDS_BETWEEN_LINES, ProgressDisplay, check_new


class Clock:
    """A clock that the test advances by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_stage_is_announced_once_and_again_after_half_a_minute() -> None:
    console, clock = Console(file=io.StringIO(), width=20), Clock()
    about = "measuring 72 heads on 4,096 tokens"
    with ProgressDisplay(console, prints_lines=True, clock=clock) as progress:
        progress(about, 0, 0)
        progress("backward passes", 0, 3)
        progress("backward passes", 1, 3)
        progress("silencing heads", 0, 1700)
        progress("backward passes", 0, 3)
        clock.now += SECONDS_BETWEEN_LINES
        progress("silencing heads", 1611, 1700)
        progress("silencing heads", 1612, 1700)
    assert lines(console) == [
        "headwise: measuring 72 heads on 4,096 tokens",
        "headwise: backward passes",
        "headwise: silencing heads",
        "headwise: silencing heads, 1,611 of 1,700",
    ]


def test_terminal_gets_a_bar_instead_of_lines() -> None:
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system=None)
    with ProgressDisplay(console, prints_lines=True) as progress:
        progress("backward passes", 1, 3)
        progress("backward passes", 2, 3)
    assert not any(line.startswith("headwise:") for line in lines(console))
    assert any("backward passes" in line for line in lines(console))


def test_rate_is_shown_in_the_given_unit() -> None:
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system=None)
    with ProgressDisplay(console, unit="tokens") as progress:
        for done in range(4):
            progress("scanning", done, 3)
    assert any("tokens/s" in line for line in lines(console))


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        (".", "is a folder"),
        ("a.txt", "ends in .html"),
        ("old.html", "--force"),
        ("no/a.html", "exist"),
    ],
)
def test_file_that_cannot_be_written_raises_before_any_work(
    name: str, fact: str, tmp_path: Path
) -> None:
    (tmp_path / "old.html").write_text("old")
    with pytest.raises(OptionError, match=re.escape(fact)):
        check_new(tmp_path / name, ".html", force=False)
    check_new(tmp_path / "old.html", ".html", force=True)
    check_new(tmp_path / "new.html", ".html", force=False)
