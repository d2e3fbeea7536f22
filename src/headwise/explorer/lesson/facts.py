"""Everything that a lesson states, measured once on the learner's text.

In: a subject, a text, and the layer, head and token that the learner chose. Out: Facts: the trace
of one layer, how its scores become weights, and the effect of silencing each head on the output.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import Place
from headwise.explorer.lesson.token_text import ordinal, quote_token, visible
from headwise.explorer.what_if import token_name
from headwise.heads import HeadTable
from headwise.objectives.evaluation import ROOM
from headwise.objectives.losses import CustomLoss, Embedding, NextToken, read_logits
from headwise.objectives.model_objective import Subject
from headwise.reading.batch import Batch
from headwise.reading.reader import Reader, Window
from headwise.tracing.blur import ComparedRows, compare_rows
from headwise.tracing.record import Trace
from headwise.tracing.trace import trace
from headwise.watching.calls import AttentionCall
from headwise.watching.gates import gate
from headwise.watching.running import forward_batch, in_evaluation
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

MAX_TOKENS = 24
"""Largest number of tokens that the lesson follows: nobody reads larger tables."""
MAX_CHARACTERS = 4000
"""Characters of the text that are tokenized: far more than MAX_TOKENS need."""
LARGEST, RESTING = 0.95, 0.5
"""Limits for the head to show: its largest weight, and its weight on resting places."""
CLEAR = 0.5
"""In the layer to show, heads differ at least by this share of the largest difference."""
BLOCKED = -1e30
"""Scores at or below this are masked: models use their dtype's lowest number for -inf."""
NUM_NEXT = 5
"""Number of next tokens shown."""


@dataclass(frozen=True)
class Continuation:
    """A likely next token, and its probability with each head silenced."""

    token: str
    probability: float
    without: tuple[float, ...]


@dataclass(frozen=True)
class Effects:
    """Change of the output when each head is silenced."""

    unit: Literal["cosine", "nats", "loss"]
    values: tuple[float, ...]
    """Cosine to the unchanged output, divergence from it, or the loss, per head."""
    sizes: tuple[float, ...]
    """Distance per head, 0 for no effect: 1 - cosine, divergence, or change of loss."""
    next: tuple[Continuation, ...] = ()
    """Next tokens of a causal model, likeliest first."""

    @property
    def ranked(self) -> list[int]:
        """Heads by effect, largest first."""
        return sorted(range(len(self.sizes)), key=lambda head: -self.sizes[head])


@dataclass(frozen=True, eq=False)
class Scoring:
    """How one row of scores becomes weights."""

    scores: Float[Tensor, " key"]
    scale: float
    softcap: float | None
    added: Float[Tensor, " key"]
    """Numbers that the model adds by position; -inf for tokens that cannot be seen."""
    sink: float | None
    """A score that joins the softmax and belongs to no token."""

    def weights(self, scores: Tensor | None = None) -> Float[Tensor, " key"]:
        """The row of weights, for these scores or for `scores`."""
        logits = self.bent((self.scores if scores is None else scores).double()) + self.added
        if self.sink is None:
            return logits.softmax(0)
        return torch.cat([logits, logits.new_tensor([self.sink])]).softmax(0)[:-1]

    def bent(self, scores: Tensor) -> Tensor:
        """Scores after scaling and softcap."""
        scaled, cap = scores * self.scale, self.softcap
        return scaled if cap is None else cap * torch.tanh(scaled / cap)


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """One text, one layer, one head and one token of it."""

    subject: Subject
    batch: Batch
    is_cut: bool
    """Whether the text was longer than MAX_TOKENS."""
    call: AttentionCall
    trace: Trace
    head: int
    position: int
    table: HeadTable | None

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Every token, as the lesson shows it."""
        return tuple(map(visible, self.trace.labels.keys))

    @property
    def name(self) -> str:
        """The head's name."""
        return self.trace.name_of(self.head)

    @property
    def token(self) -> str:
        """The token, quoted."""
        return self.quote(self.position)

    def quote(self, position: int) -> str:
        """A token inside a sentence, numbered if the text has it several times."""
        token = self.tokens[position]
        turn = self.tokens[: position + 1].count(token)
        return quote_token(token) + (f" ({ordinal(turn)})" if self.tokens.count(token) > 1 else "")

    def step(self, name: str) -> Tensor:
        """A step's values for the one text."""
        return self.trace[name].values[0].cpu()

    @cached_property
    def row(self) -> Float[Tensor, " key"]:
        """The token's weights in the chosen head."""
        return self.step("weights")[self.head, self.position].double()

    @cached_property
    def compared(self) -> ComparedRows:
        """The token's rows in all heads, without resting places."""
        return compare_rows(
            self.step("weights")[:, self.position], _resting_places(self.batch).cpu()
        )

    @cached_property
    def by_weight(self) -> list[int]:
        """Positions that can be seen, by weight, largest first."""
        order = self.row.argsort(descending=True, stable=True).tolist()
        return [key for key in order if bool(self.scoring.added[key] > -math.inf)]

    @property
    def sees_one(self) -> bool:
        """Whether only one token can be seen, as from the first of a causal model."""
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
        """Change of the model's output when each head of the layer is silenced."""
        with torch.no_grad(), in_evaluation(self.subject.model):
            return _silencing_effects(
                self.subject, self.batch.inputs, self.trace.prefix, self.trace.num_heads
            )

    @cached_property
    def roles(self) -> list[list[str]] | None:
        """Roles of the layer's heads; None without a table."""
        if self.table is None:
            return None
        roles = dict(zip(map(str, self.table.heads), self.table.df["roles"].tolist(), strict=True))
        return [list(roles.get(self.trace.name_of(h), ())) for h in range(self.trace.num_heads)]

    @property
    def place(self) -> Place:
        """The head and the token, as the browser gets them."""
        return Place(
            model=self.subject.name,
            layer=self.call.layer,
            head=self.head,
            name=self.name,
            position=self.position,
            token=self.tokens[self.position],
            tokens=list(self.tokens),
            is_special=list(self.trace.labels.is_special),
            is_cut=self.is_cut,
        )


