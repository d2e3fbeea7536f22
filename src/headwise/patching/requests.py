"""Requests: the pairs of prompts and the metric that the arguments of `patch` describe.

In: the arguments. Out: pairs and a metric, which suit the model. Raises OptionError for arguments
that contradict each other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.models.loaded import LoadedModel
from headwise.objectives.losses import Embedding
from headwise.objectives.scored_model import (
    objective_for,
    predicts_masked_tokens,
    predicts_next_token,
)
from headwise.patching.metrics import (
    METRICS,
    AnswerMetric,
    CleanCosine,
    CustomMetric,
    Metric,
    check_metric,
)
from headwise.patching.prompts import PromptPair, read_pairs
from headwise.patching.tasks import task_pairs
from headwise.reading.batch import Inputs, has_decoder

TASK_PAIRS = 16
"""Number of pairs of a built-in task that are patched by default."""


def choose_pairs(  # noqa: PLR0913 - all but the first three are keyword-only
    loaded: LoadedModel,
    clean: str | Sequence[str] | None,
    corrupted: str | Sequence[str] | None,
    *,
    answer: str | Sequence[str] = "",
    instead: str | Sequence[str] = "",
    pairs: str | Path | Iterable[PromptPair] | None = None,
    task: str | None = None,
    count: int | None = None,
) -> tuple[PromptPair, ...]:
    """The pairs that the arguments describe; raises OptionError unless exactly one way is used."""
    ways = [
        name
        for name, value in (("clean", clean), ("pairs", pairs), ("task", task))
        if value is not None
    ]
    if len(ways) != 1 or (clean is None) != (corrupted is None):
        raise OptionError(
            "pass a clean and a corrupted prompt, pairs, or the name of a task: exactly one of "
            f"these, not {' and '.join(ways) or 'none'}"
        )
    if clean is None and (answer or instead):
        raise OptionError(
            "answer and instead belong to clean and corrupted prompts: leave them out with "
            f"{' and '.join(ways) or 'pairs'}"
        )
    if count is not None:
        whole_number("count", count, least=1)
    if task is not None:
        return task_pairs(task, loaded, count) if count else task_pairs(task, loaded)[:TASK_PAIRS]
    if pairs is not None:
        chosen = read_pairs(pairs) if isinstance(pairs, str | Path) else tuple(pairs)
    else:
        columns = [
            [each] if isinstance(each, str) else list(each)
            for each in (clean or "", corrupted or "", answer, instead)
        ]
        longest = max(map(len, columns))
        columns = [column * longest if len(column) == 1 else column for column in columns]
        if len({*map(len, columns)}) > 1:
            raise OptionError(
                "clean, corrupted, answer and instead have different lengths "
                f"({', '.join(str(len(column)) for column in columns)}): pass one of each per pair"
            )
        chosen = tuple(PromptPair(*row) for row in zip(*columns, strict=True))
    if not chosen:
        raise OptionError("there are no pairs: pass at least one", option="pairs")
    return chosen[:count]


def choose_metric(
    loaded: LoadedModel,
    metric: str | Callable[[nn.Module, Inputs], Tensor] | None,
    *,
    has_answers: bool,
) -> Metric:
    """The metric to measure by; by default, the one that suits the model and the pairs."""
    check_metric(metric)
    objective = objective_for(loaded)
    if callable(metric):
        return CustomMetric(metric)
    if metric is None:
        is_embedding = isinstance(objective, Embedding)
        metric = "cosine" if is_embedding else "logit-difference" if has_answers else "kl"
    if metric == "cosine":
        return CleanCosine(objective.pooling if isinstance(objective, Embedding) else "mean")
    model = loaded.model
    if has_decoder(getattr(model, "config", None)):
        raise OptionError(
            f"{loaded.name} has an encoder and a decoder, whose answer is not at a place in the "
            "prompt: pass a function as the metric",
            option="metric",
        )
    chosen = METRICS[metric]()
    if isinstance(chosen, AnswerMetric):
        reads_tokens = predicts_next_token(model) or predicts_masked_tokens(model)
        chosen = replace(chosen, predicts_tokens=reads_tokens)
    if chosen.needs_answers and not has_answers:
        raise OptionError(
            f"metric is {metric!r}, but the pairs have no answers: give answer and instead, or use "
            "the metric kl",
            option="metric",
        )
    return chosen
