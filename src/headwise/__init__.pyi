"""The public names; __init__.py imports each on first use from the module named here."""

from . import nn as nn
from .attention.attend import (
    attend as attend,
    attend_with_lse as attend_with_lse,
    explain_path as explain_path,
)
from .attention.cache import (
    FixedCache as FixedCache,
    GrowingCache as GrowingCache,
    RollingCache as RollingCache,
)
from .attention.convert import from_textbook as from_textbook
from .attention.layer import MultiHeadAttention as MultiHeadAttention
from .attention.parallel import tensor_parallel_plan as tensor_parallel_plan
from .attention.paths import PathChoice as PathChoice
from .attention.positions import (
    Alibi as Alibi,
    RelativeBias as RelativeBias,
    Rotary as Rotary,
    RotaryScaling as RotaryScaling,
)
from .attention.rules import Rules as Rules
from .errors import HeadwiseError as HeadwiseError
from .explorer.serve import explore as explore
from .explorer.widget import view as view
from .heads import HeadId as HeadId, HeadTable as HeadTable
from .measures.measure import Measure as Measure, RowValues as RowValues
from .models.families import Family as Family, add_family as add_family
from .models.loaded import LoadedModel as LoadedModel
from .models.loading import LoadOptions as LoadOptions, load as load, load_model as load_model
from .objectives.objective import Objective as Objective
from .planning.plans import Plan as Plan, plan as plan
from .planning.shapes import Shape as Shape
from .probes.sentences import Arc as Arc, ProbeSentence as ProbeSentence
from .pruning.importance.importance import Importance as Importance, importance as importance
from .pruning.prune import Pruned as Pruned, prune as prune
from .pruning.record import PruneRecord as PruneRecord
from .pruning.selection.cut_plan import CutPlan as CutPlan
from .pruning.settings import PruneSettings as PruneSettings
from .pruning.surgery.cut import Surgery as Surgery, cut as cut
from .scans.folder import Scan as Scan
from .scans.scan import scan as scan
from .scans.settings import ScanSettings as ScanSettings
from .sweeps.results import Sweep as Sweep
from .sweeps.settings import SweepSettings as SweepSettings
from .sweeps.sweep import sweep as sweep
from .sweeps.task import (
    SweepTask as SweepTask,
    TaskExamples as TaskExamples,
    TaskShape as TaskShape,
)
from .tracing.record import Trace as Trace
from .tracing.trace import trace as trace
from .watching.calls import AttentionCall as AttentionCall
from .watching.gates import gate as gate, mean_outputs as mean_outputs, silence as silence
from .watching.watch import Watched as Watched, watch as watch

__all__: list[str]
__version__: str
