"""Returned weights: calls of attention modules that do not use transformers' interface.

In: a module that computes its weights itself and returns them. Out: a `WeightsCall` per call. What
a module returns is taken for weights only if the numbers are: rows of no negative numbers that sum
to one over the keys, one set of rows per head. Their product with the output of one of the module's
own projections must equal the input to the output projection, or that input is not used.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any
from weakref import WeakSet

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.watching.calls import Call, WeightsCall, at_least_float32
from headwise.watching.candidates import REQUEST
from headwise.watching.sites import Site

ROUNDINGS = 64
"""Sums of weights and of weighted values may differ by this many roundings of a number near 1."""
PROVEN: WeakSet[nn.Module] = WeakSet()
"""Modules whose weights, times the values, have equalled the input to the output projection."""

NOT_DIRECT = "the input to its output projection is not its weights times its values"

Change = Callable[[Tensor], Tensor]
Refuse = Callable[[Site, str], None]
"""Receives a site whose weights cannot be read, and the reason."""


def find_weights(outputs: Any, num_heads: int | None) -> list[Tensor]:
    """Tensors among a module's outputs with the shape of weights, `[batch heads query key]`."""
    return [
        output
        for output in _tensors(outputs)
        if output.is_floating_point() and output.dim() == 4 and num_heads in (None, output.shape[1])
    ]


def find_folded_weights(outputs: Any, num_heads: int | None) -> list[Tensor]:
    """Tensors that may be weights with batch and heads in one axis, with these axes apart."""
    return [
        output.unflatten(0, (-1, num_heads))
        for output in _tensors(outputs)
        if output.is_floating_point() and output.dim() == 3 and num_heads
        if len(output) % num_heads == 0
    ]


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in a module's outputs: a tensor, a tuple, a dictionary or a record of these."""
    parts: Any = ()
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, tuple | list):
        parts = value
    elif is_dataclass(value):
        parts = (getattr(value, each.name) for each in fields(value))
    for part in parts:
        yield from _tensors(part)


def why_not_weights(weights: Float[Tensor, "batch heads query key"]) -> str:
    """The reason why these numbers are not attention weights; "" if they are.

    A row of zeros is one that sees no key.
    """
    wide = weights.detach().to(at_least_float32(weights))
    bound = _bound(weights)
    if not bool(wide.isfinite().all()):
        return "what it returns is not finite"
    if bool((wide < 0).any()):
        return "what it returns has negative numbers, so these are not weights"
    sums = wide.sum(-1)
    is_row = ((sums - 1).abs() <= bound) | (sums == 0)
    if not bool(is_row.all()) or not bool((sums > 0).any()):
        return "the rows that it returns do not sum to one over the keys, so these are not weights"
    return ""


def _bound(weights: Tensor) -> float:
    """Largest difference due to rounding in sums over the keys."""
    return ROUNDINGS * torch.finfo(weights.dtype).eps * math.sqrt(max(1, weights.shape[-1]))


