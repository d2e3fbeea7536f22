"""Record: every step of one layer's attention, and what each head adds to the output.

In: named tensors. Out: shapes in words, sums that are checked, shares of heads before and after Wo.
Where the tensors come from is known to `layers` and `models`, how they look to the views.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.formats import format_count
from headwise.reading.labels import Labels
from headwise.tracing.maps import Maps

STEPS = {
    "input": "X",
    "Wq": "each head's own columns of the query projection",
    "Wk": "each head's own columns of the key projection",
    "Wv": "each head's own columns of the value projection",
    "queries": "Q = X Wq (bias, norm, rotation if any)",
    "keys": "K = X Wk, the same",
    "values": "V = X Wv (bias if any)",
    "scores": "Q K^T",
    "scaled": "scores x scale",
    "masked": "scaled, -inf where a query may not look",
    "weights": "softmax of each row",
    "mixed": "weights V",
    "concat": "all heads side by side",
    "Wo": "the output projection: its rows belong to heads, its columns to all",
    "contributions": "mixed Wo, each head with its own rows of Wo",
    "output": "concat Wo + bias",
}
"""Every step in order, and its formula."""


@dataclass(frozen=True, eq=False)
class TraceStep:
    """One step: its name, its formula, its axes and its values."""

    name: str
    axes: tuple[str, ...]
    values: Tensor
    formula: str = ""

    @property
    def shape(self) -> str:
        """The shape in words: `[heads 4, query 16, key 16]`."""
        parts = (f"{axis} {size}" for axis, size in zip(self.axes, self.values.shape, strict=True))
        return f"[{', '.join(parts)}]"


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """One layer's attention on a batch."""

    title: str
    steps: dict[str, TraceStep]
    heads: tuple[int, ...]
    """The heads that were asked for; every step holds them all."""
    kv_head_of: tuple[int, ...]
    """For each head the KV head that serves it."""
    labels: Labels
    """Of the first sequence, which maps are of."""
    bias: Float[Tensor, " d_model"] | None = None
    rounding: float = 0.0
    """Of the dtype that the layer computes in: mixed values and output are rounded to it."""
    notes: tuple[str, ...] = ()
    difference: float | None = None
    """Largest difference between the layer's output and one computed head by head."""
    compared: str = ""
    """What was compared for it."""
    is_real: Bool[Tensor, "batch query"] | None = None
    """Which queries are no padding; None where all are real."""
    prefix: str = field(default="L0", repr=False)
    """What a head's name begins with: L2, encoder.L2."""

    def __getitem__(self, name: str) -> TraceStep:
        """The step of that name."""
        if name not in self.steps:
            raise OptionError(f"this trace has no step {name!r}: it has {', '.join(self.steps)}")
        return self.steps[name]

    @property
    def num_heads(self) -> int:
        """Heads of the layer."""
        return len(self.kv_head_of)

    def head(self, number: int) -> "Trace":
        """The same trace with one head chosen."""
        return replace(self, heads=checked_heads([number], self.num_heads))

    def name_of(self, head: int) -> str:
        """A head as it is written everywhere: L2H5."""
        return f"{self.prefix}H{head}"

    @property
    def remainder(self) -> float:
        """Largest difference between the output and the heads' contributions plus the bias."""
        whole = self["contributions"].values.sum(1)
        if self.bias is not None:
            whole = whole + self.bias
        return float((whole - self["output"].values).abs().max())

    @property
    def adds_up(self) -> bool:
        """Whether the contributions and the bias are the output, but for rounding."""
        sizes = [self["contributions"].values.abs().sum(1), self["output"].values]
        sizes += [] if self.bias is None else [self.bias]
        largest = max(float(size.abs().max()) for size in sizes)
        exact = torch.finfo(torch.float32).eps * self["concat"].values.shape[-1]
        return self.remainder <= (4 * self.rounding + 2 * exact) * largest

    @property
    def shares_before(self) -> Float[Tensor, "heads concat"]:
        """Share of each head in each column of the concat: its own columns, whole."""
        concat = self["concat"].values
        own = torch.zeros(self.num_heads, concat.shape[-1], dtype=concat.dtype)
        width = concat.shape[-1] // self.num_heads
        for head in range(self.num_heads):
            own[head, head * width : (head + 1) * width] = 1
        return own

    @property
    def shares_after(self) -> Float[Tensor, "heads d_model"]:
        """Share of each head in each dimension of the output, by the size of what it adds."""
        sizes = self.real_contributions.abs().sum(0)
        return sizes / sizes.sum(0).clamp(min=torch.finfo(sizes.dtype).tiny)

    @property
    def real_contributions(self) -> Float[Tensor, "query heads d_model"]:
        """What each head adds to the output at every query of the batch but padding."""
        every = self["contributions"].values.transpose(1, 2)
        return every.flatten(0, 1) if self.is_real is None else every[self.is_real]

    @property
    def lengths(self) -> list[tuple[float, float]]:
        """For each head the mean length of what it adds to the output, and its share of all."""
        lengths = self.real_contributions.norm(dim=-1).mean(0)
        whole = float(lengths.sum()) or 1.0
        return [(length, length / whole) for length in lengths.tolist()]

    def matrices(
        self, step: TraceStep
    ) -> Iterator[tuple[str, Tensor, Sequence[str], Sequence[str]]]:
        """A step's values as labelled matrices: one for each chosen head, or one for all."""
        axes, values, labels = step.axes, step.values, self.labels
        if axes[0] == "batch":
            axes, values = axes[1:], values[0]
        names = {"key": labels.keys, "query": labels.queries, "position": labels.queries}
        beside, above = (
            names.get(axis) or numbered(size)
            for axis, size in zip(axes[-2:], values.shape[-2:], strict=True)
        )
        if values.dim() == 2:
            yield step.name, values, beside, above
            return
        for head in self.heads:
            own, served = head, ""
            if axes[0] == "kv_heads":
                own = self.kv_head_of[head]
                served = f" (KV head {own})" if self.num_heads > values.shape[0] else ""
            yield f"{self.name_of(head)} {step.name}{served}", values[own], beside, above

    def maps(self, *, words: bool = False, special: bool = True, sink: bool = True) -> Maps:
        """The weights of the chosen heads with labels: by word, without special tokens or sink."""
        weights = self["weights"].values[0, list(self.heads)]
        maps = Maps(weights, tuple(map(self.name_of, self.heads)), self.labels)
        if not sink:
            maps = maps.without_sink()
        if words:
            maps = maps.by_word()
        elif not special:
            maps = maps.without_special()
        return maps

    def of_chosen(self, step: TraceStep) -> TraceStep:
        """The same step of the chosen heads alone, with the keys and values that serve each."""
        if self.heads == tuple(range(self.num_heads)):
            return step
        for place, axis in enumerate(step.axes):
            if axis in ("heads", "kv_heads"):
                own = (
                    self.heads if axis == "heads" else [self.kv_head_of[one] for one in self.heads]
                )
                index = torch.tensor(own, device=step.values.device)
                axes = tuple("heads" if one == axis else one for one in step.axes)
                return replace(step, axes=axes, values=step.values.index_select(place, index))
        return step

    @property
    def large_steps(self) -> list[str]:
        """Steps of more than `MOST_NUMBERS`, whose values JSON holds only if they are asked for."""
        steps = map(self.of_chosen, self.steps.values())
        return [step.name for step in steps if step.values.numel() > MOST_NUMBERS]

    def to_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Everything as plain numbers, of the chosen heads where some were chosen.

        Steps that are named are given whole; of all steps, `large_steps` have no values.
        """
        left_out = [] if names else self.large_steps
        steps = [
            {
                "name": step.name,
                "formula": step.formula,
                "axes": list(step.axes),
                "shape": list(step.values.shape),
                "values": None if step.name in left_out else plain(step.values),
            }
            for step in (self.of_chosen(self[name]) for name in names or self.steps)
        ]
        return {
            "title": self.title,
            "heads": [self.name_of(head) for head in self.heads],
            "kv_head_of": list(self.kv_head_of),
            "queries": list(self.labels.queries),
            "keys": list(self.labels.keys),
            "adds_up": self.adds_up,
            "remainder": self.remainder,
            "difference": self.difference,
            "segregation_concat": segregation(self.shares_before),
            "segregation_output": segregation(self.shares_after),
            "output_share": [share for _, share in self.lengths],
            "notes": list(self.notes),
            "steps": steps,
        }

    def _repr_html_(self) -> str:
        """For a notebook."""
        from headwise.views.trace import trace_fragment

        return trace_fragment(self)


MOST_NUMBERS = 1 << 16
"""Of a step's values in JSON, unless the step is asked for by name."""


