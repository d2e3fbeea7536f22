"""Reading: cuts texts into windows of tokens, and joins windows into batches.

Windows do not overlap, and each has the tokenizer's special tokens around it; a final window with
fewer than two tokens of text is dropped. Windows of similar length share a batch, which is padded
on the right. `tensors.py` makes batches from the user's own tensors.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from headwise.checks import check_characters
from headwise.errors import OptionError
from headwise.reading.batch import Batch, TokenKinds, has_decoder

BATCH_TOKENS = 4096
"""Maximum number of tokens in a batch, including padding, unless a single window has more."""
BATCH_WINDOWS = 32
SHORTEST = 2
"""Minimum number of text tokens in a window: a single token has no other to attend to."""
LONG_TOKEN = 16
"""Number of characters to read from a long text for each token; most tokens are shorter."""
SURPLUS = 64
"""Number of extra tokens to read, because the last tokens may depend on the text after them."""
UNLIMITED = 2048
"""Number of tokens in a window if neither the model nor the tokenizer has a limit."""
UNKNOWN = 10**9
"""A limit this large or larger means that the limit is unknown: transformers then writes 10^30."""

LIMITS = (
    *("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len"),
    *("seq_length", "max_target_positions"),
)
"""Config keys for the maximum number of tokens that a model reads."""
PADDED_POSITIONS = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "mpnet"),
    *("longformer", "data2vec-text", "ibert", "xmod", "luke"),
)
"""Model types whose positions start after the padding id, which lowers their limit."""

FEWEST_PERIODS = 5
"""Minimum number of different periods: a head that always looks back by one of five periods stays
below 0.4 of the rows, the share that would make it an induction head."""


@dataclass(frozen=True)
class Window:
    """Consecutive tokens that a model reads at once."""

    index: int
    """Index of the window among all windows of the texts."""
    ids: tuple[int, ...]


class Reader(TokenKinds):
    """Cuts texts into windows that fit a model's limits, and joins windows into batches."""

    def __init__(self, tokenizer: Any, config: Any, *, length: int | None = None) -> None:
        """Limit windows to `length` tokens, or to the model's own limit if that is lower."""
        super().__init__(tokenizer)
        self.config = config
        limits = [limit for limit in (length, token_limit(tokenizer, config)) if limit is not None]
        self.length = min(limits, default=UNLIMITED)
        self.around = _special_tokens_around(tokenizer)
        self.num_around = sum(map(len, self.around))
        if self.length < self.num_around + SHORTEST:
            raise OptionError(
                f"length is {self.length}, which leaves no room for text: the tokenizer adds "
                f"{self.num_around} special tokens, so use at least {self.num_around + SHORTEST}",
                option="length",
            )

    def windows(
        self, texts: Iterable[str], max_tokens: int | None = None, *, keeps_whole: bool = False
    ) -> list[Window]:
        """All windows cut from the texts, up to `max_tokens` tokens in total.

        With `keeps_whole`, `max_tokens` shortens no text that fits into one window: the windows end
        before it. Only the very first text may be shortened.
        """
        before, after = self.around
        left = math.inf if max_tokens is None else max_tokens
        least = self.num_around + SHORTEST
        if left < least:
            raise OptionError(
                f"max_tokens is {max_tokens}: it must be at least {least}, which is {SHORTEST} "
                "tokens of text plus the special tokens around them",
                option="max_tokens",
            )
        windows: list[Window] = []
        for text in texts:
            if left < least:
                break
            ids = self.first_ids(text, left)
            if keeps_whole and windows and left < len(ids) + self.num_around <= self.length:
                break
            start = 0
            while (size := int(min(self.length, left)) - self.num_around) >= SHORTEST:
                part = ids[start : start + size]
                if len(part) < SHORTEST:
                    break
                windows.append(Window(len(windows), (*before, *part, *after)))
                left -= len(part) + self.num_around
                start += size
        if not windows:
            raise OptionError(
                f"there is too little text to read: it must have at least {SHORTEST} tokens, "
                f"or {least} with the special tokens around them"
            )
        return windows

    def first_ids(self, text: str, most: int | float) -> list[int]:
        """All token ids of a short text, or at least the first `most` of a long one."""
        size = LONG_TOKEN * (most + SURPLUS)
        while size < len(text):
            end = max(text.rfind(" ", 0, int(size)), text.rfind("\n", 0, int(size)))
            ids = self.ids(text[: end if end > 0 else int(size)])
            if len(ids) >= most + SURPLUS:
                return ids
            size *= 4
        return self.ids(text)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, without the surrounding special tokens."""
        check_characters("the text", text)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def batches(
        self,
        windows: Sequence[Window],
        most_tokens: int = BATCH_TOKENS,
        *,
        shortest: float = 0.5,
    ) -> list[list[Window]]:
        """Group windows into batches: longest first, similar lengths together.

        A batch has only windows that are longer than `shortest` times its longest one.
        """
        groups: list[list[Window]] = []
        for window in sorted(windows, key=lambda window: (-len(window.ids), window.index)):
            last = groups[-1] if groups else []
            fits = last and (
                (len(last) + 1) * len(last[0].ids) <= most_tokens
                and len(last) < BATCH_WINDOWS
                and len(window.ids) > shortest * len(last[0].ids)
            )
            if fits:
                last.append(window)
            else:
                groups.append([window])
        return groups

    def batch(self, windows: Sequence[Window], device: torch.device | str) -> Batch:
        """The windows as one padded batch for the model."""
        lengths = torch.tensor([len(window.ids) for window in windows])
        longest = int(lengths.max())
        ids = torch.full((len(windows), longest), self.tokenizer.pad_token_id or 0)
        for row, window in enumerate(windows):
            ids[row, : len(window.ids)] = torch.tensor(window.ids)
        is_real = torch.arange(longest) < lengths[:, None]
        facts = self.facts(ids, is_real)
        inputs = {"input_ids": ids.to(device), "attention_mask": is_real.long().to(device)}
        indices = tuple(window.index for window in windows)
        if not has_decoder(self.config):
            return Batch(inputs, {"": facts}, indices)
        inputs["decoder_input_ids"] = inputs["input_ids"]
        inputs["decoder_attention_mask"] = inputs["attention_mask"]
        return Batch(inputs, dict.fromkeys(("encoder", "decoder", "cross"), facts), indices)

    def whole_text(self, text: str, device: torch.device | str) -> Batch:
        """One whole text as a batch; raises OptionError if it is longer than the model's limit."""
        if len(self.first_ids(text, self.length)) + self.num_around > self.length:
            raise OptionError(
                f"the text is longer than the {self.length:,} tokens that the model reads: use "
                "part of it"
            )
        return self.batch(self.windows([text]), device)


