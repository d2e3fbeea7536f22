"""Discovery: finds by experiment which numbers of an attention layer belong to which head.

In: an `AttentionCopy`. Out: a `HeadMap`, or an `Inseparable` error with the reason why heads cannot
be told apart. Two experiments: change one head's output, and see which inputs of the output
projection change; then differentiate these inputs by every parameter, and see which numbers each
head depends on. Neither names nor layouts matter.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.watching.attention_copy import AttentionCopy, CopyRun
from headwise.watching.module_paths import is_inside, join_path
from headwise.watching.sites import is_linear, output_axis

ARGUMENT = "argument "
"""Prefix that tells an argument's name from the path of a parameter."""
Owners = tuple[frozenset[int], ...]
"""For each index along an axis, the heads that depend on the numbers there."""


class Inseparable(ModelError):
    """Heads that cannot be cut; the message is the reason."""


class TooShort(Inseparable):
    """Heads that cannot be told apart on these inputs, but perhaps on longer ones."""


@dataclass(frozen=True)
class OwnedAxis:
    """An axis of a parameter, or of an argument, whose indices belong to heads."""

    path: str
    """Path of the parameter in the unit, or name of the argument."""
    axis: int
    owners: Owners

    def kept(self, heads: Iterable[int]) -> list[int]:
        """Indices that remain if only `heads` do; those of no head remain if any head does."""
        remaining = set(heads)
        return [
            index
            for index, owners in enumerate(self.owners)
            if (owners & remaining if owners else remaining)
        ]

    def restricted(self, heads: tuple[int, ...]) -> "OwnedAxis":
        """The axis after the cut, with the remaining heads renumbered."""
        number = {head: place for place, head in enumerate(heads)}
        owners = tuple(
            frozenset(number[head] for head in self.owners[index] if head in number)
            for index in self.kept(heads)
        )
        return OwnedAxis(self.path, self.axis, owners)


@dataclass(frozen=True)
class HeadMap:
    """The numbers that belong to each head of a layer."""

    num_heads: int
    num_kv_heads: int
    axes: tuple[OwnedAxis, ...]
    """Axes of parameters, by their path in the unit; the output projection's is the last."""
    arguments: tuple[OwnedAxis, ...] = ()
    """Axes of the module's arguments, such as a bias on the scores."""
    shared: frozenset[str] = frozenset()
    """Parameters that all heads depend on, by their path in the unit."""


def locate_heads(unit: AttentionCopy, *, untouched: tuple[str, ...] = ()) -> HeadMap:
    """Which numbers belong to which head. Raises Inseparable if heads share their numbers."""
    run = unit.run()
    if run.read.shape[:-1].numel() < 2 or run.read.shape[-2] == 1:
        raise TooShort("queries and keys have no effect on a single position: pass longer inputs=")
    columns = _columns_by_head(unit, run)
    tensors = dict(_parameters(unit.unit, untouched)) | {
        f"{ARGUMENT}{name}": value for name, value in run.arguments.items() if value.requires_grad
    }
    used = _dependences(run.read, columns, tensors)
    num_heads = len(columns)
    divided = [
        OwnedAxis(name, axis, owners)
        for name, by_axis in used.items()
        for axis, owners in enumerate(by_axis)
        if _is_divided(owners, num_heads)
    ]
    arguments = tuple(
        replace(axis, path=axis.path.removeprefix(ARGUMENT))
        for axis in divided
        if axis.path.startswith(ARGUMENT)
    )
    axes = [axis for axis in divided if not axis.path.startswith(ARGUMENT)]
    _check_whole_parameters(used, num_heads, axes)
    axes = _with_biases(unit.unit, axes)
    num_kv_heads = _count_kv_heads(unit, run, axes, num_heads)
    if num_kv_heads == 1:  # the rows of a single KV head belong to all heads
        axes = _with_biases(unit.unit, axes + _rows_of_all(unit, used, num_heads))
    input_axis = 1 - output_axis(unit.projection)
    output = OwnedAxis(join_path(unit.output, "weight"), input_axis, _owners(columns))
    inside = [axis for axis in axes if axis.path != output.path]
    every = frozenset(range(num_heads))
    shared = frozenset(
        name
        for name, by_axis in used.items()
        if {heads for owners in by_axis for heads in owners if heads} == {every}
    )
    return HeadMap(num_heads, num_kv_heads, (*inside, output), arguments, shared)


