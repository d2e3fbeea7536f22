"""A model's name, config or sizes, and a workload -> Plan: the costs of its heads.

Every formula is in docs/plan.md. `views.plan` draws plans.
"""

import os
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.planning.configs import read_shape
from headwise.planning.known_models import KNOWN, PlannedModel
from headwise.planning.shapes import Shape, divisors, make_shape, model_size, shape_of_sizes

LONGEST = 8192
"""The default length is the model's context, but at most this."""
CACHE_LENGTHS = (1024, 8192, 32768, 131072)
"""Lengths at which to list the cache size, in addition to the workload's own."""
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model's input, `batch` sequences of `length` positions, and the `dtype` it computes in."""

    length: int = 1024
    batch: int = 1
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise OptionError(
                f"dtype is {self.dtype!r}: choose from {', '.join(DTYPE_BYTES)}", option="dtype"
            )
        for name in ("length", "batch"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least=1))


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Cost of attention in all layers to decode one new token for each sequence in the batch."""

    multiply_adds: int
    bytes_read: int
    """Bytes in the four matrices, each read once, and in the keys and values of every sequence."""

    @property
    def intensity(self) -> float:
        """Operations per byte read; a multiply-add is two operations."""
        return 2 * self.multiply_adds / self.bytes_read


@dataclass(frozen=True, kw_only=True)
class Plan(PlannedModel):
    """Costs of a model's attention."""

    workload: Workload

    @property
    def parameters(self) -> dict[str, int]:
        """Number of attention parameters in one layer, by projection, including biases."""
        shape, widths = self.shape, self._widths
        biases = {name: width * shape.bias_in for name, width in widths.items()}
        biases["Wo"] = shape.d_model * shape.bias_out
        parameters = {name: shape.d_model * width + biases[name] for name, width in widths.items()}
        if shape.has_qk_norm:
            scales = widths["Wq"] + widths["Wk"] if shape.norms_span_heads else 2 * shape.d_key
            parameters["norms"] = scales * (2 if shape.norms_shift else 1)
        if shape.has_sinks:
            parameters["sinks"] = shape.num_heads
        return parameters

    @property
    def layer_parameters(self) -> int:
        """Number of attention parameters in one layer."""
        return sum(self.parameters.values())

    @property
    def model_parameters(self) -> int:
        """Number of attention parameters in all layers; shared weights count once."""
        return self.layer_parameters * (self.shape.num_distinct or self.shape.num_layers)

    @property
    def multiply_adds(self) -> dict[str, int]:
        """Multiply-adds in all layers for one sequence, by step, excluding masked pairs."""
        shape, length = self.shape, self.workload.length
        local = visible_pairs(length, is_causal=shape.is_causal, window=shape.window)
        full = visible_pairs(length, is_causal=shape.is_causal, window=None)
        pairs = shape.num_local * local + (shape.num_layers - shape.num_local) * full
        return {
            "projections": length * self._matrix_entries,
            "scores": pairs * shape.num_heads * shape.d_key,
            "mixing": pairs * shape.num_heads * shape.d_value,
        }

    @property
    def per_token(self) -> float:
        """Multiply-adds per token in all layers, averaged over the sequence."""
        return sum(self.multiply_adds.values()) / self.workload.length

    @property
    def cache_bytes(self) -> int:
        """Size of the KV cache during generation, in bytes; 0 for bidirectional models."""
        if not self.shape.is_causal:
            return 0
        numbers = self.shape.num_kv_heads * (self.shape.d_key + self.shape.d_value)
        return self.workload.batch * self._cached_positions * numbers * self._bytes_each

    @property
    def cache_by_length(self) -> dict[int, int]:
        """Size of the KV cache in bytes at several lengths, up to the model's context."""
        longest = max(self.shape.context or max(CACHE_LENGTHS), self.workload.length)
        lengths = sorted({*CACHE_LENGTHS, self.workload.length, longest})
        return {
            length: replace(self, workload=replace(self.workload, length=length)).cache_bytes
            for length in lengths
            if length <= longest
        }

    @property
    def weight_matrix_bytes(self) -> int:
        """Bytes that one layer's full weights would take: `batch x heads x query x key` numbers."""
        pairs = self.workload.length**2
        return self.workload.batch * self.shape.num_heads * pairs * self._bytes_each

    @property
    def decoding(self) -> Decoding | None:
        """Cost of one more token after `workload.length`; None for bidirectional models."""
        if not self.shape.is_causal:
            return None
        pairs = self._cached_positions * self.shape.num_heads
        work = self._matrix_entries + pairs * (self.shape.d_key + self.shape.d_value)
        return Decoding(
            multiply_adds=self.workload.batch * work,
            bytes_read=self._matrix_entries * self._bytes_each + self.cache_bytes,
        )

    @property
    def _widths(self) -> dict[str, int]:
        """Total width of the heads in each projection, whose other dimension is d_model."""
        shape = self.shape
        return {
            "Wq": shape.num_heads * shape.d_key,
            "Wk": shape.num_kv_heads * shape.d_key,
            "Wv": shape.num_kv_heads * shape.d_value,
            "Wo": shape.num_heads * shape.d_value,
        }

    @property
    def _matrix_entries(self) -> int:
        """Number of entries in all layers' matrices; each takes one multiply-add per token."""
        return self.shape.d_model * sum(self._widths.values()) * self.shape.num_layers

    @property
    def _cached_positions(self) -> int:
        """Number of positions with cached keys and values, summed over layers."""
        shape, length = self.shape, self.workload.length
        local = length if shape.window is None else min(length, shape.window)
        return shape.num_local * local + (shape.num_layers - shape.num_local) * length

    @property
    def _bytes_each(self) -> int:
        return DTYPE_BYTES[self.workload.dtype]

    def to_row(self) -> dict[str, Any]:
        """Every size and cost by name, as one row of a table."""
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


