"""Reading: texts as batches of token windows, with what is known of every token.

In: texts and a tokenizer, or batches of tensors that a model takes. Out: batches ready for a model,
in an order and with windows that depend on the texts alone. It runs no model.

Documents longer than the limit are cut into windows of the limit, one after the other without
overlap, each with the special tokens that the tokenizer puts around a text; a last window shorter
than two tokens of text is dropped. Windows of like length share a batch, padded on the right.
"""

import inspect
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.checks import check_characters
from headwise.errors import MaskError, OptionError, ShapeError
from headwise.reading.batch import TEXT_STACKS, Batch, input_prefix, real_tokens
from headwise.reading.tokens import TokenFacts

BATCH_TOKENS = 4096
"""Tokens of a batch, padding included, unless one window alone has more."""
BATCH_WINDOWS = 32
SHORTEST = 2
"""Tokens of text that a window has at least: one alone has nothing to look at."""
LONG_TOKEN = 16
"""Characters that few tokens have: so much of a long text is read first for each that is wanted."""
SURPLUS = 64
"""Tokens before the end of what is read of a text: those at its very end may depend on the rest."""
UNLIMITED = 2048
"""Tokens of a window where neither model nor tokenizer knows a limit."""


@dataclass(frozen=True)
class Window:
    """A run of tokens that a model reads at once."""

    index: int
    """Its place among all windows of the texts."""
    ids: tuple[int, ...]


def checked_texts(texts: str | Sequence[str] | None) -> list[str] | None:
    """Documents as a list; one alone may be given as it is."""
    if texts is None:
        return None
    if isinstance(texts, PathLike) or not isinstance(texts, Iterable):
        raise OptionError(
            f"texts is {texts!r}: give the text itself as str, such as Path.read_text gives",
            option="texts",
        )
    documents = [texts] if isinstance(texts, str) else list(texts)
    wrong = [type(text).__name__ for text in documents if not isinstance(text, str)]
    if wrong:
        raise OptionError(f"a text is a {wrong[0]}: give documents as str")
    for text in documents:
        if is_name_of_a_file(text):
            raise OptionError(
                f"the text {text!r} is the name of a file: give what it holds, as "
                f"Path({text!r}).read_text() does"
            )
    return documents


def is_name_of_a_file(text: str) -> bool:
    """Whether a text of one word is where a file is, and so hardly meant to be read itself."""
    try:
        return len(text.split()) == 1 and Path(text).expanduser().is_file()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False


