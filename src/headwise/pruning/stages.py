"""Names of the stages of importance and pruning in progress reports."""

from enum import StrEnum


class PruneStage(StrEnum):
    """A stage that takes long enough to report its steps."""

    GRADIENTS = "backward passes"
    ABLATION = "silencing heads one by one"
    GREEDY = "cutting heads one by one"
    BEST_ALONE = "leaving one head per layer"
    CURVE = "measuring the curve"
    REFIT = "refitting layers"
    RESULT = "measuring the smaller model"
    RESULT_AND_FILES = "measuring and writing the smaller model"
