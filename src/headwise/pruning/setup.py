"""PruneSetup: the uncut model, the text for each step, and the search for heads to cut.

In: a loaded model and texts or batches. Out: `PruneSetup`. Which text serves which step is decided
in text_sets.py; batches are divided in the same proportions.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from headwise.errors import OptionError
from headwise.formats import join_words
from headwise.heads import HeadCounts
from headwise.models.modalities import check_reads_text
from headwise.objectives.evaluation import Evaluation, choose_batches, choose_texts
from headwise.objectives.objective import Objective
from headwise.objectives.own_text import sample_windows, why_not_sampled
from headwise.objectives.registers import RegisterEvaluation, RegisterLosses
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.gradients import gradients, has_gradients
from headwise.pruning.record import TextPart, TextUse
from headwise.pruning.refit.refit import why_not_refitted
from headwise.pruning.selection.low_precision import choosing_dtype, choosing_registers
from headwise.pruning.selection.methods import (
    CutSearch,
    costs_alone,
    one_of_each_group,
    share_units,
    whole_groups,
)
from headwise.pruning.settings import LEAST, PruneSettings
from headwise.pruning.surgery.find_layers import find_layers
from headwise.pruning.text_sets import (
    OWN_TEXT,
    SAMPLES,
    STEPS,
    Texts,
    TextSets,
    builtin_sets,
    other_texts,
    own_sets,
)
from headwise.reading.batch import Inputs
from headwise.watching.gates import mean_outputs
from headwise.watching.partial_passes import can_replay
from headwise.watching.running import layer_inputs

CHECKED = 4
"""Number of examples on which a cut model is compared with the silenced one."""
FEWEST_BATCHES = 4
SENTENCE_DRAWS, WINDOW_DRAWS = 4, 2
"""Number of random scalars per example while heads are chosen. A sentence is short, so more draws
cost little."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PruneSetup:
    """An uncut model, its evaluation on the text for each step, and everything else a cut needs.

    The steps are those of `TextSets`.
    """

    scored: ScoredModel
    choose: RegisterEvaluation
    fit: RegisterEvaluation
    shrink: RegisterEvaluation
    decide: RegisterEvaluation
    report: RegisterEvaluation
    other: RegisterEvaluation | None = None
    """Built-in text beside the user's own, to see what a cut costs elsewhere."""
    search: CutSearch
    settings: PruneSettings
    progress: Progress = no_progress

    @property
    def objective(self) -> Objective:
        """The objective that heads are judged by: the scored model's, or one that reads labels."""
        return self.report.whole.objective

    @property
    def counts(self) -> HeadCounts:
        """Number of heads and KV heads in each layer of the uncut model."""
        return self.search.evaluation.counts

    @property
    def inputs(self) -> Inputs:
        """A few examples to compare models on, without labels if the model needs none."""
        batch = layer_inputs(self.scored.model, self.report.whole.samples[-1].inputs)
        return {name: value[:CHECKED] for name, value in batch.items()}

    @cached_property
    def uncut_decide(self) -> RegisterLosses:
        """Losses of the uncut model on the text that decides."""
        return self.decide.losses()

    def text_use(self) -> TextUse:
        """How much text of which registers each step used, with digests."""
        return TextUse(**{step: _text_part(getattr(self, step)) for step in STEPS})


def _text_part(evaluation: RegisterEvaluation) -> TextPart:
    whole, digest = evaluation.whole, hashlib.sha256()
    for sample in whole.samples:
        for name in sorted(sample.inputs):
            numbers = sample.inputs[name].cpu().flatten().view(torch.uint8)  # numpy has no bfloat16
            digest.update(name.encode() + numbers.numpy().tobytes())
    counts = whole.num_examples, whole.num_tokens, whole.describe_size()
    return TextPart(tuple(evaluation.parts), *counts, digest.hexdigest())


