"""Sizes that inputs have in common, and how to find a size in a config."""

from typing import Any

Inputs = dict[str, Any]
BATCH, LENGTH = 2, 13
SPECIAL = 5
"""The first token id that is not special."""


def part(config: Any, *names: str) -> Any:
    """The first of these sub-configs that the config has, or the config."""
    for name in names:
        if (found := getattr(config, name, None)) is not None and not isinstance(found, int):
            return found
    return config


def size_of(config: Any, default: Any, *names: str) -> Any:
    """The first of these sizes that the config has."""
    for name in names:
        if (found := getattr(config, name, None)) is not None:
            return found
    return default