def lesson_facts(
    subject: Subject,
    text: str,
    *,
    layer: int | None,
    head: int | None,
    position: int | None,
    table: HeadTable | None,
) -> Facts:
    """Read the text, choose a head and a token unless they are given, and trace the layer."""
    _check_model(subject)
    batch, where, is_cut = _read_text(subject, text)
    size = batch.inputs["input_ids"].shape[1]
    if position is not None and not 0 <= position < size:
        raise OptionError(f"position is {position}: the text has positions 0..{size - 1}")
    calls = _attention_calls(subject.model, batch)
    last = calls[-1].layer
    if layer is not None and layer not in [call.layer for call in calls]:
        raise OptionError(f"layer is {layer}: the model has layers 0..{last}")
    position = _last_word(batch, where) if position is None else position
    call, head = _choose_head(calls, batch, position, layer=layer, head=head)
    layer_trace = trace(subject.model, batch.inputs, layer=call.layer, tokenizer=subject.tokenizer)
    return Facts(
        subject=subject,
        batch=batch,
        is_cut=is_cut,
        call=call,
        trace=layer_trace,
        head=head,
        position=position,
        table=table,
    )


def _check_model(subject: Subject) -> None:
    """Raise OptionError if the lesson cannot use the model."""
    name, places = subject.name, find_sites(subject.model)
    if subject.tokenizer is None:
        raise OptionError(f"{name} has no tokenizer: the lesson reads text; pass one")
    stacks = list(dict.fromkeys(place.stack for place in places))
    if len(stacks) > 1:
        raise OptionError(
            f"{name} has several stacks of attention ({', '.join(stacks)}): the lesson needs a "
            "model with one"
        )
    weights_only = [type(place.module).__name__ for place in places if not place.is_routed]
    if weights_only:
        raise OptionError(
            f"{name} returns only its weights ({weights_only[0]} does not use transformers' "
            "attention interface): the lesson needs queries, keys and scores, as in minilm"
        )


def _read_text(subject: Subject, text: str) -> tuple[Batch, range, bool]:
    """The text's first tokens as a batch, their positions, and whether the text is longer.

    Halves of characters, which no tokenizer reads, become question marks.
    """
    whole = text.strip().encode("utf-8", "replace").decode()
    part = whole[:MAX_CHARACTERS]
    reader = Reader(subject.tokenizer, subject.model.config)
    before, after = reader.around
    ids = subject.tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
    if len(ids) < 2:
        raise OptionError(
            f"text {part[:20]!r} has {len(ids)} tokens, but the lesson needs at least 2: write a "
            "short sentence"
        )
    read_ids = ids[: min(MAX_TOKENS, reader.length - len(before) - len(after))]
    batch = reader.batch([Window(0, (*before, *read_ids, *after))], subject.device)
    where = range(len(before), len(before) + len(read_ids))
    return batch, where, len(read_ids) < len(ids) or len(part) < len(whole)


def _last_word(batch: Batch, where: range) -> int:
    """Position of the last word; of the last token, if the text has no words."""
    facts = batch.tokens[""]
    assert facts.is_special is not None and facts.is_punctuation is not None, "the tokenizer knows"
    is_word = ~(facts.is_special | facts.is_punctuation)[0]
    return max((place for place in where if is_word[place]), default=where[-1])


