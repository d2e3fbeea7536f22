"""A watched model computes the same, every call is recorded, and it is unchanged afterwards."""

import gc
import math
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    DynamicCache,
    MistralConfig,
    MistralForCausalLM,
)

from headwise.errors import ModelError
from headwise.watching.calls import AttentionCall, Call, WeightsCall
from headwise.watching.gates import silence
from headwise.watching.hooks import record
from headwise.watching.interface import OBSERVERS, check_finite, headwise_attention
from headwise.watching.routing import CHANGES, NAME
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from .helpers import (
    LENGTHS,
    ROUNDINGS,
    allow_weights,
    assert_all_weights,
    assert_close,
    each_family,
    each_unrouted,
    family_model,
    family_weights,
    run,
)
from .test_tiny import PADDED, real
from .tiny import config_of, eager_weights, eagerly, output_of, ragged, tiny, weights_of
from .tiny_configs import FAMILIES, Side

pytestmark = allow_weights
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_with_kwargs")


@each_family
def test_watching_does_not_change_the_output(name: str) -> None:
    model, inputs = family_model(name)
    want = output_of(run(model, inputs))
    with watch(model):
        got = output_of(run(model, inputs))
    assert got.dtype == want.dtype
    assert_close(name, got, want)


@each_family
def test_weights_equal_those_of_the_models_eager_attention(name: str) -> None:
    model, inputs = family_model(name)
    with watch(model) as watched:
        run(model, inputs)
    assert_all_weights(name, watched.calls, family_weights(name))
    assert list(watched) == watched.calls


