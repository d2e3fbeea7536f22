"""Trace: every step of one layer's attention, and what each head adds to the output.

In: tensors by name, from layer_trace.py and trace.py. Out: shapes with axis names, checks of sums,
and each head's shares before and after Wo. headwise.views.trace shows them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.formats import format_count, replace_nonfinite
from headwise.reading.labels import Labels
from headwise.tracing.maps import Maps

STEPS = {
    "input": ("batch position d_model", "X"),
    "Wq": ("heads d_model d_key", "each head's own columns of the query projection"),
    "Wk": ("kv_heads d_model d_key", "each head's own columns of the key projection"),
    "Wv": ("kv_heads d_model d_value", "each head's own columns of the value projection"),
    "queries": ("batch heads query d_key", "Q = X Wq (bias, norm, rotation if any)"),
    "keys": ("batch kv_heads key d_key", "K = X Wk (bias, norm, rotation if any)"),
    "values": ("batch kv_heads key d_value", "V = X Wv (bias if any)"),
    "scores": ("batch heads query key", "Q K^T"),
    "scaled": ("batch heads query key", "scores x scale"),
    "masked": ("batch heads query key", "scaled, -inf where a query may not look"),
    "weights": ("batch heads query key", "softmax of each row"),
    "mixed": ("batch heads query d_value", "weights V"),
    "concat": ("batch query concat", "all heads side by side"),
    "Wo": ("concat d_model", "the output projection: its rows belong to heads, its columns to all"),
    "contributions": ("batch heads query d_model", "mixed Wo, each head with its own rows of Wo"),
    "output": ("batch query d_model", "concat Wo + bias"),
}
"""Axes and formula of every step, in order."""
MOST_NUMBERS = 1 << 16  # JSON omits the values of larger steps, unless they are requested


@dataclass(frozen=True, eq=False)
class TraceStep:
    """One step: name, axes, values and formula."""

    name: str
    axes: tuple[str, ...]
    values: Tensor
    formula: str = ""

    @property
    def shape(self) -> str:
        """The shape with axis names, such as `[heads 4, query 16, key 16]`."""
        parts = (f"{axis} {size}" for axis, size in zip(self.axes, self.values.shape, strict=True))
        return f"[{', '.join(parts)}]"


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """One layer's attention on a batch."""

    title: str
    steps: dict[str, TraceStep]
    heads: tuple[int, ...]
    """Numbers of the chosen heads; every step contains the values of all heads."""
    kv_head_of: tuple[int, ...]
    """Index of the KV head that each head reads."""
    labels: Labels
    """Token labels of the first sequence, which is the one in `maps`."""
    bias: Float[Tensor, " d_model"] | None = None
    rounding: float = 0.0
    """Machine epsilon of the layer's dtype, to which mixed values and output are rounded."""
    notes: tuple[str, ...] = ()
    difference: float | None = None
    """Largest difference between the layer's output and the output computed head by head."""
    compared: str = ""
    """Description of the two computations that `difference` compares."""
    is_real: Bool[Tensor, "batch query"] | None = None
    """True for real queries, False for padding; None if all are real."""
    prefix: str = field(default="L0", repr=False)
    """Prefix of the heads' names, such as L2 or encoder.L2."""

    @classmethod
    def of(  # noqa: PLR0913 - one parameter per fact about the layer
        cls,
        tensors: Mapping[str, Tensor],
        output_weight: Float[Tensor, "concat d_model"],
        bias: Tensor | None,
        *,
        title: str,
        labels: Labels,
        heads: Sequence[int] | None,
        num_kv_heads: int,
        formulas: Mapping[str, str],
        **facts: Any,
    ) -> "Trace":
        """Build a trace from a layer's steps, adding concat, Wo and each head's contribution.

        `formulas` replace those in `STEPS`; `facts` are further fields of the trace.
        """
        mixed, output = tensors["mixed"], tensors["output"].detach()
        num_heads, dtype = mixed.shape[1], mixed.dtype
        weights = output_weight.detach().to(dtype).unflatten(0, (num_heads, -1))
        values = {
            **tensors,
            "concat": mixed.transpose(1, 2).flatten(2),
            "Wo": weights.flatten(0, 1),
            "contributions": mixed @ weights,
            "output": output.to(dtype),
        }
        special = dict(formulas) if bias is not None else {"output": "concat Wo", **formulas}
        for name in ("queries", "keys", "values"):
            if name in values:
                _, count, _, width = values[name].shape
                split = f", split into {format_count(count, 'head')} of {width}"
                special[name] = STEPS[name][1] + split
        group = num_heads // num_kv_heads
        return cls(
            title=title,
            steps={
                name: TraceStep(
                    name, tuple(axes.split()), values[name].detach(), special.get(name, formula)
                )
                for name, (axes, formula) in STEPS.items()
                if name in values
            },
            heads=_check_heads(heads, num_heads),
            kv_head_of=tuple(head // group for head in range(num_heads)),
            labels=labels,
            bias=None if bias is None else bias.detach().to(dtype),
            rounding=torch.finfo(output.dtype).eps,
            **facts,
        )

    def __getitem__(self, name: str) -> TraceStep:
        if name not in self.steps:
            raise OptionError(
                f"step is {name!r}: this trace has {', '.join(self.steps)}", option="step"
            )
        return self.steps[name]

    @property
    def num_heads(self) -> int:
        """Number of heads in the layer."""
        return len(self.kv_head_of)

    def head(self, number: int) -> "Trace":
        """A copy of this trace with only head `number` chosen."""
        return replace(self, heads=_check_heads([number], self.num_heads))

    def name_of(self, head: int) -> str:
        """Name of a head, such as L2H5."""
        return f"{self.prefix}H{head}"

    @property
    def remainder(self) -> float:
        """Largest difference between the output and the sum of contributions and bias."""
        total = self["contributions"].values.sum(1)
        if self.bias is not None:
            total = total + self.bias
        return float((total - self["output"].values).abs().max())

    @property
    def adds_up(self) -> bool:
        """Whether the contributions and the bias sum to the output, up to rounding."""
        sizes = [self["contributions"].values.abs().sum(1), self["output"].values]
        sizes += [] if self.bias is None else [self.bias]
        largest = max(float(size.abs().max()) for size in sizes)
        exact = torch.finfo(torch.float32).eps * self["concat"].values.shape[-1]
        return self.remainder <= (4 * self.rounding + 2 * exact) * largest

    @property
    def shares_before(self) -> Float[Tensor, "heads concat"]:
        """Each head's share of every concat column: 1 in its own columns, 0 elsewhere."""
        concat = self["concat"].values
        width = concat.shape[-1] // self.num_heads
        return torch.eye(self.num_heads, dtype=concat.dtype).repeat_interleave(width, dim=1)

    @property
    def shares_after(self) -> Float[Tensor, "heads d_model"]:
        """Each head's share of every output dimension, by the size of its contribution."""
        sizes = self.real_contributions.abs().sum(0)
        return sizes / sizes.sum(0).clamp(min=torch.finfo(sizes.dtype).tiny)

    @property
    def real_contributions(self) -> Float[Tensor, "query heads d_model"]:
        """Each head's contribution at every real query in the batch."""
        every = self["contributions"].values.transpose(1, 2)
        return every.flatten(0, 1) if self.is_real is None else every[self.is_real]

    @property
    def lengths(self) -> list[tuple[float, float]]:
        """Mean length of each head's contribution to the output, and its share of the sum."""
        lengths = self.real_contributions.norm(dim=-1).mean(0)
        total = float(lengths.sum()) or 1.0
        return [(length, length / total) for length in lengths.tolist()]

    def matrices(
        self, step: TraceStep
    ) -> Iterator[tuple[str, Tensor, Sequence[str], Sequence[str]]]:
        """A step's values as labelled matrices: one for each chosen head, or one for all."""
        axes, values, labels = step.axes, step.values, self.labels
        if axes[0] == "batch":
            axes, values = axes[1:], values[0]
        names = {"key": labels.keys, "query": labels.queries, "position": labels.queries}
        beside, above = (
            names.get(axis) or [str(number + 1) for number in range(size)]
            for axis, size in zip(axes[-2:], values.shape[-2:], strict=True)
        )
        if values.dim() == 2:
            yield step.name, values, beside, above
            return
        for head in self.heads:
            place, served = head, ""
            if axes[0] == "kv_heads":
                place = self.kv_head_of[head]
                served = f" (KV head {place})" if self.num_heads > values.shape[0] else ""
            yield f"{self.name_of(head)} {step.name}{served}", values[place], beside, above

    def maps(self, *, words: bool = False, special: bool = True, sink: bool = True) -> Maps:
        """Labelled weights of the chosen heads; see `Maps` for words, special tokens and sink."""
        weights = self["weights"].values[0, list(self.heads)]
        maps = Maps(weights, tuple(map(self.name_of, self.heads)), self.labels)
        if not sink:
            maps = maps.without_sink()
        if words:
            maps = maps.by_word()
        elif not special:
            maps = maps.without_special()
        return maps

    def _select_heads(self, step: TraceStep) -> TraceStep:
        """The step with only the chosen heads, or with the KV heads that these read."""
        place = next((i for i, axis in enumerate(step.axes) if axis.endswith("heads")), None)
        if place is None or self.heads == tuple(range(self.num_heads)):
            return step
        is_kv = step.axes[place] == "kv_heads"
        numbers = [self.kv_head_of[head] if is_kv else head for head in self.heads]
        index = torch.tensor(numbers, device=step.values.device)
        axes = tuple("heads" if axis == "kv_heads" else axis for axis in step.axes)
        return replace(step, axes=axes, values=step.values.index_select(place, index))

    @property
    def large_steps(self) -> list[str]:
        """Names of steps with so many values that JSON omits these unless they are requested."""
        steps = map(self._select_heads, self.steps.values())
        return [step.name for step in steps if step.values.numel() > MOST_NUMBERS]

    def to_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The trace as JSON values, with only the chosen heads.

        Contains the steps in `names`; if None, all steps, but no values of `large_steps`.
        """
        omitted = [] if names else self.large_steps
        steps = [
            {
                "name": step.name,
                "formula": step.formula,
                "axes": list(step.axes),
                "shape": list(step.values.shape),
                "values": None if step.name in omitted else replace_nonfinite(step.values.tolist()),
            }
            for step in (self._select_heads(self[name]) for name in names or self.steps)
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
        """HTML for a notebook."""
        from headwise.views.trace import trace_fragment

        return trace_fragment(self)


def closing_lines(trace: Trace) -> list[str]:
    """Sentences that report the checks, and how much Wo mixes the heads."""
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
        "Segregation (1: each column belongs to one head, 0: all heads share it equally): "
        f"concat {before:.2f}, output {after:.2f}."
    )
    return [*lines, *trace.notes]


def segregation(shares: Float[Tensor, "heads column"]) -> float:
    """One minus the normalised entropy of the heads' shares, averaged over the columns.

    It is 0 if all heads have equal shares, and 1 if each column belongs to one head only.
    """
    if len(shares) == 1:
        return 1.0
    entropy = torch.special.entr(shares).sum(0) / math.log(len(shares))
    return float((1 - entropy).mean())


def _check_heads(heads: Sequence[int] | None, num_heads: int) -> tuple[int, ...]:
    """`heads` without duplicates; all if None. Raises OptionError if one is out of range."""
    if heads is None:
        return tuple(range(num_heads))
    for head in heads:
        if not 0 <= head < num_heads:
            raise OptionError(
                f"heads is {head}: this layer has heads 0..{num_heads - 1}", option="heads"
            )
    return tuple(dict.fromkeys(heads))
