"""Multi-head attention you can run, read and reshape.

The public names, each loaded from its module on first use, so that `import headwise` costs
nothing: neither torch nor any other large package is imported before a name needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise import nn
    from headwise.attention.cache import FixedCache, GrowingCache, RollingCache
    from headwise.attention.core import attend, attend_with_lse, explain_path
    from headwise.attention.layer import MultiHeadAttention
    from headwise.attention.parallel import tensor_parallel_plan
    from headwise.attention.positions import Alibi, RelativeBias, Rotary, RotaryScaling
    from headwise.attention.rules import Rules
    from headwise.errors import HeadwiseError

    __version__: str

__all__ = [
    "Alibi",
    "FixedCache",
    "GrowingCache",
    "HeadwiseError",
    "MultiHeadAttention",
    "RelativeBias",
    "RollingCache",
    "Rotary",
    "RotaryScaling",
    "Rules",
    "__version__",
    "attend",
    "attend_with_lse",
    "explain_path",
    "nn",
    "tensor_parallel_plan",
]

_HOME = {
    "Alibi": "headwise.attention.positions",
    "FixedCache": "headwise.attention.cache",
    "GrowingCache": "headwise.attention.cache",
    "HeadwiseError": "headwise.errors",
    "MultiHeadAttention": "headwise.attention.layer",
    "RelativeBias": "headwise.attention.positions",
    "RollingCache": "headwise.attention.cache",
    "Rotary": "headwise.attention.positions",
    "RotaryScaling": "headwise.attention.positions",
    "Rules": "headwise.attention.rules",
    "attend": "headwise.attention.core",
    "attend_with_lse": "headwise.attention.core",
    "explain_path": "headwise.attention.core",
    "tensor_parallel_plan": "headwise.attention.parallel",
}


def __getattr__(name: str) -> Any:
    """The public name, imported from its module on first use and kept from then on."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("headwise")
    elif name == "nn":
        value = import_module("headwise.nn")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'headwise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
