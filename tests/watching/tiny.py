"""Tiny models of many families with random weights, their inputs, and their attention weights.

In: the name of a family of `tiny_configs.py`. Out: a model built from its config, in eval mode and
in float64, inputs for it, batches with padding, and the attention weights of the model's own eager
implementation. Does not import headwise, which is compared with it.
"""

import contextlib
import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from .tiny_configs import (
    EOS,
    FAMILIES,
    FRAMES,
    MEL_BINS,
    MEMORY,
    SPECIAL,
    VOCABULARY,
    Family,
    Side,
)

Inputs = dict[str, Tensor]

BATCH, LENGTH = 4, 13  # no family has 4 heads, 4 layers or heads of size 4
SEED = 11
GAIN = 1.6
"""Standard deviation of queries and keys; that of the scores is its square."""
SHIFT = 0.3
"""Standard deviation of biases, and of norms' weights around their initial values."""
CALM = 0.3
"""Factor on the output projections."""
MASKED = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
LIMITS = {"vocab_size": VOCABULARY, "max_position_embeddings": 61}


def tiny(
    name: str,
    *,
    batch: int = BATCH,
    length: int = LENGTH,
    dtype: torch.dtype = torch.float64,
) -> tuple[PreTrainedModel, Inputs]:
    """A model of the family, the same at every call, and inputs for it."""
    family = FAMILIES[name]
    return build(family, dtype), in_dtype(inputs(family, batch, length), dtype)


