"""Prune: choose heads on some text, cut them, refit the rest, measure the result on other text.

In: a model, the amount to cut, and text. Out: a smaller model, the cut plan, a curve of other
cuts, and a record of all measurements. The original model does not change.
"""

import copy
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from headwise.errors import HeadwiseError, OptionError
from headwise.formats import format_count
from headwise.heads import HeadId, parse_heads
from headwise.models.loaded import Source
from headwise.objectives.evaluation import Estimate, max_batch_tokens
from headwise.objectives.objective import Objective
from headwise.objectives.registers import RegisterEvaluation, RegisterLosses
from headwise.objectives.scored_model import open_scored_model
from headwise.progress import Progress, no_progress
from headwise.pruning.export.directories import check_destination, file_sizes
from headwise.pruning.export.export import Export, check_exportable, export, sentence_modules
from headwise.pruning.export.model_card import figures_section
from headwise.pruning.export.onnx import check_onnx_model, check_onnx_packages, export_onnx
from headwise.pruning.export.sizes import (
    POSITIONS,
    Speed,
    inputs_beyond_tokens,
    sizes_of,
    time_batches,
)
from headwise.pruning.importance.ablation import Unit
from headwise.pruning.record import CutScores, ModelFacts, PruneRecord, Quality, Score
from headwise.pruning.refit.mean_correction import add_mean_outputs
from headwise.pruning.refit.refit import LayerFit, refit
from headwise.pruning.refit.shrinkage import shrink_towards
from headwise.pruning.selection.curve import (
    RANDOM_ORDERS,
    Curve,
    as_csv,
    draw_curve,
)
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.selection.methods import CutOrder, CutSearch, order_units, random_cut
from headwise.pruning.settings import Amount, PruneSettings
from headwise.pruning.setup import PruneSetup, prepare_setup
from headwise.pruning.stages import PruneStage
from headwise.pruning.surgery.cut import Surgery, cut as cut_heads, head_counts, plan_slices
from headwise.reading.batch import Inputs
from headwise.reading.reader import token_limit
from headwise.watching.running import in_evaluation, layer_inputs


@dataclass(frozen=True, eq=False)
class Pruned:
    """A smaller model with its cut plan, measurements and exported files."""

    model: nn.Module
    plan: CutPlan
    record: PruneRecord
    curve: Curve | None = None
    export: Export | None = None

    def __repr__(self) -> str:
        return f"Pruned({self.plan.model!r}, {format_count(len(self.plan), 'head')} cut)"

    def to_json(self) -> str:
        """The record and the plan in one JSON document."""
        return json.dumps(
            json.loads(self.record.to_json()) | {"plan": json.loads(self.plan.to_json())}
        )


def prune(  # noqa: PLR0913 - one keyword per way to set the amount
    source: Source,
    out: str | Path | None = None,
    *,
    heads: str | CutPlan | None = None,
    cut: int | None = None,
    keep: float | None = None,
    max_loss: float | None = None,
    texts: str | Sequence[str] | None = None,
    batches: Iterable[Inputs] | None = None,
    tokenizer: Any = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
    settings: PruneSettings | None = None,
    with_onnx: bool = False,
    force: bool = False,
    progress: Progress = no_progress,
) -> Pruned:
    """Cut the heads that the model needs least; if `out` is set, write the smaller model there.

    Set the amount with exactly one of `heads` ("L0H1 L2H3" or a plan), `cut` (number of heads),
    `keep` (share of heads to keep) and `max_loss` (0.01 makes the largest cut that costs at most 1%
    of perplexity or of a custom loss, 0.01 of cosine, or 0.01 nats of any other loss). Heads are
    measured on `texts`, or on `batches` of model inputs, which may include labels.

    pruned = headwise.prune("minilm", "smaller", keep=0.6)
    """
    amount = Amount(None if heads is None else str(heads), cut, keep, max_loss)
    folder = None if out is None else Path(out).expanduser()
    if folder is not None:
        check_destination(folder, force=force)
    if with_onnx:
        if folder is None:
            raise OptionError("with_onnx is True, but out is not set: pass a directory to write to")
        check_onnx_packages()
    scored = open_scored_model(source, tokenizer, objective, needs_tokenizer=batches is None)
    if folder is not None:
        check_exportable(scored.model)
        sentence_modules(scored.folder)  # raises if modules.json is broken
    with in_evaluation(scored.model):
        settings = settings or PruneSettings()
        setup = prepare_setup(
            scored,
            settings,
            texts=texts,
            batches=batches,
            chooses=heads is None or settings.draws_curve,
            progress=progress,
        )
        if with_onnx:
            check_onnx_model(scored.model, setup.inputs)
        given_plan = heads if isinstance(heads, CutPlan) else None
        plan, curve, result = _choose_heads(setup, amount, given_plan)
        result = result or cut_and_refit(setup, plan.heads)
        progress(PruneStage.RESULT if folder is None else PruneStage.RESULT_AND_FILES, 0, 1)
        if curve is not None and result.fits:
            loss = setup.report.with_model(result.model).whole.loss()
            curve = curve.with_point("cut and corrected", len(plan), loss)
        record = _measure_result(setup, amount, plan, result, curve)
        pruned = Pruned(result.model, plan, record, curve)
        if folder is None:
            return pruned
        return _export(setup, pruned, folder, with_onnx=with_onnx, force=force)


