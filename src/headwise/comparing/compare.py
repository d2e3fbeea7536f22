"""Compare: two models on the same text, for everyone who must show that one is no worse.

In: two models with the same tokenizer, and optionally texts. Out: `Comparison`, with the sizes and
speed of both, and their quality and agreement on the user's texts and on every register of the
built-in corpus.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.comparing.comparison import (
    ALL_REGISTERS,
    YOUR_TEXT,
    Comparison,
    TextComparison,
    check_comparison_folder,
)
from headwise.comparing.paired import PairedResults, join_results, run_both, with_neighbours
from headwise.errors import OptionError
from headwise.files import lock_folder, make_folder
from headwise.models.loaded import Source, open_model
from headwise.models.loading import LoadOptions
from headwise.objectives.evaluation import Estimate, Evaluation, estimate_ratio, max_batch_tokens
from headwise.objectives.objective import Objective
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.progress import Progress, no_progress
from headwise.pruning.export.sizes import POSITIONS, Sizes, Speed, sizes_of, time_batches
from headwise.pruning.record import ModelFacts
from headwise.reading.batch import Inputs
from headwise.reading.corpus import MANUAL, REGISTERS, corpus
from headwise.reading.python_manual import split_paragraphs
from headwise.reading.reader import as_documents, token_limit
from headwise.watching.running import in_evaluation

TEXT_NAMES = (*REGISTERS, MANUAL)
"""Registers of the built-in corpus, and Python's manual."""
NEIGHBOURS = 10
PASSAGE_WORDS = 160
"""Paragraphs are joined up to this many words: in English, nearly the 256 tokens of a window."""

ScoredPair = tuple[ScoredModel, ScoredModel]
EvaluatedPair = tuple[Evaluation, Evaluation]


class CompareStage(StrEnum):
    """A stage that takes long enough to report its steps."""

    TEXTS = "running both models on each kind of text"
    SPEED = "timing both models"


