"""Candidates: modules whose code looks like attention that can return its weights.

In: a module. Out: whether to read what it returns; returned_weights.py checks the numbers.
"""

import inspect
from types import FunctionType

from torch import nn

REQUEST = "output_attentions"
"""The argument of a module's forward that makes it return its weights."""


def may_return_weights(module: nn.Module) -> bool:
    """Whether a module's code looks like attention that can return its weights."""
    kind = type(module)
    is_torch = kind.__module__.startswith("torch.")  # its MultiheadAttention may skip its modules
    if is_torch or "attention" not in kind.__name__.lower():
        return False
    if REQUEST in inspect.signature(module.forward).parameters:
        return True
    methods = (each for each in vars(kind).values() if isinstance(each, FunctionType))
    names = (name.lower() for method in methods for name in method.__code__.co_names)
    return any("softmax" in name for name in names)