def _export(
    setup: PruneSetup, pruned: Pruned, folder: Path, *, with_onnx: bool, force: bool
) -> Pruned:
    """Write the model and its files, which stay even if `model.onnx` then cannot be written."""
    plan, record, curve = pruned.plan, pruned.record, pruned.curve
    files = {
        "README.md": figures_section(record),
        "prune.json": record.to_json(),
        "plan.json": plan.to_json(),
    }
    if curve is not None:
        files["curve.csv"] = as_csv(curve)
        files["curve.svg"] = curve.svg(f"{plan.model}: quality against heads cut")
    exported = export(
        pruned.model,
        folder,
        tokenizer=setup.scored.tokenizer,
        source=setup.scored.folder,
        inputs=setup.inputs,
        force=force,
        extras=files,
    )
    if with_onnx:
        try:
            difference = export_onnx(pruned.model, exported.path / "model.onnx", setup.inputs)
        except HeadwiseError as error:
            raise type(error)(f"{error}; the smaller model itself is saved in {folder}") from error
        record = replace(record, onnx_difference=difference)
        record.write(exported.path)
        exported = replace(exported, files=file_sizes(exported.path))
    return replace(pruned, record=record, export=exported)


# Choosing the heads to cut.


def _choose_heads(
    setup: PruneSetup, amount: Amount, plan: CutPlan | None = None
) -> tuple[CutPlan, Curve | None, "RefittedCut | None"]:
    """The plan of heads to cut, the curve of other cuts, and the cut model if already built."""
    search, settings = setup.search, setup.settings
    has_curve = settings.draws_curve or amount.max_loss is not None
    cuttable = sum(len(unit) for unit in search.cuttable)
    count = amount.head_count(len(search.heads), cuttable)
    _check_smallest_cut(search, count)
    if amount.heads is not None:
        plan = plan or CutPlan(parse_heads(amount.heads))
        plan.check(setup.counts)
        plan_slices(setup.scored.model, plan.heads)  # raises if KV groups would differ in size
        method = plan.method or "named"
        plan = replace(plan, counts=setup.counts, model=setup.scored.name, method=method)
    setup.progress(_describe_work(setup, amount, count if plan is None else len(plan)), 0, 0)
    if plan is not None and not has_curve:
        return plan, None, None
    most = None  # a curve and max_loss need the order of all units
    if count is not None and not has_curve:
        most = count // min(len(unit) for unit in search.units)
    order = order_units(settings.method, search, count=most)
    curve = None
    if has_curve:
        curve = draw_curve(setup.report.whole, search, order, progress=setup.progress)
    if plan is not None:
        return plan, curve, None
    step = len(search.units_by_layer) if settings.is_uniform else 1
    result = None
    if amount.max_loss is not None:
        units, result = largest_within(setup, order.units, amount.max_loss, step=step)
    else:
        units = _units_within(order.units, count or 0, step)
    if count and not units:  # possible if units differ in size between layers
        first = sum(len(unit) for unit in order.units[:step])
        raise OptionError(
            f"cannot cut {format_count(count, 'head')}: the first cut by {settings.method} "
            f"removes {first}; ask for at least {first}, or name the heads"
        )
    return _plan_of_order(setup, order, units), curve, result


def _check_smallest_cut(search: CutSearch, count: int | None) -> None:
    sizes = [len(units[0]) for units in search.units_by_layer.values()]
    least = sum(sizes) if search.is_uniform else min(sizes)
    if count and count < least:
        raise OptionError(
            f"cannot cut {format_count(count, 'head')}: the smallest cut of this model removes "
            f"{least}; ask for at least {least}"
        )


def _units_within(units: Sequence[Unit], count: int, step: int) -> int:
    """Largest number of leading units, a multiple of `step`, with at most `count` heads in all."""
    heads = list(accumulate(len(unit) for unit in units))
    fitting = bisect_right(heads, count)
    return fitting - fitting % step


