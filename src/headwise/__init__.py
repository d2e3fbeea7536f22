"""Multi-head attention you can run, read and reshape.

The public names, each loaded from its module on first use, so that `import headwise` costs
nothing: neither torch nor any other large package is imported before a name needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise import nn
    from headwise.attention.attend import attend, attend_with_lse, explain_path
    from headwise.attention.cache import FixedCache, GrowingCache, RollingCache
    from headwise.attention.layer import MultiHeadAttention
    from headwise.attention.parallel import tensor_parallel_plan
    from headwise.attention.positions import Alibi, RelativeBias, Rotary, RotaryScaling
    from headwise.attention.rules import Rules
    from headwise.errors import HeadwiseError
    from headwise.explorer.serve import explore
    from headwise.explorer.widget import view
    from headwise.heads import HeadId, HeadTable
    from headwise.models.loading import LoadOptions, load, load_model
    from headwise.planning.plans import Plan, plan
    from headwise.planning.shapes import Shape
    from headwise.pruning.importance.importance import importance
    from headwise.pruning.prune import prune
    from headwise.pruning.selection.cut_plan import CutPlan
    from headwise.pruning.settings import PruneSettings
    from headwise.pruning.surgery.cut import cut
    from headwise.scans.scan import ScanSettings, scan
    from headwise.sweeps.results import Sweep
    from headwise.sweeps.settings import SweepSettings
    from headwise.sweeps.sweep import sweep
    from headwise.tracing.record import Trace
    from headwise.tracing.trace import trace
    from headwise.watching.calls import AttentionCall
    from headwise.watching.gates import gate, mean_outputs, silence
    from headwise.watching.watch import watch

    __version__: str

__all__ = [
    "Alibi",
    "AttentionCall",
    "CutPlan",
    "FixedCache",
    "GrowingCache",
    "HeadId",
    "HeadTable",
    "HeadwiseError",
    "LoadOptions",
    "MultiHeadAttention",
    "Plan",
    "PruneSettings",
    "RelativeBias",
    "RollingCache",
    "Rotary",
    "RotaryScaling",
    "Rules",
    "ScanSettings",
    "Shape",
    "Sweep",
    "SweepSettings",
    "Trace",
    "__version__",
    "attend",
    "attend_with_lse",
    "cut",
    "explain_path",
    "explore",
    "gate",
    "importance",
    "load",
    "load_model",
    "mean_outputs",
    "nn",
    "plan",
    "prune",
    "scan",
    "silence",
    "sweep",
    "tensor_parallel_plan",
    "trace",
    "view",
    "watch",
]

_HOME = {
    "Alibi": "headwise.attention.positions",
    "AttentionCall": "headwise.watching.calls",
    "CutPlan": "headwise.pruning.selection.cut_plan",
    "FixedCache": "headwise.attention.cache",
    "GrowingCache": "headwise.attention.cache",
    "HeadId": "headwise.heads",
    "HeadTable": "headwise.heads",
    "HeadwiseError": "headwise.errors",
    "LoadOptions": "headwise.models.loading",
    "MultiHeadAttention": "headwise.attention.layer",
    "Plan": "headwise.planning.plans",
    "PruneSettings": "headwise.pruning.settings",
    "RelativeBias": "headwise.attention.positions",
    "RollingCache": "headwise.attention.cache",
    "Rotary": "headwise.attention.positions",
    "RotaryScaling": "headwise.attention.positions",
    "Rules": "headwise.attention.rules",
    "ScanSettings": "headwise.scans.scan",
    "Shape": "headwise.planning.shapes",
    "Sweep": "headwise.sweeps.results",
    "SweepSettings": "headwise.sweeps.settings",
    "Trace": "headwise.tracing.record",
    "attend": "headwise.attention.attend",
    "attend_with_lse": "headwise.attention.attend",
    "cut": "headwise.pruning.surgery.cut",
    "explain_path": "headwise.attention.attend",
    "explore": "headwise.explorer.serve",
    "gate": "headwise.watching.gates",
    "importance": "headwise.pruning.importance.importance",
    "load": "headwise.models.loading",
    "load_model": "headwise.models.loading",
    "mean_outputs": "headwise.watching.gates",
    "plan": "headwise.planning.plans",
    "prune": "headwise.pruning.prune",
    "scan": "headwise.scans.scan",
    "silence": "headwise.watching.gates",
    "sweep": "headwise.sweeps.sweep",
    "tensor_parallel_plan": "headwise.attention.parallel",
    "trace": "headwise.tracing.trace",
    "view": "headwise.explorer.widget",
    "watch": "headwise.watching.watch",
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