@dataclass(eq=False)
class ReturnedWeights:
    """One module that returns its weights, with the hooks that read them."""

    site: Site
    each: Callable[[Call], None] | None = None
    change: Change | None = None
    refuse: Refuse | None = None
    """Called instead of raising ModelError if the module's weights cannot be read."""
    is_known: bool = True
    """Whether a row of facts says that the module returns its weights and where heads are mixed."""
    parts: dict[str, Tensor] = field(default_factory=dict, init=False)
    is_folded: bool = field(default=False, init=False)
    """Whether the module returns weights with batch and heads in one axis."""
    values: list[Tensor] = field(default_factory=list, init=False)
    """Outputs of the module's own projections, one of which may be the values."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Read and change the module's calls inside the block."""
        module, projection = self.site.module, self.site.output_projection
        with ExitStack() as hooks:
            add = hooks.enter_context
            if self.change is not None:
                add(self._output_projection.register_forward_pre_hook(self._change_input))
            if self.each is None and (self.is_known or module in PROVEN):
                yield
                return
            add(module.register_forward_pre_hook(self._begin, with_kwargs=True))
            add(module.register_forward_hook(self._end))
            if projection is not None:
                # Run before all other hooks, because they may change the heads' outputs.
                add(projection.register_forward_pre_hook(self._project, prepend=True))
            if not self.is_known:
                for name, part in module.named_modules():
                    if name and part is not projection and not list(part.children()):
                        add(part.register_forward_hook(self._keep_values))
            yield

    @property
    def _output_projection(self) -> nn.Module:
        if self.site.output_projection is None:
            raise ModelError(
                f"{self.site.description} cannot be watched: its output projection is unknown"
            )
        return self.site.output_projection

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.parts.clear()
        self.values.clear()
        signature = inspect.signature(module.forward)
        if REQUEST not in signature.parameters:
            return args, kwargs
        bound = signature.bind(*args, **kwargs)
        bound.arguments[REQUEST] = True
        return bound.args, bound.kwargs

    def _keep_values(self, _: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor) and self.site.module not in PROVEN:
            self.values.append(output.detach())

    def _end(self, module: nn.Module, _: Any, outputs: Any) -> None:
        found, reason = find_weights(outputs, self.site.num_heads), "it returned no weights"
        self.is_folded = not found and not self.is_known
        if self.is_folded:
            found = find_folded_weights(outputs, self.site.num_heads)
        if not self.is_known and not module.training:
            reasons = [why_not_weights(each) for each in found]
            found = [each for each, why in zip(found, reasons, strict=True) if not why]
            reason = next(iter(reasons), reason)
        if not found:
            self.parts.clear()
            self._refuse(reason)
            return
        weights = found[0]
        self.parts["weights"] = weights
        if self.site.output_projection is None:
            self.parts["mixed"] = weights.new_empty(*weights.shape[:3], 0)
        self._notify()

    def _project(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.parts["mixed"] = self._split_heads(inputs[0])
        self._notify()

    def _notify(self) -> None:
        if len(self.parts) < 2:
            return
        weights, mixed = self.parts.pop("weights"), self.parts.pop("mixed")
        is_direct = self.is_known or self._is_mixture(weights, mixed)
        if self.is_folded and not is_direct:  # rows of a batch, averaged over heads, look the same
            self._refuse("it returned no weights per head")
            return
        if self.change is not None and not is_direct:
            raise ModelError(f"{self.site.description} cannot be silenced: {NOT_DIRECT}")
        if self.each is not None:
            if mixed.shape[:3] != weights.shape[:3]:
                mixed = weights.new_empty(*weights.shape[:3], 0)
            call = WeightsCall(
                site=self.site, known_weights=weights, mixed=mixed, is_direct=is_direct
            )
            self.each(call)

    @torch.no_grad()
    def _is_mixture(self, weights: Tensor, mixed: Tensor) -> bool:
        """Whether `mixed` is the weights times the output of one of the module's projections."""
        module = self.site.module
        if module.training or module in PROVEN:
            return module in PROVEN
        values, self.values = self.values, []
        if mixed.shape[:3] == weights.shape[:3] and mixed.shape[-1]:
            wide = at_least_float32(mixed)
            scale = float(mixed.abs().max()) or 1.0
            for value in _as_values(values, mixed.shape[-1], weights):
                product = weights.to(wide) @ value.to(wide)
                if bool((product - mixed.to(wide)).abs().max() <= _bound(mixed) * scale):
                    PROVEN.add(module)
                    return True
        return False

    def _change_input(self, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs to the output projection, with the heads' outputs changed."""
        assert self.change is not None
        changed = self.change(self._split_heads(inputs[0]))
        return (changed.transpose(1, 2).reshape(inputs[0].shape), *inputs[1:])

    def _split_heads(
        self, concat: Float[Tensor, "batch query concat"]
    ) -> Float[Tensor, "batch heads query d_value"]:
        num_heads = self.site.num_heads
        if num_heads is None and "weights" in self.parts:
            num_heads = self.parts["weights"].shape[1]
        if num_heads == 0:  # all were cut
            return concat.new_empty(len(concat), 0, concat.shape[1:-1].numel(), 0)
        if num_heads is None or concat.dim() < 3 or concat.shape[-1] % num_heads:
            if self.is_known or self.change is not None:
                raise ModelError(
                    f"{self.site.description} cannot be watched: its number of heads is unknown"
                )
            return concat.new_empty(len(concat), 0, 0, 0)
        rows = concat.flatten(1, -2)
        heads: Tensor = rows.unflatten(-1, (num_heads, -1)).transpose(1, 2)
        return heads

    def _refuse(self, reason: str) -> None:
        if self.refuse is None or self.change is not None:
            raise ModelError(f"{self.site.description} cannot be watched: {reason}")
        self.refuse(self.site, reason)


def why_not_silenced(call: Call) -> str:
    """A sentence that says why the heads of a layer cannot be silenced; "" if they can."""
    reason = ""
    if isinstance(call, WeightsCall) and call.site.output_projection is None:
        reason = "its output projection is unknown"
    elif isinstance(call, WeightsCall) and not call.is_direct:
        reason = NOT_DIRECT
    return reason and f"{call.site.description} cannot be silenced: {reason}"


def _as_values(
    outputs: list[Tensor], d_value: int, weights: Float[Tensor, "batch heads query key"]
) -> Iterator[Float[Tensor, "batch heads key d_value"]]:
    """Every way to read values from the outputs of projections, alone or packed with others."""
    batch, heads, _, keys = weights.shape
    width = heads * d_value
    for output in outputs:
        if output.dim() == 4 and output.shape[-1] % width:  # a convolution over an image
            output = output.flatten(2).mT
        if output.numel() == 0 or output.shape[-1] % width or output.numel() % (batch * keys):
            continue
        rows = output.reshape(batch, -1, output.shape[-1])
        if rows.shape[1] != keys:
            continue
        count = output.shape[-1] // width
        blocks = rows.unflatten(-1, (count, heads, d_value)).movedim(2, 0)
        interleaved = rows.unflatten(-1, (heads, count, d_value)).movedim(3, 0)
        for value in (*blocks, *(interleaved if count > 1 else ())):
            yield value.transpose(1, 2)
