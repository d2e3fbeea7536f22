"""Lesson facts: everything a lesson tells, measured once on the learner's text.

In: a subject, a text, and what the learner chose of layer, head and token. Out: the trace of one
layer, how its scores become weights, and what becomes of the model's output without each head.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.explorer.lesson.effects import Effects, silenced_one_by_one
from headwise.explorer.lesson.token_text import ordinal, quoted, visible
from headwise.heads import HeadTable
from headwise.pruning.setting import Subject
from headwise.reading.batch import Batch
from headwise.reading.reader import Reader, Window
from headwise.tracing.blur import ComparedRows, compare_rows
from headwise.tracing.record import Trace
from headwise.tracing.trace import trace
from headwise.watching.calls import AttentionCall
from headwise.watching.running import forward_batch, in_evaluation
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

MOST_TOKENS = 24
"""Tokens of the text that are followed: more rows and columns than that nobody reads."""
MOST_CHARACTERS = 4000
"""Of a text that is tokenized at all; far more than 24 tokens have."""
LARGEST, RESTING = 0.95, 0.5
"""A head to show is sharp but not all or nothing, and not mostly at rest on special tokens."""
CLEAR = 0.5
"""In a layer to show, heads differ at least by this share of the most that they differ anywhere."""
BLOCKED = -1e30
"""Scores at or below it are blocked: models write their dtype's lowest number for -inf."""


@dataclass(frozen=True, eq=False)
class Scoring:
    """How one row of scores becomes weights."""

    scores: Float[Tensor, " key"]
    scale: float
    softcap: float | None
    added: Float[Tensor, " key"]
    """What the model adds by position; -inf for what the token may not see."""
    sink: float | None
    """A score that takes part in the softmax and belongs to no token."""

    def weights(self, scores: Tensor | None = None) -> Float[Tensor, " key"]:
        """The row of weights of these scores, or of others in their place."""
        logits = self.bent((self.scores if scores is None else scores).double()) + self.added
        if self.sink is None:
            return logits.softmax(0)
        return torch.cat([logits, logits.new_tensor([self.sink])]).softmax(0)[:-1]

    def bent(self, scores: Tensor) -> Tensor:
        """Scores after scaling and the cap, if there is one."""
        scaled, cap = scores * self.scale, self.softcap
        return scaled if cap is None else cap * torch.tanh(scaled / cap)


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """One text, one layer, one head and one token of it."""

    subject: Subject
    batch: Batch
    is_cut: bool
    """Whether the text was longer than what is followed."""
    call: AttentionCall
    trace: Trace
    head: int
    position: int
    table: HeadTable | None

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Every token as it is shown."""
        return tuple(map(visible, self.trace.labels.keys))

    @property
    def name(self) -> str:
        """The head's name."""
        return self.trace.name_of(self.head)

    @property
    def token(self) -> str:
        """The token, quoted."""
        return self.quoted(self.position)

    def quoted(self, position: int) -> str:
        """A token inside a sentence, with its turn where the text has it several times."""
        token = self.tokens[position]
        turn = self.tokens[: position + 1].count(token)
        return quoted(token) + (f" ({ordinal(turn)})" if self.tokens.count(token) > 1 else "")

    def step(self, name: str) -> Tensor:
        """A step's values for the one text."""
        return self.trace[name].values[0].cpu()

    @cached_property
    def row(self) -> Float[Tensor, " key"]:
        """The token's weights in the chosen head."""
        return self.step("weights")[self.head, self.position].double()

    @cached_property
    def compared(self) -> ComparedRows:
        """The token's rows in all heads, beside where they rest."""
        return compare_rows(
            self.step("weights")[:, self.position], resting_places(self.batch).cpu()
        )

    @cached_property
    def by_weight(self) -> list[int]:
        """Tokens that may be seen, the one with the largest weight first."""
        order = self.row.argsort(descending=True, stable=True).tolist()
        return [key for key in order if bool(self.scoring.added[key] > -math.inf)]

    @property
    def sees_one(self) -> bool:
        """Whether one token alone may be seen, as from the first of a causal model."""
        return len(self.by_weight) == 1

    @property
    def kv_head(self) -> int:
        """The KV head that serves the chosen head."""
        return self.trace.kv_head_of[self.head]

    @property
    def num_kv_heads(self) -> int:
        """KV heads of the layer."""
        return int(self.step("keys").shape[0])

    @property
    def d_model(self) -> int:
        """Width of the output."""
        return int(self.step("output").shape[-1])

    @cached_property
    def scoring(self) -> Scoring:
        """The chosen row, before and after the softmax."""
        rules, row = self.call.rules, (self.head, self.position)
        d_key = self.call.queries.shape[-1]
        added = (self.step("masked")[row] - self.step("scaled")[row]).double()
        sink = None if rules.sinks is None else float(rules.sinks[self.head].detach())
        return Scoring(
            scores=self.step("scores")[row].double(),
            scale=1 / math.sqrt(d_key) if rules.scale is None else rules.scale,
            softcap=rules.softcap,
            added=added.masked_fill(self.step("masked")[row] <= BLOCKED, -math.inf),
            sink=sink if sink is not None and math.isfinite(sink) else None,
        )

    @cached_property
    def shares(self) -> list[float]:
        """Each head's share of the token's output, by the length of what it adds."""
        lengths = self.step("contributions")[:, self.position].double().norm(dim=-1)
        whole = float(lengths.sum()) or 1.0
        return [float(length) / whole for length in lengths]

    @cached_property
    def effects(self) -> Effects:
        """What the model's output loses without each head of the layer."""
        with torch.no_grad(), in_evaluation(self.subject.model):
            return silenced_one_by_one(
                self.subject, self.batch.inputs, self.trace.prefix, self.trace.num_heads
            )

    @cached_property
    def roles(self) -> list[list[str]] | None:
        """Roles of the layer's heads by the table; None without one."""
        if self.table is None:
            return None
        held = dict(zip(map(str, self.table.heads), self.table.df["roles"].tolist(), strict=True))
        return [list(held.get(self.trace.name_of(h), ())) for h in range(self.trace.num_heads)]

    @property
    def place(self) -> dict[str, Any]:
        """Where in the model and in the text a step is, for the browser."""
        return {
            "model": self.subject.name,
            "layer": self.call.layer,
            "head": self.head,
            "name": self.name,
            "position": self.position,
            "token": self.tokens[self.position],
            "tokens": list(self.tokens),
            "is_special": list(self.trace.labels.is_special),
            "is_cut": self.is_cut,
        }


