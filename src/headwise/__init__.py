"""Multi-head attention you can run, read and reshape.

Each public name is imported from its module on first use, so that `import headwise` loads neither
torch nor any other large package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise import nn as nn
    from headwise.attention.attend import (
        attend as attend,
        attend_with_lse as attend_with_lse,
        explain_path as explain_path,
    )
    from headwise.attention.cache import (
        FixedCache as FixedCache,
        GrowingCache as GrowingCache,
        RollingCache as RollingCache,
    )
    from headwise.attention.convert import from_textbook as from_textbook
    from headwise.attention.layer import MultiHeadAttention as MultiHeadAttention
    from headwise.attention.parallel import tensor_parallel_plan as tensor_parallel_plan
    from headwise.attention.paths import PathChoice as PathChoice
    from headwise.attention.positions import (
        Alibi as Alibi,
        RelativeBias as RelativeBias,
        Rotary as Rotary,
        RotaryScaling as RotaryScaling,
    )
    from headwise.attention.rules import Rules as Rules
    from headwise.errors import HeadwiseError as HeadwiseError
    from headwise.explorer.serve import explore as explore
    from headwise.explorer.widget import view as view
    from headwise.heads import HeadId as HeadId, HeadTable as HeadTable
    from headwise.measures.measure import Measure as Measure, RowValues as RowValues
    from headwise.models.families import Family as Family, add_family as add_family
    from headwise.models.loaded import LoadedModel as LoadedModel
    from headwise.models.loading import (
        LoadOptions as LoadOptions,
        load as load,
        load_model as load_model,
    )
    from headwise.objectives.objective import Objective as Objective
    from headwise.planning.plans import Plan as Plan, plan as plan
    from headwise.planning.shapes import Shape as Shape
    from headwise.probes.sentences import Arc as Arc, ProbeSentence as ProbeSentence
    from headwise.pruning.importance.importance import (
        Importance as Importance,
        importance as importance,
    )
    from headwise.pruning.prune import Pruned as Pruned, prune as prune
    from headwise.pruning.record import PruneRecord as PruneRecord
    from headwise.pruning.selection.cut_plan import CutPlan as CutPlan
    from headwise.pruning.settings import PruneSettings as PruneSettings
    from headwise.pruning.surgery.cut import Surgery as Surgery, cut as cut
    from headwise.scans.folder import Scan as Scan
    from headwise.scans.scan import scan as scan
    from headwise.scans.settings import ScanSettings as ScanSettings
    from headwise.sweeps.results import Sweep as Sweep
    from headwise.sweeps.settings import SweepSettings as SweepSettings
    from headwise.sweeps.sweep import sweep as sweep
    from headwise.sweeps.task import (
        SweepTask as SweepTask,
        TaskExamples as TaskExamples,
        TaskShape as TaskShape,
    )
    from headwise.tracing.record import Trace as Trace
    from headwise.tracing.trace import trace as trace
    from headwise.watching.calls import AttentionCall as AttentionCall
    from headwise.watching.gates import (
        gate as gate,
        mean_outputs as mean_outputs,
        silence as silence,
    )
    from headwise.watching.watch import Watched as Watched, watch as watch

    __version__: str

_NAMES = {
    "attention.cache": ("FixedCache", "GrowingCache", "RollingCache"),
    "attention.convert": ("from_textbook",),
    "attention.attend": ("attend", "attend_with_lse", "explain_path"),
    "attention.layer": ("MultiHeadAttention",),
    "attention.parallel": ("tensor_parallel_plan",),
    "attention.paths": ("PathChoice",),
    "attention.positions": ("Alibi", "RelativeBias", "Rotary", "RotaryScaling"),
    "attention.rules": ("Rules",),
    "errors": ("HeadwiseError",),
    "explorer.serve": ("explore",),
    "explorer.widget": ("view",),
    "heads": ("HeadId", "HeadTable"),
    "measures.measure": ("Measure", "RowValues"),
    "models.families": ("Family", "add_family"),
    "models.loaded": ("LoadedModel",),
    "models.loading": ("LoadOptions", "load", "load_model"),
    "objectives.objective": ("Objective",),
    "planning.plans": ("Plan", "plan"),
    "planning.shapes": ("Shape",),
    "probes.sentences": ("Arc", "ProbeSentence"),
    "pruning.importance.importance": ("Importance", "importance"),
    "pruning.prune": ("Pruned", "prune"),
    "pruning.record": ("PruneRecord",),
    "pruning.selection.cut_plan": ("CutPlan",),
    "pruning.settings": ("PruneSettings",),
    "pruning.surgery.cut": ("Surgery", "cut"),
    "scans.folder": ("Scan",),
    "scans.scan": ("scan",),
    "scans.settings": ("ScanSettings",),
    "sweeps.results": ("Sweep",),
    "sweeps.settings": ("SweepSettings",),
    "sweeps.sweep": ("sweep",),
    "sweeps.task": ("SweepTask", "TaskExamples", "TaskShape"),
    "tracing.record": ("Trace",),
    "tracing.trace": ("trace",),
    "watching.calls": ("AttentionCall",),
    "watching.gates": ("gate", "mean_outputs", "silence"),
    "watching.watch": ("Watched", "watch"),
}
"""The public names by the module that defines them."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_MODULE_OF, "__version__", "nn"])


def __getattr__(name: str) -> Any:
    """Import a public name on first use and keep it."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("headwise")
    elif name == "nn":
        value = import_module("headwise.nn")
    elif name in _MODULE_OF:
        value = getattr(import_module(f"headwise.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'headwise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
