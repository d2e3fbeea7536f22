"""Costs: what a shape costs in parameters, multiply-adds and bytes.

In: a shape, a length, a batch, a dtype. Out: whole numbers. Every formula is in docs/plan.md.
"""

from dataclasses import dataclass

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.planning.shapes import Shape

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a model is run on: sequences of a length, a batch of them, numbers of a dtype."""

    length: int = 1024
    batch: int = 1
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.dtype not in DTYPE_BYTES:
            raise OptionError(f"there is no dtype {self.dtype!r}: give {', '.join(DTYPE_BYTES)}")
        for name in ("length", "batch"):
            number = whole_number(name, getattr(self, name), least=1)
            object.__setattr__(self, name, number)

    @property
    def bytes_each(self) -> int:
        """Bytes of one number."""
        return DTYPE_BYTES[self.dtype]


def widths(shape: Shape) -> dict[str, int]:
    """The side of each projection's matrix that is not d_model, all its heads together."""
    return {
        "Wq": shape.num_heads * shape.d_key,
        "Wk": shape.num_kv_heads * shape.d_key,
        "Wv": shape.num_kv_heads * shape.d_value,
        "Wo": shape.num_heads * shape.d_value,
    }


def parameters(shape: Shape) -> dict[str, int]:
    """Parameters of one layer's attention, by projection, biases included."""
    sides = widths(shape)
    biases = {name: width * shape.bias_in for name, width in sides.items()}
    biases["Wo"] = shape.d_model * shape.bias_out
    found = {name: shape.d_model * width + biases[name] for name, width in sides.items()}
    if shape.has_qk_norm:
        scales = sides["Wq"] + sides["Wk"] if shape.norms_span_heads else 2 * shape.d_key
        found["norms"] = scales * (2 if shape.norms_shift else 1)
    if shape.has_sinks:
        found["sinks"] = shape.num_heads
    return found


def layer_parameters(shape: Shape) -> int:
    """All parameters of one layer's attention."""
    return sum(parameters(shape).values())


def model_parameters(shape: Shape) -> int:
    """Parameters of the attention of all layers, those that layers share counted once."""
    return layer_parameters(shape) * (shape.num_distinct or shape.num_layers)


def pairs(length: int, *, is_causal: bool, window: int | None) -> int:
    """Pairs of a query and a key it may see, in a sequence.

    A causal window holds the query's own key and those before it; one that is not causal reaches
    as far ahead as back.
    """
    reach = length - 1 if window is None else (window - 1 if is_causal else window // 2)
    reach = min(reach, length - 1)
    before = reach * length - reach * (reach + 1) // 2
    return length + before * (1 if is_causal else 2)


def all_pairs(shape: Shape, length: int) -> int:
    """The same over all layers."""
    local = pairs(length, is_causal=shape.is_causal, window=shape.window)
    whole = pairs(length, is_causal=shape.is_causal, window=None)
    return shape.num_local * local + (shape.num_layers - shape.num_local) * whole


def projection_weights(shape: Shape) -> int:
    """Entries of the four matrices of one layer: multiply-adds a token spends on them."""
    return shape.d_model * sum(widths(shape).values())


def multiply_adds(shape: Shape, length: int) -> dict[str, int]:
    """Multiply-adds of all layers on one sequence, by step, without what queries may not see."""
    seen = all_pairs(shape, length) * shape.num_heads
    return {
        "projections": length * projection_weights(shape) * shape.num_layers,
        "scores": seen * shape.d_key,
        "mixing": seen * shape.d_value,
    }


def cached_positions(shape: Shape, length: int) -> int:
    """Positions whose keys and values are kept, summed over the layers."""
    local = length if shape.window is None else min(length, shape.window)
    return shape.num_local * local + (shape.num_layers - shape.num_local) * length


def cache_bytes(shape: Shape, setting: Workload) -> int:
    """Bytes of the keys and values kept while text is generated; 0 for models that do not."""
    if not shape.is_causal:
        return 0
    numbers = shape.num_kv_heads * (shape.d_key + shape.d_value)
    return setting.batch * cached_positions(shape, setting.length) * numbers * setting.bytes_each


def weight_matrix_bytes(shape: Shape, setting: Workload) -> int:
    """Bytes of one layer's weights, materialised: `batch x heads x query x key` numbers."""
    return setting.batch * shape.num_heads * setting.length**2 * setting.bytes_each


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """What the attention of all layers does for one new token of every sequence in the batch."""

    multiply_adds: int
    bytes_read: int
    """The four matrices once, and every sequence's keys and values."""

    @property
    def intensity(self) -> float:
        """Operations for each byte read; a multiply-add is two of them."""
        return 2 * self.multiply_adds / self.bytes_read


def decoding(shape: Shape, setting: Workload) -> Decoding:
    """One step of decoding with a full cache."""
    seen = cached_positions(shape, setting.length) * shape.num_heads
    weights = projection_weights(shape) * shape.num_layers
    work = setting.batch * (weights + seen * (shape.d_key + shape.d_value))
    read = weights * setting.bytes_each + cache_bytes(shape, setting)
    return Decoding(multiply_adds=work, bytes_read=read)
