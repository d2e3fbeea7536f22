"""A refit makes up for cut heads where it can, makes no layer worse, and changes nothing else."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.objectives.evaluation import Evaluation
from headwise.pruning.refit.normal_equations import NormalEquations
from headwise.pruning.refit.refit import (
    RIDGES,
    LayerFit,
    best_correction,
    projection_at,
    refit,
)
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.watching.hooks import record
from headwise.watching.sites import find_sites, output_weight

from ...watching.helpers import allow_weights
from ...watching.tiny import inputs as inputs_of, ragged
from ...watching.tiny_configs import FAMILIES
from ..differences import mixed_plan
from ..tiny_models import (
    LENGTHS,
    assert_close,
    assert_unchanged,
    model_of,
    objective_of,
    state_of,
)

pytestmark = allow_weights
NAMES = ["bert", "gpt2", "llama", "gemma2", "bart", "t5", "gptj", "vit", "clip"]
RESIDUAL = {"gemma2": {False}, "gptj": {False}, "bart": {True, False}, "t5": {True, False}}
"""Where the residual stream is fitted: not where a norm or the feed-forward part comes between, nor
in blocks with two attentions; everywhere else."""
EACH = pytest.mark.parametrize("name", NAMES)


def task_on(model: nn.Module, name: str, *, batch: int = 8) -> Evaluation:
    """Two batches to fit on and one to choose on: `samples[:2]` and `samples[2:]`."""
    whole = inputs_of(FAMILIES["bert" if name == "embedding" else name], 3 * batch, 13)
    parts = {key: value.split(batch) for key, value in whole.items()}
    batches = [{key: parts[key][place] for key in parts} for place in range(3)]
    return Evaluation.of_batches(model, objective_of(name), batches)


def refitted(
    name: str, plan: list[str], *, variant: str = "full", uncut: nn.Module | None = None
) -> tuple[nn.Module, Evaluation, tuple[LayerFit, ...]]:
    """The cut model after its refit, the uncut model's task, and the result for each layer."""
    uncut = model_of(name) if uncut is None else uncut
    task = task_on(uncut, name)
    model = copy.deepcopy(uncut)
    cut(model, plan)
    fits = refit(model, uncut, task.samples[:2], {"other": task.samples[2:]}, variant=variant)
    return model, task, fits


@EACH
def test_no_layer_gets_worse_and_the_uncut_model_does_not_change(name: str) -> None:
    uncut = model_of(name)
    before = state_of(uncut)
    plan = mixed_plan(uncut)
    model, _, fits = refitted(name, plan, uncut=uncut)
    assert_unchanged(uncut, before)
    assert {fit.layer for fit in fits} == head_counts(model).keys() and len(fits) == len(
        find_sites(model)
    )
    assert {fit.is_residual for fit in fits} == RESIDUAL.get(name, {True})
    assert all(fit.after <= fit.before for fit in fits)
    assert any(fit.kind == "weights" and fit.after < 0.95 * fit.before for fit in fits)
    assert all((fit.kind == "nothing") == (fit.after == fit.before) for fit in fits)
    assert all((fit.kind == "weights") == (fit.ridge is not None) for fit in fits)
    unchanged = {place.output_projection for place in find_sites(model)}
    after = model.state_dict()
    added = after.keys() - before.keys()
    changed = added | {
        key
        for key, value in before.items()
        if value.shape == after[key].shape and not torch.equal(value, after[key])
    }
    if name in ("llama", "gemma2"):  # their setting adds biases of zero to other projections, too
        changed -= {key for key in added if not after[key].any()}
    owners = {id(one) for part in unchanged if part is not None for one in part.parameters()}
    assert changed <= {key for key, one in model.named_parameters() if id(one) in owners}


@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj", "gemma2"])
def test_a_wide_refit_fits_feed_forward_parts_too_and_harms_no_layer(name: str) -> None:
    uncut = model_of(name)
    before = state_of(uncut)
    _, _, fits = refitted(name, mixed_plan(uncut), variant="wide", uncut=uncut)
    assert_unchanged(uncut, before)
    assert all(fit.after <= fit.before for fit in fits)
    parts = [fit.part for fit in fits]
    # attention and feed-forward of GPT-J are added together, and Gemma 2 has a norm in between
    has_parts = name not in ("gptj", "gemma2")
    assert ("feed-forward" in parts) == has_parts
    assert parts.count("attention") == len(find_sites(uncut))


