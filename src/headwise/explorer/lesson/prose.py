"""Sentences of the lesson as runs: plain text, new terms, and names that light up in the figure.

In: text and runs. Out: lists of ProseRun, which the browser shows as text, never as markup.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ProseRun:
    """A part of a sentence."""

    text: str
    kind: Literal["text", "term", "word", "part"] = "text"
    """"term": a new term. "word": a word of the learner's text. "part": a part of the figure."""
    target: str = ""
    """Part of the figure that lights up with this run, such as "word 3"; "" for none."""


Prose = list[ProseRun]


def prose(*parts: str | ProseRun | list[ProseRun]) -> Prose:
    """Text and runs as one sentence; neighbouring plain texts are merged.

    >>> prose("a ", "b ", term("c"))
    [ProseRun(text='a b ', kind='text', target=''), ProseRun(text='c', kind='term', target='')]
    """
    runs: Prose = []
    for part in parts:
        for run in part if isinstance(part, list) else [part]:
            run = ProseRun(run) if isinstance(run, str) else run
            if not run.text:
                continue
            if runs and run.kind == runs[-1].kind == "text":
                runs[-1] = ProseRun(runs[-1].text + run.text)
            else:
                runs.append(run)
    return runs


def term(text: str) -> ProseRun:
    """A term where it is used first."""
    return ProseRun(text, "term")


def part(text: str, target: str) -> ProseRun:
    """A name of a part of the figure."""
    return ProseRun(text, "part", target)


def join_runs(items: list[list[ProseRun]], last: str = "and") -> Prose:
    """Items separated by commas, with `last` before the last one."""
    runs: list[str | ProseRun | list[ProseRun]] = []
    for index, item in enumerate(items):
        if index:
            runs.append(f" {last} " if index == len(items) - 1 else ", ")
        runs.append(item)
    return prose(*runs)


def plain(runs: Prose) -> str:
    """The text of some runs."""
    return "".join(run.text for run in runs)