@torch.no_grad()
def _columns_by_head(unit: AttentionCopy, run: CopyRun) -> Tensor:
    """True where a head's output changes an input of the output projection: `[heads, inputs]`."""
    width = run.read.shape[-1]
    if run.mixed is None:
        num_heads = unit.num_heads
        if width % num_heads:
            raise Inseparable(f"{width} inputs of its output projection do not divide by heads")
        block = torch.arange(width, device=run.read.device) // (width // num_heads)
        numbers = torch.arange(num_heads, device=run.read.device)
        return torch.eq(block, numbers[:, None])
    rows, plain = [], unit.run().read  # without gradients, attention may round in another way
    for head in range(run.mixed.shape[1]):

        def shifted(mixed: Tensor, head: int = head) -> Tensor:
            changed = mixed.clone()
            changed[:, head] += 1 + changed[:, head].abs()
            return changed

        changed = unit.run(shifted).read != plain
        rows.append(changed.flatten(0, -2).any(0))
    columns = torch.stack(rows)
    if not columns.any(1).all():
        raise Inseparable("its output projection does not read the output of every head")
    if (columns.sum(0) > 1).any():
        if any("lambda" in name for name, _ in unit.module.named_parameters()):
            raise Inseparable("its heads are pairs whose weights are subtracted from each other")
        norm = _norm_before_projection(unit, plain)
        reason = f"the norm {norm} before its output projection spans all heads"
        if not norm:
            reason = "its output projection reads mixtures of its heads"
        raise Inseparable(f"{reason}, so each head depends on all others")
    return columns


def _norm_before_projection(unit: AttentionCopy, read: Tensor) -> str:
    """The norm whose output the projection reads; "" if there is none."""
    outputs: dict[str, Tensor] = {}

    def keep(path: str, _: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            outputs[path] = output

    with ExitStack() as stack:
        for path, module in unit.unit.named_modules():
            if "norm" in type(module).__name__.lower():
                stack.enter_context(module.register_forward_hook(partial(keep, path)))
        unit.run()
    return next((path for path, output in outputs.items() if _has_numbers_of(output, read)), "")


def _has_numbers_of(output: Tensor, read: Tensor) -> bool:
    return output.numel() == read.numel() and torch.equal(output.flatten(), read.flatten())


def _parameters(unit: nn.Module, untouched: tuple[str, ...]) -> Iterable[tuple[str, Tensor]]:
    for name, parameter in unit.named_parameters():
        if parameter.is_floating_point() and not any(part in name.split(".") for part in untouched):
            yield name, parameter


def _dependences(
    read: Tensor, columns: Tensor, tensors: Mapping[str, Tensor]
) -> dict[str, list[Owners]]:
    """For each tensor and each of its axes, the owners of the indices."""
    random = torch.Generator().manual_seed(7)
    factors = torch.randn(read.shape, generator=random).to(read)
    used: dict[str, list[list[Tensor]]] = {
        name: [[] for _ in range(tensor.dim())] for name, tensor in tensors.items()
    }
    for mine in columns:
        total = (factors * read)[..., mine].sum()
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            total, list(tensors.values()), retain_graph=True, allow_unused=True
        )
        for name, gradient in zip(tensors, gradients, strict=True):
            for axis, rows in enumerate(used[name]):
                size = tensors[name].shape[axis]
                if gradient is None:
                    rows.append(torch.zeros(size, dtype=torch.bool, device=read.device))
                else:
                    rows.append((gradient != 0).movedim(axis, 0).reshape(size, -1).any(1))
    return {
        name: [_owners(torch.stack(rows)) for rows in by_axis] for name, by_axis in used.items()
    }


def _owners(used: Tensor) -> Owners:
    """The heads in each column of `[heads, indices]`."""
    columns = used.T.tolist()
    return tuple(
        frozenset(head for head, is_used in enumerate(column) if is_used) for column in columns
    )


