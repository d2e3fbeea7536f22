"""Shape and Workload -> parameters, multiply-adds and bytes. Every formula is in docs/plan.md."""

from dataclasses import dataclass

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.planning.shapes import Shape

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Input of a model: `batch` sequences of `length` positions, in numbers of `dtype`."""

    length: int = 1024
    batch: int = 1
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        """Check every value."""
        if self.dtype not in DTYPE_BYTES:
            raise OptionError(
                f"dtype is {self.dtype!r}: choose from {', '.join(DTYPE_BYTES)}", option="dtype"
            )
        for name in ("length", "batch"):
            number = whole_number(name, getattr(self, name), least=1)
            object.__setattr__(self, name, number)

    @property
    def bytes_each(self) -> int:
        """Bytes per number."""
        return DTYPE_BYTES[self.dtype]


def widths(shape: Shape) -> dict[str, int]:
    """Width of all heads together in each projection: the side of its matrix beside d_model."""
    return {
        "Wq": shape.num_heads * shape.d_key,
        "Wk": shape.num_kv_heads * shape.d_key,
        "Wv": shape.num_kv_heads * shape.d_value,
        "Wo": shape.num_heads * shape.d_value,
    }


def projection_parameters(shape: Shape) -> dict[str, int]:
    """Attention parameters in one layer, by projection, biases included."""
    sides = widths(shape)
    biases = {name: width * shape.bias_in for name, width in sides.items()}
    biases["Wo"] = shape.d_model * shape.bias_out
    parameters = {name: shape.d_model * width + biases[name] for name, width in sides.items()}
    if shape.has_qk_norm:
        scales = sides["Wq"] + sides["Wk"] if shape.norms_span_heads else 2 * shape.d_key
        parameters["norms"] = scales * (2 if shape.norms_shift else 1)
    if shape.has_sinks:
        parameters["sinks"] = shape.num_heads
    return parameters


def visible_pairs(length: int, *, is_causal: bool, window: int | None) -> int:
    """Pairs of a query and a key it may see, in a sequence.

    A causal window contains the query's own key and those before it; a bidirectional one reaches
    as far ahead as back.
    """
    reach = length - 1 if window is None else (window - 1 if is_causal else window // 2)
    reach = min(reach, length - 1)
    before = reach * length - reach * (reach + 1) // 2
    return length + before * (1 if is_causal else 2)


def _projection_weights(shape: Shape) -> int:
    """Entries of one layer's four matrices, which are its multiply-adds per token."""
    return shape.d_model * sum(widths(shape).values())


def multiply_adds(shape: Shape, length: int) -> dict[str, int]:
    """Multiply-adds of all layers on one sequence, by step, without masked pairs."""
    local = visible_pairs(length, is_causal=shape.is_causal, window=shape.window)
    full = visible_pairs(length, is_causal=shape.is_causal, window=None)
    pairs = shape.num_local * local + (shape.num_layers - shape.num_local) * full
    return {
        "projections": length * _projection_weights(shape) * shape.num_layers,
        "scores": pairs * shape.num_heads * shape.d_key,
        "mixing": pairs * shape.num_heads * shape.d_value,
    }


def count_cached_positions(shape: Shape, length: int) -> int:
    """Positions whose keys and values are cached, summed over the layers."""
    local = length if shape.window is None else min(length, shape.window)
    return shape.num_local * local + (shape.num_layers - shape.num_local) * length


def cache_bytes(shape: Shape, workload: Workload) -> int:
    """Bytes of the KV cache while text is generated; 0 for bidirectional models."""
    if not shape.is_causal:
        return 0
    numbers = shape.num_kv_heads * (shape.d_key + shape.d_value)
    positions = count_cached_positions(shape, workload.length)
    return workload.batch * positions * numbers * workload.bytes_each


def weight_matrix_bytes(shape: Shape, workload: Workload) -> int:
    """Bytes of one layer's materialised weights: `batch x heads x query x key` numbers."""
    return workload.batch * shape.num_heads * workload.length**2 * workload.bytes_each


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Work of the attention of all layers for one new token per sequence of the batch."""

    multiply_adds: int
    bytes_read: int
    """The four matrices once, and every sequence's keys and values."""

    @property
    def intensity(self) -> float:
        """Operations per byte read; a multiply-add is two operations."""
        return 2 * self.multiply_adds / self.bytes_read


def decoding(shape: Shape, workload: Workload) -> Decoding:
    """One step of decoding with a full cache."""
    pairs = count_cached_positions(shape, workload.length) * shape.num_heads
    weights = _projection_weights(shape) * shape.num_layers
    work = workload.batch * (weights + pairs * (shape.d_key + shape.d_value))
    bytes_read = weights * workload.bytes_each + cache_bytes(shape, workload)
    return Decoding(multiply_adds=work, bytes_read=bytes_read)