def _plan_of_order(setup: PruneSetup, order: CutOrder, count: int) -> CutPlan:
    reasons: dict[HeadId, str] = {}
    costs: dict[HeadId, float] = {}
    for index, (unit, cost) in enumerate(zip(order.units[:count], order.costs, strict=False)):
        others = len(unit) - 1
        together = f", with {format_count(others, 'other')}" if others else ""
        reasons |= dict.fromkeys(unit, f"number {index + 1} by {order.method}{together}")
        if math.isfinite(cost):  # a random order has no costs
            costs |= dict.fromkeys(unit, cost / len(unit))
    about = {"seed": setup.settings.seed, "headwise": version("headwise")}
    heads = order.first(count)
    return CutPlan(heads, setup.scored.name, setup.counts, order.method, reasons, costs, about)


def _describe_work(setup: PruneSetup, amount: Amount, count: int | None) -> str:
    """One line on how many heads are cut and on which text; `count` is None for `max_loss`."""
    search, settings, total = setup.search, setup.settings, len(setup.search.heads)
    if count is None:
        budget = setup.objective.describe_budget(amount.max_loss or 0.0)
        line = f"cutting as many of {total} heads as possible at a cost of at most {budget}"
    else:
        sizes = {len(unit) for unit in search.units}
        layers = len(search.units_by_layer) if search.is_uniform else 1
        step = min(sizes) * layers if len(sizes) == 1 and amount.heads is None else 1
        exact = count - count % step
        rounding = "" if exact == count else f" ({count} asked for; {step} are cut at a time)"
        line = f"cutting {exact} of {total} heads{rounding}, keeping {total - exact}"
    uses = [f"measured on {setup.report.whole.describe_size()} of other text"]
    if settings.refit != "none":
        uses.insert(0, f"corrected on {setup.fit.whole.describe_size()}")
    if settings.draws_curve or amount.heads is None:
        in_dtype = "" if settings.choose_dtype == "float32" else f" in {settings.choose_dtype}"
        uses.insert(0, f"chosen on {setup.choose.whole.describe_size()}{in_dtype}")
    return f"{line}: {', '.join(uses)}"


# Cutting and refitting.


@dataclass(frozen=True, eq=False)
class RefittedCut:
    """A cut model, and the correction that was kept."""

    model: nn.Module
    surgery: Surgery
    decided: RegisterLosses
    """Losses of `model` on the text that decides."""
    correction: str = "none"
    """`bias`, `full`, `wide` or `none`."""
    share: float = 0.0
    """Share of the correction that was applied."""
    fits: tuple[LayerFit, ...] = ()
    is_dropped: bool = False
    """Whether corrections were fitted, but none was kept."""


def cut_and_refit(setup: PruneSetup, heads: Sequence[HeadId]) -> RefittedCut:
    """A copy of the model without `heads`, with the correction that helps most, if any does.

    Candidates are a share of the cut heads' mean outputs, added to the biases, and then the refit
    of the settings. Each must lower the loss on the text that decides, all of it together and in
    the register that suffers most; a refit must do better than the bias alone.
    """
    uncut = setup.scored.model
    cut = copy.deepcopy(uncut)
    surgery = cut_heads(cut, heads, inputs=setup.inputs)
    best = RefittedCut(cut, surgery, setup.decide.with_model(cut).losses())
    if setup.settings.refit == "none" or not heads:
        return best
    for variant in dict.fromkeys(("bias", setup.settings.refit)):
        model = copy.deepcopy(cut)
        share, fits = _correct(setup, model, best.model, heads, variant)
        decided = setup.decide.with_model(model).losses()
        candidate = RefittedCut(model, surgery, decided, variant, share, fits)
        if candidate.decided.helps(best.decided, setup.uncut_decide):
            best = candidate
    return replace(best, is_dropped=best.correction == "none")


def _correct(
    setup: PruneSetup, cut: nn.Module, best: nn.Module, heads: Sequence[HeadId], variant: str
) -> tuple[float, tuple[LayerFit, ...]]:
    """Correct the cut model in place; returns the share that was applied, and what was fitted.

    A share of a refit is a share of the way from the `best` model so far.
    """
    uncut, fitting = setup.scored.model, setup.fit.whole.samples
    if variant == "bias":
        return add_mean_outputs(cut, uncut, heads, fitting, shrink=setup.shrink), ()
    choosing = {name: part.samples for name, part in setup.shrink.parts.items()}
    fits = refit(cut, uncut, fitting, choosing, variant=variant, progress=setup.progress)
    return shrink_towards(best, cut, setup.shrink), fits