def compare(  # noqa: PLR0913 - all but the first three are keyword-only
    before: Source,
    after: Source,
    texts: str | Sequence[str] | None = None,
    *,
    registers: str | Sequence[str] = TEXT_NAMES,
    max_tokens: int = 2048,
    times_speed: bool = True,
    tokenizer: Any = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
    out: str | Path | None = None,
    force: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Comparison:
    """Compare two models with the same tokenizer: size, speed, quality and agreement.

    Quality and agreement are measured on `texts`, if given, and on each register of the built-in
    corpus, on at most `max_tokens` tokens of each. `tokenizer` replaces both models' own. If `out`
    is set, `compare.json` is written to that folder; `force` replaces an existing one.

    comparison = headwise.compare("minilm", "smaller")
    """
    folder = None if out is None else Path(out).expanduser()
    documents: dict[str, Sequence[str]] = dict(corpus(registers))
    own = as_documents(texts)
    if own is not None:
        documents = {YOUR_TEXT: own} | documents
    if not documents:
        raise OptionError("there is no text to compare on: pass texts or registers")
    with ExitStack() as stack:
        if folder is not None:
            check_comparison_folder(folder, force=force)
            make_folder(folder)
            stack.enter_context(lock_folder(folder))
        pair = open_both(before, after, tokenizer, objective)
        for scored in pair:
            stack.enter_context(in_evaluation(scored.model))
        evaluations = {
            name: evaluate_both(pair, name, parts, max_tokens=max_tokens, seed=seed)
            for name, parts in documents.items()
        }
        texts_compared, num_neighbours = _compare_texts(pair, evaluations, progress)
        sizes, speed = _measure_costs(pair, evaluations, progress, times_speed=times_speed)
        comparison = Comparison(
            model_before=ModelFacts(pair[0].name, pair[0].about),
            model_after=ModelFacts(pair[1].name, pair[1].about),
            objective=pair[0].objective.name,
            unit=pair[0].objective.unit,
            before=sizes[0],
            after=sizes[1],
            speed=speed,
            own_text=texts_compared.pop(YOUR_TEXT, None),
            all_registers=texts_compared.pop(ALL_REGISTERS, None),
            registers=tuple(texts_compared.values()),
            num_neighbours=num_neighbours,
            max_tokens=max_tokens,
            seed=seed,
            versions={name: version(name) for name in ("headwise", "torch", "transformers")},
        )
        if folder is not None:
            comparison.write(folder, force=force)
        return comparison


def open_both(
    before: Source,
    after: Source,
    tokenizer: Any = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
) -> ScoredPair:
    """Both models with their objectives; raises OptionError if these are of different kinds.

    A model without a tokenizer uses the other model's.
    """
    options = LoadOptions(keeps_head=True, needs_tokenizer=False)
    loaded = [open_model(source, tokenizer, options=options) for source in (before, after)]
    names = [model.name for model in loaded]
    tokenizers = [model.tokenizer for model in loaded if model.tokenizer is not None]
    if not tokenizers:
        raise OptionError(
            f"neither {names[0]} nor {names[1]} has a tokenizer: compare models that read text, or "
            "pass their tokenizer"
        )
    first, second = (
        open_scored_model(model, tokenizers[0] if model.tokenizer is None else None, objective)
        for model in loaded
    )
    if type(first.objective) is not type(second.objective):
        raise OptionError(
            f"{names[0]} is measured by {first.objective.name}, but {names[1]} by "
            f"{second.objective.name}: compare two models of the same kind"
        )
    return first, second


def evaluate_both(
    pair: ScoredPair, name: str, texts: Sequence[str], *, max_tokens: int, seed: int
) -> EvaluatedPair:
    """An evaluation of each model on the text called `name`.

    Raises OptionError if the models do not read the same tokens.
    """
    if not pair[0].objective.reads_sentences:
        texts = split_passages(texts)
    before, after = (
        Evaluation.of_texts(scored, texts, max_tokens=max_tokens, seed=seed, has_losses=False)
        for scored in pair
    )
    ids = [
        [sample.inputs["input_ids"].cpu() for sample in part.samples] for part in (before, after)
    ]
    if len(ids[0]) != len(ids[1]) or not all(map(torch.equal, *ids)):
        raise OptionError(
            f"{pair[0].name} and {pair[1].name} do not read {name} as the same tokens: compare "
            "models with the same tokenizer and the same longest text"
        )
    return before, after


def split_passages(texts: Iterable[str]) -> list[str]:
    """Every text in passages of whole paragraphs, of about PASSAGE_WORDS words or one paragraph.

    A sample of passages comes from all parts of a long text.
    """
    passages = []
    for text in texts:
        words, passage = 0, list[str]()
        for paragraph in split_paragraphs(text):
            count = len(paragraph.split())
            if passage and words + count > PASSAGE_WORDS:
                passages.append("\n\n".join(passage))
                words, passage = 0, []
            words, passage = words + count, [*passage, paragraph]
        if passage:
            passages.append("\n\n".join(passage))
    return passages


def _compare_texts(
    pair: ScoredPair, evaluations: Mapping[str, EvaluatedPair], progress: Progress
) -> tuple[dict[str, TextComparison], int]:
    """The models on every text and on all registers together, and the number of neighbours."""
    results = []
    for number, evaluated in enumerate(evaluations.values()):
        progress(CompareStage.TEXTS, number, len(evaluations))
        results.append(run_both(*evaluated, (pair[0].name, pair[1].name)))
    results, num_neighbours = with_neighbours(results, NEIGHBOURS)
    tokens = {name: before.num_tokens for name, (before, _) in evaluations.items()}
    by_name = dict(zip(evaluations, results, strict=True))
    registers = [name for name in evaluations if name != YOUR_TEXT]
    if registers:
        by_name[ALL_REGISTERS] = join_results([by_name[name] for name in registers])
        tokens[ALL_REGISTERS] = sum(tokens[name] for name in registers)
    compared = {name: summarize(name, part, tokens[name], pair) for name, part in by_name.items()}
    return compared, num_neighbours


def summarize(name: str, results: PairedResults, tokens: int, pair: ScoredPair) -> TextComparison:
    """Means and standard errors of the results on one text."""
    objective = pair[0].objective

    def mean(sums: Tensor | None) -> Estimate | None:
        return None if sums is None else estimate_ratio(sums, results.weights)

    losses = [estimate_ratio(sums, results.weights) for sums in (results.before, results.after)]
    for scored, loss in zip(pair, losses, strict=True):
        if not math.isfinite(loss.value):
            raise OptionError(
                f"the loss of {scored.name} on {name} is {loss.value}, so the models cannot be "
                "compared: use another dtype or other weights"
            )
    added = estimate_ratio(results.after - results.before, results.weights)
    before, after = losses
    if objective.needs_reference:
        after = added  # without the rounding error of the first model's distance to itself
    return TextComparison(
        name=name,
        examples=len(results.weights),
        tokens=tokens,
        loss_before=None if objective.needs_reference else before,
        loss_after=after,
        quality_before=None if objective.needs_reference else in_unit(before, objective),
        quality_after=in_unit(after, objective),
        loss_added=added,
        agreement=mean(results.agreeing),
        divergence=mean(results.divergence),
        neighbours_kept=mean(results.neighbours_kept),
    )


def in_unit(loss: Estimate, objective: Objective) -> Estimate:
    """A loss in the objective's unit; the error of a perplexity is to first order."""
    value = objective.quality(loss.value)
    return Estimate(value, loss.error * (value if objective.unit == "perplexity" else 1))


def _measure_costs(
    pair: ScoredPair,
    evaluations: Mapping[str, EvaluatedPair],
    progress: Progress,
    *,
    times_speed: bool,
) -> tuple[list[Sizes], tuple[Speed, ...]]:
    evaluated = next(iter(evaluations.values()))
    limits = [token_limit(scored.tokenizer, scored.model.config) for scored in pair]
    positions = min(POSITIONS, *(limit or POSITIONS for limit in limits))
    sizes = [sizes_of(part.model, part.counts, positions=positions) for part in evaluated]
    if not times_speed:
        return sizes, ()
    if pair[0].device != pair[1].device:
        progress("speed is not measured: the models are on different devices", 0, 0)
        return sizes, ()
    progress(CompareStage.SPEED, 0, 1)
    first = evaluated[0]
    most_tokens = max_batch_tokens(first.model, first.objective)
    inputs = first.samples[0].inputs
    models = (pair[0].model, pair[1].model)
    return sizes, time_batches(*models, inputs, positions=positions, most_tokens=most_tokens)