def prepare_setup(
    scored: ScoredModel,
    settings: PruneSettings,
    *,
    texts: str | Sequence[str] | None = None,
    batches: Iterable[Inputs] | None = None,
    chooses: bool = True,
    progress: Progress = no_progress,
) -> PruneSetup:
    """Check that the model can be pruned and divide `texts`, or `batches`, among the steps.

    The built-in texts are used if both are None. If `chooses` is False, because the heads are
    already known, the model writes no text to choose them on.
    """
    if batches is None:
        check_reads_text(scored)
        find_layers(scored.model)  # raises if no head can be cut
    other = None
    if batches is not None:
        parts = _split_batches(scored, choose_batches(scored.model, batches, texts))
    elif texts is None and not settings.keeps_texts_whole:
        is_causal = not why_not_sampled(scored)
        sets = builtin_sets(settings.fold, is_causal=is_causal)
        parts = _evaluate_sets(scored, sets, settings)
        if is_causal and chooses and settings.samples_text:
            parts["choose"] = with_own_text(scored, parts["choose"], settings, progress)
    else:
        documents = choose_texts(texts, keeps_whole=settings.keeps_texts_whole)
        sets = own_sets(documents, settings.seed, keeps_whole=settings.keeps_texts_whole)
        parts = _evaluate_sets(scored, sets, settings)
        other = _evaluate_other(scored, settings)
    settings = replace(settings, choose_dtype=choosing_dtype(scored.model, settings.choose_dtype))
    if settings.refit in ("full", "wide"):
        inputs = parts["fit"].whole.samples[0].inputs
        if not can_replay(scored.model, inputs):
            raise OptionError(
                f"refit is {settings.refit!r}, but {why_not_refitted(scored.model)}", option="refit"
            )
    for step in ("choose", "report"):  # of one register: the whole takes long
        next(iter(parts[step].parts.values())).finite_loss(scored.name)
    search = cut_search(parts["choose"], settings, progress)
    return PruneSetup(
        scored=scored, other=other, search=search, settings=settings, progress=progress, **parts
    )


def _evaluate_sets(
    scored: ScoredModel, sets: TextSets, settings: PruneSettings
) -> dict[str, RegisterEvaluation]:
    """The evaluation for each step, on as many tokens as the settings say."""
    tokens = {
        "choose": settings.choose_tokens,
        "fit": settings.fit_tokens,
        "shrink": settings.fit_tokens // 2,
        "decide": settings.held_tokens // 2,
        "report": settings.held_tokens,
    }
    return {
        step: evaluate_texts(
            scored,
            getattr(sets, step),
            tokens[step],
            settings.seed,
            has_losses=step != "fit",
            keeps_whole=settings.keeps_texts_whole,
        )
        for step in STEPS
    }


