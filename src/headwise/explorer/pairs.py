"""Two texts that differ in a few words: which words correspond.

In: the words of both texts. Out: pairs of their indices.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from headwise.explorer.api_types import StageWord


def align_words(first: Sequence[StageWord], second: Sequence[StageWord]) -> list[list[int | None]]:
    """Pairs of indices of corresponding words, in order; None for a word without a partner.

    Equal words correspond, and words that were replaced by as many others.

    >>> words = [[StageWord(text, True, "word") for text in each] for each in ("abd", "acdd")]
    >>> align_words(*words)
    [[0, 0], [1, 1], [2, 2], [None, 3]]
    """
    one, other = ([word.text for word in words] for words in (first, second))
    pairs: list[list[int | None]] = []
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    for _, start, stop, other_start, other_stop in matcher.get_opcodes():
        ones, others = range(start, stop), range(other_start, other_stop)
        both = min(len(ones), len(others))
        pairs += [list(pair) for pair in zip(ones[:both], others[:both], strict=True)]
        pairs += [[place, None] for place in ones[both:]]
        pairs += [[None, place] for place in others[both:]]
    return pairs
