"""A model's name, config or sizes, and a workload -> Plan: what its heads cost.

A plan is numbers, a flat row or JSON. `views.plan` draws it.
"""

import os
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headwise.errors import OptionError
from headwise.planning import costs
from headwise.planning.configs import read_shape
from headwise.planning.costs import Decoding, Workload
from headwise.planning.known_models import KNOWN, KnownModel
from headwise.planning.shapes import Shape, divisors, make_shape, model_size, shape_of_sizes

LONGEST = 8192
"""Longest default length; a model with a shorter context is planned at its context."""
CACHE_LENGTHS = (1024, 8192, 32768, 131072)
"""Lengths that the cache size is listed for, besides the workload's own."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Costs of a model's attention."""

    name: str
    shape: Shape
    workload: Workload
    source: str = ""
    total: int | None = None
    """Parameters of the whole model; None if they are not known."""
    note: str = ""

    @property
    def parameters(self) -> dict[str, int]:
        """Attention parameters in one layer, by projection."""
        return costs.projection_parameters(self.shape)

    @property
    def layer_parameters(self) -> int:
        """Attention parameters in one layer."""
        return sum(self.parameters.values())

    @property
    def model_parameters(self) -> int:
        """Attention parameters in all layers; shared weights count once."""
        return self.layer_parameters * (self.shape.num_distinct or self.shape.num_layers)

    @property
    def multiply_adds(self) -> dict[str, int]:
        """Multiply-adds of all layers on one sequence, by step."""
        return costs.multiply_adds(self.shape, self.workload.length)

    @property
    def per_token(self) -> float:
        """Multiply-adds of all layers per token, on average over the sequence."""
        return sum(self.multiply_adds.values()) / self.workload.length

    @property
    def cache_bytes(self) -> int:
        """Bytes of the KV cache at the workload's length."""
        return costs.cache_bytes(self.shape, self.workload)

    @property
    def cache_by_length(self) -> dict[int, int]:
        """Bytes of the KV cache at several lengths, up to the model's context."""
        longest = max(self.shape.context or max(CACHE_LENGTHS), self.workload.length)
        lengths = sorted({*CACHE_LENGTHS, self.workload.length, longest})
        return {
            length: costs.cache_bytes(self.shape, replace(self.workload, length=length))
            for length in lengths
            if length <= longest
        }

    @property
    def weight_matrix_bytes(self) -> int:
        """Bytes of one layer's materialised weights."""
        return costs.weight_matrix_bytes(self.shape, self.workload)

    @property
    def decoding(self) -> Decoding | None:
        """Work for one new token after a full context; None for bidirectional models."""
        return costs.decoding(self.shape, self.workload) if self.shape.is_causal else None

    def to_row(self) -> dict[str, Any]:
        """Every size and cost under its own name, for one row of a table."""
        step = self.decoding
        return {
            "name": self.name,
            **asdict(self.shape),
            **asdict(self.workload),
            **{f"parameters_{name}": number for name, number in self.parameters.items()},
            "parameters_layer": self.layer_parameters,
            "parameters_attention": self.model_parameters,
            "parameters_total": self.total,
            **{f"multiply_adds_{name}": number for name, number in self.multiply_adds.items()},
            "multiply_adds": sum(self.multiply_adds.values()),
            "multiply_adds_per_token": self.per_token,
            "cache_bytes": self.cache_bytes,
            "weight_matrix_bytes": self.weight_matrix_bytes,
            "decode_multiply_adds": step.multiply_adds if step else None,
            "decode_bytes_read": step.bytes_read if step else None,
            "decode_intensity": step.intensity if step else None,
            "source": self.source,
            "note": self.note,
        }

    def to_json(self) -> dict[str, Any]:
        """`to_row()`, plus the cache size at several lengths."""
        by_length = {str(length): size for length, size in self.cache_by_length.items()}
        return {**self.to_row(), "cache_bytes_by_length": by_length}


