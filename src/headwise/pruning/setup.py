"""PruneSetup: the uncut model, the text for each step, and the search for heads to cut.

In: a loaded model and texts or batches. Out: `PruneSetup`. No two evaluations in it share a
paragraph, except that heads are chosen and projections refitted on the same text.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadCounts
from headwise.objectives.evaluation import Evaluation, choose_batches, choose_texts
from headwise.objectives.objective import Objective
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.gradients import gradients
from headwise.pruning.record import OWN_TEXT, TextPart, TextUse
from headwise.pruning.selection.methods import CutSearch, one_of_each_group, whole_groups
from headwise.pruning.settings import PruneSettings
from headwise.pruning.surgery.attention_layers import find_layers
from headwise.reading.batch import Inputs
from headwise.reading.python_manual import split_documents
from headwise.watching.running import layer_inputs
from headwise.watching.sites import find_sites

RIDGE_SHARE = 0.2
"""Share of the refitting text that is set aside to choose the ridge on."""
CHECKED = 4
"""Number of examples on which a cut model is compared with the silenced one."""
FEWEST_BATCHES = 3


@dataclass(frozen=True, eq=False)
class PruneSetup:
    """An uncut model, its evaluation on the text for each step, and everything else a cut needs."""

    scored: ScoredModel
    choose: Evaluation
    fit: Evaluation
    ridge: Evaluation
    """Evaluation on text used to choose the ridge and to decide whether to keep the refit."""
    held_out: Evaluation
    """Evaluation on text that figures are reported on."""
    search: CutSearch
    settings: PruneSettings
    source: str = OWN_TEXT
    """`OWN_TEXT`, or the name of the built-in text."""
    progress: Progress = no_progress

    @property
    def objective(self) -> Objective:
        """The objective that heads are judged by: the scored model's, or one that reads labels."""
        return self.held_out.objective

    @property
    def counts(self) -> HeadCounts:
        """Number of heads and KV heads in each layer of the uncut model."""
        return self.choose.counts

    @property
    def inputs(self) -> Inputs:
        """A few examples to compare models on, without labels if the model needs none."""
        batch = layer_inputs(self.scored.model, self.held_out.samples[-1].inputs)
        return {name: value[:CHECKED] for name, value in batch.items()}

    def text_use(self) -> TextUse:
        """How much text each step used, with digests."""
        steps = (self.choose, self.fit, self.ridge, self.held_out)
        return TextUse(self.source, *map(_text_part, steps))


def _text_part(evaluation: Evaluation) -> TextPart:
    digest = hashlib.sha256()
    for sample in evaluation.samples:
        for name in sorted(sample.inputs):
            numbers = sample.inputs[name].cpu().flatten().view(torch.uint8)  # numpy has no bfloat16
            digest.update(name.encode() + numbers.numpy().tobytes())
    size = evaluation.describe_size()
    return TextPart(evaluation.num_examples, evaluation.num_tokens, size, digest.hexdigest())


def prepare_setup(
    scored: ScoredModel,
    settings: PruneSettings,
    *,
    texts: str | Sequence[str] | None = None,
    batches: Iterable[Inputs] | None = None,
    progress: Progress = no_progress,
) -> PruneSetup:
    """Check that the model can be pruned and divide `texts`, or `batches`, among the steps.

    Texts are split by document. The built-in texts are used if both are None.
    """
    find_layers(scored.model)  # raises if its heads cannot be cut
    if any(site.layer_loop is not None for site in find_sites(scored.model)):
        raise ModelError(
            f"{scored.name} cannot be pruned layer by layer: its layers share their weights; cut "
            "the same heads in all layers with headwise.cut"
        )
    if batches is not None:
        parts = _split_batches(scored, choose_batches(scored.model, batches, texts))
    else:
        parts = _split_texts(scored, choose_texts(texts), settings)
    choose, fit, ridge, held_out = parts
    for evaluation in (choose, held_out):
        evaluation.finite_loss(scored.name)
    search = _cut_search(choose, settings, progress)
    source = "the built-in corpus" if texts is None and batches is None else OWN_TEXT
    return PruneSetup(scored, choose, fit, ridge, held_out, search, settings, source, progress)


def _split_texts(
    scored: ScoredModel, texts: Sequence[str], settings: PruneSettings
) -> tuple[Evaluation, ...]:
    seed, most = settings.seed, settings.fit_tokens
    fitting, held_out = split_documents(texts, seed=seed)
    try:
        fit, ridge = split_documents(fitting, held_out=RIDGE_SHARE, seed=seed + 1)
    except OptionError as error:
        raise OptionError(
            "the text has 2 paragraphs: give at least 3, separated by blank lines, for fitting, "
            "choosing a ridge and measuring"
        ) from error
    evaluate = partial(Evaluation.of_texts, scored)
    return (
        evaluate(fit, max_tokens=settings.choose_tokens, seed=seed),
        evaluate(fit, max_tokens=most, seed=seed + 1, has_losses=False),
        evaluate(ridge, max_tokens=most // 4, seed=seed),
        evaluate(held_out, max_tokens=settings.held_tokens, seed=seed),
    )


def _split_batches(scored: ScoredModel, batches: Sequence[Inputs]) -> tuple[Evaluation, ...]:
    """Hold out every fourth batch; choose the ridge on every fourth of the rest."""
    if len(batches) < FEWEST_BATCHES:
        raise OptionError(
            f"the number of batches is {len(batches)}: give at least {FEWEST_BATCHES}, for "
            "fitting, choosing a ridge and measuring"
        )
    rest = [batch for index, batch in enumerate(batches) if index % 4 != 2]
    fitting = [batch for index, batch in enumerate(rest) if index % 4 != 1]
    fit, ridge, held_out = (
        Evaluation.of_batches(scored.model, scored.objective, part)
        for part in (fitting, rest[1::4], batches[2::4])
    )
    return fit, fit, ridge, held_out


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
