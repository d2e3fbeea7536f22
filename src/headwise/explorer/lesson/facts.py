"""The facts that a lesson states, measured once on the learner's text.

In: a ScoredModel, a text, and the layer, head and token that the learner chose. Out: Facts, with a
trace of the layer, how its scores become weights, and how silencing each head affects the output.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import Effects, NextFigure, Place, SpareHeadFigure
from headwise.explorer.lesson.token_text import ordinal, quote_token, visible
from headwise.explorer.what_if import token_name
from headwise.head_table import HeadTable
from headwise.objectives.evaluation import ROOM
from headwise.objectives.losses import CustomLoss, Embedding, NextToken, read_logits
from headwise.objectives.scored_model import ScoredModel
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
LARGEST, RESTING = 0.95, 0.5
"""Largest single weight and largest weight on sink tokens of a head that is easy to read."""
CLEAR = 0.5
"""The chosen layer must have a gap of at least this share of the largest layer's gap."""
BLOCKED = -1e30
"""Scores at or below this are masked: models use their dtype's lowest number as -inf."""
NUM_NEXT = 5


@dataclass(frozen=True, eq=False)
class Scoring:
    """How one row of scores becomes weights."""

    scores: Float[Tensor, " key"]
    scale: float
    softcap: float | None
    added: Float[Tensor, " key"]
    """Numbers that the model adds to each score; -inf for tokens that are masked."""
    sink: float | None
    """A score that joins the softmax but belongs to no token; None if the head has none."""

    def weights(self, scores: Tensor) -> Float[Tensor, " key"]:
        """The row of weights for `scores`."""
        logits = self.bent(scores.double()) + self.added
        if self.sink is None:
            return logits.softmax(0)
        return torch.cat([logits, logits.new_tensor([self.sink])]).softmax(0)[:-1]

    def bent(self, scores: Tensor) -> Tensor:
        """Scores after scaling and softcap."""
        scaled, cap = scores * self.scale, self.softcap
        return scaled if cap is None else cap * torch.tanh(scaled / cap)


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """Facts about one text, layer, head and token."""

    is_cut: bool
    """Whether the text was longer than MAX_TOKENS."""
    call: AttentionCall
    trace: Trace
    steps: dict[str, Tensor]
    """Values of the trace's steps, without the batch axis."""
    head: int
    kv_head: int
    """The KV head that serves the chosen head."""
    name: str
    position: int
    tokens: tuple[str, ...]
    """Every token, as the lesson shows it."""
    compared: ComparedRows
    """The token's row in every head, without sink tokens."""
    shares: list[float]
    """Each head's share of the token's output, by the length of its contribution."""
    effects: Effects
    roles: list[list[str]] | None
    """Roles of the layer's heads; None if no scan table was given."""

    def quote(self, position: int) -> str:
        """A token in quotes, numbered if it occurs several times in the text."""
        token = self.tokens[position]
        turn = self.tokens[: position + 1].count(token)
        return quote_token(token) + (f" ({ordinal(turn)})" if self.tokens.count(token) > 1 else "")

    @property
    def token(self) -> str:
        """The chosen token, quoted."""
        return self.quote(self.position)

    @cached_property
    def row(self) -> Float[Tensor, " key"]:
        """The token's weights in the chosen head."""
        return self.steps["weights"][self.head, self.position].double()

    @cached_property
    def by_weight(self) -> list[int]:
        """Positions that the token can attend to, largest weight first."""
        order = self.row.argsort(descending=True, stable=True).tolist()
        return [key for key in order if bool(self.scoring.added[key] > -math.inf)]

    @property
    def sees_one(self) -> bool:
        """Whether the token can attend to only one, as the first token of a causal model."""
        return len(self.by_weight) == 1

    @property
    def num_kv_heads(self) -> int:
        """Number of KV heads in the layer."""
        return len(self.steps["keys"])

    @property
    def d_model(self) -> int:
        """Width of the output."""
        return self.steps["output"].shape[-1]

    @cached_property
    def scoring(self) -> Scoring:
        """How the chosen row of scores becomes weights."""
        rules, row = self.call.rules, (self.head, self.position)
        masked = self.steps["masked"][row]
        added = (masked - self.steps["scaled"][row]).double()
        sink = -math.inf if rules.sinks is None else float(rules.sinks[self.head].detach())
        default_scale = 1 / math.sqrt(self.call.queries.shape[-1])
        return Scoring(
            scores=self.steps["scores"][row].double(),
            scale=default_scale if rules.scale is None else rules.scale,
            softcap=rules.softcap,
            added=added.masked_fill(masked <= BLOCKED, -math.inf),
            sink=sink if math.isfinite(sink) else None,
        )

    @property
    def place(self) -> Place:
        """The head and the token, as the browser receives them."""
        return Place(self.call.layer, self.head, self.name, self.position, list(self.tokens))