def build(family: Family, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """The family's model in eval mode; every call returns a new copy."""
    key = repr(family)
    if key not in _built:
        _built[key] = _build_model(family)
    return copy.deepcopy(_built[key]).to(dtype)


_built: dict[str, PreTrainedModel] = {}


def _build_model(family: Family) -> PreTrainedModel:
    """The family's model in float64; torch's own random state is left as it was.

    Weights are drawn in float64 and then rounded, so that they are the same in every dtype. A
    float64 model returns float64, but many families round to float32 on the way: for the weights
    see `Family.softmax_in`; models like Llama also round in norms and rotations.
    """
    config = config_of(family)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        model = getattr(transformers, family.auto).from_config(
            config, dtype=torch.float64, **family.options
        )
        spread_out(model)
        calm_down(model, family)
    return model.eval()


def config_of(family: Family) -> PreTrainedConfig:
    return AutoConfig.for_model(family.model_type or family.name, **LIMITS | dict(family.config))


@torch.no_grad()
def spread_out(model: nn.Module) -> None:
    """Draw larger weights: the usual ones make attention nearly uniform, and biases zero."""
    seen = set()  # tied weights are drawn once
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            noise = torch.randn_like(parameter)
            if parameter.dim() < 2:
                parameter.add_(SHIFT * noise)
            elif isinstance(module, nn.Embedding):
                parameter.copy_(noise)
            else:
                parameter.copy_(GAIN * noise / math.sqrt(fan_in(module, parameter)))


@torch.no_grad()
def calm_down(model: nn.Module, family: Family) -> None:
    """Shrink the attention outputs: otherwise tokens become alike, and later rows uniform."""
    for name in attention_modules(model, family):
        output_projection(model, family, name).weight.mul_(CALM)


def fan_in(module: nn.Module, parameter: Tensor) -> int:
    """Number of terms in each sum that the module computes."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
        return parameter[0].numel()
    return parameter.shape[-2]  # GPT-2's Conv1D and most experts: [..., in, out]


def inputs(family: Family, batch: int, length: int) -> Inputs:
    """Random inputs without padding, of `length` tokens; sounds and images have fixed sizes.

    The encoder of an encoder-decoder reads `MEMORY` tokens more, so that queries are not keys.
    """
    random = torch.Generator().manual_seed(SEED)
    parts: Inputs = {}
    if family.kind in ("encoder", "decoder", "text and vision"):
        parts |= tokens(batch, length, random)
    if family.kind == "encoder-decoder":
        parts |= tokens(batch, length + MEMORY, random)
    if family.kind in ("encoder-decoder", "speech"):
        decoder = tokens(batch, length, random)
        parts |= {f"decoder_{name}": part for name, part in decoder.items()}
    if family.kind == "speech":
        parts["input_features"] = noise_of((batch, MEL_BINS, FRAMES), random)
    if family.kind in ("vision", "text and vision"):
        parts["pixel_values"] = noise_of((batch, 3, *image_size(family)), random)
    if family.kind == "text and vision":
        parts["input_ids"][:, -1] = EOS  # CLIP pools this token; without one it pools the first
    return parts


def in_dtype(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The inputs with sounds and images in the dtype of a model."""
    return {
        name: part.to(dtype) if part.is_floating_point() else part for name, part in inputs.items()
    }


def tokens(batch: int, length: int, random: torch.Generator) -> Inputs:
    ids = torch.randint(SPECIAL, VOCABULARY, (batch, length), generator=random)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def noise_of(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=random, dtype=torch.float64)


def image_size(family: Family) -> tuple[int, int]:
    size = family.config.get("vision_config", family.config)["image_size"]
    return (size, size) if isinstance(size, int) else tuple(size)


def ragged(
    name: str,
    lengths: Sequence[int],
    side: Side = "right",
    *,
    dtype: torch.dtype = torch.float64,
) -> tuple[Inputs, list[Inputs]]:
    """Sequences of these lengths padded to one batch, and the same sequences one by one.

    A batch padded on the left has `position_ids` if the model accepts them; models with learned
    positions would otherwise count from the padding (`Family.needs_positions`).
    """
    family, longest = FAMILIES[name], max(lengths)
    if side not in family.pads:
        raise ValueError(f"{name} cannot be padded on the {side}, only on {family.pads}")
    whole = in_dtype(inputs(family, len(lengths), longest), dtype)
    alone = [cut(whole, row, longest - length) for row, length in enumerate(lengths)]
    if family.kind == "text and vision":
        for single in alone:
            single["input_ids"][:, -1] = EOS
    batch = {part: stacked([single[part] for single in alone], side) for part in whole}
    pad = config_of(family).get_text_config().pad_token_id or 0
    for ids, mask in MASKED.items():
        if ids in batch:
            batch[ids].masked_fill_(batch[mask] == 0, pad)
    if side == "left" and family.takes_positions:
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return batch, alone


def cut(whole: Inputs, row: int, less: int) -> Inputs:
    """One row as a batch, without its last `less` tokens."""
    return {
        name: part[row : row + 1, : part.shape[1] - less].clone()
        if part.dim() == 2
        else part[row : row + 1]
        for name, part in whole.items()
    }


def stacked(parts: list[Tensor], side: Side) -> Tensor:
    """The rows in one tensor; shorter rows of tokens are padded with zeros."""
    if parts[0].dim() > 2:
        return torch.cat(parts)
    return nn.utils.rnn.pad_sequence(
        [part[0] for part in parts], batch_first=True, padding_side=side
    )


def output_of(result: Any) -> Tensor:
    """A model's output: logits, or for CLIP the two embeddings of each pair of text and image."""
    if "logits" in result:
        return result["logits"]
    return torch.stack([result["text_embeds"], result["image_embeds"]], dim=1)


@contextlib.contextmanager
def eagerly(model: PreTrainedModel) -> Iterator[None]:
    """Use the model's own eager implementation inside the block.

    An unrouted family only warns, because it is already eager.
    """
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@torch.no_grad()
def eager_weights(model: PreTrainedModel, inputs: Inputs) -> dict[str, list[Tensor]]:
    """The model's own weights `[batch, heads, query, key]`, layer by layer, for each stack.

    By default only the unrouted families, Gemma 2 and gpt-oss return weights; the others run sdpa
    and silently return an empty tuple.
    """
    with eagerly(model):
        result = model(**inputs, output_attentions=True)
    return weights_of(result)


def weights_of(result: Any) -> dict[str, list[Tensor]]:
    """The weights in a model's result, by stack; gpt-oss has already dropped its sink column."""
    if "text_model_output" in result:
        towers = {"text": result["text_model_output"], "vision": result["vision_model_output"]}
        return {stack: list(tower["attentions"] or ()) for stack, tower in towers.items()}
    names = {"": "attentions"}
    if "encoder_last_hidden_state" in result:  # GPT-2 also has a field for cross-attention
        names = {stack: f"{stack}_attentions" for stack in ("encoder", "decoder", "cross")}
    return {stack: list(result.get(name) or ()) for stack, name in names.items()}


def attention_modules(model: nn.Module, family: Family) -> dict[str, nn.Module]:
    """Every attention module, by its name."""
    modules = model.named_modules()
    return {name: module for name, module in modules if type(module).__name__ == family.attention}


def stack_of(path: str, family: Family) -> str:
    """The stack of an attention module, by the words in its path."""
    if "" in family.stacks:
        return ""
    if "EncDec" in path or "encoder_attn" in path:
        return "cross"
    (stack,) = {stack for stack in family.stacks if f"{stack}_model." in path} or {
        stack for stack in family.stacks if f".{stack}." in f".{path}"
    }
    return stack


def output_projection(model: nn.Module, family: Family, name: str) -> nn.Module:
    """The output projection of the attention module of this name."""
    place = name.split(".")
    for step in family.projection.split("/"):
        place = place[:-1] if step == ".." else [*place, step]
    return model.get_submodule(".".join(place))
