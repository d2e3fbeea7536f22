"""Alignment: pairs of prompts become batches of equal length, without padding.

In: PromptPairs and a model with its tokenizer. Out: PairBatches. Each token of a clean prompt has
its counterpart at the same position of the corrupted one, so that what heads compute there can be
exchanged. Pairs for which this is impossible raise AlignmentError, with the words to change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.formats import format_count
from headwise.models.loaded import LoadedModel
from headwise.models.modalities import check_reads_text
from headwise.objectives.scored_model import predicts_masked_tokens, predicts_next_token
from headwise.patching.prompts import PromptPair
from headwise.reading.batch import Inputs
from headwise.reading.labels import token_text
from headwise.reading.reader import Reader, Window

BATCH_TOKENS = 1024
"""Maximum number of tokens in a batch, unless a single prompt has more."""
BLANK = "___"
"""The place of the answer in a prompt for masked models; it becomes the tokenizer's mask token."""
MOST_LISTED = 40
"""Number of tokens of a prompt that a message lists."""


class AlignmentError(OptionError):
    """A pair of prompts does not fit the model's tokenizer; the message names the pair."""


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Pairs with the same number of tokens, as model inputs."""

    indices: tuple[int, ...]
    """Index of each pair in the user's list."""
    clean: Inputs
    corrupted: Inputs
    position: Int[Tensor, " batch"]
    """Where the answer is predicted: the prompt's last token, or the mask token; 0 if nowhere."""
    answer: Int[Tensor, " batch"] | None
    """Token id of the answer; None if the pairs have no answers."""
    instead: Int[Tensor, " batch"] | None
    """Token id of the word to compare with; None if the pairs have no answers."""
    tokens: tuple[tuple[str, ...], ...]
    """Labels of the tokens of each clean prompt."""

    @property
    def length(self) -> int:
        """Number of tokens in each prompt."""
        return self.clean["input_ids"].shape[1]


@dataclass(frozen=True)
class TokenPair:
    """The tokens of one pair: two prompts of the same length and two answers."""

    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    position: int
    answer: int | None
    instead: int | None