@pytest.mark.parametrize("variant", ["full", "wide", "bias"])
def test_a_refit_without_a_cut_changes_no_bit(variant: str) -> None:
    uncut = model_of("gpt2")
    before = state_of(uncut)
    model, _, fits = refitted("gpt2", [], variant=variant, uncut=uncut)
    assert_unchanged(model, before)
    assert all(fit.kind == "nothing" and fit.before == fit.after == 0 for fit in fits)


@torch.no_grad()
def with_copy(model: nn.Module) -> nn.Module:
    """L1H3 of BERT looks where L1H1 looks, and gives a linear function of what that gives."""
    attention = model.get_submodule("encoder.layer.1.attention.self")
    mine, theirs = slice(7, 14), slice(21, 28)
    for name in ("query", "key"):
        part = attention.get_submodule(name)
        part.weight[theirs], part.bias[theirs] = part.weight[mine], part.bias[mine]
    value, mix = attention.get_submodule("value"), torch.randn(7, 7, dtype=torch.float64)
    value.weight[theirs] = mix @ value.weight[mine]
    value.bias[theirs] = mix @ value.bias[mine]
    return model


def test_a_refit_replaces_a_head_that_is_a_linear_copy_of_a_kept_one() -> None:
    model, task, fits = refitted("embedding", ["L1H3"], uncut=with_copy(model_of("embedding")))
    first, second, third = fits
    assert first.kind == "nothing" and first.before == 0  # nothing was cut there
    assert second.ridge == RIDGES[-1]  # the weakest
    assert second.after < 0.02 * second.before
    loss, unfitted = task.with_model(model).loss().value, copy.deepcopy(task.model)
    cut(unfitted, "L1H3")
    assert loss < 0.02 * task.with_model(unfitted).loss().value
    assert third.before < 0.02 * second.before
    _, _, other = refitted("embedding", ["L1H3"])
    assert other[1].after > 0.1 * other[1].before


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_correction_is_the_ridge_regression_of_the_error(name: str) -> None:
    """In the first layer, computed from the inputs and outputs of its output projection."""
    uncut = model_of(name)
    plan = mixed_plan(uncut)[: 2 if name == "llama" else 1]
    model, task, fits = refitted(name, plan, uncut=uncut)
    bare = copy.deepcopy(uncut)
    cut(bare, plan)
    pairs = []
    for sample in task.samples:
        projections = {"own": first_projection(bare), "goal": first_projection(uncut)}
        with record(projections) as calls, torch.no_grad():
            bare(**sample.inputs)
            uncut(**sample.inputs)
        own, goal = calls
        pairs.append((own.input.flatten(0, 1), (goal.output - own.output).flatten(0, 1)))
    inputs, lacking = (torch.cat(one) for one in zip(*pairs[:2], strict=True))
    weight, bias = first_weights(bare)
    assert fits[0].ridge is not None
    x, y = inputs - inputs.mean(0), lacking - lacking.mean(0)
    gram = x.T @ x
    found = torch.linalg.solve(gram + fits[0].ridge * gram.diagonal().mean() * eye(gram), x.T @ y)
    got, new_bias = first_weights(model)
    scale = float(torch.linalg.cond(gram + fits[0].ridge * gram.diagonal().mean() * eye(gram)))
    assert (got - weight - found).abs().max() < scale * torch.finfo(torch.float32).eps
    want = (lacking - inputs @ found).mean(0)
    assert (new_bias - bias - want).abs().max() < scale * torch.finfo(torch.float32).eps
    held_in, held_lacking = pairs[2]
    left = held_lacking - held_in @ (got - weight) - (new_bias - bias)
    assert_close(torch.tensor(fits[0].after).double(), left.square().sum(1).mean(), torch.float32)


def eye(like: Tensor) -> Tensor:
    return torch.eye(len(like), dtype=like.dtype)


def first_projection(model: nn.Module) -> nn.Module:
    return projection_at(find_sites(model)[0])


