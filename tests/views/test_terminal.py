"""Without a terminal every stage is a line, and a long one is more than one."""

import io

from rich.console import Console

from headwise.views.terminal import SECONDS_BETWEEN_LINES, Stages


class Clock:
    """Time that goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_stage_is_named_once_and_again_after_a_while() -> None:
    console, clock = Console(file=io.StringIO(), width=20), Clock()
    about = "measuring 72 heads on 4,096 tokens"
    with Stages(console, tells=True, clock=clock) as stages:
        stages(about, 0, 0)
        stages("backward passes", 0, 3)
        stages("backward passes", 1, 3)
        stages("silencing heads", 0, 1700)
        stages("backward passes", 0, 3)
        clock.now += SECONDS_BETWEEN_LINES
        stages("silencing heads", 1611, 1700)
        stages("silencing heads", 1612, 1700)
    assert lines(console) == [
        "headwise: measuring 72 heads on 4,096 tokens",
        "headwise: backward passes",
        "headwise: silencing heads",
        "headwise: silencing heads, 1,611 of 1,700",
    ]


def test_on_a_terminal_a_bar_stands_for_the_lines() -> None:
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system=None)
    with Stages(console, tells=True) as stages:
        stages("backward passes", 1, 3)
        stages("backward passes", 2, 3)
    assert not any(line.startswith("headwise:") for line in lines(console))
    assert any("backward passes" in line for line in lines(console))
