"""Cutting heads equals silencing them, in every family, and changes nothing else."""

import copy
import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadId
from headwise.models.exported_modeling import reshape
from headwise.pruning.surgery import shrink as shrink_module
from headwise.pruning.surgery.attention_layers import Slice
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.watching.gates import silence

from ...attention.tolerance import rounding
from ...watching.helpers import ROUNDINGS, allow_weights, assert_close, each_family, run
from ...watching.tiny import build, output_of, tiny
from ...watching.tiny_configs import FAMILIES
from ..differences import every_head, mixed_plan, silenced_and_cut

pytestmark = allow_weights


@each_family
def test_cutting_heads_equals_silencing_them(name: str) -> None:
    model, inputs = tiny(name)
    plain, silent, got = silenced_and_cut(model, inputs, mixed_plan(model))
    assert_close(name, got, silent)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(name, got, plain)


@each_family
def test_emptying_the_first_layer_equals_silencing_it(name: str) -> None:
    model, inputs = tiny(name)
    plan = mixed_plan(model, empties=True)
    plain, silent, got = silenced_and_cut(model, inputs, plan)
    assert_close(name, got, silent)
    assert next(iter(head_counts(model).values())) == (0, 0)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(name, got, plain)
    assert_fresh_model_takes_the_shape(name, model, inputs)


def assert_fresh_model_takes_the_shape(
    name: str, model: nn.Module, inputs: dict[str, Tensor]
) -> None:
    """A new model, reshaped by the block as JSON keeps it, is the cut one with its weights.

    Its own weights are NaN before, so that none of them can be of use.
    """
    fresh = build(FAMILIES[name])
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.fill_(torch.nan)
    reshape(fresh, json.loads(json.dumps(model.config.headwise)))
    fresh.load_state_dict(model.state_dict(), strict=True)
    fresh.tie_weights()
    assert_close(name, output_of(run(fresh, inputs)), output_of(run(model, inputs)))
    assert head_counts(fresh) == head_counts(model)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "bloom", "clip", "albert"])
def test_a_model_without_any_head_equals_a_silent_one(name: str) -> None:
    model, inputs = tiny(name)
    _, silent, got = silenced_and_cut(model, inputs, every_head(model))
    assert_close(name, got, silent)
    assert set(head_counts(model).values()) == {(0, 0)}