def visible_pairs(length: int, *, is_causal: bool, window: int | None) -> int:
    """Number of query-key pairs in a sequence in which the query may see the key.

    A causal window contains the query's own key and the keys before it; a bidirectional window
    extends equally far in both directions.
    """
    reach = length - 1
    if window is not None:
        reach = min(reach, window - 1 if is_causal else window // 2)
    before = reach * length - reach * (reach + 1) // 2
    return length + before * (1 if is_causal else 2)


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
    8 KV heads), a directory with a config.json, or a hub id. Pass `shape` instead to plan
    your own sizes. `length` defaults to the model's context, but at most 8,192.

    >>> plan("gpt2").layer_parameters
    2362368
    """
    if model is not None and not isinstance(model, str | os.PathLike):
        raise OptionError(f"model is {model!r}: give a name or a path", option="model")
    if not model:
        if not isinstance(shape, Shape):
            raise OptionError("there is nothing to plan: name a model, or give a headwise.Shape")
        divides = {shape.d_key, shape.d_value} == {shape.d_model / shape.num_heads}
        name = shape.sizes if divides else f"{shape.sizes}, heads of {shape.head_size}"
        facts = PlannedModel(name=name, shape=shape)
    elif shape is not None:
        raise OptionError(f"{model} has its own shape: give the model or the shape, not both")
    else:
        facts = _find_model(os.fspath(model))
    if length is None:
        length = min(facts.shape.context or 1024, LONGEST)
    workload = Workload(length=length, batch=batch, dtype=dtype)
    return Plan(workload=workload, **vars(facts))


def _find_model(model: str) -> PlannedModel:
    """The model that `model` names: a known model, sizes, a directory or a hub id."""
    if model.lower() in KNOWN:
        return KNOWN[model.lower()]
    exists = Path(model).exists()
    shape = shape_of_sizes(model)
    if shape is not None and not exists:
        return PlannedModel(name=model, shape=shape)
    if exists or "/" in model:
        shape, note = read_shape(model)
        return PlannedModel(name=model, shape=shape, source=model, note=note)
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
"""Range of head sizes in nearly all published models: all but four rows of `known_models`."""
SIMILAR = 0.25
"""Two widths are about the same if they differ by at most this share."""


def head_choices(d_model: int, *, length: int, num_layers: int = 1) -> list[HeadChoice]:
    """Every number of heads that divides a width, with its costs and the arguments against it.

    A head whose size is below the sequence length cannot produce every pattern of weights: the
    rank of its scores is at most its number of dimensions (https://arxiv.org/abs/2002.07028).
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
