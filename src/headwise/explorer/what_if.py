"""What if: a model's output with heads silenced or scaled, next to its usual output.

In: a ScoredModel, one or more texts, and a factor for each changed head. Out: a WhatIfAnswer with
token probabilities, class probabilities or sentence similarities.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError, OptionError
from headwise.explorer.api_types import Prediction, Savings, Similarity, WhatIfAnswer
from headwise.heads import HeadId, check_head
from headwise.objectives.losses import Embedding, MaskedToken, NextToken
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.pruning.surgery.cut import count_parameters, plan_slices
from headwise.reading.labels import token_text
from headwise.reading.reader import Reader, Window
from headwise.watching.gates import gate
from headwise.watching.running import in_evaluation
from headwise.watching.sites import find_sites

LONGEST = 512
"""Largest number of tokens read per text, so that a click takes effect at once."""
TOP = 8
"""Number of likeliest predictions shown from each of the two outputs."""
MAX_BASELINES = 8
"""Largest number of unchanged outputs to keep."""
BATCH_TOKENS = 256
"""Most tokens in one forward pass under several changes; a longer text has a pass per change."""

Factors = Mapping[HeadId, float]
"""The factor of each changed head; 0 silences it."""
Baselines = dict[tuple[str, ...], Tensor]
"""Outputs of the unchanged model by texts."""


@dataclass(frozen=True)
class Prompt:
    """Texts as a batch of model inputs, and the position whose prediction is shown."""

    texts: tuple[str, ...]
    inputs: dict[str, Tensor]
    remarks: list[str]
    position: int | None
    """None for embedding models, which compare whole texts."""
    title: str

    @classmethod
    def read(cls, scored: ScoredModel, texts: Sequence[str]) -> "Prompt":
        """Tokenize `texts`. Only embedding models read several; others read the first."""
        is_embedding = isinstance(scored.objective, Embedding)
        read = tuple(texts) if is_embedding else (texts[0],)
        inputs, remarks = _read_texts(scored, read)
        position, title = (None, "") if is_embedding else _position_to_predict(scored, inputs)
        return cls(read, inputs, remarks, position, title)


@torch.inference_mode()
def compare_gated(
    scored: ScoredModel,
    texts: Sequence[str],
    factors: Factors,
    num_heads: Mapping[str, int],
    baselines: Baselines | None = None,
) -> WhatIfAnswer:
    """Output with each head's output multiplied by its factor, next to the unchanged output.

    `num_heads` has an entry per layer name. `baselines` keeps unchanged outputs between calls. Only
    embedding models compare several texts; others read the first.
    """
    for head in factors:
        check_head(head, num_heads)
    prompt = Prompt.read(scored, texts)
    before = unchanged_output(scored, prompt, baselines)
    (after,) = gated_outputs(scored, prompt, [factors], num_heads)
    silenced = tuple(sorted(head for head, factor in factors.items() if factor == 0))
    is_embedding = prompt.position is None
    return WhatIfAnswer(
        remarks=prompt.remarks,
        similarity=_similarity(before, after) if is_embedding else None,
        prediction=None if is_embedding else _prediction(scored, prompt.title, before, after),
        heads_off=len(silenced),
        savings=_savings(scored, silenced),
    )


def unchanged_output(
    scored: ScoredModel, prompt: Prompt, baselines: Baselines | None = None
) -> Tensor:
    """The output of the unchanged model, from `baselines` if possible."""
    baselines = {} if baselines is None else baselines
    if prompt.texts not in baselines:
        with in_evaluation(scored.model):
            baselines[prompt.texts] = _outputs(scored, prompt.inputs, prompt.position, 1)[0]
        if len(baselines) > MAX_BASELINES:
            del baselines[next(iter(baselines))]  # the oldest
    return baselines[prompt.texts]


@torch.inference_mode()
def gated_outputs(
    scored: ScoredModel,
    prompt: Prompt,
    changes: Sequence[Factors],
    num_heads: Mapping[str, int],
    progress: Progress = no_progress,
    stage: str = "",
) -> list[Tensor]:
    """The model's output under each change of its heads; short texts share a forward pass."""
    rows, length = prompt.inputs["input_ids"].shape
    size = max(1, BATCH_TOKENS // (rows * length))
    found: list[Tensor] = []

    def report(*_: object) -> None:
        progress(stage, len(found), len(changes))

    with in_evaluation(scored.model), _before_layers(scored.model, report):
        for start in range(0, len(changes), size):
            report()
            part = changes[start : start + size]
            inputs = {
                name: value.repeat(len(part), *[1] * (value.dim() - 1))
                for name, value in prompt.inputs.items()
            }
            with gate(scored.model, change_gates(part, rows, num_heads)):
                found += _outputs(scored, inputs, prompt.position, len(part))
    progress(stage, len(changes), len(changes))
    return found


@contextmanager
def _before_layers(model: nn.Module, report: Callable[..., None]) -> Iterator[None]:
    """Call `report` before every attention layer inside the block, so that it can stop the work."""
    with ExitStack() as hooks:
        for module in {site.module: None for site in find_sites(model)}:
            hooks.enter_context(module.register_forward_pre_hook(report))
        yield


def change_gates(
    changes: Sequence[Factors], rows: int, num_heads: Mapping[str, int]
) -> dict[str, Tensor]:
    """Gates [batch, heads] by layer for `rows` texts under each of the changes."""
    gates: dict[str, Tensor] = {}
    for place, factors in enumerate(changes):
        for head, factor in factors.items():
            name = check_head(head, num_heads).layer_name
            if name not in gates:
                gates[name] = torch.ones(len(changes) * rows, num_heads[name])
            gates[name][place * rows : (place + 1) * rows, head.head] = factor
    return gates


def _savings(scored: ScoredModel, silenced: tuple[HeadId, ...]) -> Savings:
    total, saved = count_parameters(scored.model), 0
    try:
        changes = plan_slices(scored.model, silenced)
    except HeadwiseError as error:
        return Savings(total, 0, str(error))
    for change in changes:
        for part in change.slices:
            tensor = change.layer.base.get_parameter(part.path)
            saved += round(tensor.numel() * (1 - len(part.kept) / tensor.shape[part.axis]))
    return Savings(total, saved, None)


def _read_texts(scored: ScoredModel, texts: Sequence[str]) -> tuple[dict[str, Tensor], list[str]]:
    """The texts as one batch, and a remark on each text that is too long.

    Next-token models read the end of a long text, other models its beginning.
    """
    reader = Reader(scored.tokenizer, scored.model.config, length=LONGEST)
    before, after = reader.around
    room = reader.length - reader.num_around
    is_end = isinstance(scored.objective, NextToken)
    windows, remarks = [], []
    for number, text in enumerate(texts):
        ids = reader.ids(text)
        if not ids:
            raise OptionError(f"text {number + 1}, {text[:20]!r}, has no tokens: write a few words")
        if len(ids) > room:
            side = "last" if is_end else "first"
            remarks.append(
                f"Only the {side} {room:,} of {len(ids):,} tokens in text {number + 1} are read."
            )
        windows.append(Window(number, (*before, *(ids[-room:] if is_end else ids[:room]), *after)))
    return dict(reader.batch(windows, scored.device).inputs), remarks


def _outputs(
    scored: ScoredModel, inputs: Mapping[str, Tensor], position: int | None, copies: int
) -> list[Tensor]:
    """One output per copy of the texts in `inputs`.

    An output is the texts' embeddings or, if `position` is given, the log-probability of every
    token or class.
    """
    output = scored.objective.output(scored.model, inputs)
    if position is None:
        return list(output.unflatten(0, (copies, -1)))
    return list((output[:, position] if output.dim() == 3 else output).float().log_softmax(-1))


def _similarity(before: Tensor, after: Tensor) -> Similarity:
    cosines = (before @ before.T, after @ after.T, (before * after).sum(-1))
    return Similarity(*(cosine.double().round(decimals=4).tolist() for cosine in cosines))


def likeliest_outputs(before: Tensor, after: Tensor) -> list[int]:
    """Numbers of the likeliest tokens or classes before a change, then of those after it."""
    shown = min(TOP, len(before))
    tops = [output.topk(shown).indices.tolist() for output in (before, after)]
    return list(dict.fromkeys(tops[0] + tops[1]))


def _prediction(scored: ScoredModel, title: str, before: Tensor, after: Tensor) -> Prediction:
    likeliest = likeliest_outputs(before, after)
    is_token = _predicts_tokens(scored, len(before))
    return Prediction(
        what=_what(scored) if is_token else "class",
        title=title if is_token else "Likeliest classes",
        names=[output_name(scored, len(before), number) for number in likeliest],
        before=before[likeliest].exp().double().round(decimals=5).tolist(),
        after=after[likeliest].exp().double().round(decimals=5).tolist(),
        divergence=round(float((before.exp() * (before - after)).sum()), 5),
    )


def _position_to_predict(scored: ScoredModel, inputs: dict[str, Tensor]) -> tuple[int, str]:
    """The position whose prediction is shown, and a title for it.

    For a masked model, that is the first mask token; if there is none, the last word is masked in
    `inputs`.
    """
    ids, objective = inputs["input_ids"][0], scored.objective
    if isinstance(objective, NextToken):
        return len(ids) - 1, "Likeliest next tokens"
    if not isinstance(objective, MaskedToken):
        return len(ids) - 1, "Likeliest tokens at the end of the text"
    if objective.mask_id is None:
        raise OptionError(
            f"{scored.name} predicts masked tokens, but its tokenizer has no mask token: pass a "
            "tokenizer that has one"
        )
    masked = (ids == objective.mask_id).nonzero().flatten().tolist()
    if masked:
        return masked[0], "Likeliest tokens at the first masked token"
    special_ids = scored.tokenizer.all_special_ids
    words = [position for position, id_ in enumerate(ids.tolist()) if id_ not in special_ids]
    if not words:
        raise OptionError(
            f"all {len(ids)} tokens of the text are special, so there is no word to mask: write a "
            "few words"
        )
    last_word = token_name(scored, int(ids[words[-1]]))
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][0, words[-1]] = objective.mask_id
    return words[-1], f"Likeliest tokens at the last word, {last_word!r}, masked"


def _what(scored: ScoredModel) -> Literal["next", "masked", "end"]:
    if isinstance(scored.objective, NextToken):
        return "next"
    return "masked" if isinstance(scored.objective, MaskedToken) else "end"


def _predicts_tokens(scored: ScoredModel, size: int) -> bool:
    """Whether a model with `size` outputs predicts tokens rather than classes."""
    config: Any = scored.model.config
    return bool(size == config.get_text_config().vocab_size)


def output_name(scored: ScoredModel, size: int, number: int) -> str:
    """The token or class that output `number` of `size` stands for."""
    if _predicts_tokens(scored, size):
        return token_name(scored, number)
    labels = getattr(scored.model.config, "id2label", None) or {}
    return str(labels.get(number, number))


def token_name(scored: ScoredModel, number: int) -> str:
    """A token's label, or its id if it is not in the tokenizer's vocabulary."""
    piece = scored.tokenizer.convert_ids_to_tokens(number)
    return str(number) if piece is None else token_text(piece, scored.tokenizer.decode([number]))
