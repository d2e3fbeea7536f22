"""Text sets: which text serves which step of pruning.

In: the user's documents, or the built-in registers. Out: documents for each step, by register. No
document serves two steps, except that heads are chosen and projections fitted on the same part of
a user's text. Of the built-in text, no register serves two steps: a cut that is chosen, fitted and
kept on some kinds of text is reported on others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwise.reading.corpus import (
    MANUAL,
    PROSE,
    ROUGH,
    ROUGH_KINDS,
    calibration_texts,
    rough_texts,
)
from headwise.reading.python_manual import split_documents

OWN_TEXT = "given"
"""Register of the text that the user passes."""
FOLDS = 4
"""Number of ways to divide the built-in registers; each register reports in one of them."""
OWN_SHARES = (0.25, 0.15, 0.2)
"""Shares of a user's text to report on, of the rest to decide on, and of the rest to shrink on."""
SAMPLES = "samples"
"""Register of text sampled from the model itself."""
Texts = Mapping[str, Sequence[str]]
"""Documents by register."""
STEPS = ("choose", "fit", "shrink", "decide", "report")


@dataclass(frozen=True)
class TextSets:
    """Documents by register, for each step."""

    choose: Texts
    """To choose heads on."""
    fit: Texts
    """To fit corrections on."""
    shrink: Texts
    """To choose how much each correction is shrunk."""
    decide: Texts
    """To decide whether a correction stays and, if only the loss is given, how much is cut."""
    report: Texts
    """To report on: it decides nothing."""


def builtin_sets(fold: int = 0, *, is_causal: bool) -> TextSets:
    """The built-in registers, divided so that every fourth prose register reports.

    Heads are chosen on four registers of prose and on rough text. Causal models are more sensitive
    to the kind of text: there each kind of rough text counts as much as a register, and the manual
    is one more. For other models, the manual is one of two registers that shrink corrections.

    >>> sets = builtin_sets(is_causal=False)
    >>> list(sets.choose), list(sets.report)
    (['news', 'letters', 'instructions', 'captions', 'rough'], ['dialogue', 'questions', 'speech'])
    """
    report = PROSE[FOLDS - 1 - fold :: FOLDS]
    rest = [name for name in PROSE if name not in report]
    chosen = [rest[at] for at in (0, 3, 5, 6)]  # of many lengths and styles
    others = [name for name in rest if name not in chosen]
    choose = [*chosen, *((*ROUGH_KINDS, MANUAL) if is_causal else (ROUGH,))]
    shrink = [others[1], *([] if is_causal else [MANUAL])]
    sets = (choose, others[0::3], shrink, others[2::2], report)
    texts = calibration_texts() | rough_texts()
    return TextSets(*({name: texts[name] for name in names} for names in sets))


def other_texts() -> Texts:
    """Built-in prose of every register and the manual, to measure a cut for a user's text on."""
    texts = calibration_texts()
    return {name: texts[name] for name in (*PROSE, MANUAL)}


def own_sets(texts: Sequence[str], seed: int, *, keeps_whole: bool = False) -> TextSets:
    """The user's documents, or their paragraphs if there are few of them, divided at random.

    If `keeps_whole` is True, each text is one example and never split.
    """
    parts, rest = list[Texts](), texts
    for number, share in enumerate(OWN_SHARES):
        rest, part = split_documents(
            rest,
            held_out=share,
            seed=seed + number,
            keeps_whole=keeps_whole,
            least=len(OWN_SHARES) - number,
        )
        parts.append({OWN_TEXT: part})
    report, decide, shrink = parts
    return TextSets({OWN_TEXT: rest}, {OWN_TEXT: rest}, shrink, decide, report)