def lesson_facts(
    scored: ScoredModel,
    text: str,
    *,
    layer: int | None,
    head: int | None,
    position: int | None,
    table: HeadTable | None,
) -> Facts:
    """Read the text, choose a head and a token if they are not given, and trace the layer."""
    _check_model(scored)
    model = scored.model
    batch, where, is_cut = _read_text(scored, text)
    size = batch.inputs["input_ids"].shape[1]
    if position is not None and not 0 <= position < size:
        raise OptionError(f"position is {position}: the text has positions 0..{size - 1}")
    with torch.no_grad(), in_evaluation(model), watch(model) as watched:
        forward_batch(model, batch.inputs)
    calls = [
        call
        for call in watched.calls
        if isinstance(call, AttentionCall) and layer in (None, call.layer)
    ]
    if not calls:
        raise OptionError(f"layer is {layer}: the model has layers 0..{watched.calls[-1].layer}")
    token_facts = batch.tokens[""]
    is_special, is_mark = token_facts.is_special, token_facts.is_punctuation
    assert is_special is not None and is_mark is not None, "needs a tokenizer"
    if position is None:  # the last word
        is_word = ~(is_special | is_mark)[0]
        position = max((place for place in where if is_word[place]), default=where[-1])
    is_rest = is_special[0].cpu().clone()
    is_rest[0] = True
    call, head = _choose_head(calls, is_rest, position, head)
    traced = trace(model, batch.inputs, layer=call.layer, tokenizer=scored.tokenizer)
    steps = {
        name: step.values[0].cpu() for name, step in traced.steps.items() if step.axes[0] == "batch"
    }
    lengths = steps["contributions"][:, position].double().norm(dim=-1)
    roles = None
    if table is not None:
        by_name = dict(zip(map(str, table.heads), table.df["roles"], strict=True))
        roles = [list(by_name[traced.name_of(head)]) for head in range(traced.num_heads)]
    with torch.no_grad(), in_evaluation(model):
        effects = _silencing_effects(scored, batch.inputs, traced, roles)
    return Facts(
        is_cut=is_cut,
        call=call,
        trace=traced,
        steps=steps,
        head=head,
        kv_head=traced.kv_head_of[head],
        name=traced.name_of(head),
        position=position,
        tokens=tuple(map(visible, traced.labels.keys)),
        compared=compare_rows(steps["weights"][:, position], is_rest),
        shares=(lengths / (lengths.sum() or 1.0)).tolist(),
        effects=effects,
        roles=roles,
    )


def _check_model(scored: ScoredModel) -> None:
    name, sites = scored.name, find_sites(scored.model)
    if scored.tokenizer is None:
        raise OptionError(f"{name} has no tokenizer, which the lesson needs to read text: pass one")
    stacks = list(dict.fromkeys(site.stack for site in sites))
    if len(stacks) > 1:
        raise OptionError(
            f"{name} has several attention stacks ({', '.join(stacks)}): the lesson needs a model "
            "with one"
        )
    weights_only = [type(site.module).__name__ for site in sites if not site.is_routed]
    if weights_only:
        raise OptionError(
            f"{name} returns only its weights ({weights_only[0]} does not use transformers' "
            "attention interface): the lesson needs queries, keys and scores; choose a model such "
            "as minilm"
        )


def _read_text(scored: ScoredModel, text: str) -> tuple[Batch, range, bool]:
    """The text's first tokens as a batch, their positions, and whether the text is longer."""
    text = text.strip().encode("utf-8", "replace").decode()  # no tokenizer reads lone surrogates
    reader = Reader(scored.tokenizer, scored.model.config)
    before, after = reader.around
    ids = reader.first_ids(text, MAX_TOKENS)
    if len(ids) < 2:
        raise OptionError(
            f"text {text[:20]!r} has {len(ids)} tokens, but the lesson needs at least 2: write a "
            "short sentence"
        )
    read_ids = ids[: min(MAX_TOKENS, reader.length - reader.num_around)]
    batch = reader.batch([Window(0, (*before, *read_ids, *after))], scored.device)
    where = range(len(before), len(before) + len(read_ids))
    return batch, where, len(read_ids) < len(ids)