def first_weights(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight `[concat d_model]` and bias, zeros if missing, of the first output projection."""
    projection = first_projection(model)
    weight, bias = output_weight(projection), getattr(projection, "bias", None)
    return weight, weight.new_zeros(weight.shape[1]) if bias is None else bias


def test_the_bias_variant_changes_only_biases() -> None:
    unfitted = model_of("gpt2")
    cut(unfitted, "L0H0")
    model, _, fits = refitted("gpt2", ["L0H0"], variant="bias")
    assert all(fit.after <= fit.before for fit in fits) and fits[0].kind == "bias"
    before = unfitted.state_dict()
    changed = {key for key, value in model.state_dict().items() if not value.equal(before[key])}
    assert "transformer.h.0.attn.c_proj.bias" in changed
    assert all(key.endswith("attn.c_proj.bias") for key in changed)


@pytest.mark.parametrize(
    ("name", "width"), [("bert", 7), ("gpt2", 7), ("llama", 8), ("mistral", 8), ("t5", 7)]
)
@pytest.mark.parametrize("is_emptied", [False, True])
@torch.no_grad()
def test_the_bias_variant_adds_the_mean_of_the_cut_heads(
    name: str, width: int, is_emptied: bool
) -> None:
    """In the first layer, by multiplying the cut heads' outputs with their rows of Wo."""
    uncut = model_of(name)
    plan = mixed_plan(uncut, empties=is_emptied)
    samples = task_on(uncut, name).samples
    model = copy.deepcopy(uncut)
    cut(model, plan)
    refit(model, uncut, samples, {"other": samples}, variant="bias")
    layer = find_sites(uncut)[0].layer_name
    columns = [
        int(head.rpartition("H")[2]) * width + place
        for head in plan
        if head.rpartition("H")[0] == layer
        for place in range(width)
    ]
    weight, bias = first_weights(uncut)
    assert (len(columns) == len(weight)) == is_emptied
    added = []
    for sample in samples:
        with record({"uncut": first_projection(uncut)}) as calls:
            uncut(**sample.inputs)
        added.append(calls[0].input.flatten(0, 1)[:, columns] @ weight[columns])
    got = first_weights(model)[1] - bias
    assert_close(got, torch.cat(added).mean(0), torch.float32)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "t5", "falcon"])
@pytest.mark.parametrize("variant", ["full", "bias"])
def test_a_layer_without_heads_outputs_its_refitted_bias(name: str, variant: str) -> None:
    uncut = model_of(name)
    plan = mixed_plan(uncut, empties=True)
    model, task, fits = refitted(name, plan, variant=variant, uncut=uncut)
    assert all(fit.after <= fit.before for fit in fits)
    bias, site = first_weights(model)[1], find_sites(model)[0]
    assert (fits[0].kind != "nothing") == bool((bias != first_weights(uncut)[1]).any())
    with record({"attention": site.module}) as calls, torch.no_grad():
        model(**task.samples[0].inputs)
    output = calls[0].output
    assert torch.equal(output, bias.expand_as(output))


@EACH
@pytest.mark.parametrize("variant", ["full", "bias"])
def test_every_layer_has_an_intercept_and_unused_biases_are_removed(
    name: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = []

    def without_correction(fit: NormalEquations, held: list[NormalEquations], _: str) -> Any:
        fitted.append(fit.has_bias)
        return None, None, held[0]

    unfitted = model_of(name)
    plan = mixed_plan(unfitted)
    cut(unfitted, plan)
    monkeypatch.setattr("headwise.pruning.refit.refit.best_correction", without_correction)
    model, _, fits = refitted(name, plan, variant=variant)
    assert fitted == [True] * len(fits)
    after, want = model.state_dict(), unfitted.state_dict()
    assert after.keys() == want.keys()
    assert all(torch.equal(after[key], want[key]) for key in want)
    assert model.config.to_json_string() == unfitted.config.to_json_string()


def test_a_model_that_was_cut_before_can_be_cut_and_refitted_again() -> None:
    uncut = model_of("gpt2")
    cut(uncut, [f"L1H{head}" for head in range(5)])
    _, _, fits = refitted("gpt2", ["L0H0"], uncut=uncut)
    assert [fit.layer for fit in fits] == ["L0", "L2"]
    assert fits[0].ridge is not None


def test_padding_does_not_change_a_refit() -> None:
    uncut = model_of("gpt2")
    batch, alone = ragged("gpt2", LENGTHS)
    garbage = {
        **batch,
        "input_ids": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 9),
    }
    found = []
    for batches in ([batch], [garbage], alone):
        model = copy.deepcopy(uncut)
        cut(model, "L0H1 L1H2")
        samples = Evaluation.of_batches(uncut, objective_of("gpt2"), batches).samples
        found.append(refit(model, uncut, samples, {"other": samples}))
    near = torch.finfo(torch.float32).eps ** 0.5  # a minimum moves by roots of what is rounded
    for other in found[1:]:
        assert [fit.ridge for fit in other] == [fit.ridge for fit in found[0]]
        for got, want in zip(other, found[0], strict=True):
            assert (got.before, got.after) == pytest.approx((want.before, want.after), rel=near)


