"""Sentences with gold relations as a model reads them.

In: ProbeSentences and a reader. Out: the tokens of every sentence that the model can read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwise.probes.sentences import ProbeSentence, split_in_two
from headwise.reading.reader import Reader, Window
from headwise.reading.words import Encoded, encode


@dataclass(frozen=True)
class GoldSentences:
    """Sentences from one source, and the tokens of those that a model can read, by index."""

    sentences: Sequence[ProbeSentence]
    encoded: Mapping[int, Encoded]

    @classmethod
    def of(cls, sentences: Sequence[ProbeSentence], reader: Reader) -> "GoldSentences":
        """Leave out sentences that are too long for the model or have a word without a token."""
        every = (encode(each.words, reader.tokenizer, each.text) for each in sentences)
        readable = {
            index: encoded
            for index, encoded in enumerate(every)
            if encoded is not None and len(encoded.input_ids) <= reader.length
        }
        return cls(sentences, readable)

    @property
    def num_unusable(self) -> int:
        """Number of sentences that the model cannot read."""
        return len(self.sentences) - len(self.encoded)

    @property
    def halves(self) -> list[int]:
        """The half that each sentence belongs to, usable or not."""
        return split_in_two(self.sentences)

    def windows(self) -> list[Window]:
        """The tokens of every readable sentence."""
        return [Window(index, tuple(each.input_ids)) for index, each in self.encoded.items()]
