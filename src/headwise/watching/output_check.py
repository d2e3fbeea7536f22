"""Output check: does a watched model return what it returns unwatched, except for rounding?

In: a model inside a block that watches or changes it. Out: nothing, or a ModelError at the first
call whose outputs differ. Each kind of input (input_kinds.py) is checked once, and again when it is
clearly longer. The check leaves no trace in the model (side_pass.py).
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.attention.prepare import can_be_read
from headwise.errors import HeadwiseError, ModelError, warn_user
from headwise.models.load_errors import one_sentence
from headwise.watching.equivalence import (
    HALF_DTYPES,
    Difference,
    differences,
    fits_in_memory,
    in_dtype,
)
from headwise.watching.input_kinds import (
    InputKind,
    bind_arguments,
    compares_names,
    config_numbers,
    input_sizes,
    kind_of,
    num_positions,
)
from headwise.watching.routing import (
    IMPLEMENTATION,
    Routed,
    WithWeights,
    config_of,
    native_name,
    use_implementation,
)
from headwise.watching.side_pass import SidePass
from headwise.watching.sites import Site

LONGER = 2
"""Inputs this many times as long as those checked are checked again."""
ROWS = 2
"""Number of sequences to check: the longest and the shortest."""
LARGEST_EAGER = 1 << 30
"""Maximum size, in bytes, of a layer's eager attention weights in a check."""
TEXT_INPUTS = {
    *("input_ids", "attention_mask", "token_type_ids", "position_ids"),
    *("decoder_input_ids", "decoder_attention_mask"),
}

_skips = 0


@contextmanager
def skip_check() -> Iterator[None]:
    """Do not compare watched with unwatched outputs inside the block, in any thread.

    with headwise.skip_check(), headwise.watch(model) as watched:
        model(**inputs)
    """
    global _skips
    _skips += 1
    try:
        yield
    finally:
        _skips -= 1


@dataclass(eq=False)
class Passed:
    """Inputs on which a model has passed the check."""

    state: int
    """Hash of the weights' shapes and the configs at that time."""
    numbers: frozenset[int]
    checks_every_length: bool
    sizes: dict[InputKind, dict[str, int]] = field(default_factory=dict)

    def covers(self, kind: InputKind, sizes: Mapping[str, int]) -> bool:
        """Whether inputs of this kind and about this size have passed."""
        checked = self.sizes.get(kind)
        if checked is None:
            return False
        before, now = checked[""], sizes[""]
        if now > before and self.checks_every_length:
            return False
        if any(before <= number < now for number in self.numbers):
            return False
        return all(size <= max(1, LONGER * checked[name] - 1) for name, size in sizes.items())

    def add(self, kind: InputKind, sizes: Mapping[str, int]) -> None:
        """Record that inputs of this kind and size have passed."""
        before = self.sizes.get(kind, sizes)
        self.sizes[kind] = {name: max(size, before[name]) for name, size in sizes.items()}


PASSED: WeakKeyDictionary[nn.Module, Passed] = WeakKeyDictionary()


@contextmanager
def check_outputs(model: nn.Module, sites: tuple[Site, ...]) -> Iterator[None]:
    """Check the model's outputs inside the block at the first call with each kind of input.

    Parts of the model that can be called alone, such as an encoder, are checked if they are.
    """
    guard = OutputGuard(model, sites)
    with ExitStack() as hooks:
        for module in model.modules() if guard.is_needed else ():
            if module is model or isinstance(module, PreTrainedModel):
                begin = module.register_forward_pre_hook(guard.begin, with_kwargs=True)
                end = module.register_forward_hook(guard.end, always_call=True)
                hooks.callback(begin.remove)
                hooks.callback(end.remove)
        yield


