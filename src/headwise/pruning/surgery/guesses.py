"""Guesses: attributes and settings that may depend on the number of heads, likely ones first.

In: a copy of an attention layer, and the numbers of each head. Out: for each guess, how attributes
of the module and settings of its config change with the heads; `trials.py` tries them.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from headwise.models.families import NUM_GROUPS, NUM_HEADS, NUM_KV_HEADS, WIDTHS
from headwise.pruning.surgery.attention_layers import Size, module_sizes
from headwise.watching.attention_copy import AttentionCopy
from headwise.watching.discovery import HeadMap, OwnedAxis
from headwise.watching.module_paths import join_path

MOST_GUESSES = 6
"""Number of attributes that are tried in all combinations."""
NOT_A_COUNT = re.compile(r"dim|size|width|idx|index|layer|per_head|block")
"""Parts of names of attributes that contain "head" but do not count heads."""

Sizes = dict[str, Size | tuple[Size, ...]]


def guess_settings(layer: AttentionCopy, heads: HeadMap) -> Iterator[tuple[Sizes, dict[str, Size]]]:
    """Attributes and settings to change, the most likely ones first."""
    certain, possible = _attributes(layer, heads)
    configs = _config_counts(layer.module, heads)
    possible = possible[:MOST_GUESSES]
    for count in range(len(possible) + 1):
        for more in itertools.combinations(possible, count):
            attributes: Sizes = certain | dict(more)
            if len(dict(more)) < count:
                continue
            yield attributes, {}
            if configs:
                yield attributes, configs


def _attributes(
    layer: AttentionCopy, heads: HeadMap
) -> tuple[Sizes, list[tuple[str, Size | tuple[Size, ...]]]]:
    """Counts that the module's names tell, and other attributes that may depend on the heads."""
    certain: Sizes = {}
    possible: list[tuple[str, Size | tuple[Size, ...]]] = []
    sizes = _possible_sizes(heads)
    for path, name, value in _numbers(layer, heads):
        full = join_path(path, name)
        if path == layer.path and isinstance(value, int):
            by_name = _size_by_name(name, value, heads)
            if by_name is not None:
                certain[full] = by_name
                continue
        if isinstance(value, int):
            possible += [(full, size) for size in sizes if size.of(*_counts(heads)) == value][:2]
            continue
        entries = tuple(_size_of_entry(entry, sizes, heads) for entry in value)
        if any(entry.rest != number for entry, number in zip(entries, value, strict=True)):
            possible.append((full, entries))
    return certain, possible


def _size_of_entry(entry: int, sizes: list[Size], heads: HeadMap) -> Size:
    """The size of a part of a packed projection, in a list of such sizes."""
    fitting = [size for size in sizes if size.of(*_counts(heads)) == entry]
    if not fitting and heads.num_heads == heads.num_kv_heads and entry % heads.num_heads == 0:
        return Size(per_head=entry // heads.num_heads)
    return fitting[0] if fitting else Size(rest=entry)


def _counts(heads: HeadMap) -> tuple[int, int]:
    return heads.num_heads, heads.num_kv_heads


def _numbers(layer: AttentionCopy, heads: HeadMap) -> Iterator[tuple[str, str, Any]]:
    """Whole numbers, and lists of them, that are attributes of the module or of its parts."""
    paths = {layer.path, *(axis.path.rpartition(".")[0] for axis in heads.axes)}
    for path in sorted(paths, key=lambda path: path != layer.path):
        module = layer.unit.get_submodule(path)
        for name, value in vars(module).items():
            if name.startswith("_") or name == "training" or name in module_sizes(module):
                continue
            is_list = isinstance(value, list | tuple) and value
            entries = value if is_list else [value]
            if all(type(entry) is int and entry > 0 for entry in entries):
                yield path, name, value


def _size_by_name(name: str, value: int, heads: HeadMap) -> Size | None:
    """The size that a name such as `num_heads` tells; None for any other name."""
    num_heads, num_kv_heads = _counts(heads)
    if name in NUM_GROUPS or ("head" in name and "group" in name):
        return Size(per_group=1) if value == num_heads // num_kv_heads else None
    if name in WIDTHS:
        return Size(per_head=value // num_heads) if value % num_heads == 0 else None
    is_count = "head" in name and not NOT_A_COUNT.search(name)
    if name in NUM_KV_HEADS or (is_count and ("kv" in name or "key" in name)):
        return Size(per_kv_head=1) if value == num_kv_heads else None
    if name in NUM_HEADS or is_count:
        return Size(per_head=1) if value == num_heads else None
    return None


def _possible_sizes(heads: HeadMap) -> list[Size]:
    """Sizes that attributes may store: widths of projections, of queries and of keys, counts."""
    sizes: list[Size] = []
    for axis in reversed(heads.axes):  # the width of the concatenated heads first
        size = _size_of_axis(axis, heads)
        if size is not None:
            sizes += [size, Size(per_head=size.per_head), Size(per_kv_head=size.per_kv_head)]
            sizes.append(Size(per_kv_head=size.per_kv_head // 2))  # keys or values of a packed one
    sizes += [Size(per_head=1), Size(per_kv_head=1), Size(per_group=1)]
    is_grouped = heads.num_kv_heads < heads.num_heads
    sizes = [size for size in sizes if is_grouped or not size.per_group]
    return [size for size in dict.fromkeys(sizes) if any(size[:3])]


def _size_of_axis(axis: OwnedAxis, heads: HeadMap) -> Size | None:
    """The length of an axis as a function of the counts."""
    single = sum(len(owners) == 1 for owners in axis.owners)
    shared = sum(len(owners) > 1 for owners in axis.owners)
    per_head, left = divmod(single, heads.num_heads)
    per_kv_head, left_kv = divmod(shared, heads.num_kv_heads)
    if left or left_kv:
        return None
    return Size(per_head, per_kv_head, 0, len(axis.owners) - single - shared)


def _config_counts(module: nn.Module, heads: HeadMap) -> dict[str, Size]:
    """Numbers of heads in the module's config."""
    config: Any = getattr(module, "config", None)
    values = {} if config is None else vars(config)
    if hasattr(config, "shared"):
        values = {**vars(config.shared), **values}
    counts = {
        name: _size_by_name(name, value, heads)
        for name, value in values.items()
        if type(value) is int and "head" in name
    }
    known = {name: size for name, size in counts.items() if size is not None}
    other_names = getattr(getattr(config, "shared", config), "attribute_map", {})
    return known | {name: known[of] for name, of in other_names.items() if of in known}
