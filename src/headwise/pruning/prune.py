"""Prune: choose heads on some text, cut them, refit what is left, and prove it on other text.

In: a model, how much is to go, and text. Out: a smaller model, the plan of the cut, the curve that
it lies on, and a record of what was measured. The model that was given stays as it is.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from headwise.errors import HeadwiseError, OptionError
from headwise.files import write_aside
from headwise.formats import finite, format_count
from headwise.heads import HeadCounts, HeadId, parse_heads
from headwise.models.loaded import Source
from headwise.objectives.evaluation import Estimate
from headwise.objectives.objective import Objective
from headwise.pruning.bench import (
    PruneSetup,
    RefittedCut,
    about_text,
    cut_and_refit,
    describe_budget,
    largest_within,
    make_bench,
)
from headwise.pruning.export.directories import check_place
from headwise.pruning.export.export import (
    Export,
    check_weights,
    export,
    sentence_modules,
    written_in,
)
from headwise.pruning.export.model_card import measured_lines
from headwise.pruning.export.onnx import check_inputs, check_model, check_packages, export_onnx
from headwise.pruning.export.sizes import (
    POSITIONS,
    Speed,
    full_batch,
    not_timed,
    sizes_of,
    time_both,
)
from headwise.pruning.importance.ablation import Progress, untold
from headwise.pruning.selection.curve import (
    RANDOM_ORDERS,
    Curve,
    as_csv,
    draw_curve,
    mean_of_orders,
    quality,
)
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.selection.methods import CutOrder, CutSearch, order_by, random_cut
from headwise.pruning.setting import make_subject, most_tokens
from headwise.pruning.settings import Amount, PruneSettings, to_go
from headwise.pruning.surgery.cut import head_counts, planned
from headwise.pruning.units import Unit
from headwise.reading.reader import position_limit
from headwise.watching.running import Inputs, in_evaluation, read_by

BATCHES = (1, 16)
"""Sizes of the batches whose speed is measured, where their outputs are not too large."""


@dataclass(frozen=True, eq=False)
class Pruned:
    """A smaller model and everything that is known of it."""

    model: nn.Module
    plan: CutPlan
    record: dict[str, Any]
    """What `prune.json` holds."""
    curve: Curve | None = None
    export: Export | None = None
    onnx_difference: float | None = None
    """Largest difference of the ONNX model's outputs, where one was asked for."""

    def __repr__(self) -> str:
        """One line: what was cut from what."""
        return f"Pruned({self.plan.model!r}, {format_count(len(self.plan), 'head')} cut)"


def prune(  # noqa: PLR0913 - the ways to say how much goes, each by its name
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
    progress: Progress = untold,
) -> Pruned:
    """The model without the heads that it needs least; with `out`, as a directory that loads.

    How much goes is said by one of `heads` ("L0H1 L2H3" or a plan), `cut` (how many heads), `keep`
    (the share that stays) and `max_loss` (0.01: the largest cut that costs no more than 1% of
    perplexity or of a loss of your own, 0.01 of cosine, 0.01 nats of others). It is measured on
    `texts`, or on `batches` of what the model takes, which may hold labels.

    pruned = headwise.prune("minilm", "smaller", keep=0.6)
    """
    named = str(heads) if isinstance(heads, CutPlan) else heads
    amount = Amount(heads=named, cut=cut, keep=keep, max_loss=max_loss)
    place = None if out is None else Path(out).expanduser()
    if place is not None:
        check_place(place, force=force)
    if with_onnx:
        if place is None:
            raise OptionError("an ONNX file is written beside a model: give out, a directory")
        check_packages()
    subject = make_subject(source, tokenizer, objective)
    if place is not None:
        check_weights(subject.model)
        sentence_modules(subject.folder)  # raises before the long work where they are broken
    if with_onnx:
        check_model(subject.model)
    with in_evaluation(subject.model):
        bench = make_bench(subject, texts, settings or PruneSettings(), progress, batches=batches)
        if with_onnx:
            check_inputs(bench.inputs)
        plan, curve, found = choose_heads(
            bench, amount, heads if isinstance(heads, CutPlan) else None
        )
        found = found or cut_and_refit(bench, plan.heads)
        written_too = "" if place is None else ", and writing it"
        bench.progress(f"measuring what is left{written_too}", 0, 1)
        if curve is not None and found.fits:
            curve = curve.with_point("cut and refitted", len(plan), found.loss)
        record = finite({"amount": amount.given()} | record_of(bench, plan, found, curve))
        pruned = Pruned(found.model, plan, record, curve)
        if place is None:
            return pruned
        written = export(
            found.model,
            place,
            tokenizer=subject.tokenizer,
            source=subject.folder,
            inputs=bench.inputs,
            force=force,
            extras=extras_of(plan, record, curve),
        )
        pruned = replace(pruned, export=written)
        return with_onnx_beside(pruned, bench.inputs) if with_onnx else pruned