def facts_of(
    subject: Subject,
    text: str,
    *,
    layer: int | None,
    head: int | None,
    position: int | None,
    table: HeadTable | None,
) -> Facts:
    """Read the text, choose what was left open, and trace it."""
    check_model(subject)
    batch, where, is_cut = read_text(subject, text)
    size = batch.inputs["input_ids"].shape[1]
    if position is not None and not 0 <= position < size:
        raise OptionError(f"there is no token {position}: the text has 0..{size - 1}")
    calls = calls_of(subject.model, batch)
    last = calls[-1].layer
    if layer is not None and layer not in [call.layer for call in calls]:
        raise OptionError(f"there is no layer {layer}: the model has layers 0..{last}")
    position = last_word(batch, where) if position is None else position
    call, head = chosen_head(calls, batch, position, layer=layer, head=head)
    found = trace(subject.model, batch.inputs, layer=call.layer, tokenizer=subject.tokenizer)
    return Facts(
        subject=subject,
        batch=batch,
        is_cut=is_cut,
        call=call,
        trace=found,
        head=head,
        position=position,
        table=table,
    )


def check_model(subject: Subject) -> None:
    """Raise where a lesson cannot be given on a model."""
    name, places = subject.name, find_sites(subject.model)
    if subject.tokenizer is None:
        raise OptionError(f"{name} came without a tokenizer: a lesson reads a text")
    stacks = list(dict.fromkeys(place.stack for place in places))
    if len(stacks) > 1:
        raise OptionError(
            f"{name} has several stacks of attention ({', '.join(stacks)}): the lesson follows "
            "models that have one"
        )
    shown = [type(place.module).__name__ for place in places if not place.is_routed]
    if shown:
        raise OptionError(
            f"{name} shows its weights alone ({shown[0]} does not ask transformers' attention "
            "interface): the lesson needs queries, keys and scores, as of minilm or smollm2"
        )