@dataclass(frozen=True, eq=False)
class _Candidate:
    call: AttentionCall
    head: int
    is_odd: bool
    """Whether the row is hard to read: mostly on sinks or on the token itself, or on one token."""
    gap: float
    """How much sharper the layer's heads are than their average row."""
    worse: float
    """The row's entropy or, if it is odd, its weight on sink tokens; smaller is better."""


def _choose_head(
    calls: Sequence[AttentionCall], is_rest: Bool[Tensor, " key"], position: int, head: int | None
) -> tuple[AttentionCall, int]:
    """The given head, or the one whose row for the token is easiest to read.

    That is the sharpest head that attends mostly, but not only, to one other ordinary token, in a
    layer whose heads differ. If there is none, it is the head with the least weight on sink tokens,
    which are the keys in `is_rest`: special tokens and the first token.
    """
    candidates = []
    for call in calls:
        rows = call.weights()[0, :, position].detach().double().cpu()
        gap = compare_rows(rows, is_rest).gap
        for number, row in enumerate(rows):
            if head not in (None, number):
                continue
            rest, top = float(row[is_rest].sum()), int(row.argmax())
            is_plain = rest <= RESTING and not is_rest[top] and top != position
            is_odd = not is_plain or float(row[top]) > LARGEST
            blur = float(torch.special.entr(row).sum())
            candidates.append(_Candidate(call, number, is_odd, gap, rest if is_odd else blur))
    if not candidates:
        most = max(call.num_heads for call in calls)
        where = "this model" if len(calls) > 1 else f"layer {calls[0].layer}"
        raise OptionError(f"head is {head}: {where} has heads 0..{most - 1}")
    clear = CLEAR * max((each.gap for each in candidates if not each.is_odd), default=0.0)
    best = min(candidates, key=lambda each: (each.is_odd, each.gap < clear, each.worse))
    return best.call, best.head


def _silencing_effects(
    scored: ScoredModel, inputs: Mapping[str, Tensor], traced: Trace, roles: list[list[str]] | None
) -> Effects:
    """How the output changes when each head of a layer is silenced, in the objective's unit."""
    num_heads = traced.num_heads
    gates = torch.cat([torch.ones(1, num_heads), 1 - torch.eye(num_heads)])
    config: Any = scored.model.config
    vocab_size = getattr(config.get_text_config(), "vocab_size", 1)
    outputs = []
    for part in gates.split(max(1, ROOM // (inputs["input_ids"].numel() * vocab_size))):
        copies = {name: value.repeat(len(part), 1) for name, value in inputs.items()}
        with gate(scored.model, {traced.prefix: part}):
            outputs.append(_output_to_compare(scored, copies))
    unchanged, silent = torch.cat(outputs).double().tensor_split([1])
    unit: Literal["cosine", "nats", "loss"] = "nats"
    likeliest: list[int] = []
    if isinstance(scored.objective, Embedding):
        unit, values = "cosine", (silent * unchanged).sum(-1).clamp(-1, 1)
        sizes = 1 - values
    elif isinstance(scored.objective, CustomLoss):
        unit, values, sizes = "loss", silent, (silent - unchanged).abs()
    else:
        before, after = unchanged.log_softmax(-1), silent.log_softmax(-1)
        divergence = (before.exp() * (before - after)).sum(-1).clamp(min=0)
        values = sizes = divergence.reshape(num_heads, -1).mean(1)
        if isinstance(scored.objective, NextToken):
            likeliest = before[0].topk(min(NUM_NEXT, before.shape[-1])).indices.tolist()
    ranked = sizes.argsort(descending=True, stable=True).tolist()
    return Effects(
        unit=unit,
        heads=[
            SpareHeadFigure(
                name=traced.name_of(head),
                head=head,
                rank=rank,
                value=float(values[head]),
                effect=float(sizes[head]),
                roles=None if roles is None else roles[head],
                next=after[head, likeliest].exp().tolist() if likeliest else [],
            )
            for rank, head in enumerate(ranked, start=1)
        ],
        next=[
            NextFigure(visible(token_name(scored, token)), float(before[0, token].exp()))
            for token in likeliest
        ],
    )


def _output_to_compare(scored: ScoredModel, inputs: Mapping[str, Tensor]) -> Tensor:
    """The objective's output, or the model's logits; for a causal model, of the last token."""
    if isinstance(scored.objective, Embedding | CustomLoss):
        return scored.objective.output(scored.model, inputs)
    logits = read_logits(scored.model, inputs)
    return logits[:, -1] if isinstance(scored.objective, NextToken) else logits