@dataclass(eq=False)
class OutputGuard:
    """Checks the calls of one model inside a block."""

    model: nn.Module
    sites: tuple[Site, ...]
    depth: int = 0
    """Number of calls that are running, one inside the other."""
    reason: str = ""
    """Reason that prevented the check of the running call; "" if nothing did."""
    is_copy: bool = False
    """Whether this came along with a copy of the model, which is not watched."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Make copies of the model, in memory or in a file, that are not checked."""
        return OutputGuard, (nn.Module(), (), 0, "", True)

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Check a call before it runs, unless it is part of another call."""
        self.depth += 1
        if self.depth > 1 or _skips or self.is_copy or torch._C._get_tracing_state() is not None:
            return
        self.reason = ""
        arguments = bind_arguments(module, args, kwargs)
        if not all(can_be_read(part) for part in arguments.values() if isinstance(part, Tensor)):
            return
        kind, sizes = kind_of(module, arguments), input_sizes(arguments)
        if not self.passed.covers(kind, sizes):
            inside = self._last_layers if arguments.get("logits_to_keep") is not None else {}
            call = self._shorten(SidePass(self.model, module, args, kwargs, inside))
            if call is not None and self._passes(call):
                self.passed.add(kind, sizes)

    def end(self, module: nn.Module, _: Any, result: Any) -> None:
        """Say why a call that ran was not checked."""
        self.depth -= 1
        if self.depth == 0 and self.reason and result is not None:
            warn_user(
                f"{type(module).__name__} was not compared with its unwatched self on this input: "
                f"{self.reason}"
            )

    @cached_property
    def is_needed(self) -> bool:
        """Whether the block changes how the model computes anything."""
        return any(str(name) != name.native for name in self._names)

    @cached_property
    def _names(self) -> list[Routed]:
        """Names that the block has put into the model's configs."""
        configs = {id(config): config for config in map(config_of, self.model.modules()) if config}
        names = [getattr(config, IMPLEMENTATION) for config in configs.values()]
        return [name for name in names if isinstance(name, Routed)]

    @cached_property
    def passed(self) -> Passed:
        """The model's record, or a new one if the shapes of its weights or its configs changed."""
        state, passed = _state_of(self.model), PASSED.get(self.model)
        if passed is None or passed.state != state:
            passed = Passed(state, config_numbers(self.model), compares_names(self.model))
            PASSED[self.model] = passed
        return passed

    @cached_property
    def _last_layers(self) -> dict[str, nn.Module]:
        """The last attention layer of every stack, compared if the model returns only some rows.

        Otherwise rows that do not matter, such as padding that no mask tells, would count.
        """
        last = {site.stack: site for site in self.sites}
        return {f"the output of {site.layer_name}": site.module for site in last.values()}

    def _shorten(self, call: SidePass) -> SidePass | None:
        """The call on fewer sequences and, if eager weights would not fit, on fewer positions.

        None, with a reason, if the weights would not fit and the inputs are not only text.
        """
        arguments = call.arguments
        length = most = num_positions(arguments)
        if any(name.native == "eager" for name in self._names):
            heads = max(site.num_heads or 1 for site in self.sites)
            most = math.isqrt(LARGEST_EAGER // (4 * ROWS * heads))
        ids: Any = arguments.get("input_ids")
        is_text = isinstance(ids, Tensor) and all(
            name in TEXT_INPUTS and part.dim() == 2 and len(part) == len(ids)
            for name, part in arguments.items()
            if isinstance(part, Tensor)
        )
        if not is_text or kind_of(call.module, arguments).cache:
            if length > most:
                self.reason = "its eager attention weights would take too much memory"
                return None
            return call
        mask: Any = arguments.get("attention_mask")
        mask = torch.ones_like(ids) if mask is None else mask
        rows = mask.sum(-1).argsort()[[0, -1][: min(ROWS, len(ids))]]
        columns = slice(-most, None) if bool((mask[:, 0] == 0).any()) else slice(most)
        return call.part(lambda tensor: tensor[rows][:, columns])

    def _passes(self, call: SidePass) -> bool:
        """Whether the watched outputs equal the unwatched ones; False if these cannot be computed.

        Raises ModelError if they differ. Half precision would hide differences, and single
        precision may exaggerate them, as when a router chooses another expert: such outputs are
        compared in a wider dtype.
        """
        is_half = any(part.dtype in HALF_DTYPES for part in self.model.parameters())
        difference = None
        for dtype in (torch.float32, torch.float64, None) if is_half else (None, torch.float64):
            if dtype is not None and not fits_in_memory(self.model, dtype):
                continue
            if dtype is None and difference is not None:  # half precision shows no more
                break
            try:
                worst = self._difference(call, dtype)
            except UnwatchedError as err:  # some models compute only in their own dtype
                self.reason = str(err)
                continue
            if worst is None:
                self.reason = ""
                return True
            difference = worst
        if difference is None:
            return False
        self.reason = ""
        raise ModelError(self._explain(call, difference))

    def _difference(self, call: SidePass, dtype: torch.dtype | None) -> Difference | None:
        """The worst difference that rounding does not explain; None if there is none."""
        with nullcontext() if dtype is None else in_dtype(self.model, dtype):
            expected, actual = self._unwatched(call, dtype), self._watched(call, dtype)
            return _worst(call.module, actual, expected)

    def _unwatched(
        self, call: SidePass, dtype: torch.dtype | None, name: str | None = None
    ) -> dict[str, Tensor]:
        """Outputs with the model's own attention, or with the implementation of that name."""
        try:
            with use_implementation(self.model, name):
                return call.outputs(dtype)
        except Exception as err:
            raise UnwatchedError(f"unwatched, it stops with: {one_sentence(err)}") from err

    def _watched(self, call: SidePass, dtype: torch.dtype | None) -> dict[str, Tensor]:
        try:
            return call.outputs(dtype)
        except (MemoryError, torch.OutOfMemoryError) as err:
            raise UnwatchedError("there is not enough memory") from err
        except HeadwiseError:
            raise
        except Exception as err:
            raise ModelError(
                f"{type(call.module).__name__} cannot be watched on this input: it stops with "
                f"{type(err).__name__} ({one_sentence(err)}), but not if it is not watched; use "
                "other inputs, and report this to headwise"
            ) from err

    def _explain(self, call: SidePass, difference: Difference) -> str:
        """A sentence with the difference, its cause and advice."""
        words = (
            f"{type(call.module).__name__} cannot be watched on this input: {difference.name} "
            f"changes by {difference.gap:.3g}, but rounding explains only {difference.bound:.3g}"
        )
        own = next((name.native for name in self._names if not isinstance(name, WithWeights)), None)
        other = "eager" if own == "sdpa" else "sdpa"
        with suppress(UnwatchedError):
            expected, theirs = self._unwatched(call, None), self._unwatched(call, None, other)
            gap = _worst(call.module, theirs, expected)
            if gap is not None and _worst(call.module, self._watched(call, None), theirs) is None:
                return (
                    f"{words}; the cause is in transformers, whose {own} and {other} attention "
                    f"differ by {gap.gap:.3g} here, and headwise computes the latter: load the "
                    f"model with attn_implementation={other!r}"
                )
        return (
            f"{words}; headwise computes this model's attention wrongly: report it, and use other "
            "inputs, or skip_check() (on the command line, headwise --skip-check) if you know that "
            "the difference does not matter"
        )


class UnwatchedError(Exception):
    """The unwatched outputs cannot be computed; not an error of the user's."""


def _worst(
    model: nn.Module, actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> Difference | None:
    """The difference that exceeds what rounding explains by the largest factor, if any does."""
    found = [each for each in differences(model, actual, expected) if not each.is_rounding]
    return max(found, key=lambda each: each.gap / max(each.bound, 1e-30), default=None)


def _state_of(model: nn.Module) -> int:
    """Hash of the shapes and dtypes of a model's weights, and of its configs."""
    configs = {id(config): config for config in map(config_of, model.modules()) if config}
    facts = [
        (native_name(config), repr([each for each in vars(config).items() if _is_plain(*each)]))
        for config in configs.values()
    ]
    return hash((*((part.shape, part.dtype) for part in model.parameters()), *facts))


def _is_plain(name: str, value: Any) -> bool:
    return name != IMPLEMENTATION and not hasattr(value, IMPLEMENTATION)