def _resting_places(batch: Batch) -> Bool[Tensor, " key"]:
    """True for special tokens and the first one, where heads park unused attention."""
    is_special = batch.tokens[""].is_special
    assert is_special is not None, "the tokenizer knows"
    is_rest = is_special[0].clone()
    is_rest[0] = True
    return is_rest


def _attention_calls(model: nn.Module, batch: Batch) -> list[AttentionCall]:
    with torch.no_grad(), in_evaluation(model), watch(model) as watched:
        forward_batch(model, batch.inputs)
    return [call for call in watched.calls if isinstance(call, AttentionCall)]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A head that the lesson can show."""

    call: AttentionCall
    head: int
    is_odd: bool
    """Whether its row is hard to read: mostly on resting places, or all on one token."""
    gap: float
    """How much sharper its layer's heads are than their average."""
    worse: float
    """Entropy, or the weight on resting places of an odd row; smaller is better."""


def _choose_head(
    calls: Sequence[AttentionCall],
    batch: Batch,
    position: int,
    *,
    layer: int | None,
    head: int | None,
) -> tuple[AttentionCall, int]:
    """The given head, or the one whose row for the token is easiest to read.

    That is the sharpest head that attends mostly to one other ordinary token, but not to it alone,
    in a layer whose heads differ; if there is none, the one that puts least on resting places.
    """
    is_rest = _resting_places(batch).cpu()
    candidates: list[_Candidate] = []
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
            candidates.append(_Candidate(call, number, is_odd, gap, rest if is_odd else blur))
    if not candidates:
        counts = [call.num_heads for call in calls if layer in (None, call.layer)]
        where = "this model" if layer is None else f"layer {layer}"
        raise OptionError(f"head is {head}: {where} has heads 0..{max(counts) - 1}")
    clear = CLEAR * max((each.gap for each in candidates if not each.is_odd), default=0.0)
    best = min(candidates, key=lambda each: (each.is_odd, each.gap < clear, each.worse))
    return best.call, best.head


def _silencing_effects(
    subject: Subject, inputs: Mapping[str, Tensor], layer: str, num_heads: int
) -> Effects:
    """Change of the output when each head of a layer is silenced, in the objective's terms."""
    gates = torch.cat([torch.ones(1, num_heads), 1 - torch.eye(num_heads)])
    objective = subject.objective
    size = _copies_at_once(subject, inputs)
    outputs = torch.cat(
        [_outputs_with_gates(subject, inputs, layer, part) for part in gates.split(size)]
    ).double()
    unchanged, silent = outputs[0], outputs[1:]
    if isinstance(objective, Embedding):
        cosines = (silent * unchanged).sum(-1).clamp(-1, 1).tolist()
        return Effects("cosine", tuple(cosines), tuple(1 - cosine for cosine in cosines))
    if isinstance(objective, CustomLoss):
        changes = (silent - unchanged).abs().tolist()
        return Effects("loss", tuple(silent.tolist()), tuple(changes))
    before, after = unchanged.log_softmax(-1), silent.log_softmax(-1)
    divergence = (before.exp() * (before - after)).sum(-1).clamp(min=0)
    sizes = tuple(
        divergence.flatten(1).mean(1).tolist() if divergence.dim() > 1 else divergence.tolist()
    )
    is_causal = isinstance(objective, NextToken)
    return Effects(
        "nats", sizes, sizes, _continuations(subject, before, after) if is_causal else ()
    )


def _outputs_with_gates(
    subject: Subject, inputs: Mapping[str, Tensor], layer: str, gates: Float[Tensor, "copies heads"]
) -> Tensor:
    """The outputs to compare, one per row of gates; a causal model's is its next-token logits."""
    copies = {name: value.repeat(len(gates), 1) for name, value in inputs.items()}
    with gate(subject.model, {layer: gates}):
        if isinstance(subject.objective, Embedding | CustomLoss):
            return subject.objective.output(subject.model, copies)
        logits = read_logits(subject.model, copies)
        return logits[:, -1] if isinstance(subject.objective, NextToken) else logits


def _copies_at_once(subject: Subject, inputs: Mapping[str, Tensor]) -> int:
    config: Any = subject.model.config
    words = getattr(config.get_text_config(), "vocab_size", 1)
    return max(1, ROOM // (inputs["input_ids"].numel() * words))


def _continuations(
    subject: Subject, before: Float[Tensor, " word"], after: Float[Tensor, "heads word"]
) -> tuple[Continuation, ...]:
    continuations = []
    for token in before.topk(min(NUM_NEXT, len(before))).indices.tolist():
        name = visible(token_name(subject, token))
        without = tuple(after[:, token].exp().tolist())
        continuations.append(Continuation(name, float(before[token].exp()), without))
    return tuple(continuations)