def with_onnx_beside(pruned: Pruned, inputs: Inputs) -> Pruned:
    """The same with a `model.onnx` in its directory; the model there stays if none can be made."""
    assert pruned.export is not None
    place = pruned.export.path
    try:
        difference = export_onnx(pruned.model, place / "model.onnx", inputs)
    except HeadwiseError as error:
        raise type(error)(f"{error}; the smaller model itself is in {place}") from error
    record = pruned.record | {"onnx_difference": difference}
    write_aside(place / "prune.json", json.dumps(record, indent=1))
    return replace(
        pruned, record=record, export=written_in(pruned.export), onnx_difference=difference
    )


def choose_heads(
    bench: PruneSetup, amount: Amount, given: CutPlan | None = None
) -> tuple[CutPlan, Curve | None, RefittedCut | None]:
    """Which heads go, the curve of what other cuts would cost, and the cut model if it is made."""
    problem, settings = bench.problem, bench.settings
    cuttable = sum(len(unit.heads) for unit in problem.cuttable)
    wanted = amount.wanted(len(problem.heads), cuttable)
    check_least(problem, wanted)
    plan = None if amount.heads is None else named_plan(bench, amount.heads, given)
    bench.progress(
        f"{amount_in_words(bench, amount, wanted if plan is None else len(plan))}, "
        f"{ways_of_text(bench, has_order=settings.draws_curve or plan is None)}",
        0,
        0,
    )
    order = curve = None
    if settings.draws_curve or plan is None:
        needs_all = settings.draws_curve or wanted is None
        most = None if needs_all or wanted is None else wanted // smallest(problem.units)
        order = order_by(settings.method, problem, count=most)
    if settings.draws_curve and order is not None:
        curve = draw_curve(bench.held_out, problem, order, progress=bench.progress)
    if plan is not None:
        return plan, curve, None
    assert order is not None
    step = len(problem.units_by_layer) if settings.is_uniform else 1
    if wanted is None:
        assert amount.max_loss is not None
        count, found = largest_within(bench, order.units, amount.max_loss, step=step)
        return plan_of(bench, order, count), curve, found
    count = fitting(order.units, wanted, step)
    if wanted and not count:  # layers have units of different sizes
        first = sum(len(unit.heads) for unit in order.units[:step])
        raise OptionError(
            f"{to_go(wanted)}, and the first that {settings.method} cuts are {first} "
            "at once: cut as many, or name heads"
        )
    return plan_of(bench, order, count), curve, None


def check_least(problem: CutSearch, wanted: int | None) -> None:
    """Raise where the smallest cut takes more heads than are to go."""
    sizes = {unit.layer: len(unit.heads) for unit in problem.units}
    least = sum(sizes.values()) if problem.is_uniform else min(sizes.values())
    if wanted and wanted < least:
        raise OptionError(
            f"{to_go(wanted)}, and the smallest cut of this model takes {least}: give at "
            "least as many"
        )


def step_of(problem: CutSearch) -> int:
    """How many heads go at a time: a KV group's, of every layer in a uniform cut.

    1 where layers differ, for then it depends on which are chosen.
    """
    sizes = {len(unit.heads) for unit in problem.units}
    layers = len(problem.units_by_layer) if problem.is_uniform else 1
    return min(sizes) * layers if len(sizes) == 1 else 1


def amount_in_words(bench: PruneSetup, amount: Amount, count: int | None) -> str:
    """How many of the model's heads go; `count` is None where that has to be measured."""
    total, at_once = len(bench.problem.heads), step_of(bench.problem)
    if count is None:
        most = describe_budget(bench.subject.objective, amount.max_loss or 0.0)
        return f"as many of {total} heads go as cost no more than {most}"
    asked, count = count, count if amount.heads is not None else count - count % at_once
    verb = "is" if count == 1 else "are"
    steps = "" if count == asked else f" ({asked} asked for; {at_once} go at a time)"
    return f"{count} of {total} heads {verb} to go{steps}, {total - count} to stay"


def ways_of_text(bench: PruneSetup, *, has_order: bool) -> str:
    """What the text is used for, in words."""
    used = [f"measured on {bench.held_out.amount} of other text"]
    if bench.settings.refit != "none":
        used.insert(0, f"fitted on {bench.fit.amount}")
    if has_order:
        used.insert(0, f"chosen on {bench.problem.task.amount}")
    return ", ".join(used)


def named_plan(bench: PruneSetup, heads: str, given: CutPlan | None) -> CutPlan:
    """A plan of named heads that this model can lose."""
    plan = given
    if plan is None:
        plan = CutPlan(parse_heads(heads), bench.subject.name, bench.counts, "named")
    plan.check(bench.counts)
    planned(
        bench.subject.model, plan.heads
    )  # raises before the long work where a group would break
    method = plan.method or "named"
    return replace(plan, counts=bench.counts, model=bench.subject.name, method=method)


def smallest(units: Sequence[Unit]) -> int:
    """Heads of the smallest unit."""
    return min(len(unit.heads) for unit in units)


