"""Heads of every family are found and cut, and refusals state the reason."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.models.families import FAMILIES as ROWS
from headwise.pruning.surgery.cut import cut, head_counts

from ...attention.tolerance import assert_same
from ...watching.helpers import ROUNDINGS, allow_weights
from ...watching.tiny import attention_modules, build, tiny
from ...watching.tiny_configs import FAMILIES
from ..differences import mixed_plan, silenced_and_cut, tiny_of
from ..kin import KIN, REFUSED

pytestmark = allow_weights


@pytest.mark.parametrize("name", KIN)
def test_cutting_heads_of_kin_equals_silencing_them(name: str) -> None:
    model, inputs = tiny_of(KIN[name])
    assert attention_modules(model, KIN[name])
    plan = mixed_plan(model)
    empty = [layer for layer in head_counts(model) if layer.endswith("L1")]
    plan += [f"{layer}H{head}" for layer in empty for head in range(head_counts(model)[layer][0])]
    plain, silent, got = silenced_and_cut(model, inputs, plan)
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float32)
    assert all(head_counts(model)[layer] == (0, 0) for layer in empty)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_same(got, plain, roundings=ROUNDINGS, dtype=torch.float32)


def test_every_class_of_the_table_is_in_a_tiny_model() -> None:
    rows = [*FAMILIES.values(), *KIN.values()]
    verified = {row.attention for row in rows} | {"BertCrossAttention"}
    assert {name for row in ROWS if not row.refusal for name in row.classes} <= verified


def test_few_classes_need_facts_written_by_hand() -> None:
    assert len({name for row in ROWS for name in row.classes}) <= 20


@pytest.mark.parametrize("name", REFUSED)
def test_cut_rejects_unsupported_families_with_the_reason(name: str) -> None:
    family, reason = REFUSED[name]
    model = build(family)
    message = f"{type(model).__name__} .*{family.attention} .*{reason}"
    with pytest.raises(ModelError, match=message):
        cut(model, "L0H0")


def test_every_refused_class_of_the_table_has_a_model() -> None:
    refused = {name for row in ROWS if row.refusal for name in row.classes}
    assert refused <= {family.attention for family, _ in REFUSED.values()}


def test_a_class_of_any_name_is_cut() -> None:
    model, inputs = tiny("llama")
    for layer in model.model.layers:
        layer.self_attn.__class__ = type("StrangeAttention", (type(layer.self_attn),), {})
    _, silent, got = silenced_and_cut(model, inputs, mixed_plan(model))
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float32)


class Around(nn.Module):
    """A projection inside another module, which adds a low-rank change, as adapters do."""

    def __init__(self, projection: nn.Linear) -> None:
        super().__init__()
        self.projection, options = projection, {"bias": False, "dtype": torch.float64}
        self.down = nn.Linear(projection.in_features, 3, **options)
        self.up = nn.Linear(3, projection.out_features, **options)

    def forward(self, states: Tensor) -> Tensor:
        result: Tensor = self.projection(states) + self.up(self.down(states))
        return result


def test_projections_inside_adapters_are_cut_with_them() -> None:
    model, inputs = tiny("llama")
    attention = model.model.layers[0].self_attn
    attention.k_proj = Around(attention.k_proj)
    attention.v_proj = nn.Sequential(attention.v_proj)
    _, silent, got = silenced_and_cut(model, inputs, mixed_plan(model))
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float32)
    assert attention.k_proj.down.weight.shape == (3, 42)
    assert len(attention.k_proj.up.weight) == len(attention.k_proj.projection.weight) == 16


class Quantised(nn.Module):
    """A projection whose weight is made of whole numbers."""

    def __init__(self, projection: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("numbers", (projection.weight * 9).round().to(torch.int8))

    def forward(self, states: Tensor) -> Tensor:
        return states @ (self.numbers.to(states) / 9).mT


@pytest.mark.parametrize("name", ["k_proj", "o_proj"])
def test_cut_rejects_quantised_projections(name: str) -> None:
    model, _ = tiny("llama")
    for layer in model.model.layers:
        setattr(layer.self_attn, name, Quantised(getattr(layer.self_attn, name)))
    with pytest.raises(ModelError, match=rf"{name} .*Quantised"):
        cut(model, "L0H0 L0H3")


def test_parameters_that_no_head_uses_stay_as_they_are() -> None:
    model, inputs = tiny("bert")
    model.bert.encoder.layer[2].attention.self.extra = nn.Linear(35, 35)
    _, silent, got = silenced_and_cut(model, inputs, ["L2H0", "L2H3"])
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float64)
    assert model.bert.encoder.layer[2].attention.self.extra.weight.shape == (35, 35)


def test_layers_that_cannot_be_cut_leave_the_others_alone() -> None:
    model, inputs = tiny("llama")
    broken = model.model.layers[1].self_attn
    broken.k_proj = Quantised(broken.k_proj)
    with pytest.raises(ModelError, match=r"layers\.1\.self_attn.*k_proj .*Quantised"):
        cut(model, "L0H0 L0H3 L1H0 L1H3")
    _, silent, got = silenced_and_cut(model, inputs, ["L0H0", "L0H3", "L2H0", "L2H1", "L2H2"])
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float32)
    assert set(head_counts(model)) == {"L0", "L2"}


def test_cut_says_why_a_model_could_not_run() -> None:
    model, _ = tiny("qwen3")
    attention = model.model.layers[0].self_attn
    attention.q_norm.weight = nn.Parameter(torch.ones(48))
    with pytest.raises(ModelError, match=r"Qwen3.* 48|Qwen3.*\(48\)"):
        cut(model, "L0H0 L0H1")


def test_cut_rejects_attention_outside_the_base_model() -> None:
    model, _ = tiny("bert")
    model.more = nn.Module()
    model.more.layer = nn.ModuleList([model.bert.encoder.layer[0]])
    model.bert.encoder.layer = model.bert.encoder.layer[1:]
    with pytest.raises(ModelError, match="BertModel"):
        cut(model, "more.layer.attention.self.L0H0")


def test_cut_rejects_a_model_without_attention() -> None:
    with pytest.raises(ModelError, match=r"Linear"):
        cut(nn.Linear(3, 5), "L0H0")


def test_cut_supports_both_older_kinds_of_falcon() -> None:
    config = {**FAMILIES["falcon"].config, "new_decoder_architecture": False}
    for is_multi_query in (True, False):
        family = replace(
            FAMILIES["falcon"], config={**config, "multi_query": is_multi_query, "num_kv_heads": 6}
        )
        model, inputs = tiny_of(family)
        assert head_counts(model)["L0"] == (6, 1 if is_multi_query else 6)
        _, silent, got = silenced_and_cut(model, inputs, mixed_plan(model))
        assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float64)


def test_heads_of_cross_attention_inside_bert_can_be_cut() -> None:
    config = {**FAMILIES["bert"].config, "is_decoder": True, "add_cross_attention": True}
    model, inputs = tiny_of(replace(FAMILIES["bert"], kind="decoder", config=config))
    inputs["encoder_hidden_states"] = torch.randn(4, 7, 35, dtype=torch.float64)
    plan = ["cross.L0H1", "cross.L2H0", "encoder.L1H3", *(f"cross.L1H{head}" for head in range(5))]
    _, silent, got = silenced_and_cut(model, inputs, plan)
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float64)


def test_heads_of_cross_attention_inside_gpt2_can_be_cut() -> None:
    config = {**FAMILIES["gpt2"].config, "add_cross_attention": True}
    model, inputs = tiny_of(replace(FAMILIES["gpt2"], config=config))
    inputs["encoder_hidden_states"] = torch.randn(4, 7, 35, dtype=torch.float64)
    plan = ["cross.L0H1", "cross.L2H0", "decoder.L1H3", *(f"cross.L1H{head}" for head in range(5))]
    _, silent, got = silenced_and_cut(model, inputs, plan)
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float64)
    assert model.transformer.h[0].crossattention.c_attn.weight.shape == (35, 2 * 28)