def _is_divided(owners: Owners, num_heads: int) -> bool:
    """Whether heads, or equal groups of heads, own different indices.

    Numbers that are zero by chance, such as weights after the softmax, leave owners that are not.
    """
    distinct = {heads for heads in owners if heads}
    parts = {heads for heads in distinct if len(heads) < num_heads}
    single = [heads for heads in owners if len(heads) == 1]
    is_equal = len(single) == num_heads * (len(single) // num_heads)
    return (
        bool(parts)
        and len(distinct) > 1
        and len({len(heads) for heads in parts if len(heads) > 1}) <= 1
        and is_equal
        and len(set(single)) in (0, num_heads)
    )


def _check_whole_parameters(
    used: Mapping[str, list[Owners]], num_heads: int, axes: list[OwnedAxis]
) -> None:
    divided = {axis.path for axis in axes}
    for name, by_axis in used.items():
        is_known = name in divided or name.endswith("bias") or name.startswith(ARGUMENT)
        if is_known or num_heads == 1:
            continue
        distinct = {heads for owners in by_axis for heads in owners if heads}
        if distinct and all(len(heads) < num_heads for heads in distinct):
            if any(len(heads) > 1 for heads in distinct):
                raise Inseparable(f"only some of its heads depend on {name}")
            kind = "norm module" if "norm" in name else "module"
            raise Inseparable(f"each of its heads has its own {kind}, such as {name}")


def _count_kv_heads(
    unit: AttentionCopy, run: CopyRun, axes: list[OwnedAxis], num_heads: int
) -> int:
    """Number of groups of heads that share keys and values."""
    shared = {heads for axis in axes for heads in axis.owners if 1 < len(heads) < num_heads}
    if shared:
        group = max(map(len, shared))
        if num_heads % group:
            raise Inseparable(f"groups of {group} of its {num_heads} heads share parameters")
        blocks = {frozenset(range(start, start + group)) for start in range(0, num_heads, group)}
        if not shared <= blocks:
            raise Inseparable("the heads that share parameters are not next to each other")
        return num_heads // group
    if run.num_kv_heads is not None and 1 < run.num_kv_heads < num_heads:
        raise Inseparable("its keys and values are computed by another layer")
    names = ("num_key_value_heads", "num_kv_heads")
    stated = [getattr(unit.module, name, None) for name in names]
    is_single = run.num_kv_heads == 1 or 1 in stated
    return 1 if is_single else num_heads


def _rows_of_all(
    unit: AttentionCopy, used: Mapping[str, list[Owners]], num_heads: int
) -> list[OwnedAxis]:
    every = frozenset(range(num_heads))
    rows = []
    for path, module in unit.module.named_modules():
        name = join_path(unit.path, path, "weight")
        axis = output_axis(module)
        if is_linear(module) and name in used and set(used[name][axis]) == {every}:
            rows.append(OwnedAxis(name, axis, used[name][axis]))
    return rows


def _with_biases(unit: nn.Module, axes: list[OwnedAxis]) -> list[OwnedAxis]:
    """The axes, in which every bias has the owners of its weight's outputs.

    The bias of the keys has no effect on the softmax, so its owners cannot be seen.
    """
    weights, result = {}, []
    for axis in axes:
        owner, _, name = axis.path.rpartition(".")
        module: Any = unit.get_submodule(owner)
        if name == "bias" and isinstance(getattr(module, "weight", None), Tensor):
            continue
        result.append(axis)
        if name == "weight" and axis.axis == output_axis(module):
            weights[owner] = axis.owners
    for owner, owners in weights.items():
        bias = getattr(unit.get_submodule(owner), "bias", None)
        if isinstance(bias, Tensor) and len(bias) == len(owners):
            result.append(OwnedAxis(join_path(owner, "bias"), 0, owners))
    return result


@torch.no_grad()
def find_reader(unit: AttentionCopy) -> str | None:
    """Path of the first linear layer in the unit that reads the heads' outputs; None if none."""
    plain = _linear_inputs(unit, None)
    changed = _linear_inputs(unit, lambda mixed: mixed + 1 + mixed.abs())
    mixed = unit.run(needs_projection=False).mixed
    concat = None if mixed is None else mixed.transpose(1, 2)
    for path, value in plain.items():
        other = changed.get(path)
        if not is_inside(path, unit.path) and (
            concat is None or not _has_numbers_of(value, concat)
        ):
            continue
        if other is not None and (value.shape != other.shape or not torch.equal(value, other)):
            return path
    return None


def _linear_inputs(unit: AttentionCopy, change: Any) -> dict[str, Tensor]:
    """The first input of every linear layer in the unit, in the order of their calls."""
    seen: dict[str, Tensor] = {}

    def keep(path: str, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if path not in seen and inputs and isinstance(inputs[0], Tensor):
            seen[path] = inputs[0].clone()

    with ExitStack() as stack:
        for path, module in unit.unit.named_modules():
            if is_linear(module):
                stack.enter_context(module.register_forward_pre_hook(partial(keep, path)))
        unit.run(change, needs_projection=False)
    return seen


def quantised_part(module: nn.Module) -> str:
    """The reason if a part of the module has a weight of whole numbers."""
    for name, part in module.named_children():
        tensors = [*part.parameters(), *part.buffers()]
        if any(tensor.dim() > 1 and not tensor.is_floating_point() for tensor in tensors):
            return f"{name} is a {type(part).__name__}, which is not a plain linear layer"
    return ""
