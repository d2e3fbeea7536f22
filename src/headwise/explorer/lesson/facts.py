"""The facts that a lesson states, measured once on the learner's text.

In: a ScoredModel, a text, and the layer, head and token that the learner chose. Out: Facts, with a
trace of the layer and how its scores become weights. silencing.py measures what heads are worth.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.explorer.api_types import StageWord
from headwise.explorer.lesson.choice import Choice, choose_head, choose_position
from headwise.explorer.lesson.figures import LessonHead, NextFigure, Place
from headwise.explorer.lesson.prose import ProseRun
from headwise.explorer.lesson.token_text import ordinal, shown, visible
from headwise.explorer.stage_words import StageText, Tokens, read_stage_text
from headwise.explorer.what_if import token_name
from headwise.head_table import HeadTable
from headwise.objectives.scored_model import ScoredModel
from headwise.reading.batch import Batch, Inputs
from headwise.reading.reader import Reader, Window
from headwise.tracing.record import Trace
from headwise.tracing.trace import trace
from headwise.watching.calls import AttentionCall
from headwise.watching.running import forward_batch, in_evaluation
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

MAX_TOKENS = 24
"""Largest number of tokens that the lesson follows: nobody reads larger tables."""
SHORTEST = 6
"""Smallest number of tokens that the sentences of a longer text must have."""
LONGEST_WORD = 16
"""Number of characters per token that a sentence end is looked for in."""
SENTENCE_END = re.compile(r"[.!?\u2026]+[\"'\u201d\u2019)]*(?=\s)|[\u3002\uff01\uff1f]+")
"""The end of a sentence: marks before a space, or those of Chinese and Japanese."""
BLOCKED = -1e30
"""Scores at or below this are masked: models use their dtype's lowest number as -inf."""


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

    def logits(self, scores: Tensor) -> Float[Tensor, " key"]:
        """Inputs of the softmax for `scores`."""
        return self.bent(scores.double()) + self.added

    def weights(self, scores: Tensor) -> Float[Tensor, " key"]:
        """The row of weights for `scores`."""
        logits = self.logits(scores)
        if self.sink is None:
            return logits.softmax(0)
        return torch.cat([logits, logits.new_tensor([self.sink])]).softmax(0)[:-1]

    def bent(self, scores: Tensor) -> Tensor:
        """Scores after scaling and softcap."""
        scaled, cap = scores * self.scale, self.softcap
        return scaled if cap is None else cap * torch.tanh(scaled / cap)


