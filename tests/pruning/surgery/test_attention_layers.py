"""Every row in the table of families is true of a model, and refusals state the reason."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from headwise.errors import ModelError
from headwise.models.families import FAMILIES as ROWS
from headwise.pruning.surgery.attention_layers import find_layers
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
    assert {name for row in ROWS if not row.refusal for name in row.classes} == verified


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


def test_cut_rejects_a_family_without_a_row() -> None:
    model, _ = tiny("llama")
    for layer in model.model.layers:
        layer.self_attn.__class__ = type("StrangeAttention", (type(layer.self_attn),), {})
    with pytest.raises(ModelError, match=r"StrangeAttention.*extend\.md"):
        cut(model, "L0H0")


def test_cut_rejects_projections_other_than_plain_linear_layers() -> None:
    model, _ = tiny("llama")
    attention = model.model.layers[1].self_attn
    attention.k_proj = nn.Sequential(attention.k_proj)
    with pytest.raises(ModelError, match=r"k_proj .*Sequential"):
        cut(model, "L0H0")
    model, _ = tiny("bert")
    output = model.bert.encoder.layer[1].attention.output
    output.dense = nn.Sequential(output.dense)
    with pytest.raises(ModelError, match=r"\.\./output/dense .*Sequential"):
        cut(model, "L0H0")


def test_cut_rejects_unknown_parameters() -> None:
    model, _ = tiny("bert")
    model.bert.encoder.layer[2].attention.self.extra = nn.Linear(3, 5)
    with pytest.raises(ModelError, match=r"extra\.weight"):
        cut(model, "L0H1")
    assert not hasattr(model.config, "headwise")


def test_cut_rejects_norms_that_span_all_heads() -> None:
    model, _ = tiny("qwen3")
    attention = model.model.layers[0].self_attn
    attention.q_norm.weight = nn.Parameter(torch.ones(48))
    with pytest.raises(ModelError, match=r"q_norm .*heads"):
        cut(model, "L0H0")


def test_cut_rejects_attention_outside_the_base_model() -> None:
    model, _ = tiny("bert")
    model.more = nn.Module()
    model.more.layer = nn.ModuleList([model.bert.encoder.layer[0]])
    model.bert.encoder.layer = model.bert.encoder.layer[1:]
    with pytest.raises(ModelError, match="BertModel"):
        find_layers(model)


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


def test_cut_rejects_cross_attention_inside_gpt2() -> None:
    config = {**FAMILIES["gpt2"].config, "add_cross_attention": True}
    model, _ = tiny_of(replace(FAMILIES["gpt2"], config=config))
    with pytest.raises(ModelError, match=r"q_attn\.weight"):
        find_layers(model)