class Wrapped(nn.Module):
    """A user's model around one of transformers; its output is what `pick` returns."""

    def __init__(self, pick: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.inner, self.given = tiny("llama")
        self.config, self.pick = self.inner.config, pick

    def forward(self, **inputs: Tensor) -> object:
        return self.pick(self.inner(**inputs).logits)


@pytest.mark.parametrize("pick", [lambda one: one, lambda one: (one, one), lambda one: [one]])
def test_cut_checks_models_that_return_unnamed_tensors(pick: Callable[[Tensor], object]) -> None:
    model = Wrapped(pick)
    want = output_of(run(model.inner, model.given))
    allowed = rounding(want, dtype=FAMILIES["llama"].softmax_in, roundings=ROUNDINGS)
    assert cut(model, mixed_plan(model.inner), inputs=model.given).difference <= allowed
    assert (output_of(run(model.inner, model.given)) - want).abs().max() > allowed


def test_cut_rejects_a_module_without_a_head_size() -> None:
    model, _ = tiny("llama")
    for layer in model.model.layers:
        del layer.self_attn.head_dim
    with pytest.raises(ModelError, match=r"LlamaAttention.*head_dim"):
        cut(model, "L0H0")


def test_cut_rejects_a_model_without_a_config() -> None:
    model = Wrapped(lambda one: one)
    del model.config
    with pytest.raises(ModelError, match=r"Wrapped.*no config"):
        cut(model, "L0H0")


def test_cutting_nothing_changes_no_bit() -> None:
    model, inputs = tiny("llama")
    before = copy.deepcopy(model.state_dict())
    want = output_of(run(model, inputs))
    done = cut(model, [], inputs=inputs)
    assert done.heads == () and done.parameters_before == done.parameters_after
    assert torch.equal(output_of(run(model, inputs)), want)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not hasattr(model.config, "headwise")


def test_surgery_reports_heads_parameters_and_difference() -> None:
    model, inputs = tiny("llama")
    before = sum(parameter.numel() for parameter in model.parameters())
    done = cut(model, "L0H0 L0H1 L0H2 L2H1 L2H5", inputs=inputs)
    assert done.heads[-1] == HeadId(2, 5)
    assert done.kept == {"L0": (3, 4, 5), "L1": (0, 1, 2, 3, 4, 5), "L2": (0, 2, 3, 4)}
    assert done.difference is not None
    # L0: three of six query heads and one of two KV heads; L2: two query heads; 42 by 8 each.
    assert before - done.parameters_after == 42 * 8 * ((3 + 3 + 2) + (2 + 2))
    assert head_counts(model) == {"L0": (3, 1), "L1": (6, 2), "L2": (4, 2)}
    assert model.config.num_attention_heads == 6
    assert cut(tiny("llama")[0], "L0H0 L0H3").difference is None


def test_parameters_keep_what_they_were_and_their_storage_shrinks() -> None:
    model, _ = tiny("gpt2", dtype=torch.bfloat16)
    attention = model.transformer.h[0].attn
    attention.c_attn.weight.requires_grad_(False)
    cut(model, "L0H1 L0H2")
    weight, bias = attention.c_attn.weight, attention.c_attn.bias
    assert weight.shape == (35, 3 * 21) and bias.shape == (3 * 21,)
    assert not weight.requires_grad and bias.requires_grad and weight.dtype == torch.bfloat16
    assert weight.untyped_storage().nbytes() == 2 * 35 * 3 * 21
    assert (attention.num_heads, attention.split_size, attention.c_attn.nf) == (3, 21, 63)
    assert attention.c_proj.nx == 21 and attention.embed_dim == 35


def test_a_second_cut_counts_heads_as_they_are_now_and_keeps_the_first_numbers() -> None:
    once, inputs = tiny("bert")
    twice, _ = tiny("bert")
    want = cut(once, "L0H0 L0H2 L0H3 L2H4 L1H0 L1H1 L1H2 L1H3 L1H4")
    cut(twice, "L0H0 L0H2 L1H0 L1H1")
    got = cut(twice, "L0H1 L2H4 L1H0 L1H1 L1H2")
    assert got.kept == want.kept == {"L0": (1, 4), "L1": (), "L2": (0, 1, 2, 3)}
    assert twice.config.headwise == once.config.headwise
    assert_close("bert", output_of(run(twice, inputs)), output_of(run(once, inputs)))


@pytest.mark.parametrize("name", ["t5", "mpnet", "bloom"])
def test_a_second_cut_takes_its_part_of_a_bias_that_is_made_for_all(name: str) -> None:
    once, inputs = tiny(name)
    twice, _ = tiny(name)
    layer = next(iter(head_counts(once)))
    cut(once, [f"{layer}H0", f"{layer}H1"])
    cut(twice, f"{layer}H1")
    cut(twice, f"{layer}H0")
    assert twice.config.headwise == once.config.headwise
    assert_close(name, output_of(run(twice, inputs)), output_of(run(once, inputs)))


def test_a_second_cut_updates_a_modules_own_config() -> None:
    once, inputs = tiny("phi3")
    twice, _ = tiny("phi3")
    cut(once, "L0H0 L0H1 L0H3 L0H4")
    cut(twice, "L0H1 L0H4")
    cut(twice, "L0H0 L0H2")
    assert twice.config.headwise == once.config.headwise
    assert_close("phi3", output_of(run(twice, inputs)), output_of(run(once, inputs)))


# Errors are found before the cut, or the cut is undone.


def plant_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the output projection keep the columns of other heads than the rest does."""
    honest = shrink_module.kept_slices

    def faulty(*given: object) -> list[Slice]:
        *others, last = honest(*given)
        kept = [place - 1 if place else 0 for place in last.kept]
        return [*others, Slice(last.path, last.axis, kept, last.attribute)]

    monkeypatch.setattr(shrink_module, "kept_slices", faulty)


@pytest.mark.parametrize("name", ["bert", "gpt2", "phi3", "t5"])
def test_a_wrong_cut_raises_and_restores_the_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = tiny(name)
    want, state = output_of(run(model, inputs)), dict(model.state_dict())
    places = {path: vars(module).copy() for path, module in model.named_modules()}
    plan = mixed_plan(model)
    plant_a_fault(monkeypatch)
    first = plan[0].rpartition("H")[0]
    with pytest.raises(ModelError, match=rf"{first}\S* .*\d"):
        cut(model, plan, inputs=inputs)
    assert torch.equal(output_of(run(model, inputs)), want)
    assert not hasattr(model.config, "headwise")
    for key, value in model.state_dict().items():
        assert value.data_ptr() == state[key].data_ptr()
    for path, module in model.named_modules():
        assert vars(module).keys() == places[path].keys()
    assert set(head_counts(model).values()) == {
        (stack.num_heads, stack.num_kv_heads) for stack in FAMILIES[name].stacks.values()
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_inputs_in_half_precision_are_compared_in_float32_too(dtype: torch.dtype) -> None:
    model, inputs = tiny("whisper", dtype=dtype)
    found = cut(model, "encoder.L0H0", inputs=inputs)
    assert found.difference is not None and found.difference < torch.finfo(dtype).eps
    assert {one.dtype for one in model.parameters()} == {dtype}
    model, inputs = tiny("llama", dtype=dtype)
    size = inputs["input_ids"].shape[1]
    added = torch.zeros(len(inputs["input_ids"]), 1, size, size, dtype=dtype)
    found = cut(model, "L0H0 L0H1 L0H2", inputs={**inputs, "attention_mask": added})
    assert found.difference is not None and found.difference < torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wrong_cut_raises_in_lower_precision(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = tiny("llama", dtype=dtype)
    assert cut(model, "L1H0 L1H3", inputs=inputs).difference is not None
    plant_a_fault(monkeypatch)
    with pytest.raises(ModelError, match="L2 "):
        cut(model, "L2H0 L2H1 L2H2", inputs=inputs)


def test_an_earlier_cut_survives_a_later_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tiny("bert")
    cut(model, "L0H0")
    block, want = copy.deepcopy(model.config.headwise), output_of(run(model, inputs))
    plant_a_fault(monkeypatch)
    with pytest.raises(ModelError, match="BertForMaskedLM"):
        cut(model, "L1H2 L0H1", inputs=inputs)
    assert model.config.headwise == block
    assert torch.equal(output_of(run(model, inputs)), want)


def test_the_check_leaves_every_module_in_its_mode() -> None:
    model, inputs = tiny("bert")
    model.train()
    model.bert.encoder.layer[1].eval()
    modes = [module.training for module in model.modules()]
    assert cut(model, "L0H0", inputs=inputs).difference is not None
    assert [module.training for module in model.modules()] == modes


def test_cut_accepts_whole_groups_or_equal_parts_of_groups() -> None:
    model, _ = tiny("llama")
    with pytest.raises(OptionError, match=r"L1 .*6 heads.* 3.*\[2, 3\]"):
        cut(model, "L0H0 L0H1 L0H2 L1H1")
    assert not hasattr(model.config, "headwise")
    assert head_counts(model)["L0"] == (6, 2)
    cut(model, "L0H0 L0H1 L0H2 L0H4")  # a whole group, and of the other one
    assert head_counts(model)["L0"] == (2, 1)


def test_cut_names_missing_heads() -> None:
    model, _ = tiny("bert")
    with pytest.raises(OptionError, match=r"L1H7.*L1.*0\.\.4"):
        cut(model, "L0H0 L1H7")
    with pytest.raises(OptionError, match=r"L9H0.*L0, L1, L2"):
        cut(model, "L9H0")
    cut(model, [f"L0H{head}" for head in range(5)])
    with pytest.raises(OptionError, match=r"L0H0.*L0"):
        cut(model, "L0H0")
    assert model.config.headwise["kept"] == {"L0": []}


def test_shared_layers_lose_the_same_heads_or_none() -> None:
    model, _ = tiny("albert")
    with pytest.raises(OptionError, match=r"L0, L1, L2 share.*also cut L2H1$"):
        cut(model, "L0H1 L1H1")
    assert cut(model, "L0H1 L1H1 L2H1").kept["L2"] == (0, 2, 3, 4)


def test_silencing_a_head_of_a_cut_model_names_it_by_its_new_number() -> None:
    model, inputs = tiny("llama")
    other, _ = tiny("llama")
    with silence(other, "L0H0 L0H1 L0H2 L0H4"):
        want = output_of(run(other, inputs))
    cut(model, "L0H0 L0H1 L0H2")
    with silence(model, "L0H1"):
        assert_close("llama", output_of(run(model, inputs)), want)
