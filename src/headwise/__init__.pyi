"""The public names: `__init__.py` imports each from the module named here, on first use."""

from . import nn as nn
from .attention.attend import (
    attend as attend,
    attend_with_lse as attend_with_lse,
    explain_path as explain_path,
)
from .attention.cache import (
    FixedCache as FixedCache,
    GrowingCache as GrowingCache,
    KeyValueCache as KeyValueCache,
    RollingCache as RollingCache,
)
from .attention.convert import from_textbook as from_textbook
from .attention.layer import (
    HeadSlice as HeadSlice,
    HeadSlices as HeadSlices,
    MultiHeadAttention as MultiHeadAttention,
)
from .attention.parallel import tensor_parallel_plan as tensor_parallel_plan
from .attention.paths import PathChoice as PathChoice
from .attention.positions import (
    Alibi as Alibi,
    RelativeBias as RelativeBias,
    Rotary as Rotary,
    RotaryScaling as RotaryScaling,
)
from .attention.rules import Rules as Rules
from .comparing.compare import compare as compare
from .comparing.comparison import Comparison as Comparison, TextComparison as TextComparison
from .drawing.table import Table as Table
from .errors import HeadwiseError as HeadwiseError
from .explorer.notebook_view import view as view
from .explorer.serve import explore as explore
from .head_table import HeadRow as HeadRow, HeadTable as HeadTable
from .heads import HeadId as HeadId
from .measures.measure import Measure as Measure, RowValues as RowValues
from .measures.sequence_view import (
    RowLayout as RowLayout,
    SequenceView as SequenceView,
    TileWeights as TileWeights,
)
from .models.families import Family as Family, add_family as add_family
from .models.loaded import LoadedModel as LoadedModel
from .models.loading import LoadOptions as LoadOptions, load as load, load_model as load_model
from .objectives.evaluation import Estimate as Estimate
from .objectives.losses import Embedding as Embedding
from .objectives.objective import Losses as Losses, Objective as Objective, Sample as Sample
from .patching.patch import patch as patch
from .patching.prompts import PromptPair as PromptPair
from .patching.result import PatchResult as PatchResult
from .patching.settings import PatchSettings as PatchSettings
from .planning.plans import Decoding as Decoding, Plan as Plan, Workload as Workload, plan as plan
from .planning.shapes import Shape as Shape
from .probes.sentences import Arc as Arc, ProbeSentence as ProbeSentence
from .progress import Progress as Progress
from .pruning.export.export import Export as Export
from .pruning.export.sizes import Sizes as Sizes, Speed as Speed
from .pruning.importance.importance import importance as importance
from .pruning.importance.importance_tables import Importance as Importance
from .pruning.importance.redundancy import RedundantHeads as RedundantHeads
from .pruning.prune import Pruned as Pruned, prune as prune
from .pruning.record import (
    CutScores as CutScores,
    ModelFacts as ModelFacts,
    PruneRecord as PruneRecord,
    Quality as Quality,
    Score as Score,
    TextUse as TextUse,
)
from .pruning.refit.refit import LayerFit as LayerFit
from .pruning.selection.curve import Curve as Curve
from .pruning.selection.cut_plan import CutPlan as CutPlan
from .pruning.settings import Amount as Amount, PruneSettings as PruneSettings
from .pruning.surgery.cut import Surgery as Surgery, cut as cut
from .reading.corpus import corpus as corpus
from .reading.labels import Labels as Labels
from .scans.folder import Scan as Scan
from .scans.scan import scan as scan
from .scans.settings import ScanSettings as ScanSettings
from .sweeps.results import Sweep as Sweep
from .sweeps.runs import RunRecord as RunRecord
from .sweeps.settings import (
    SweepSettings as SweepSettings,
    TrainingSettings as TrainingSettings,
    Variant as Variant,
)
from .sweeps.sweep import sweep as sweep
from .sweeps.task import (
    SweepTask as SweepTask,
    TaskExamples as TaskExamples,
    TaskShape as TaskShape,
)
from .tracing.maps import Maps as Maps
from .tracing.record import Trace as Trace, TraceStep as TraceStep
from .tracing.trace import trace as trace
from .watching.calls import AttentionCall as AttentionCall, WeightsCall as WeightsCall
from .watching.gates import (
    MeanOutputs as MeanOutputs,
    gate as gate,
    mean_outputs as mean_outputs,
    silence as silence,
)
from .watching.output_check import skip_check as skip_check
from .watching.sequence_weights import SequenceWeights as SequenceWeights
from .watching.sites import Site as Site
from .watching.watch import Watched as Watched, watch as watch

__all__: list[str]
__version__: str
