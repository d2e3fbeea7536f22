"""Bench: a model with the texts that heads are chosen, refitted and proved on.

In: a model and text. Out: four tasks that share no paragraph, but that choosing and refitting share
theirs, and cut models measured on the last of them. On that text no head is chosen and nothing
fitted; whether a refit stays is decided there, and with a largest loss how much goes.
"""

import copy
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadCounts, HeadId
from headwise.objectives.evaluation import (
    Estimate,
    Evaluation,
    count_heads,
    counted_batches,
    head_ids,
)
from headwise.objectives.losses import CustomLoss, Embedding, TokenLoss
from headwise.objectives.objective import Objective
from headwise.pruning.importance.ablation import Progress, untold
from headwise.pruning.importance.gradients import gradients, or_else
from headwise.pruning.refit.refit import LayerFit, Variant, check_variant, refit
from headwise.pruning.selection.methods import CutSearch
from headwise.pruning.setting import Subject, batch_task, batches_for, text_task, texts_for
from headwise.pruning.settings import PruneSettings
from headwise.pruning.surgery.attention_layers import find_layers
from headwise.pruning.surgery.cut import Surgery, cut
from headwise.pruning.units import Unit, one_of_each_group, whole_groups
from headwise.reading.manual import split_documents
from headwise.watching.running import Inputs, read_by
from headwise.watching.sites import find_sites

RIDGE_SHARE = 0.2
"""Of the text for refitting, what the ridge is chosen on."""
CHECKED = 4
"""Examples on which a cut model is compared with the silenced one."""


@dataclass(frozen=True, eq=False)
class PruneSetup:
    """An uncut model, and what is measured on which text."""

    subject: Subject
    fit: Evaluation
    ridge: Evaluation
    """What the ridge is chosen on, and whether to refit at all."""
    held_out: Evaluation
    problem: CutSearch
    settings: PruneSettings
    has_own_text: bool = True
    """Whether the texts were given; else they are Python's manual."""
    progress: Progress = untold

    @property
    def counts(self) -> HeadCounts:
        """Heads of the uncut model by layer."""
        return self.problem.counts

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """A few examples to compare models on, without labels where the model can do so."""
        first = read_by(self.subject.model, self.held_out.samples[-1].inputs)
        return {name: value[:CHECKED] for name, value in first.items()}


def make_bench(
    subject: Subject,
    texts: str | Sequence[str] | None,
    settings: PruneSettings,
    progress: Progress = untold,
    *,
    batches: Iterable[Inputs] | None = None,
) -> PruneSetup:
    """The model with its texts, split by document, or with batches of what it takes.

    Python's manual is read where neither is given.
    """
    find_layers(subject.model)  # raises where heads cannot be cut
    check_variant(subject.model, settings.refit)
    if any(place.loop is not None for place in find_sites(subject.model)):
        raise ModelError(
            f"{subject.name} cannot be pruned layer by layer: its layers share their weights; name "
            "the same heads of all of them to headwise.cut"
        )
    if batches is not None and texts is not None:
        raise OptionError("there are texts and batches to measure on: give one of them")
    if batches is not None:
        choose, fit, ridge, held_out = tasks_on_batches(subject, batches_for(subject, batches))
    else:
        choose, fit, ridge, held_out = tasks_on_texts(subject, texts_for(texts), settings)
    for task in (choose, held_out):
        task.checked_loss(subject.name)
    counts = count_heads(subject.model, choose.samples[0].inputs)
    return PruneSetup(
        subject=replace(subject, objective=choose.objective),
        fit=fit,
        ridge=ridge,
        held_out=held_out,
        problem=make_problem(choose, counts, settings, progress),
        settings=settings,
        has_own_text=texts is not None or batches is not None,
        progress=progress,
    )


Tasks = tuple[Evaluation, Evaluation, Evaluation, Evaluation]
"""What heads are chosen on, refitted on, what the ridge is chosen on, and what is held out."""


