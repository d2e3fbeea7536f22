"""Stages of importance and pruning, as progress reports name them."""

from enum import StrEnum


class PruneStage(StrEnum):
    """A part of the work that takes long enough to report its steps."""

    GRADIENTS = "backward passes"
    ABLATION = "silencing heads one by one"
    GREEDY = "cutting heads one by one"
    BEST_ALONE = "leaving one head per layer"
    CURVE = "measuring the curve"
    REFIT = "refitting layers"
    RESULT = "measuring the smaller model"
    RESULT_AND_FILES = "measuring the smaller model, and writing it"