def sums_of(inputs: Tensor, errors: Tensor) -> NormalEquations:
    sums = NormalEquations(2, 3, has_bias=True)
    sums.add(inputs, errors)
    return sums


INPUTS = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
ERRORS = INPUTS @ torch.ones(2, 3)


def test_a_correction_that_does_not_help_on_other_text_is_not_made() -> None:
    fitted, opposite = sums_of(INPUTS, ERRORS), sums_of(INPUTS, -ERRORS)
    for variant in ("full", "bias"):
        assert best_correction(fitted, [opposite], variant) == (None, None, opposite)
    assert best_correction(fitted, [fitted], "full")[0] == RIDGES[-1]
    nothing = NormalEquations(2, 3, has_bias=True)
    assert best_correction(nothing, [fitted], "full") == (None, None, fitted)


def test_one_register_that_suffers_prevents_a_correction() -> None:
    fitted, opposite = sums_of(INPUTS, ERRORS), sums_of(INPUTS, -ERRORS)
    assert best_correction(fitted, [fitted, opposite], "full")[1] is None
    assert best_correction(fitted, [opposite, fitted], "full")[1] is None


def test_the_ridge_is_the_best_for_the_worst_register() -> None:
    fitted, weak = sums_of(INPUTS, ERRORS), sums_of(INPUTS, 0.2 * ERRORS)
    ridge, correction, worst = best_correction(fitted, [fitted, weak], "full")
    assert correction is not None and worst is weak
    shares = {}
    for other in RIDGES[1:]:
        left = [rows.error_left(fitted.solve(other)) for rows in (fitted, weak)]
        shares[other] = max(left[0] / fitted.mean_square, left[1] / weak.mean_square)
    assert ridge == min(shares, key=lambda other: shares[other]) != RIDGES[-1]
    assert best_correction(fitted, [fitted], "full")[0] == RIDGES[-1]


def test_unknown_errors_prevent_a_correction() -> None:
    fitted = sums_of(INPUTS, ERRORS)
    unknown = sums_of(INPUTS, torch.full_like(ERRORS, torch.nan))
    for held_out in ([unknown], [fitted, unknown], [unknown, fitted]):
        assert best_correction(fitted, held_out, "full")[1] is None


def test_a_model_whose_layers_share_weights_raises() -> None:
    model = model_of("albert")
    task = task_on(model, "albert", batch=2)
    with pytest.raises(OptionError, match="AlbertForMaskedLM"):
        refit(model, model, task.samples[:1], {"other": task.samples[1:]})


def test_an_unknown_output_projection_raises() -> None:
    place = find_sites(model_of("gpt2"))[0]
    unknown = type(place)(**{**vars(place), "output_projection": None})
    with pytest.raises(ModelError, match=r"h\.0\.attn"):
        projection_at(unknown)


def test_progress_is_reported_per_layer() -> None:
    model, reports = model_of("gpt2"), []
    task = task_on(model, "gpt2", batch=2)
    samples = task.samples
    refit(
        model, model, samples[:1], {"other": samples[1:]}, progress=lambda *at: reports.append(at)
    )
    assert reports == [("refitting layers", done, 3) for done in (0, 1, 2)]