def largest_within(
    setup: PruneSetup, units: Sequence[Unit], max_loss: float, *, step: int = 1
) -> tuple[int, RefittedCut]:
    """Number of leading units that can be cut within `max_loss` on the text that decides.

    Also returns that cut. Raises OptionError if not even the first `step` units can be cut.
    """
    base = setup.uncut_decide.overall.value
    budget = setup.objective.budget(base, max_loss)
    low, high = 0, len(units) // step + 1
    best: RefittedCut | None = None
    least = math.inf
    while high - low > 1:
        middle = (low + high) // 2
        heads = [head for unit in units[: middle * step] for head in unit]
        result = cut_and_refit(setup, heads)
        loss = result.decided.overall.value
        if loss <= budget:
            low, best = middle, result
        else:
            high, least = middle, loss - base
    if best is None:
        raise OptionError(
            f"max_loss is {setup.objective.describe_budget(max_loss)}, but the smallest cut adds "
            f"{least:.3g} to a loss of {base:.3g}: raise max_loss, or use cut or keep",
            option="max_loss",
        )
    return low * step, best


# Measuring the result.


def _measure_result(
    setup: PruneSetup, amount: Amount, plan: CutPlan, result: RefittedCut, curve: Curve | None
) -> PruneRecord:
    scored, left = setup.scored, head_counts(result.model, setup.inputs)
    limit = token_limit(scored.tokenizer, scored.model.config)
    positions = min(POSITIONS, limit or POSITIONS)
    after = {layer: left.get(layer, counts) for layer, counts in setup.counts.items()}
    return PruneRecord(
        amount=amount,
        model=ModelFacts(scored.name, scored.about),
        heads_cut=plan.heads,
        method=plan.method,
        settings=setup.settings,
        text=setup.text_use(),
        before=sizes_of(scored.model, setup.counts, positions=positions),
        after=sizes_of(result.model, after, positions=positions),
        quality=_measure_quality(setup, plan, result, curve),
        refit=result.fits,
        speed=_measure_speed(setup, result.model, positions),
        cut_against_silenced=result.surgery.difference,
        versions={name: version(name) for name in ("headwise", "torch", "transformers")},
    )


def _measure_quality(
    setup: PruneSetup, plan: CutPlan, result: RefittedCut, curve: Curve | None
) -> Quality:
    scores, registers, final = _score_cut(setup, setup.report, plan, result)
    means = setup.search.means if result.correction != "none" else None
    if means is not None and result.correction == "bias":
        means = means.scaled(result.share)
    seeds = range(setup.settings.seed + 1, setup.settings.seed + RANDOM_ORDERS + 1)
    random = sorted(
        (
            setup.report.losses(random_cut(setup.search, plan.heads, seed), means=means)
            for seed in seeds
        ),
        key=lambda losses: losses.overall.value,
    )
    lead = final.lead_over(random[(len(random) - 1) // 2])
    other, other_registers = None, dict[str, CutScores]()
    if setup.other is not None:
        other, other_registers, _ = _score_cut(setup, setup.other, plan, result)
    return Quality(
        objective=setup.objective.description,
        unit=setup.objective.unit,
        scores=scores,
        registers=registers,
        random=tuple(_score(setup, losses.overall) for losses in random),
        random_lead=lead.value,
        random_lead_se=lead.error,
        correction=result.correction,
        share=result.share,
        is_dropped=result.is_dropped,
        other=other,
        other_registers=other_registers,
        floor=None if curve is None else _score(setup, curve.floor),
    )


def _score_cut(
    setup: PruneSetup, text: RegisterEvaluation, plan: CutPlan, result: RefittedCut
) -> tuple[CutScores, dict[str, CutScores], RegisterLosses]:
    """Scores on all of a text and on each register, and the losses of the result."""
    uncut, cut = text.losses(), text.losses(plan.heads)
    final = cut if result.correction == "none" else text.with_model(result.model).losses()
    stages = (uncut, cut, final)
    by_register = {
        name: CutScores(*(_score(setup, losses.by_register[name]) for losses in stages))
        for name in text.parts
    }
    whole = CutScores(*(_score(setup, losses.overall) for losses in stages))
    return whole, by_register, final


def _score(setup: PruneSetup, loss: Estimate) -> Score:
    value = setup.objective.quality(loss.value)
    scale = value if setup.objective.unit == "perplexity" else 1.0
    return Score(loss.value, loss.error, value, loss.error * scale)


def _measure_speed(setup: PruneSetup, model: nn.Module, positions: int) -> tuple[Speed, ...]:
    """Times of both models; empty if timing is off or the models read more than tokens."""
    if not setup.settings.times_speed:
        return ()
    uncut = setup.scored.model
    inputs = layer_inputs(uncut, setup.report.whole.samples[0].inputs)
    others = inputs_beyond_tokens(inputs)
    if others:
        setup.progress(f"speed is not measured for models that read {', '.join(others)}", 0, 0)
        return ()
    most = max_batch_tokens(uncut, setup.objective)
    return time_batches(uncut, model, inputs, positions=positions, most_tokens=most)
