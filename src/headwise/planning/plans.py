"""Plan: everything that a model's heads cost, in one record.

In: a known model's name, a config or sizes, and what it runs on. Out: a `Plan`, as numbers, as a
flat row and as JSON. How it looks is the views' business.
"""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headwise.errors import OptionError
from headwise.planning import costs
from headwise.planning.configs import shape_and_note
from headwise.planning.costs import Decoding, Workload
from headwise.planning.known_models import KNOWN, known
from headwise.planning.shapes import (
    Shape,
    checked_size,
    divisors,
    make_shape,
    shape_of_sizes,
)

LONGEST = 8192
"""Length that is planned for where none is given, if the model was made for so much."""
CACHE_LENGTHS = (1024, 8192, 32768, 131072)
"""Contexts that the cache's size is shown for, besides the one asked for."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the attention of a model costs."""

    name: str
    shape: Shape
    setting: Workload
    source: str = ""
    total: int | None = None
    """Parameters of the whole model, where they are known."""
    note: str = ""

    @property
    def parameters(self) -> dict[str, int]:
        """Of one layer, by projection."""
        return costs.parameters(self.shape)

    @property
    def layer_parameters(self) -> int:
        """Of one layer's attention."""
        return costs.layer_parameters(self.shape)

    @property
    def model_parameters(self) -> int:
        """Of the attention of all layers, those that layers share counted once."""
        return costs.model_parameters(self.shape)

    @property
    def multiply_adds(self) -> dict[str, int]:
        """Of all layers on one sequence, by step."""
        return costs.multiply_adds(self.shape, self.setting.length)

    @property
    def per_token(self) -> float:
        """Multiply-adds of all layers for a token, on average over the sequence."""
        return sum(self.multiply_adds.values()) / self.setting.length

    @property
    def cache_bytes(self) -> int:
        """Of keys and values at the setting's length."""
        return costs.cache_bytes(self.shape, self.setting)

    @property
    def cache_by_length(self) -> dict[int, int]:
        """The same at other lengths, up to what the model was made for."""
        most = max(self.shape.context or max(CACHE_LENGTHS), self.setting.length)
        lengths = sorted({*CACHE_LENGTHS, self.setting.length, most})
        return {
            length: costs.cache_bytes(self.shape, replace(self.setting, length=length))
            for length in lengths
            if length <= most
        }

    @property
    def weight_matrix_bytes(self) -> int:
        """Of one layer's weights, materialised."""
        return costs.weight_matrix_bytes(self.shape, self.setting)

    @property
    def decoding(self) -> Decoding | None:
        """One new token after a full context; None for bidirectional models."""
        return costs.decoding(self.shape, self.setting) if self.shape.is_causal else None

    def to_row(self) -> dict[str, Any]:
        """Every number under a name of its own, for a line of a table."""
        step = self.decoding
        return {
            "name": self.name,
            **asdict(self.shape),
            **asdict(self.setting),
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
        """The same, with the cache at several lengths."""
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
    """What the heads of a model cost.

    `model` is a known one's name, sizes such as 768/12x12 (width, heads, layers; 4096/32:8x32 has 8
    KV heads), a directory with a config.json, or a hub's id; or give a shape.
    The length is the model's own context, at most 8,192, unless it is given.

    >>> plan("gpt2").layer_parameters
    2362368
    """
    if model is not None and not isinstance(model, str | os.PathLike):
        raise OptionError(
            f"a model is named by a text or a path, and this is of type {type(model).__name__}"
        )
    model = "" if model is None else os.fspath(model)
    name, source, total, note = model, "", None, ""
    if not model:
        if not isinstance(shape, Shape):
            raise OptionError("there is nothing to plan: name a model or give a headwise.Shape")
        name = name_of(shape)
    elif shape is not None:
        raise OptionError(f"{model} has its own shape: give one or the other")
    elif model.lower() in KNOWN:
        found = known(model.lower())
        name = found.name
        shape, source, total, note = found.shape, found.source, found.total, found.note
    elif (sizes := shape_of_sizes(model)) and not Path(model).exists():
        shape = sizes
    elif looks_like_a_place(model):
        (shape, note), source = shape_and_note(model), model
    else:
        known(model)  # says what there is
    assert shape is not None
    if length is None:
        length = min(shape.context or 1024, LONGEST)
    setting = Workload(length=length, batch=batch, dtype=dtype)
    return Plan(name=name, shape=shape, setting=setting, source=source, total=total, note=note)


def name_of(shape: Shape) -> str:
    """The sizes of a shape; with those of its heads, where they do not share out the width."""
    heads = {shape.d_key, shape.d_value}
    if heads == {shape.d_model / shape.num_heads}:
        return shape.sizes
    return f"{shape.sizes}, heads of {shape.size_of_heads}"


def looks_like_a_place(name: str) -> bool:
    """Whether a name may be a directory, a file or a hub's id."""
    return "/" in name or Path(name).exists()


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """One way to share a width out among heads."""

    num_heads: int
    d_key: int
    plan: Plan
    remarks: tuple[str, ...]
    as_in: tuple[str, ...] = ()
    """Known models with as many heads and about that width."""


SMALLEST, LARGEST = 64, 128
"""Head sizes that nearly all published models keep to: every row of `known` but four."""
ABOUT = 0.25
"""Share by which widths may differ and still be about the same."""


def head_choices(d_model: int, *, length: int, num_layers: int = 1) -> list[HeadChoice]:
    """Every number of heads that divides a width, with what it costs and what speaks against it.

    A head whose size is below the length cannot give every pattern of weights: its scores have no
    more rank than it has dimensions (https://arxiv.org/abs/2002.07028).
    """
    checked_size("d_model", d_model)  # before its divisors are looked for
    found = []
    for num_heads in divisors(d_model):
        shape = make_shape(d_model=d_model, num_heads=num_heads, num_layers=num_layers)
        remarks = []
        if shape.d_key < SMALLEST:
            remarks.append(f"under {SMALLEST}")
        elif shape.d_key > LARGEST:
            remarks.append(f"over {LARGEST}")
        if shape.d_key < length:
            remarks.append(f"rank {shape.d_key} of {length:,}")
        found.append(
            HeadChoice(
                num_heads=num_heads,
                d_key=shape.d_key,
                plan=plan(shape=shape, length=length),
                remarks=tuple(remarks),
                as_in=models_like(shape),
            )
        )
    return found


def models_like(shape: Shape) -> tuple[str, ...]:
    """Names of the known models with as many heads and about the same width."""
    return tuple(
        name
        for name, one in KNOWN.items()
        if one.shape.num_heads == shape.num_heads
        and abs(one.shape.d_model - shape.d_model) <= ABOUT * shape.d_model
    )