def read_text(subject: Subject, text: str) -> tuple[Batch, range, bool]:
    """The text's first tokens as a batch, where among all tokens they are, and whether it is cut.

    Halves of characters, which no tokenizer reads, become question marks.
    """
    whole = text.strip().encode("utf-8", "replace").decode()
    part = whole[:MOST_CHARACTERS]
    reader = Reader(subject.tokenizer, subject.model.config)
    before, after = reader.around
    ids = subject.tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
    if len(ids) < 2:
        raise OptionError(
            f"the lesson needs at least 2 tokens of text, and {part[:20]!r} has {len(ids)}: write "
            "a short sentence"
        )
    kept = ids[: min(MOST_TOKENS, reader.length - len(before) - len(after))]
    batch = reader.batch([Window(0, (*before, *kept, *after))], subject.device)
    where = range(len(before), len(before) + len(kept))
    return batch, where, len(kept) < len(ids) or len(part) < len(whole)


def last_word(batch: Batch, where: range) -> int:
    """The last token that is neither special nor punctuation; the last one, if all are."""
    facts = batch.tokens[""]
    assert facts.is_special is not None and facts.is_punctuation is not None, "a tokenizer says"
    is_word = ~(facts.is_special | facts.is_punctuation)[0]
    return max((place for place in where if is_word[place]), default=where[-1])


def resting_places(batch: Batch) -> Bool[Tensor, " key"]:
    """Special tokens and the first one, where heads often rest."""
    is_special = batch.tokens[""].is_special
    assert is_special is not None, "a tokenizer says"
    is_rest = is_special[0].clone()
    is_rest[0] = True
    return is_rest


def calls_of(model: nn.Module, batch: Batch) -> list[AttentionCall]:
    """Every layer's attention on the text."""
    with torch.no_grad(), in_evaluation(model), watch(model) as watched:
        forward_batch(model, batch.inputs)
    return [call for call in watched.calls if isinstance(call, AttentionCall)]


@dataclass(frozen=True, eq=False)
class Choice:
    """A head that may be shown."""

    call: AttentionCall
    head: int
    is_odd: bool
    """Whether its row is hard to read: at rest, or all or nothing."""
    gap: float
    """How much sharper its layer's heads are than their average."""
    worse: float
    """The smaller, the better: entropy, or what rests of an odd row."""


def chosen_head(
    calls: Sequence[AttentionCall],
    batch: Batch,
    position: int,
    *,
    layer: int | None,
    head: int | None,
) -> tuple[AttentionCall, int]:
    """The head that was asked for; left open, the one whose row for the token is best to read.

    That is one which looks mostly at one other ordinary token, and neither at it alone nor mostly
    at special ones or the first: the sharpest, of layers whose heads differ. Else the one that
    rests least.
    """
    is_rest = resting_places(batch).cpu()
    found: list[Choice] = []
    for call in calls:
        if layer is not None and call.layer != layer:
            continue
        rows = call.weights()[0, :, position].detach().double().cpu()
        gap = compare_rows(rows, is_rest).gap
        for number, row in enumerate(rows):
            if head is not None and number != head:
                continue
            rest, top = float(row[is_rest].sum()), int(row.argmax())
            is_plain = rest <= RESTING and not is_rest[top] and top != position
            is_odd = not is_plain or float(row[top]) > LARGEST
            blur = float(torch.special.entr(row).sum())
            found.append(Choice(call, number, is_odd, gap, rest if is_odd else blur))
    if not found:
        counts = [call.num_heads for call in calls if layer in (None, call.layer)]
        there = "this model" if layer is None else f"layer {layer}"
        raise OptionError(f"there is no head {head} in {there}: it has heads 0..{max(counts) - 1}")
    clear = CLEAR * max((one.gap for one in found if not one.is_odd), default=0.0)
    best = min(found, key=lambda one: (one.is_odd, one.gap < clear, one.worse))
    return best.call, best.head