@each_family
def test_every_layer_is_recorded_once_with_unrepeated_kv_heads(name: str) -> None:
    model, inputs = family_model(name)
    with watch(model) as watched:
        run(model, inputs)
    want = {
        (stack, layer): (facts.num_heads, facts.num_kv_heads)
        for stack, facts in FAMILIES[name].stacks.items()
        for layer in range(facts.num_layers)
    }
    layers = [(site.stack, site.layer) for site in watched.sites]
    assert sorted(layers) == sorted(want)
    assert sorted((call.stack, call.layer) for call in watched.calls) == sorted(want)
    for call in watched.calls:
        heads, kv_heads = want[call.stack, call.layer]
        assert call.num_heads == call.mixed.shape[1] == heads
        if FAMILIES[name].is_routed:
            assert isinstance(call, AttentionCall)
            assert call.keys.shape[1] == call.values.shape[1] == kv_heads
        else:
            assert isinstance(call, WeightsCall)


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything a watch could have left behind, by the name of its module."""
    state: dict[str, Any] = {}
    for name, module in model.named_modules():
        state[name] = {key: id(value) for key, value in vars(module).items() if key not in HOOKS}
        state[f"{name} hooks"] = [dict(vars(module)[kind]) for kind in HOOKS]
        state[f"{name} forward"] = type(module), type(module).forward
        config = getattr(module, "config", None)
        if config is not None:
            # with the type, because headwise's names equal those that they stand in for
            state[f"{name} config"] = {key: (type(at), at) for key, at in vars(config).items()}
    return state


@each_family
def test_the_model_is_unchanged_after_the_block(name: str) -> None:
    model, inputs = tiny(name)
    tensors = {key: value.clone() for key, value in model.state_dict().items()}
    want, before = output_of(run(model, inputs)), state_of(model)
    with watch(model):
        assert state_of(model) != before
        run(model, inputs)
    assert state_of(model) == before
    with pytest.raises(KeyError, match="in between"), watch(model):
        raise KeyError("in between")
    assert state_of(model) == before
    assert all(torch.equal(value, tensors[key]) for key, value in model.state_dict().items())
    assert torch.equal(output_of(run(model, inputs)), want)
    assert not OBSERVERS and not CHANGES


@pytest.mark.parametrize("name", ["llama", "albert", "mpnet", "deberta_v2", "t5"])
def test_an_error_inside_a_layer_leaves_nothing_behind(name: str) -> None:
    model, inputs = tiny(name)
    before, calls = state_of(model), list[Call]()

    def fail_at_second(call: Call) -> None:
        calls.append(call)
        if len(calls) == 2:
            raise RuntimeError("second call")

    with watch(model, fail_at_second):
        with pytest.raises(RuntimeError, match="second call"):
            run(model, inputs)
        run(model, inputs)
    assert_all_weights(name, calls[2:], family_weights(name))
    assert state_of(model) == before


@pytest.mark.parametrize("name", ["deberta_v2", "albert"])
def test_a_failed_run_does_not_shift_the_next_one(name: str) -> None:
    model, inputs = tiny(name)
    culprit = next(
        m for m in model.modules() if type(m).__name__ in ("DebertaV2Output", "AlbertLayer")
    )
    with watch(model) as watched:
        hook = culprit.register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="half way"):
            run(model, inputs)
        hook.remove()
        watched.calls.clear()
        run(model, inputs)
    assert_all_weights(name, watched.calls, family_weights(name))


def fail(*_: Any) -> None:
    raise RuntimeError("half way")


@pytest.mark.parametrize(("name", "side"), PADDED)
def test_padding_does_not_change_a_sequences_calls(name: str, side: Side) -> None:
    family = FAMILIES[name]
    model, _ = tiny(name, dtype=family.softmax_in)
    batch, alone = ragged(name, LENGTHS, side, dtype=family.softmax_in)
    with watch(model) as watched:
        together = output_of(run(model, batch))
    assert together.isfinite().all()
    weights = {(call.stack, call.layer): call.weights() for call in watched.calls}
    for row, single in enumerate(alone):
        with watch(model) as watched_alone:
            want = output_of(run(model, single))
        for call in watched_alone.calls:
            queries, keys = real(family, call.stack, batch, row)
            got = weights[call.stack, call.layer][row : row + 1, :, queries]
            assert (got[..., ~keys] == 0).all(), (call.stack, call.layer)
            assert_same(got[..., keys], call.weights(), roundings=ROUNDINGS, dtype=torch.float32)
        part = together[row : row + 1]
        if family.kind != "text and vision":
            stack = "decoder" if family.kind in ("encoder-decoder", "speech") else ""
            part = part[:, real(family, stack, batch, row)[0]]
        assert_same(part, want, roundings=ROUNDINGS, dtype=torch.float32)


@pytest.mark.parametrize(("name", "side"), PADDED)
def test_weights_of_a_padded_batch_equal_eager_ones(name: str, side: Side) -> None:
    family = FAMILIES[name]
    model, _ = tiny(name, dtype=family.softmax_in)
    batch, _ = ragged(name, LENGTHS, side, dtype=family.softmax_in)
    want = eager_weights(model, batch)
    with watch(model) as watched:
        run(model, batch)
    for call in watched.calls:
        got, same = call.weights(), want[call.stack][call.layer]
        for row in range(len(LENGTHS)):
            queries = real(family, call.stack, batch, row)[0]
            assert_close(name, got[row, :, queries], same[row, :, queries])


def test_nested_watches_both_record() -> None:
    model, inputs = tiny("bert")
    with watch(model) as outer:
        with watch(model) as inner:
            run(model, inputs)
        run(model, inputs)
        assert model.config._attn_implementation == NAME
    assert (len(outer.calls), len(inner.calls)) == (6, 3)
    assert model.config._attn_implementation == "sdpa"


def test_watches_may_end_in_any_order() -> None:
    model, inputs = tiny("bert")
    first, second = watch(model), watch(model)
    with_first, with_second = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    run(model, inputs)
    second.__exit__(None, None, None)
    assert (len(with_first.calls), len(with_second.calls)) == (0, 3)
    assert model.config._attn_implementation == "sdpa"


def test_a_model_can_be_watched_repeatedly() -> None:
    model, inputs = tiny("llama")
    for _ in range(3):
        with watch(model) as watched:
            run(model, inputs)
            run(model, inputs)
        assert [call.layer for call in watched.calls] == [0, 1, 2, 0, 1, 2]


def test_models_that_share_a_config_are_watched_separately() -> None:
    first, inputs = tiny("llama")
    config = first.config
    second = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    second.config = config
    wants = [output_of(run(model, inputs)) for model in (first, second)]
    with watch(first) as first_watch:
        second_alone = output_of(run(second, inputs))
        assert first_watch.calls == []
        with watch(second) as second_watch:
            run(first, inputs)
            run(second, inputs)
        after = output_of(run(second, inputs))
    assert {id(call.site.module) for call in first_watch.calls}.isdisjoint(
        id(call.site.module) for call in second_watch.calls
    )
    assert (len(first_watch.calls), len(second_watch.calls)) == (3, 3)
    assert_close("llama", second_alone, wants[1])
    assert_close("llama", after, wants[1])
    assert config._attn_implementation == "sdpa"


@pytest.mark.parametrize("name", ["llama", "mpnet", "deberta_v2"])
def test_a_watch_records_outputs_before_silencing(name: str) -> None:
    model, inputs = tiny(name)
    with watch(model) as alone:
        run(model, inputs)
    with watch(model) as around, silence(model, "L0H1"):
        run(model, inputs)
    with silence(model, "L0H1"), watch(model) as inside:
        run(model, inputs)
    for plain, outer, inner in zip(alone, around, inside, strict=True):
        assert torch.equal(outer.mixed, inner.mixed)
        assert torch.equal(outer.mixed, plain.mixed) == (plain.layer == 0)


@pytest.mark.parametrize(
    "name", ["llama", "mistral", "gemma3", "gpt_oss", "gpt2", "qwen2", "falcon"]
)
def test_cached_steps_have_the_weights_of_eager_attention(name: str) -> None:
    model, inputs = tiny(name)
    ids = inputs["input_ids"]
    got, want = [], []
    with watch(model, got.append):
        steps_with_cache(model, ids)
    with eagerly(model):
        steps = steps_with_cache(model, ids)
    want = [layer for result in steps for layer in weights_of(result)[""]]
    assert len(got) == len(want)
    for call, weights in zip(got, want, strict=True):
        assert_close(name, call.weights(), weights)


def steps_with_cache(model: nn.Module, ids: Tensor) -> list[Any]:
    """A prompt of 7, a chunk of 3, then single tokens."""
    cache, results = DynamicCache(config=model.config), []
    for low, high in ((0, 7), (7, 10), (10, 11), (11, 12), (12, 13)):
        with torch.no_grad():
            part = ids[:, low:high]
            results.append(
                model(part, past_key_values=cache, use_cache=True, output_attentions=True)
            )
    return results


def test_generation_is_the_same_inside_a_watch() -> None:
    model, _ = tiny("llama")
    batch, _ = ragged("llama", LENGTHS, "left")
    batch.pop("position_ids")
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    want = model.generate(**batch, **options)
    with watch(model) as watched:
        got = model.generate(**batch, **options)
    assert torch.equal(got, want)
    assert len(watched.calls) == 5 * 3
    assert [call.keys.shape[2] for call in watched.calls[::3]] == [13, 14, 15, 16, 17]


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_calls_passed_to_a_function_are_not_kept(name: str) -> None:
    model, inputs = tiny(name)
    tensors: list[weakref.ref[Tensor]] = []
    with watch(model, lambda call: tensors.append(weakref.ref(call.mixed))) as watched:
        run(model, inputs)
        gc.collect()
        assert [ref() for ref in tensors] == [None] * len(tensors) != []
    assert watched.calls == []


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "llama"])
def test_calls_in_training_mode_have_weights_without_dropout(name: str) -> None:
    model, inputs = tiny(name)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
        for rate in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, rate, None), float):
                setattr(module, rate, 0.5)
    model.train()
    with watch(model) as watched:
        first, second = output_of(model(**inputs)), output_of(model(**inputs))
    assert not torch.equal(first, second)
    rates = {call.rules.dropout for call in watched.calls}
    assert max(rates) == 0.5
    for call in watched.calls:
        sums = call.weights().sum(-1)
        assert_same(sums, torch.ones_like(sums), roundings=17, dtype=torch.float32)


@each_family
def test_gradients_are_those_of_the_unwatched_model(name: str) -> None:
    model, inputs = tiny(name)
    want = gradients(model, inputs)
    with watch(model, needs_lse=True):
        got = gradients(model, inputs)
    assert got.keys() == want.keys()
    for key, grad in want.items():
        assert_same(got[key], grad, roundings=4 * ROUNDINGS, dtype=FAMILIES[name].softmax_in)


def gradients(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of the mean square of the output."""
    model.zero_grad()
    output_of(model(**inputs)).square().mean().backward()
    return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