def fitting(units: Sequence[Unit], wanted: int, step: int) -> int:
    """How many of the units hold no more than so many heads, in whole steps."""
    count = heads = 0
    for unit in units:
        heads += len(unit.heads)
        if heads > wanted:
            break
        count += 1
    return count - count % step


def plan_of(bench: PruneSetup, order: CutOrder, count: int) -> CutPlan:
    """The first units of an order as a plan, with a reason and a cost for every head."""
    reasons: dict[HeadId, str] = {}
    costs: dict[HeadId, float] = {}
    for place, unit in enumerate(order.units[:count]):
        cost = order.costs[place]
        for head in unit.heads:
            known = math.isfinite(cost)  # a random order has no costs, and a plan holds no others
            others = len(unit.heads) - 1
            together = f", with {format_count(others, 'other')}" if others else ""
            reasons[head] = f"number {place + 1} by {order.method}{together}"
            if known:
                costs[head] = cost / len(unit.heads)
    return CutPlan(
        order.first(count),
        bench.subject.name,
        bench.counts,
        order.method,
        reasons,
        costs,
        {"seed": bench.settings.seed, "headwise": version("headwise")},
    )


def record_of(
    bench: PruneSetup, plan: CutPlan, found: RefittedCut, curve: Curve | None
) -> dict[str, Any]:
    """Everything that was measured, as JSON can hold it."""
    model, settings = bench.subject.model, bench.settings
    positions = min(POSITIONS, longest(bench))
    sizes = {
        "before": asdict(sizes_of(model, bench.counts, positions=positions)),
        "after": asdict(sizes_of(found.model, counts_after(bench, found), positions=positions)),
    }
    return {
        "model": bench.subject.about,
        "heads_cut": str(plan),
        "method": plan.method,
        "settings": asdict(settings),
        "text": about_text(bench)
        | {"source": "given" if bench.has_own_text else "Python's manual"},
        "sizes": sizes,
        "cut_against_silenced": found.surgery.difference,
        "quality": qualities(bench, plan, found, curve),
        "refit": [asdict(one) for one in found.fits],
        "speed": [asdict(one) for one in speeds(bench, found, positions)],
        "versions": {name: version(name) for name in ("headwise", "torch", "transformers")},
    }


def longest(bench: PruneSetup) -> int:
    """The most tokens that the model takes."""
    return position_limit(bench.subject.tokenizer, bench.subject.model.config)


def counts_after(bench: PruneSetup, found: RefittedCut) -> HeadCounts:
    """Heads of the cut model by layer, of those layers that were counted before."""
    return {layer: own for layer, own in head_counts(found.model).items() if layer in bench.counts}


def qualities(
    bench: PruneSetup, plan: CutPlan, found: RefittedCut, curve: Curve | None
) -> dict[str, Any]:
    """What the model scores on held-out text: uncut, cut, refitted, cut at random, no attention."""
    unit = bench.subject.objective.unit
    uncut = bench.held_out.loss() if curve is None else curve.uncut

    def said(one: Estimate) -> dict[str, float]:
        return {"loss": one.value, "loss_se": one.error, unit: quality(one.value, unit)}

    seeds = range(bench.settings.seed + 1, bench.settings.seed + RANDOM_ORDERS + 1)
    cuts = [random_cut(bench.problem, plan.heads, seed) for seed in seeds]
    chances = [bench.held_out.loss(heads) for heads in cuts]
    shown: dict[str, Any] = {
        "objective": bench.subject.objective.name,
        "unit": unit,
        "uncut": said(uncut),
        "cut": said(found.unrefitted),
        "refitted": said(found.loss) if found.fits else None,
        "random": [said(one) for one in chances],
        "random_mean": said(mean_of_orders(chances)),
        "refit_dropped": found.is_dropped,
    }
    if curve is not None:
        shown["floor"] = said(curve.floor)
    return shown


def speeds(bench: PruneSetup, found: RefittedCut, positions: int) -> list[Speed]:
    """How long uncut and cut model take, side by side, for batches whose output is not too large.

    Not measured of models that read more than tokens.
    """
    inputs = read_by(bench.subject.model, bench.held_out.samples[0].inputs)
    if not bench.settings.times_speed:
        return []
    others = not_timed(inputs)
    if others:
        bench.progress(f"the speed is not measured of models that read {', '.join(others)}", 0, 0)
        return []
    most = max(1, most_tokens(bench.subject) // positions)
    return [
        time_both(bench.subject.model, found.model, full_batch(inputs, batch, positions))
        for batch in dict.fromkeys(min(batch, most) for batch in BATCHES)
    ]


def extras_of(plan: CutPlan, record: dict[str, Any], curve: Curve | None) -> dict[str, str]:
    """Files that go beside the model, by name."""
    found = {
        "README.md": measured_lines(record),
        "prune.json": json.dumps(record, indent=1),
        "plan.json": plan.to_json(),
    }
    if curve is not None:
        found["curve.csv"] = as_csv(curve)
        found["curve.svg"] = curve.svg(f"{plan.model}: quality against heads cut")
    return found