class Reader:
    """A tokenizer and a model's limits, turning texts into batches."""

    def __init__(self, tokenizer: Any, config: Any, *, length: int | None = None) -> None:
        """Windows are as long as the model takes, or as `length` tokens where that is less."""
        self.tokenizer, self.config = tokenizer, config
        limit = known_limit(tokenizer, config)
        known = [one for one in (length, limit) if one is not None]
        self.length = min(known, default=UNLIMITED)
        self.around = special_ids_around(tokenizer)
        if self.length < len(self.around[0]) + len(self.around[1]) + SHORTEST:
            raise OptionError(
                f"a length of {self.length} leaves no room for text: the tokenizer puts "
                f"{len(self.around[0]) + len(self.around[1])} special tokens around it"
            )
        self.special_ids = frozenset(tokenizer.all_special_ids)
        self._marks: dict[int, bool] = {}

    def windows(self, texts: Iterable[str], max_tokens: int | None = None) -> list[Window]:
        """Every window of the texts, until there are `max_tokens` tokens."""
        before, after = self.around
        around = len(before) + len(after)
        left = math.inf if max_tokens is None else max_tokens
        if left < around + SHORTEST:
            raise OptionError(
                f"max_tokens is {max_tokens}: give at least {around + SHORTEST}, {SHORTEST} of "
                "text and the special tokens around them",
                option="max_tokens",
            )
        found: list[Window] = []
        for text in texts:
            if left < around + SHORTEST:
                break
            ids = self.first_ids(text, left)
            start = 0
            while (size := int(min(self.length, left)) - around) >= SHORTEST:
                part = ids[start : start + size]
                if len(part) < SHORTEST:
                    break
                found.append(Window(len(found), (*before, *part, *after)))
                left -= len(part) + around
                start += size
        if not found:
            raise OptionError(
                f"there is too little text to read: give at least {SHORTEST} tokens, which "
                f"are {around + SHORTEST} with the special tokens around them"
            )
        return found

    def first_ids(self, text: str, most: int | float) -> list[int]:
        """The tokens of a text, or more than `most` of them where that is a small part of it."""
        size = LONG_TOKEN * (most + SURPLUS)
        while size < len(text):
            end = max(text.rfind(" ", 0, int(size)), text.rfind("\n", 0, int(size)))
            ids = self.ids(text[: end if end > 0 else int(size)])
            if len(ids) >= most + SURPLUS:
                return ids
            size *= 4
        return self.ids(text)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, without special ones around it."""
        check_characters("the text", text)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def batches(self, windows: Sequence[Window]) -> list[list[Window]]:
        """The windows by length, longest first, in groups that a model reads together."""
        groups: list[list[Window]] = []
        for window in sorted(windows, key=lambda one: (-len(one.ids), one.index)):
            last = groups[-1] if groups else []
            fits = last and (
                (len(last) + 1) * len(last[0].ids) <= BATCH_TOKENS
                and len(last) < BATCH_WINDOWS
                and 2 * len(window.ids) > len(last[0].ids)
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
        ids = torch.full((len(windows), longest), self.pad_id)
        for row, window in enumerate(windows):
            ids[row, : len(window.ids)] = torch.tensor(window.ids)
        is_real = torch.arange(longest) < lengths[:, None]
        facts = self.facts(ids, is_real)
        inputs = {"input_ids": ids.to(device), "attention_mask": is_real.long().to(device)}
        indices = tuple(window.index for window in windows)
        if not getattr(self.config, "is_encoder_decoder", False):
            return Batch(inputs, {"": facts}, indices)
        inputs["decoder_input_ids"] = inputs["input_ids"]
        inputs["decoder_attention_mask"] = inputs["attention_mask"]
        return Batch(inputs, dict.fromkeys(("encoder", "decoder", "cross"), facts), indices)

    @property
    def pad_id(self) -> int:
        """A token to fill up with; which one makes no difference."""
        return self.tokenizer.pad_token_id or 0

    def facts(self, ids: Tensor, is_real: Tensor) -> TokenFacts:
        """What is known of the tokens of a batch."""
        special = torch.tensor(sorted(self.special_ids), dtype=ids.dtype)
        return TokenFacts(
            ids=ids,
            is_real=is_real,
            is_special=torch.isin(ids, special),
            is_punctuation=self.is_punctuation(ids),
        )

    def is_punctuation(self, ids: Tensor) -> Tensor:
        """Which tokens are nothing but punctuation marks or symbols."""
        distinct, place = ids.unique(return_inverse=True)
        for token in distinct.tolist():
            if token not in self._marks:
                is_ordinary = token >= 0 and token not in self.special_ids
                text = self.tokenizer.decode([token]).strip() if is_ordinary else ""
                self._marks[token] = is_marks(text)
        marks = torch.tensor([self._marks[token] for token in distinct.tolist()], dtype=torch.bool)
        return marks[place]


def is_marks(text: str) -> bool:
    """Whether a text is nothing but punctuation marks or symbols.

    What stands for bytes that are no character, as in half of one, is neither.

    >>> is_marks("..."), is_marks("a."), is_marks(""), is_marks("\\ufffd")
    (True, False, False, False)
    """
    return bool(text) and all(
        unicodedata.category(mark)[0] in "PS" and mark != UNREADABLE for mark in text
    )


UNREADABLE = "\ufffd"


LIMITS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
)
"""What configs call the most tokens that a model takes."""
PADDED_POSITIONS = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "mpnet"),
    *("longformer", "data2vec-text", "ibert", "xmod", "luke"),
)
"""Models whose positions begin after the padding id, which takes as many from their limit."""


def position_limit(tokenizer: Any, config: Any) -> int:
    """The longest input to give a model, also where nothing says how much it takes."""
    return known_limit(tokenizer, config) or UNLIMITED


def known_limit(tokenizer: Any, config: Any) -> int | None:
    """The longest input that model and tokenizer say they are made for; None if neither does."""
    inner = getattr(config, "text_config", None) or config
    named = [getattr(inner, name, None) or 0 for name in LIMITS]
    limits = [limit for limit in named if limit > 0]
    if getattr(inner, "model_type", "") in PADDED_POSITIONS:
        limits = [limit - 1 - (inner.pad_token_id or 0) for limit in limits]
    limits.append(getattr(tokenizer, "model_max_length", None) or UNKNOWN)
    shortest = int(min(limits))
    return None if shortest >= UNKNOWN else shortest


UNKNOWN = 10**9
"""transformers writes 10^30 for a limit that a tokenizer does not know."""


def special_ids_around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that the tokenizer puts before and after a text."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


def given_batches(
    inputs: Iterable[Mapping[str, Tensor]], config: Any, tokenizer: Any = None
) -> Iterator[Batch]:
    """Batches of tensors that the user made for the model, with what they tell of its tokens."""
    reader = None if tokenizer is None else Reader(tokenizer, config)
    first = 0
    for tensors in map(checked_tensors, inputs):
        batch = given_batch(tensors, config, reader, first)
        yield batch
        first += len(batch.indices)


def given_batch(
    tensors: Mapping[str, Tensor], config: Any, reader: Reader | None, first: int
) -> Batch:
    """One batch of tensors, whose sequences are number `first` and on of all that are read."""
    told: dict[str, TokenFacts | None] = {}
    for stack in TEXT_STACKS:
        prefix = input_prefix(config, stack)
        if prefix not in told:
            is_real = real_tokens(config, tensors, stack)
            told[prefix] = facts_of_tensors(tensors.get(f"{prefix}input_ids"), is_real, reader)
    by_stack = {stack: told[input_prefix(config, stack)] for stack in TEXT_STACKS}
    facts = {stack: one for stack, one in by_stack.items() if one is not None}
    size = len(next(one for one in tensors.values() if isinstance(one, Tensor) and one.dim()))
    return Batch(tensors, facts, tuple(range(first, first + size)))


def checked_batches(inputs: Any) -> list[Mapping[str, Tensor]]:
    """Batches that a model could be called with, if they are such."""
    if isinstance(inputs, Mapping | Tensor) or not isinstance(inputs, Iterable):
        raise OptionError(
            f"inputs is of type {type(inputs).__name__}: give a list of mappings from the names of "
            "the model's inputs to tensors"
        )
    batches = [checked_tensors(one) for one in inputs]
    for batch in batches:
        check_padding(batch)
    return batches


def checked_tensors(tensors: Any) -> Mapping[str, Tensor]:
    """A batch that a model could be called with, if it is one."""
    if not isinstance(tensors, Mapping):
        raise OptionError(
            f"a batch of inputs is a {type(tensors).__name__}: give a list of mappings from the "
            "names of the model's inputs to tensors"
        )
    for name, tensor in tensors.items():
        is_tensor = tensor is None or isinstance(tensor, Tensor)
        if name.endswith(("input_ids", "attention_mask")) and not is_tensor:
            raise OptionError(f"{name} is of type {type(tensor).__name__}: give a tensor")
    if not any(isinstance(one, Tensor) and one.dim() for one in tensors.values()):
        raise OptionError(
            f"a batch of inputs holds no tensor, but {', '.join(tensors) or 'nothing'}: give what "
            "the model takes, by its names"
        )
    for prefix in ("", "decoder_"):
        check_tokens(prefix, tensors.get(f"{prefix}input_ids"), tensors)
    return tensors


def check_tokens(prefix: str, ids: Tensor | None, tensors: Mapping[str, Tensor]) -> None:
    """Raise where tokens and their mask are not what a model reads."""
    if ids is None:
        return
    if ids.dim() != 2:
        raise ShapeError(f"{prefix}input_ids is {list(ids.shape)}: give [batch, position]")
    if ids.is_floating_point():
        raise OptionError(f"{prefix}input_ids are of {ids.dtype}: give whole numbers")
    mask = tensors.get(f"{prefix}attention_mask")
    if mask is not None and mask.shape != ids.shape:
        raise ShapeError(
            f"{prefix}attention_mask is {list(mask.shape)}: give {list(ids.shape)} as the tokens "
            "are, 1 for a token and 0 for padding"
        )


def check_padding(tensors: Mapping[str, Tensor]) -> None:
    """Raise where a mask hides tokens between others: rows would be measured at wrong distances."""
    for name, mask in tensors.items():
        if not name.endswith("attention_mask") or mask is None or mask.dim() != 2:
            continue
        runs = mask.bool().int().diff(dim=1, prepend=torch.zeros_like(mask[:, :1]).int()) > 0
        if len(broken := (runs.sum(1) > 1).nonzero()[:, 0]):
            raise MaskError(
                f"{name} hides tokens between others in sequence {int(broken[0])}: give a mask "
                "that is 0 before or after the tokens alone"
            )


def check_names(
    model: nn.Module, tensors: Mapping[str, Tensor], *, is_strict: bool = False
) -> None:
    """Raise where the model has no such input; labels go to none, and are left out.

    Most models take anything, and ignore what they do not know. Unless it is strict, the check
    believes these, but not where a name is nearly one that they know.
    """
    parameters = inspect.signature(model.forward).parameters
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [name for name, one in parameters.items() if one.kind in named]
    takes_any = not is_strict and len(known) < len(parameters)
    for name in tensors:
        near = get_close_matches(name, known, n=1, cutoff=0.8)
        if name in known or name == "labels" or (takes_any and not near):
            continue
        advice = f"perhaps {near[0]}" if near else f"it takes {', '.join(known)}"
        raise OptionError(f"{type(model).__name__} has no input {name!r}: {advice}")


TEXT_INPUTS = (
    *("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"),
    *("inputs_embeds", "decoder_inputs_embeds", "token_type_ids", "position_ids", "labels"),
)
"""What a model that reads text alone may be given; a reader makes the first four."""


def non_text_inputs(tensors: Mapping[str, Tensor], tokenizer: Any = None) -> list[str]:
    """Names of inputs that are neither text nor made of it by the tokenizer."""
    known = {*TEXT_INPUTS, *getattr(tokenizer, "model_input_names", ())}
    return [name for name, one in tensors.items() if one is not None and name not in known]


def facts_of_tensors(
    ids: Tensor | None, is_real: Tensor | None, reader: Reader | None
) -> TokenFacts | None:
    """What tensors alone tell, or with a tokenizer what it knows of them."""
    if ids is None:
        return None if is_real is None else TokenFacts(is_real=is_real.cpu())
    ids = ids.cpu()
    is_real = torch.ones_like(ids, dtype=torch.bool) if is_real is None else is_real.cpu()
    return TokenFacts(ids=ids, is_real=is_real) if reader is None else reader.facts(ids, is_real)


FEWEST_PERIODS = 5
"""Of repeated tokens: in turn, each has less than the 0.4 of the rows that make a head a role."""


def repeated_windows(
    reader: Reader, *, count: int, seed: int, shortest: int = 20, longest: int = 60
) -> list[Window]:
    """Random tokens repeated after a period that is drawn anew for each window.

    With one period for all, a head that looks a fixed distance back would pass for induction. So it
    might where windows are short and one of few periods is drawn often: there shorter ones join,
    and they take turns. None are made where even these would be too few.
    """
    generator = torch.Generator().manual_seed(seed)
    size = len(reader.tokenizer)
    ordinary = [token for token in range(size) if token not in reader.special_ids]
    before, after = reader.around
    longest = min(longest, (reader.length - len(before) - len(after)) // 2)
    take_turns = longest < 2 * shortest
    shortest = max(2, longest // 3) if take_turns else shortest
    different = longest - shortest + 1
    if different < FEWEST_PERIODS:
        return []
    windows = []
    for index in range(count):
        drawn = index % different
        if not take_turns:
            drawn = int(torch.randint(different, (), generator=generator))
        period = shortest + drawn
        picks = torch.randint(len(ordinary), (period,), generator=generator).tolist()
        ids = [ordinary[pick] for pick in picks]
        windows.append(Window(index, (*before, *ids, *ids, *after)))
    return windows