def as_documents(texts: str | Sequence[str] | None) -> list[str] | None:
    """The texts as a list of documents; a single string is one document."""
    if texts is None:
        return None
    if isinstance(texts, PathLike) or not isinstance(texts, Iterable):
        raise OptionError(
            f"texts is {texts!r}: pass the text itself as a str, as returned by Path.read_text()",
            option="texts",
        )
    documents = [texts] if isinstance(texts, str) else list(texts)
    for text in documents:
        if not isinstance(text, str):
            raise OptionError(f"a text is a {type(text).__name__}: pass documents as str")
        is_file = False
        with suppress(OSError, ValueError):  # too long for a file name, or not a valid one
            is_file = len(text.split()) == 1 and Path(text).expanduser().is_file()
        if is_file:
            raise OptionError(
                f"the text {text!r} is the name of a file: pass its contents with "
                f"Path({text!r}).read_text()"
            )
    return documents


def token_limit(tokenizer: Any, config: Any) -> int | None:
    """Maximum number of tokens for the model and tokenizer; None if neither states a limit."""
    text_config = getattr(config, "text_config", None) or config
    limits = [limit for name in LIMITS if (limit := getattr(text_config, name, None) or 0) > 0]
    if getattr(text_config, "model_type", "") in PADDED_POSITIONS:
        limits = [limit - 1 - (text_config.pad_token_id or 0) for limit in limits]
    limits.append(getattr(tokenizer, "model_max_length", None) or UNKNOWN)
    shortest = int(min(limits))
    return None if shortest >= UNKNOWN else shortest


def _special_tokens_around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    bare, full = (
        tokenizer("a", add_special_tokens=is_full)["input_ids"] for is_full in (False, True)
    )
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def repeat_windows(
    reader: Reader, *, count: int, seed: int, shortest: int = 20, longest: int = 60
) -> list[Window]:
    """Windows in which a random sequence of tokens occurs twice; its length, the period, varies.

    With a single period, a head that looks back by a fixed distance would look like an induction
    head. If a model only reads short windows, shorter periods are allowed and all are used in turn,
    so that none dominates; if there are still too few, the result is empty.
    """
    generator = torch.Generator().manual_seed(seed)
    ordinary = [token for token in range(len(reader.tokenizer)) if token not in reader.special_ids]
    before, after = reader.around
    longest = min(longest, (reader.length - reader.num_around) // 2)
    take_turns = longest < 2 * shortest
    shortest = max(2, longest // 3) if take_turns else shortest
    num_periods = longest - shortest + 1
    if num_periods < FEWEST_PERIODS:
        return []
    windows = []
    for index in range(count):
        step = index % num_periods
        if not take_turns:
            step = int(torch.randint(num_periods, (), generator=generator))
        picks = torch.randint(len(ordinary), (shortest + step,), generator=generator).tolist()
        ids = [ordinary[pick] for pick in picks]
        windows.append(Window(index, (*before, *ids, *ids, *after)))
    return windows