@each_unrouted
@pytest.mark.filterwarnings("default")
def test_reading_returned_weights_warns_once_at_the_callers_line(name: str) -> None:
    model, inputs = family_model(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with watch(model):
            run(model, inputs)
    [warning] = [entry for entry in caught if "its own full weights are read" in str(entry.message)]
    assert f"{FAMILIES[name].attention} does not use transformers" in str(warning.message)
    assert warning.filename == __file__


def test_a_falcon_built_for_sdpa_is_watched_with_its_weights() -> None:
    family = FAMILIES["falcon"]
    model = AutoModelForCausalLM.from_config(config_of(family), dtype=torch.float64).eval()
    same, inputs = tiny("falcon")
    model.load_state_dict(same.state_dict())
    assert model.config._attn_implementation == "sdpa"
    want = output_of(run(model, inputs))
    with watch(model) as watched:
        got = output_of(run(model, inputs))
    assert model.config._attn_implementation == "sdpa"
    assert_close("falcon", got, want)
    assert_all_weights("falcon", watched.calls, family_weights("falcon"))


def test_albert_layers_that_share_modules_are_recorded_in_order() -> None:
    config = AutoConfig.for_model(
        "albert",
        num_hidden_layers=5,
        num_hidden_groups=2,
        inner_group_num=2,
        hidden_size=12,
        num_attention_heads=3,
        embedding_size=5,
        intermediate_size=7,
        vocab_size=31,
    )
    model = AutoModel.from_config(config, dtype=torch.float64).eval()
    inputs = {"input_ids": torch.arange(9)[None]}
    modules = {
        name: module
        for name, module in model.named_modules()
        if type(module).__name__ == "AlbertAttention"
    }
    with eagerly(model), record(modules) as eager_calls:
        run(model, inputs)
    with watch(model) as watched:
        run(model, inputs)
    assert [call.layer for call in watched.calls] == list(range(10))
    for call, eager_call in zip(watched.calls, eager_calls, strict=True):
        assert_same(call.weights(), eager_call.result[1], roundings=ROUNDINGS)


def test_a_saved_config_does_not_name_headwise(tmp_path: Any) -> None:
    model, _ = tiny("llama")
    with watch(model):
        model.save_pretrained(tmp_path)
    assert "headwise" not in (tmp_path / "config.json").read_text()


def test_a_paged_cache_raises() -> None:
    part = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ModelError, match=r"Linear.*continuous batching"):
        headwise_attention(nn.Linear(1, 1), part, part, part, None, cache=object())


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_overflowed_queries_raise(wrong: float) -> None:
    model, inputs = tiny("llama", dtype=torch.float16)
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] = wrong
    with pytest.raises(ModelError, match=r"L1.* float16"), watch(model, needs_lse=True):
        run(model, inputs)
    with watch(model):
        run(model, inputs)