def plan(
    model: str | os.PathLike[str] | None = None,
    *,
    shape: Shape | None = None,
    length: int | None = None,
    batch: int = 1,
    dtype: str = "bfloat16",
) -> Plan:
    """Costs of a model's heads.

    `model` is a known model's name, sizes such as 768/12x12 (width, heads, layers; 4096/32:8x32 has
    8 KV heads), a directory with a config.json, or a hub id. Instead, `shape` may be given.
    `length` defaults to the model's context, but at most 8,192.

    >>> plan("gpt2").layer_parameters
    2362368
    """
    if model is not None and not isinstance(model, str | os.PathLike):
        raise OptionError(f"model is {model!r}: give a name or a path", option="model")
    if not model:
        if not isinstance(shape, Shape):
            raise OptionError("there is nothing to plan: name a model, or give a headwise.Shape")
        facts = KnownModel(name=_shape_name(shape), shape=shape)
    elif shape is not None:
        raise OptionError(f"{model} has its own shape: give the model or the shape, not both")
    else:
        facts = _find_model(os.fspath(model))
    if length is None:
        length = min(facts.shape.context or 1024, LONGEST)
    workload = Workload(length=length, batch=batch, dtype=dtype)
    return Plan(
        name=facts.name,
        shape=facts.shape,
        workload=workload,
        source=facts.source,
        total=facts.total,
        note=facts.note,
    )


def _shape_name(shape: Shape) -> str:
    """Sizes of a shape, plus the head size unless the heads divide the width among them."""
    if {shape.d_key, shape.d_value} == {shape.d_model / shape.num_heads}:
        return shape.sizes
    return f"{shape.sizes}, heads of {shape.head_size}"


def _find_model(model: str) -> KnownModel:
    """The known model, sizes, directory or hub id that `model` names."""
    if model.lower() in KNOWN:
        return KNOWN[model.lower()]
    exists = Path(model).exists()
    shape = shape_of_sizes(model)
    if shape is not None and not exists:
        return KnownModel(name=model, shape=shape)
    if exists or "/" in model:
        shape, note = read_shape(model)
        return KnownModel(name=model, shape=shape, source=model, note=note)
    similar = get_close_matches(model, KNOWN, n=1)
    hint = f"did you mean {similar[0]}?" if similar else f"the known models are {', '.join(KNOWN)}"
    raise OptionError(
        f"{model} is not a known model, a directory with a config.json, or a hub id such as "
        f"owner/name: {hint}"
    )


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """One way to divide a width among heads."""

    num_heads: int
    d_key: int
    plan: Plan
    remarks: tuple[str, ...]
    """Arguments against this choice."""
    as_in: tuple[str, ...] = ()
    """Known models with this number of heads and about this width."""


SMALLEST, LARGEST = 64, 128
"""Head sizes of nearly all published models: of every row of `known_models` but four."""
SIMILAR = 0.25
"""Two widths are about the same if they differ by at most this share."""


def head_choices(d_model: int, *, length: int, num_layers: int = 1) -> list[HeadChoice]:
    """Every number of heads that divides a width, with its costs and the arguments against it.

    A head smaller than the sequence length cannot produce every pattern of weights: the rank of
    its scores is at most its number of dimensions (https://arxiv.org/abs/2002.07028).
    """
    choices = []
    for num_heads in divisors(model_size("d_model", d_model)):
        shape = make_shape(d_model=d_model, num_heads=num_heads, num_layers=num_layers)
        remarks = []
        if shape.d_key < SMALLEST:
            remarks.append(f"under {SMALLEST}")
        elif shape.d_key > LARGEST:
            remarks.append(f"over {LARGEST}")
        if shape.d_key < length:
            remarks.append(f"rank {shape.d_key} of {length:,}")
        similar = tuple(
            name
            for name, known in KNOWN.items()
            if known.shape.num_heads == num_heads
            and abs(known.shape.d_model - d_model) <= SIMILAR * d_model
        )
        choices.append(
            HeadChoice(
                num_heads=num_heads,
                d_key=shape.d_key,
                plan=plan(shape=shape, length=length),
                remarks=tuple(remarks),
                as_in=similar,
            )
        )
    return choices