def evaluate_texts(
    scored: ScoredModel,
    texts: Texts,
    tokens: int,
    seed: int,
    *,
    has_losses: bool = True,
    keeps_whole: bool = False,
) -> RegisterEvaluation:
    """The evaluation on about `tokens` tokens, equally many of each register."""
    share = max(LEAST["held_tokens"], tokens // len(texts))
    return RegisterEvaluation(
        {
            name: Evaluation.of_texts(
                scored,
                documents,
                max_tokens=share,
                seed=seed,
                has_losses=has_losses,
                keeps_whole=keeps_whole,
            )
            for name, documents in texts.items()
        }
    )


def _evaluate_other(scored: ScoredModel, settings: PruneSettings) -> RegisterEvaluation | None:
    """The evaluation on built-in text; None if the tokenizer knows no part of it."""
    whole = evaluate_texts(scored, other_texts(), settings.held_tokens, settings.seed)
    readable = {
        name: part
        for name, part in whole.parts.items()
        if any(sample.has_targets for sample in part.samples)
    }
    return RegisterEvaluation(readable) if readable else None


def with_own_text(
    scored: ScoredModel,
    choose: RegisterEvaluation,
    settings: PruneSettings,
    progress: Progress = no_progress,
) -> RegisterEvaluation:
    """The evaluation with one more register: text that the model writes itself."""
    share = settings.choose_tokens // (len(choose.parts) + 1)
    windows = sample_windows(scored, tokens=share, seed=settings.seed, progress=progress)
    return RegisterEvaluation({**choose.parts, SAMPLES: Evaluation.of_windows(scored, windows)})


def _split_batches(scored: ScoredModel, batches: Sequence[Inputs]) -> dict[str, RegisterEvaluation]:
    """Use every fourth batch to choose and fit; the others take turns to shrink, decide, report."""
    if len(batches) < FEWEST_BATCHES:
        raise OptionError(
            f"the number of batches is {len(batches)}: give at least {FEWEST_BATCHES}, for "
            "fitting, choosing a ridge, deciding and measuring"
        )
    fit = batches[0::4]
    parts = {"fit": fit, "choose": fit}
    parts |= {
        step: batches[start::4] for start, step in enumerate(("shrink", "decide", "report"), 1)
    }
    return {
        step: RegisterEvaluation(
            {OWN_TEXT: Evaluation.of_batches(scored.model, scored.objective, part)}
        )
        for step, part in parts.items()
    }


def cut_search(
    registers: RegisterEvaluation, settings: PruneSettings, progress: Progress = no_progress
) -> CutSearch:
    """The search for heads to cut, by the policy that suits the model."""

    def report(stage: str, done: int, total: int, /) -> None:
        progress(f"choosing heads: {stage}", done, total)

    evaluation = registers.whole
    if not evaluation.heads:
        name = type(evaluation.model).__name__
        raise OptionError(f"{name} has no heads left: there is nothing to cut")
    found = find_layers(evaluation.model, evaluation.samples[0].inputs)
    names = {name for layer in found.layers for name in layer.names}
    if refused := [*dict.fromkeys([*found.refused, *evaluation.left_out])]:
        progress(f"leaving {join_words(refused)} as they are", 0, 0)
    counts = {name: pair for name, pair in evaluation.counts.items() if name in names}
    heads = [head for head in evaluation.heads if head.layer_name in names]
    registers = choosing_registers(registers, settings.choose_dtype)
    evaluation = registers.whole
    means = None
    if settings.refit != "none":
        means = mean_outputs(evaluation.model, [sample.inputs for sample in evaluation.samples])
    shared = tuple(layer.names for layer in found.layers if len(layer.names) > 1)
    search = CutSearch(
        registers,
        share_units(whole_groups(heads, counts), shared),
        None if means is None else means.averaged(shared),
        shared_layers=shared,
        is_uniform=settings.is_uniform,
        draws=SENTENCE_DRAWS if evaluation.objective.reads_sentences else WINDOW_DRAWS,
        seed=settings.seed,
        progress=report,
    )
    if _policy(settings.policy, counts, progress) == "groups":
        return search
    costs = costs_alone(search)
    if has_gradients(evaluation):
        scores = gradients(
            evaluation, draws=search.draws, means=means, has_slopes=False, progress=report
        )
        costs = list(map(max, costs, (scores.interaction.diagonal() / 2).tolist()))
    costs = [cost for head, cost in zip(evaluation.heads, costs, strict=True) if head in heads]
    units = share_units(one_of_each_group(heads, counts, costs), shared)
    return replace(search, units=units, is_nested=True)


def _policy(policy: str, counts: HeadCounts, progress: Progress) -> str:
    """The policy to use for a model; raises OptionError if it has nothing to cut that way."""
    shared = [heads for heads, kv_heads in counts.values() if kv_heads == 1]
    is_one_group = len(shared) == len(counts) and any(heads > 1 for heads in shared)
    if policy == "auto" and is_one_group:
        progress(
            "each layer has one KV head, so a group would be a whole layer: cutting single query "
            "heads instead (policy even)",
            0,
            0,
        )
        return "even"
    if policy == "groups" and is_one_group:
        raise OptionError(
            "policy is 'groups', but each layer has one KV head, so a group is a whole layer: "
            "choose even, or cut layers by name with heads",
            option="policy",
        )
    if policy == "even" and all(heads == kv_heads for heads, kv_heads in counts.values()):
        raise OptionError(
            "policy is 'even', but every KV head serves only one head, so there is nothing to cut: "
            "choose groups",
            option="policy",
        )
    return "groups" if policy == "auto" else policy