def align_pairs(
    loaded: LoadedModel, pairs: Sequence[PromptPair], *, batch_tokens: int = BATCH_TOKENS
) -> tuple[PairBatch, ...]:
    """The pairs as batches of at most `batch_tokens` tokens, equal lengths together.

    Within a length, pairs keep their order. Messages count pairs and tokens from 1.
    """
    batch_tokens = whole_number("batch_tokens", batch_tokens, least=1)
    _check_pairs(pairs)
    reader = PairReader(loaded)
    by_length: dict[int, list[tuple[int, TokenPair]]] = {}
    for index, pair in enumerate(pairs):
        tokens = reader.read(pair, f"pair {index + 1}")
        by_length.setdefault(len(tokens.clean), []).append((index, tokens))
    batches: list[PairBatch] = []
    for length, members in sorted(by_length.items()):
        size = max(1, batch_tokens // length)
        parts = (members[start : start + size] for start in range(0, len(members), size))
        batches.extend(reader.batch(part) for part in parts)
    return tuple(batches)


def _check_pairs(pairs: Sequence[PromptPair]) -> None:
    if not pairs:
        raise OptionError("there are no pairs of prompts: give at least one")
    for number, pair in enumerate(pairs, 1):
        if not isinstance(pair, PromptPair):
            raise OptionError(
                f"pair {number} is a {type(pair).__name__}: pass PromptPair(clean, corrupted)"
            )
        if bool(pair.answer) != bool(pairs[0].answer):
            raise OptionError(
                f"pair {number} has {'an' if pair.answer else 'no'} answer, unlike pair 1: give "
                "answers to all pairs or to none"
            )


class PairReader:
    """Turns pairs of prompts into tokens of one model."""

    def __init__(self, loaded: LoadedModel) -> None:
        """Raise OptionError if the model cannot read text."""
        if loaded.tokenizer is None:
            raise OptionError(
                f"{loaded.name} has no tokenizer, which prompts need: pass one to open_model"
            )
        check_reads_text(loaded)
        self.loaded = loaded
        self.tokenizer: Any = loaded.tokenizer
        self.reader = Reader(loaded.tokenizer, getattr(loaded.model, "config", None))
        self.predicts_next = predicts_next_token(loaded.model)
        self.predicts_masked = predicts_masked_tokens(loaded.model)
        if self.predicts_masked and self.tokenizer.mask_token_id is None:
            raise OptionError(
                f"{loaded.name} predicts masked tokens, but its tokenizer has no mask token: pass "
                "one that has"
            )

    def read(self, pair: PromptPair, name: str) -> TokenPair:
        """The tokens of a pair called `name`; raises AlignmentError if they cannot be aligned."""
        clean, corrupted = self._ids(pair.clean, name), self._ids(pair.corrupted, name)
        if clean == corrupted:
            raise AlignmentError(
                f"{name} has clean and corrupted prompts with the same tokens, "
                f"{self._list(clean)}: change a word in the corrupted one"
            )
        if len(clean) != len(corrupted):
            raise AlignmentError(self._length_message(clean, corrupted, name))
        position = self._position(clean, corrupted, name)
        if not pair.answer:
            return TokenPair(clean, corrupted, position, None, None)
        self._check_predicts_words()
        answer, instead = (
            self._answer_id(pair.clean, word, label, name)
            for label, word in (("answer", pair.answer), ("instead", pair.instead))
        )
        if answer == instead:
            raise AlignmentError(
                f"{name} has answer {pair.answer!r} and instead {pair.instead!r}, which are the "
                f"same token {self._show([answer])}: choose different words"
            )
        return TokenPair(clean, corrupted, position, answer, instead)

    def batch(self, members: Sequence[tuple[int, TokenPair]]) -> PairBatch:
        """Pairs of one length as model inputs, with their indices."""
        device = self.loaded.device
        indices, pairs = zip(*members, strict=True)
        answers = [pair.answer for pair in pairs if pair.answer is not None]
        others = [pair.instead for pair in pairs if pair.instead is not None]
        return PairBatch(
            indices=indices,
            clean=self._inputs([pair.clean for pair in pairs]),
            corrupted=self._inputs([pair.corrupted for pair in pairs]),
            position=torch.tensor([pair.position for pair in pairs], device=device),
            answer=torch.tensor(answers, device=device) if answers else None,
            instead=torch.tensor(others, device=device) if others else None,
            tokens=tuple(self._labels(pair.clean) for pair in pairs),
        )

    def _inputs(self, prompts: Sequence[tuple[int, ...]]) -> Inputs:
        windows = [Window(index, ids) for index, ids in enumerate(prompts)]
        return self.reader.batch(windows, self.loaded.device).inputs

    def _ids(self, prompt: str, name: str) -> tuple[int, ...]:
        """Token ids of a prompt, with special tokens around them."""
        before, after = self.reader.around
        ids = self.reader.ids(self._fill_blank(prompt))
        if not ids:
            raise AlignmentError(f"{name} has no tokens in the prompt {prompt!r}: give some words")
        if (size := len(ids) + self.reader.num_around) > self.reader.length:
            raise AlignmentError(
                f"{name} has {format_count(size, 'token')}, but {self.loaded.name} reads at most "
                f"{self.reader.length:,}: shorten the prompts"
            )
        return (*before, *ids, *after)

    def _fill_blank(self, prompt: str) -> str:
        return prompt.replace(BLANK, self.tokenizer.mask_token) if self.predicts_masked else prompt

    def _position(self, clean: tuple[int, ...], corrupted: tuple[int, ...], name: str) -> int:
        """Where the answer is predicted; 0 if the model has no prediction head."""
        if self.predicts_next:
            return len(clean) - len(self.reader.around[1]) - 1
        if not self.predicts_masked:
            return 0
        places = []
        for label, ids in (("clean", clean), ("corrupted", corrupted)):
            if (count := ids.count(self.tokenizer.mask_token_id)) != 1:
                raise AlignmentError(
                    f"{name} has {format_count(count, 'mask token')} in its {label} prompt: mark "
                    f"the place of the answer once, by {self.tokenizer.mask_token} or {BLANK}"
                )
            places.append(ids.index(self.tokenizer.mask_token_id))
        if places[0] != places[1]:
            raise AlignmentError(
                f"{name} has its mask token at token {places[0] + 1} of the clean prompt and token "
                f"{places[1] + 1} of the corrupted one: put it at the same place"
            )
        return places[0]

    def _check_predicts_words(self) -> None:
        if not (self.predicts_next or self.predicts_masked):
            raise OptionError(
                f"{self.loaded.name} is a {type(self.loaded.model).__name__}, which has no head "
                "that predicts the next or a masked token: leave out the answers, or load a causal "
                "or masked language model with LoadOptions(keeps_head=True)"
            )

    def _answer_id(self, prompt: str, word: str, label: str, name: str) -> int:
        """The one token of an answer; raises AlignmentError if it has several."""
        ids = self._answer_ids(prompt, word)
        if len(ids) == 1 and ids[0] != self.tokenizer.unk_token_id:
            return ids[0]
        other = word.lstrip() if word[0].isspace() else f" {word}"
        other_ids = self._answer_ids(prompt, other)
        works = len(other_ids) == 1 and other_ids[0] != self.tokenizer.unk_token_id
        advice = f"write it as {other!r}, which is one token" if works else "use another word"
        if len(ids) == 1:
            raise AlignmentError(
                f"{name} has {label} {word!r}, which the tokenizer does not know: {advice}"
            )
        raise AlignmentError(
            f"{name} has {label} {word!r}, which is {format_count(len(ids), 'token')}, "
            f"{self._show(ids)}, but it must be one: {advice}"
        )

    def keeps_tokens(self, prompt: str, word: str) -> bool:
        """Whether the tokens of a prompt stay the same if `word` is written in its place."""
        return bool(self._ids_in_place(prompt, word))

    def _answer_ids(self, prompt: str, word: str) -> list[int]:
        """Tokens of an answer in its place, or alone if the tokens around it would change."""
        return self._ids_in_place(prompt, word) or self.reader.ids(word)

    def _ids_in_place(self, prompt: str, word: str) -> list[int]:
        """Tokens of `word` in its place; empty if the tokens around it would change."""
        text = self._fill_blank(prompt)
        ids = self.reader.ids(text)
        before, after, start = text, "", len(ids)
        if self.predicts_masked:
            before, _, after = text.partition(self.tokenizer.mask_token)
            start = ids.index(self.tokenizer.mask_token_id)
        has_space = self.predicts_masked and (not before or before[-1].isspace())
        full = self.reader.ids(before + (word.lstrip() if has_space else word) + after)
        rest = ids[start + 1 :]
        inner = full[start : len(full) - len(rest)]
        return inner if [*ids[:start], *inner, *rest] == full else []

    def _length_message(self, clean: tuple[int, ...], corrupted: tuple[int, ...], name: str) -> str:
        start, end, shorter = 0, 0, min(len(clean), len(corrupted))
        while start < shorter and clean[start] == corrupted[start]:
            start += 1
        while end < shorter - start and clean[-1 - end] == corrupted[-1 - end]:
            end += 1
        differences = (
            self._show(ids[start : len(ids) - end]) or "nothing" for ids in (clean, corrupted)
        )
        return (
            f"{name} cannot be aligned: clean has {format_count(len(clean), 'token')} "
            f"({self._list(clean)}) and corrupted {len(corrupted):,} ({self._list(corrupted)}); "
            f"they first differ at token {start + 1}, {' against '.join(differences)}; use words "
            "with the same number of tokens"
        )

    def _list(self, ids: Sequence[int]) -> str:
        more = ", ..." if len(ids) > MOST_LISTED else ""
        return f"{self._show(ids[:MOST_LISTED])}{more}"

    def _show(self, ids: Sequence[int]) -> str:
        return ", ".join(repr(self.tokenizer.decode([token])) for token in ids)

    def _labels(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        pieces = self.tokenizer.convert_ids_to_tokens(list(ids))
        return tuple(
            token_text(piece, self.tokenizer.decode([token]))
            for piece, token in zip(pieces, ids, strict=True)
        )