def tasks_on_texts(subject: Subject, texts: Sequence[str], settings: PruneSettings) -> Tasks:
    """Tasks on texts that share no paragraph, but that choosing and refitting share theirs."""
    seed, most = settings.seed, settings.fit_tokens
    known, other = split_documents(texts, seed=seed)
    try:
        fitted, checked = split_documents(known, held_out=RIDGE_SHARE, seed=seed + 1)
    except OptionError as error:
        raise OptionError(
            "the text has 2 paragraphs: give at least 3, to fit on, to choose a ridge on, and to "
            "measure on, with blank lines between them"
        ) from error
    return (
        text_task(subject, fitted, max_tokens=settings.choose_tokens, seed=seed),
        text_task(subject, fitted, max_tokens=most, seed=seed + 1, is_measured=False),
        text_task(subject, checked, max_tokens=most // 4, seed=seed),
        text_task(subject, other, max_tokens=settings.held_tokens, seed=seed),
    )


FEWEST_BATCHES = 3


def tasks_on_batches(subject: Subject, batches: Sequence[Inputs]) -> Tasks:
    """Tasks on batches: every fourth is held out, the ridge chosen on every fourth of the rest."""
    if len(batches) < FEWEST_BATCHES:
        there = f"there {'is' if len(batches) == 1 else 'are'} {counted_batches(len(batches))}"
        raise OptionError(
            f"{there}: give at least {FEWEST_BATCHES}, to fit on, to choose a ridge on, and to "
            "measure on"
        )
    held_out = list(batches[2::4])
    rest = [one for place, one in enumerate(batches) if place % 4 != 2]
    ridge, fitted = rest[1::4], [one for place, one in enumerate(rest) if place % 4 != 1]
    fit = batch_task(subject, fitted)
    return fit, fit, batch_task(subject, ridge), batch_task(subject, held_out)


def make_problem(
    task: Evaluation, counts: HeadCounts, settings: PruneSettings, progress: Progress = untold
) -> CutSearch:
    """What can be cut from the model, and how it is to be chosen."""
    heads = head_ids(task.places, counts)
    if not heads:
        raise OptionError(f"{type(task.model).__name__} has no head left to cut")
    problem = CutSearch(
        task=task,
        counts=counts,
        units=whole_groups(heads, counts),
        is_uniform=settings.is_uniform,
        seed=settings.seed,
        progress=progress,
    )
    if settings.policy == "groups":
        return problem
    if all(num_heads == num_kv_heads for num_heads, num_kv_heads in counts.values()):
        raise OptionError(
            "the policy even leaves nothing to cut: every KV head serves one head; choose groups"
        )
    with or_else("choose the policy groups, for even goes by gradients"):
        found = gradients(task, counts, draws=problem.draws, progress=progress)
    units = one_of_each_group(heads, counts, found.expected.tolist())
    return replace(problem, units=units, is_nested=True)


@dataclass(frozen=True, eq=False)
class RefittedCut:
    """A cut model, and what it scores on held-out text."""

    model: nn.Module
    surgery: Surgery
    unrefitted: Estimate
    loss: Estimate
    """As it is now: refitted, unless that was not asked for or did not help."""
    fits: tuple[LayerFit, ...] = ()
    is_dropped: bool = False
    """Whether a refit did not help, and was undone."""


def cut_and_refit(bench: PruneSetup, heads: Sequence[HeadId]) -> RefittedCut:
    """A copy of the model without these heads, its output projections refitted if that helps.

    It has to help twice: on the text that the ridge was chosen on, and on the held-out text that is
    reported. With little text to fit on the first alone is no promise of the second.
    """
    model = copy.deepcopy(bench.subject.model)
    surgery = cut(model, heads, inputs=bench.inputs)
    loss = bench.held_out.of(model).loss()
    if bench.settings.refit == "none" or not heads:
        return RefittedCut(model, surgery, loss, loss)
    before = bench.ridge.of(model).loss()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    variant: Variant = bench.settings.refit  # type: ignore[assignment]
    fits = refit(
        model,
        bench.subject.model,
        bench.fit.samples,
        bench.ridge.samples,
        variant=variant,
        progress=bench.progress,
    )
    refitted = bench.held_out.of(model).loss()
    helps = bench.ridge.of(model).loss().value < before.value and refitted.value < loss.value
    if not helps:  # NaN does not, either
        model.load_state_dict(kept)
        return RefittedCut(model, surgery, loss, loss, is_dropped=True)
    return RefittedCut(model, surgery, loss, refitted, fits)


def largest_within(
    bench: PruneSetup, units: Sequence[Unit], max_loss: float, *, step: int = 1
) -> tuple[int, RefittedCut]:
    """How many of the units can go, first ones first, at a loss on held-out text of no more.

    And the model without them. Raises where not even the first can go.

    So the amount, as whether a refit stays, is chosen on the text that figures are reported of.

    A share of perplexity for models that predict tokens; a difference of cosine, or a divergence in
    nats, for those that are compared with themselves; a share of the loss for a given one.
    """
    base = bench.held_out.loss().value
    if isinstance(bench.subject.objective, TokenLoss):
        most = base + math.log1p(max_loss)
    elif isinstance(bench.subject.objective, CustomLoss):
        most = base + abs(base) * max_loss
    else:
        most = base + max_loss
    low, high = 0, len(units) // step + 1
    best: RefittedCut | None = None
    least = math.inf
    while high - low > 1:
        middle = (low + high) // 2
        heads = [head for unit in units[: middle * step] for head in unit.heads]
        found = cut_and_refit(bench, heads)
        if found.loss.value <= most:
            low, best = middle, found
        else:
            high, least = middle, found.loss.value - base
    if best is None:
        raise OptionError(
            f"no cut stays within {describe_budget(bench.subject.objective, max_loss)}: the "
            f"smallest adds {least:.3g} to a loss of {base:.3g}; allow more, or give cut or keep"
        )
    return low * step, best


def describe_budget(objective: Objective, max_loss: float) -> str:
    """The largest loss that is borne, in words, in the unit that `largest_within` takes it in."""
    if isinstance(objective, TokenLoss):
        return f"{100 * max_loss:g}% of perplexity"
    if isinstance(objective, CustomLoss):
        return f"{100 * max_loss:g}% of the loss"
    return f"{max_loss:g} {'of cosine' if isinstance(objective, Embedding) else 'nats'}"


def about_text(bench: PruneSetup) -> dict[str, Any]:
    """Examples and tokens that each task holds, how much that is in words, and a digest of all."""
    tasks = {
        "chosen_on": bench.problem.task,
        "fitted_on": bench.fit,
        "ridge_chosen_on": bench.ridge,
        "measured_on": bench.held_out,
    }
    return {
        name: {
            "examples": task.num_examples,
            "tokens": task.num_tokens,
            "amount": task.amount,
            "sha256": digest(task),
        }
        for name, task in tasks.items()
    }


def digest(task: Evaluation) -> str:
    """SHA-256 of everything that the model was given."""
    found = hashlib.sha256()
    for sample in task.samples:
        for name in sorted(sample.inputs):
            numbers = sample.inputs[name].cpu().flatten().view(torch.uint8)  # numpy has no bfloat16
            found.update(name.encode() + numbers.numpy().tobytes())
    return found.hexdigest()