@dataclass(frozen=True, eq=False)
class LessonText:
    """A text as the model reads it, and its words as the stage shows them."""

    batch: Batch
    stage: StageText
    left_out: str
    """Sentence on the part of a long text that is left out; "" if none is."""
    added: tuple[int, int]
    """Number of tokens that the tokenizer adds before the text, and after it."""

    @property
    def inputs(self) -> Inputs:
        """The model's inputs."""
        return self.batch.inputs

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions of each word's tokens; every token is a word if words are not available."""
        return self.stage.groups or tuple((at,) for at in range(len(self.stage.pieces)))

    def by_word(self, weights: Float[Tensor, "head query key"]) -> Float[Tensor, "head row column"]:
        """Weights by word: rows of a word's tokens averaged, keys added up."""
        sums = torch.stack([weights[..., list(group)].sum(-1) for group in self.groups], -1)
        return torch.stack([sums[:, list(group)].mean(1) for group in self.groups], 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """Facts about one text, layer, head and token."""

    text: LessonText
    scored: ScoredModel
    call: AttentionCall
    trace: Trace
    steps: dict[str, Tensor]
    """Values of the trace's steps, without the batch axis."""
    layers: dict[str, int]
    """Number of heads of each layer."""
    head: int
    kv_head: int
    """The KV head that serves the chosen head."""
    name: str
    position: int
    roles: dict[str, list[str]] | None
    """Roles by head, the lead role first; None if no scan table was given."""
    every_row: Float[Tensor, "head column"]
    """The followed word's weights by word, in every head of the model."""

    def piece(self, position: int) -> list[ProseRun]:
        """A token as a run that lights up in the figure, numbered if it occurs several times."""
        texts = [piece.text for piece in self.text.stage.pieces]
        return _named(texts, position, f"piece {position}")

    def word(self, index: int) -> list[ProseRun]:
        """A word as a run that lights up in the figure."""
        return _named([word.text for word in self.words], index, f"word {index}")

    @property
    def words(self) -> tuple[StageWord, ...]:
        """The words of the text; its tokens if words are not available."""
        return self.text.stage.words or self.text.stage.pieces

    @cached_property
    def word_of(self) -> tuple[int, ...]:
        """Index of the word of each token."""
        return self.text.stage.word_of or tuple(range(len(self.text.stage.pieces)))

    @property
    def here(self) -> int:
        """Index of the followed word."""
        return self.word_of[self.position]

    @cached_property
    def is_special(self) -> list[bool]:
        """Whether each token is special."""
        return [piece.kind == "special" for piece in self.text.stage.pieces]

    @cached_property
    def is_causal(self) -> bool:
        """Whether no token can look at later ones."""
        masked = self.steps["masked"][0] > BLOCKED
        return len(masked) > 1 and not bool(masked.triu(1).any())

    @cached_property
    def row(self) -> Float[Tensor, " key"]:
        """The token's weights in the chosen head."""
        return self.steps["weights"][self.head, self.position].double()

    @cached_property
    def word_rows(self) -> Float[Tensor, "head row column"]:
        """Weights of the layer's heads by word."""
        return self.text.by_word(self.steps["weights"].double())

    @property
    def here_row(self) -> Float[Tensor, " column"]:
        """The followed word's weights by word in the chosen head."""
        return self.word_rows[self.head, self.here]

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
    def num_heads(self) -> int:
        """Number of heads in the layer."""
        return self.trace.num_heads

    @property
    def num_kv_heads(self) -> int:
        """Number of KV heads in the layer."""
        return len(self.steps["keys"])

    @property
    def is_grouped(self) -> bool:
        """Whether several heads share a KV head."""
        return self.num_kv_heads < self.num_heads

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

    def token(self, token: int, probability: float) -> NextFigure:
        """A predicted token as the browser shows it."""
        return NextFigure(visible(token_name(self.scored, token)), probability)

    @cached_property
    def names(self) -> list[str]:
        """Names of all heads, in the order of `every_row`."""
        return [f"{layer}H{head}" for layer, count in self.layers.items() for head in range(count)]

    @cached_property
    def layer_of(self) -> list[int]:
        """Number of the layer of each head, in the order of `every_row`."""
        counts = enumerate(self.layers.values())
        return [layer for layer, count in counts for _ in range(count)]

    @property
    def added(self) -> tuple[int, int]:
        """Number of tokens that the tokenizer adds before the text, and after it."""
        return self.text.added

    def ordinary_words(self, row: Tensor) -> list[int]:
        """Other words in the row, largest share first: no marks and no resting places."""
        order = row.argsort(descending=True, stable=True).tolist()
        return [
            at
            for at in order
            if self.words[at].kind == "word"
            and at != self.here
            and row[at] > 0
            and not (at == 0 and self.is_causal)
        ]

    def lesson_head(self, head: int) -> LessonHead:
        """A head of the layer with its roles."""
        return self.named_head(self.trace.name_of(head))

    def lead_role(self, name: str) -> str | None:
        """The role that gives a head its colour; None if it has none."""
        return next(iter((self.roles or {}).get(name, [])), None)

    def named_head(self, name: str) -> LessonHead:
        """Any head of the model with its roles."""
        return LessonHead(name, None if self.roles is None else self.roles.get(name, []))

    @cached_property
    def place(self) -> Place:
        """The head and the word, as the browser receives them."""
        why = self.text.stage.why_no_words
        return Place(
            layer=self.call.layer,
            head=self.head,
            name=self.name,
            roles=self.lesson_head(self.head).roles,
            position=self.position,
            word=self.here,
            pieces=list(self.text.stage.pieces),
            words=list(self.words),
            word_of=list(self.word_of),
            rests_on_first=self.is_causal,
            note=" ".join(filter(None, [self.text.left_out, why and f"{why}."])),
        )


def _named(texts: list[str], index: int, target: str) -> list[ProseRun]:
    same = [at for at, text in enumerate(texts) if text == texts[index]]
    turn = [ProseRun(f" ({ordinal(same.index(index) + 1)})")] if len(same) > 1 else []
    return [ProseRun(shown(texts[index]), "word", target), *turn]


def lesson_facts(
    scored: ScoredModel, text: str, choice: Choice, table: HeadTable | None = None
) -> Facts:
    """Read the text, choose a head and a token if they are not given, and trace the layer."""
    check_model(scored)
    read = read_lesson_text(scored, text)
    size = len(read.stage.pieces)
    if choice.position is not None and not 0 <= choice.position < size:
        raise OptionError(f"position is {choice.position}: the text has positions 0..{size - 1}")
    with torch.no_grad(), in_evaluation(scored.model), watch(scored.model) as watched:
        forward_batch(scored.model, read.inputs)
    calls = every_call = [call for call in watched.calls if isinstance(call, AttentionCall)]
    layers = {call.site.layer_name: call.num_heads for call in calls}
    if choice.layer is not None:
        last = calls[-1].layer
        calls = [call for call in calls if call.layer == choice.layer]
        if not calls:
            raise OptionError(f"layer is {choice.layer}: the model has layers 0..{last}")
    position = choose_position(read.stage) if choice.position is None else choice.position
    roles = None if table is None else roles_by_head(table)
    call, head = choose_head(calls, read.stage, position, choice.head, roles)
    traced = trace(scored.model, read.inputs, layer=call.layer, tokenizer=scored.tokenizer)
    here = next(word for word, group in enumerate(read.groups) if position in group)
    rows = [read.by_word(call.weights()[0].detach().double().cpu())[:, here] for call in every_call]
    return Facts(
        text=read,
        scored=scored,
        call=call,
        trace=traced,
        steps=batch_steps(traced),
        layers=layers,
        head=head,
        kv_head=traced.kv_head_of[head],
        name=traced.name_of(head),
        position=position,
        roles=roles,
        every_row=torch.cat(rows),
    )


def batch_steps(traced: Trace) -> dict[str, Tensor]:
    """Values of a trace's steps for its first sequence."""
    return {
        name: step.values[0].cpu() for name, step in traced.steps.items() if step.axes[0] == "batch"
    }


def roles_by_head(table: HeadTable) -> dict[str, list[str]]:
    """Roles of each head of a scan."""
    return {
        str(head): list(roles) for head, roles in zip(table.heads, table.df["roles"], strict=True)
    }


def check_model(scored: ScoredModel) -> None:
    """Raise OptionError if the lesson cannot trace the model's attention on a text."""
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


def read_lesson_text(scored: ScoredModel, text: str) -> LessonText:
    """The text's first tokens as a batch, with its words."""
    text = text.strip().encode("utf-8", "replace").decode()  # no tokenizer reads lone surrogates
    reader = Reader(scored.tokenizer, scored.model.config)
    before, after = reader.around
    ids = reader.first_ids(text, MAX_TOKENS)
    if len(ids) < 2:
        raise OptionError(
            f"text {text[:20]!r} has {len(ids)} tokens, but the lesson needs at least 2: write a "
            "short sentence"
        )
    most = min(MAX_TOKENS, reader.length - reader.num_around)
    read_ids, left_out = ids[:most], ""
    if len(ids) > most:
        sentences, rest = _whole_sentences(reader, text, most)
        if sentences:
            text, read_ids = sentences, reader.ids(sentences)
            left_out = (f"The lesson follows the first {len(read_ids)} tokens of your text, up to "
                        "the end of a sentence, and leaves out the rest, from "
                        f"\N{LEFT DOUBLE QUOTATION MARK}{_first_words(rest)}"
                        "\N{RIGHT DOUBLE QUOTATION MARK} on.")  # fmt: skip
        else:
            left_out = (f"The lesson follows the first {most} tokens of your text and leaves out "
                        "the rest: no sentence ends in reach.")  # fmt: skip
    whole = (*before, *read_ids, *after)
    window = Window(0, whole)
    stage = read_stage_text(text, Tokens.of_window(reader, window))
    added = len(before), len(after)
    return LessonText(reader.batch([window], scored.device), stage, left_out, added)


def _whole_sentences(reader: Reader, text: str, most: int) -> tuple[str, str]:
    """The longest run of whole sentences of at most `most` tokens, and the text after it."""
    best = "", text
    for end in SENTENCE_END.finditer(text, 0, most * LONGEST_WORD):
        first = text[: end.end()]
        size = len(reader.ids(first))
        if size > most:
            break
        if size >= SHORTEST:
            best = first, text[end.end() :].strip()
    return best


def _first_words(text: str) -> str:
    """The first words of a text, at most 24 characters of them."""
    words = text.split()[:3]
    return visible(" ".join(words)[:24])


def gates_for(
    layers: Mapping[str, int], heads: Sequence[Sequence[tuple[str, int]]]
) -> dict[str, Float[Tensor, "run heads"]]:
    """Gates that silence `heads[run]`, each a layer's name and a number, in every run."""
    gates: dict[str, Tensor] = {}
    for run, silent in enumerate(heads):
        for layer, head in silent:
            if layer not in gates:
                gates[layer] = torch.ones(len(heads), layers[layer])
            gates[layer][run, head] = 0
    return gates