def test_finite_rows_whose_sum_overflows_are_fine() -> None:
    large = torch.full((1, 2, 64, 8), 100.0, dtype=torch.float16)
    assert large.sum().isinf()
    check_finite(find_sites(tiny("llama")[0])[0], large, large)


@each_family
def test_output_attentions_works_inside_a_watch(name: str) -> None:
    model, inputs = family_model(name)
    with watch(model, lambda _: None):
        got = weights_of(run(model, {**inputs, "output_attentions": True}))
    assert_weights_returned(name, got)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit"])
def test_output_attentions_may_be_set_in_the_config(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = family_model(name)
    monkeypatch.setattr(model.config, "_output_attentions", True, raising=False)
    with watch(model, lambda _: None):
        got = weights_of(run(model, inputs))
    assert_weights_returned(name, got)


def assert_weights_returned(name: str, got: dict[str, list[Tensor]]) -> None:
    want = family_weights(name)
    assert list(map(len, got.values())) == list(map(len, want.values()))
    for stack, layers in want.items():
        for layer, weights in enumerate(layers):
            assert_close(name, got[stack][layer], weights, f"weights of {stack}.L{layer}")


def test_a_static_cache_does_not_change_kept_calls() -> None:
    config = MistralConfig(
        vocab_size=97,
        hidden_size=24,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        sliding_window=5,
    )
    torch.manual_seed(0)
    model = MistralForCausalLM(config).eval()
    tokens = torch.randint(3, 97, (2, 4))
    options = {"max_new_tokens": 7, "cache_implementation": "static", "do_sample": False}
    at_once: list[Tensor] = []
    with watch(model, lambda call: at_once.append(call.weights())), watch(model) as watched:
        model.generate(tokens, **options)
    assert len(watched.calls) == len(at_once) == 14
    for call, weights in zip(watched.calls, at_once, strict=True):
        assert torch.equal(call.weights(), weights)
