"""Workload: the measures of importance to take, on how many tokens, and how long they take.

In: an evaluation and the user's choice. Out: an `ImportanceWork`, and an estimate of the seconds it
takes, from trial passes on one batch. Exact ablation takes a pass per head, so large models read
fewer tokens for it, and leave out its slowest measures unless the user asks for them.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.objective import Sample
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.importance.gradients import DRAWS, gradients
from headwise.watching.output_check import skip_check
from headwise.watching.partial_passes import can_replay

HEAD_MEASURES = ("zero", "mean", "michel", "fisher", "expected")
"""Measures with one number per head: columns of the table."""
MEASURES = (*HEAD_MEASURES, "stand_ins", "best_alone")
ABLATIONS = ("zero", "mean", "best_alone")
"""Measures that take one pass per head."""
SLOW = ("mean", "best_alone")
"""Measures that large models leave out by default."""
MOST_WORK = 2e13
"""Default limit of heads times weights times tokens for one ablation: two or three minutes at 100
billion multiply-adds per second."""
LEAST_TOKENS = 1024
"""Tokens that an ablation reads by default, even if that is more work."""
WITHOUT_GRADIENTS = f"measure only {', '.join(ABLATIONS)}"
"""Advice for objectives without gradients."""
TRIAL_HEADS = 2
"""Number of heads that are silenced to estimate the time of an ablation."""


@dataclass(frozen=True, eq=False)
class ImportanceWork:
    """The measures to take, and the examples that exact ablation reads."""

    measures: tuple[str, ...]
    exact: Evaluation
    """The examples for exact ablation: all of them, or some if they are many."""
    left_out: tuple[str, ...] = ()
    """Measures left out because the model is large, not because the user chose others."""

    def has(self, *measures: str) -> bool:
        """Whether one of these measures is to be taken."""
        return any(name in self.measures for name in measures)

    @property
    def draws(self) -> int:
        """Random scalars per example; 0 if no measure needs gradients.

        The interaction needs many of them, and so does a model at the minimum of its loss, whose
        gradient scores come from them.
        """
        if not self.has("michel", "fisher", "expected", "stand_ins"):
            return 0
        needs_many = self.has("expected", "stand_ins") or self.exact.objective.needs_reference
        return DRAWS if needs_many else 1


def choose_work(
    evaluation: Evaluation,
    measures: str | Iterable[str] | None = None,
    exact_tokens: int | None = None,
) -> ImportanceWork:
    """The user's measures and tokens; None for what ends in minutes on a small language model."""
    most = default_exact_tokens(evaluation)
    is_large = most < evaluation.num_tokens
    chosen = check_measures(measures)
    left_out = SLOW if is_large and chosen is None else ()
    if chosen is None:
        chosen = tuple(name for name in MEASURES if name not in left_out)
    if exact_tokens is not None:
        most = whole_number("exact_tokens", exact_tokens, least=1)
    return ImportanceWork(chosen, limit_tokens(evaluation, most), left_out)


def check_measures(measures: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """The measures in the order of MEASURES; strings are split at commas, `all` means all.

    >>> check_measures("michel, zero")
    ('zero', 'michel')
    """
    if measures is None:
        return None
    text = measures if isinstance(measures, str) else " ".join(map(str, measures))
    names = text.replace(",", " ").split()
    unknown = [name for name in names if name not in (*MEASURES, "all")]
    if unknown or not names:
        raise OptionError(
            f"measures is {text!r}: choose from {', '.join(MEASURES)}, or all", option="measures"
        )
    return tuple(name for name in MEASURES if name in names or "all" in names)


def default_exact_tokens(evaluation: Evaluation) -> int:
    """Number of tokens on which one ablation of every head takes about MOST_WORK."""
    work = len(evaluation.heads) * _num_multiplied_weights(evaluation)
    return max(LEAST_TOKENS, int(MOST_WORK / work))


def _num_multiplied_weights(evaluation: Evaluation) -> int:
    """Number of weights that a token is multiplied by: all but tables of embeddings.

    A table that also computes the logits counts if the objective needs logits.
    """
    model: Any = evaluation.model
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    weights = {id(weight): weight.numel() for weight in model.parameters()}
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if evaluation.objective.reads_logits and output is not None:
        tables.discard(id(output.weight))
    return sum(size for key, size in weights.items() if key not in tables)


def limit_tokens(evaluation: Evaluation, max_tokens: int, *, fewest: int = 2) -> Evaluation:
    """Random examples with at most `max_tokens` tokens, but at least `fewest` of them."""
    if evaluation.num_tokens <= max_tokens:
        return evaluation
    sizes = [
        (number, row, size)
        for number, sample in enumerate(evaluation.samples)
        for row, size in enumerate(_example_sizes(sample))
    ]
    random.Random(0).shuffle(sizes)
    rows: dict[int, list[int]] = {}
    total = num_examples = 0
    for number, row, size in sizes:
        if total + size <= max_tokens or num_examples < fewest:
            rows.setdefault(number, []).append(row)
            total, num_examples = total + size, num_examples + 1
    if num_examples == evaluation.num_examples:
        return evaluation
    samples = [
        _take_rows(evaluation.samples[number], sorted(rows[number])) for number in sorted(rows)
    ]
    return replace(evaluation, samples=tuple(samples))


def _example_sizes(sample: Sample) -> list[int]:
    """Number of tokens in each example; 1 if the model reads no tokens."""
    if sample.is_token is None:
        return [1] * len(sample)
    sizes: list[int] = sample.is_token.flatten(1).sum(1).tolist()
    return sizes


def _take_rows(sample: Sample, rows: list[int]) -> Sample:
    def take(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[rows]

    return replace(
        sample,
        inputs={name: tensor[rows] for name, tensor in sample.inputs.items()},
        targets=take(sample.targets),
        reference=take(sample.reference),
    )


def estimate_seconds(evaluation: Evaluation, work: ImportanceWork) -> float:
    """About how long the work takes, from passes on a batch of middling size.

    Checks of the watched model's output, which are made once, are left for later.
    """
    with skip_check():
        middle = _middle_batch(evaluation)
        forward = _time(middle.losses)
        seconds = 0.0
        if work.draws:
            backward = (
                _time(lambda: gradients(middle, draws=1, advice=WITHOUT_GRADIENTS)) - forward
            ) / 2
            batch = forward + (1 + work.draws) * backward
            seconds += batch * evaluation.num_tokens / middle.num_tokens
        if num_ablations := sum(name in work.measures for name in ABLATIONS):
            exact = work.exact
            middle = _middle_batch(exact)
            layer = exact.heads[len(exact.heads) // 2].layer_name
            units = [(head,) for head in exact.heads if head.layer_name == layer][:TRIAL_HEADS]
            each = (_time(lambda: ablate(middle, units)) - _time(middle.losses)) / len(units)
            scale = exact.num_tokens / middle.num_tokens
            seconds += num_ablations * len(exact.heads) * each * scale
        return seconds


def _middle_batch(evaluation: Evaluation) -> Evaluation:
    samples = sorted(evaluation.samples, key=lambda sample: sample.num_tokens)
    batch = replace(evaluation, samples=(samples[len(samples) // 2],))
    assert batch.heads  # counted now, not while the clock runs, and so is what can be replayed
    can_replay(batch.model, batch.samples[0].inputs)
    return batch


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
