"""PruneSetup: the uncut model, the text for each step, and the search for heads to cut.

In: a loaded model and texts or batches. Out: `PruneSetup`. Which text serves which step is decided
in text_sets.py; batches are divided in the same proportions.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadCounts
from headwise.objectives.evaluation import Evaluation, choose_batches
from headwise.objectives.objective import Objective
from headwise.objectives.registers import RegisterEvaluation, RegisterLosses
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.gradients import gradients
from headwise.pruning.record import TextPart, TextUse
from headwise.pruning.selection.methods import CutSearch, one_of_each_group, whole_groups
from headwise.pruning.settings import PruneSettings
from headwise.pruning.surgery.attention_layers import find_layers
from headwise.pruning.text_sets import OWN_TEXT, TextSets, Texts, builtin_sets, other_texts, own_sets
from headwise.reading.batch import Inputs
from headwise.reading.reader import as_documents
from headwise.watching.gates import mean_outputs
from headwise.watching.running import layer_inputs
from headwise.watching.sites import find_sites

CHECKED = 4
"""Number of examples on which a cut model is compared with the silenced one."""
FEWEST_BATCHES = 4


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
    progress: Progress = no_progress,
) -> PruneSetup:
    """Check that the model can be pruned and divide `texts`, or `batches`, among the steps.

    The built-in texts are used if both are None.
    """
    find_layers(scored.model)  # raises if its heads cannot be cut
    if any(site.layer_loop is not None for site in find_sites(scored.model)):
        raise ModelError(
            f"{scored.name} cannot be pruned layer by layer: its layers share their weights; cut "
            "the same heads in all layers with headwise.cut"
        )
    other = None
    if batches is not None:
        parts = _split_batches(scored, choose_batches(scored.model, batches, texts))
    else:
        documents = as_documents(texts)
        if documents is None:
            sets = builtin_sets(settings.fold)
        else:
            sets = own_sets(documents, settings.seed)
            other = _evaluate(scored, other_texts(), settings.held_tokens, settings.seed)
        parts = _evaluate_sets(scored, sets, settings)
    for step in ("choose", "report"):
        parts[step].whole.finite_loss(scored.name)
    search = _cut_search(parts["choose"], settings, progress)
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
        "decide": settings.held_tokens,
        "report": settings.held_tokens,
    }
    return {
        step: _evaluate(
            scored,
            getattr(sets, step),
            tokens[step],
            settings.seed,
            has_losses=step not in ("fit", "shrink"),
        )
        for step in STEPS
    }


def _evaluate(
    scored: ScoredModel, texts: Texts, tokens: int, seed: int, *, has_losses: bool = True
) -> RegisterEvaluation:
    """The evaluation on about `tokens` tokens, equally many of each register."""
    share = max(LEAST_TOKENS, tokens // len(texts))
    return RegisterEvaluation(
        {
            name: Evaluation.of_texts(
                scored, documents, max_tokens=share, seed=seed, has_losses=has_losses
            )
            for name, documents in texts.items()
        }
    )


def _split_batches(
    scored: ScoredModel, batches: Sequence[Inputs]
) -> dict[str, RegisterEvaluation]:
    """Report on every fourth batch, decide on the next, shrink on the one after; fit on the rest."""
    if len(batches) < FEWEST_BATCHES:
        raise OptionError(
            f"the number of batches is {len(batches)}: give at least {FEWEST_BATCHES}, for "
            "fitting, choosing a ridge, deciding and measuring"
        )
    fit = batches[0::4]
    parts = {"fit": fit, "choose": fit}
    parts |= {step: batches[start::4] for start, step in enumerate(("shrink", "decide", "report"), 1)}
    return {
        step: RegisterEvaluation(
            {OWN_TEXT: Evaluation.of_batches(scored.model, scored.objective, part)}
        )
        for step, part in parts.items()
    }


def _cut_search(evaluation: Evaluation, settings: PruneSettings, progress: Progress) -> CutSearch:
    def report(stage: str, done: int, total: int, /) -> None:
        progress(f"choosing heads: {stage}", done, total)

    heads, counts = evaluation.heads, evaluation.counts
    if not heads:
        name = type(evaluation.model).__name__
        raise OptionError(f"{name} has no heads left: there is nothing to cut")
    search = CutSearch(
        evaluation,
        whole_groups(heads, counts),
        is_uniform=settings.is_uniform,
        seed=settings.seed,
        progress=report,
    )
    if settings.policy == "groups":
        return search
    if all(num_heads == num_kv_heads for num_heads, num_kv_heads in counts.values()):
        raise OptionError(
            "policy is 'even', but every KV head serves only one head, so there is nothing to cut: "
            "choose groups",
            option="policy",
        )
    advice = "choose policy groups, because policy even needs gradients"
    scores = gradients(evaluation, draws=search.draws, advice=advice, progress=report)
    units = one_of_each_group(heads, counts, scores.expected.tolist())
    return replace(search, units=units, is_nested=True)