def plain(values: Tensor) -> Any:
    """Nested lists, with None for what JSON cannot write."""
    if values.dim() == 0:
        number = values.item()
        return number if math.isfinite(number) else None
    if values.dim() == 1:
        return [number if math.isfinite(number) else None for number in values.tolist()]
    return [plain(part) for part in values]


def numbered(count: int) -> list[str]:
    """Names of columns that have none."""
    return [str(place + 1) for place in range(count)]


def closing_lines(trace: Trace) -> list[str]:
    """What was checked, and how the heads are mixed."""
    bias = " and the bias of Wo" if trace.bias is not None else ""
    verdict = "add up to" if trace.adds_up else "do NOT add up to"
    lines = [
        f"The contributions of {format_count(trace.num_heads, 'head')}{bias} {verdict} the output: "
        f"largest difference {trace.remainder:.1e}."
    ]
    if trace.difference is not None:
        lines.append(
            f"Two implementations, {trace.compared}, differ by at most {trace.difference:.1e}."
        )
    before, after = segregation(trace.shares_before), segregation(trace.shares_after)
    lines.append(
        f"Segregation (1: each column is one head's, 0: all heads alike): concat {before:.2f}, "
        f"output {after:.2f}."
    )
    return [*lines, *trace.notes]


def segregation(shares: Float[Tensor, "heads column"]) -> float:
    """How far each column belongs to one head alone, 0 (all alike) to 1 (one head each).

    One minus the entropy of the heads' shares over its largest value, averaged over the columns.
    """
    heads = len(shares)
    if heads == 1:
        return 1.0
    entropy = torch.special.entr(shares).sum(0) / math.log(heads)
    return float((1 - entropy).mean())


def checked_heads(heads: Sequence[int] | None, num_heads: int) -> tuple[int, ...]:
    """The heads asked for, all if none were."""
    if heads is None:
        return tuple(range(num_heads))
    wrong = [head for head in heads if not 0 <= head < num_heads]
    if wrong:
        raise OptionError(f"head {wrong[0]} is not in this layer: it has heads 0..{num_heads - 1}")
    return tuple(dict.fromkeys(heads))
