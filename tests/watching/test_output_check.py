"""Output check: wrong models are refused, right ones run and are compared once per kind of input.

The wrong models are a tiny Llama whose attention modules behave differently while it is watched.
"""

import copy
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaAttention, eager_attention_forward

from headwise import gate, silence, watch
from headwise.errors import HeadwiseError, ModelError
from headwise.watching.masks import StructuredMask
from headwise.watching.output_check import LARGEST_EAGER, PASSED, skip_check
from headwise.watching.routing import Routed, native_name

from .tiny import Inputs, spread_out

VOCABULARY, WINDOW = 97, 13
CACHE_OPTIONS: dict[type, list[dict[str, int]]] = {
    DynamicCache: [{}, {}],
    StaticCache: [{"max_cache_len": 31}, {"max_cache_len": 31}],
}
Change = Callable[["PlantedAttention", Any, Tensor], Any]


class PlantedAttention(LlamaAttention):
    """Llama's attention without positions, whose `change` decides which mask it passes on."""

    change: Change
    num_calls = 0

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Any = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Tensor, Any]:
        type(self).num_calls += self.layer_idx == 0
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        parts = (self.q_proj, self.k_proj, self.v_proj)
        queries, keys, values = (part(hidden_states).view(shape).transpose(1, 2) for part in parts)
        if past_key_values is not None:
            keys, values = past_key_values.update(keys, values, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        mask = self.change(attention_mask, keys)
        output, weights = attend(self, queries, keys, values, mask, scaling=self.scaling)
        return self.o_proj(output.reshape(*hidden_states.shape[:-1], -1).contiguous()), weights


def is_watched(module: nn.Module) -> bool:
    return isinstance(module.config._attn_implementation, Routed)  # type: ignore[union-attr]


def only_itself(keys: Tensor, count: int) -> Tensor:
    """A mask that hides every other token."""
    return torch.eye(keys.shape[2], dtype=torch.bool, device=keys.device)[None, None, -count:]


def right(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
    return mask


def drops_structured_masks(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
    """As a module that only knows plain tensors."""
    return None if isinstance(mask, StructuredMask) else mask


def knows_two_names(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
    """As a sparse module: at most `WINDOW` keys, but only under names that it knows."""
    if module.config._attn_implementation in {"eager", "sdpa"} and keys.shape[2] > WINDOW:
        return only_itself(keys, keys.shape[2])
    return mask


def fails_if(is_special: Callable[[Any, Tensor], bool]) -> Change:
    """A module that is wrong for some inputs, but only while it is watched."""

    def change(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        if is_watched(module) and is_special(mask, keys):
            return only_itself(keys, 1 if mask is None else mask.shape[2])
        return mask

    return change


def hides_keys(mask: Any, _: Tensor) -> bool:
    return mask is not None and not bool(mask[:, 0, -1].all())


def is_cached(mask: Any, keys: Tensor) -> bool:
    return mask is not None and mask.shape[2] < keys.shape[2]


def planted(change: Change = right, *, native: str = "sdpa", dtype: Any = torch.float32) -> Any:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=31,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        attention_dropout=0.3,
        sliding_window=WINDOW,
        attn_implementation=native,
    )
    torch.manual_seed(1)
    model = LlamaForCausalLM(config)
    spread_out(model)
    own = type("OwnAttention", (PlantedAttention,), {"change": change, "num_calls": 0})
    for layer in model.model.layers:
        layer.self_attn.__class__ = own
    return model.to(dtype).eval()


def passes(model: Any) -> int:
    """Forward passes that the model has run."""
    return type(model.model.layers[0].self_attn).num_calls


def text(length: int = 7, *, batch: int = 2, hidden: int = 0, side: str = "right") -> Inputs:
    ids = torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    if hidden:
        mask[0, slice(-hidden, None) if side == "right" else slice(hidden)] = 0
    return {"input_ids": ids, "attention_mask": mask}


def cached(model: Any, length: int, count: int = 1) -> dict[str, Any]:
    """Inputs of `count` tokens after `length` cached ones."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(**text(length), past_key_values=cache)
    return {"input_ids": text(count)["input_ids"], "past_key_values": cache}


def watch_once(model: Any, inputs: dict[str, Any]) -> int:
    """Number of forward passes that one watched call takes."""
    before = passes(model)
    with torch.no_grad(), watch(model):
        model(**inputs)
    return passes(model) - before


@pytest.mark.parametrize(
    ("change", "inputs"),
    [
        (drops_structured_masks, text(hidden=3, side="left")),
        (knows_two_names, text(2 * WINDOW)),
        (fails_if(hides_keys), text(hidden=3)),
        (fails_if(hides_keys), text(hidden=3, side="left")),
        (fails_if(lambda mask, keys: keys.shape[2] > WINDOW), text(2 * WINDOW)),
    ],
)
def test_a_wrong_model_is_refused(change: Change, inputs: Inputs) -> None:
    model = planted(change)
    with watch(model) as watched:
        model(**text())  # right on other inputs
        before = len(watched.calls)
        with pytest.raises(ModelError, match=r"changes by [0-9.]+, but rounding explains only \d"):
            model(**inputs)
    assert before == len(watched.calls) == 2
    with skip_check(), watch(model) as watched:
        model(**inputs)
    assert len(watched.calls) == 2


def test_a_model_that_is_wrong_with_a_cache_is_refused() -> None:
    model = planted(fails_if(is_cached))
    inputs = cached(model, 5, count=2)
    assert watch_once(model, text()) == 3
    with watch(model), pytest.raises(ModelError, match="rounding explains only"):
        model(**inputs)
    assert inputs["past_key_values"].get_seq_length() == 5


def test_the_refusal_names_the_output_and_what_to_do() -> None:
    model = planted(fails_if(hides_keys))
    expected = r"LlamaForCausalLM .*logits|L1.* headwise computes .* wrongly: report it.*skip_check"
    with watch(model), pytest.raises(ModelError, match=expected):
        model(**text(hidden=2))


def test_a_difference_between_implementations_is_not_blamed_on_headwise() -> None:
    def change(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        name = native_name(module.config)
        is_sdpa = name == "sdpa" and not is_watched(module)
        return only_itself(keys, keys.shape[2]) if is_sdpa else mask

    model = planted(change)
    expected = "transformers, whose sdpa and eager attention differ .*attn_implementation='eager'"
    with watch(model), pytest.raises(ModelError, match=expected):
        model(**text())
    model.set_attn_implementation("eager")
    watch_once(model, text())


@pytest.mark.parametrize("block", [silence, gate])
def test_silencing_and_gating_check_the_unchanged_model(block: Any) -> None:
    heads = ["L0H1"] if block is silence else {"L0": torch.tensor([1.0, 0.0, 1.0])}
    with block(planted(fails_if(hides_keys)), heads), pytest.raises(ModelError, match="rounding"):
        wrong = planted(fails_if(hides_keys))
        with block(wrong, heads):
            wrong(**text(hidden=3))
    model = planted()
    want = model(**text()).logits
    with block(model, heads):
        assert not torch.allclose(model(**text()).logits, want)
    assert passes(model) == 4


def test_a_right_model_is_compared_once_for_each_kind_of_input() -> None:
    model = planted()
    assert watch_once(model, text(17)) == 3  # unwatched, watched, and the user's own
    assert watch_once(model, text(17, batch=3)) == 1
    assert watch_once(model, text(19)) == 1
    assert watch_once(model, text(17, hidden=3)) == 3
    assert watch_once(model, text(17, hidden=5)) == 1
    assert watch_once(model, text(17, hidden=3, side="left")) == 3
    assert watch_once(model, {"inputs_embeds": torch.randn(1, 17, 24)}) == 3
    assert watch_once(model, cached(model, 15)) == 3
    assert watch_once(model, cached(model, 16)) == 1
    with silence(model, ["L1H2"]):
        assert watch_once(model, text(17)) == 1


def test_clearly_longer_inputs_are_compared_again() -> None:
    model = planted()
    assert watch_once(model, text(40)) == 3
    assert [watch_once(model, text(length)) for length in (79, 80, 81)] == [1, 3, 1]


def test_a_length_beyond_a_number_in_the_config_is_compared_again() -> None:
    model = planted()
    assert watch_once(model, text(11)) == 3
    assert [watch_once(model, text(length)) for length in (WINDOW, WINDOW + 1)] == [1, 3]


def test_every_longer_input_of_a_module_that_compares_names_is_compared() -> None:
    class TwoNames(PlantedAttention):
        def change(self, mask: Any, keys: Tensor) -> Any:
            return knows_two_names(self, mask, keys)

        def is_known(self) -> bool:
            return self.config._attn_implementation in {"eager", "sdpa"}

    model = planted()
    for layer in model.model.layers:
        layer.self_attn.__class__ = TwoNames
    assert [watch_once(model, text(length)) for length in (8, 8, 9, 7)] == [3, 1, 3, 1]


def test_generating_compares_a_few_steps() -> None:
    model = planted()
    with watch(model):
        model.generate(**text(3), max_new_tokens=40, do_sample=False)
    with skip_check(), watch(model):
        before = passes(model)
        model.generate(**text(3), max_new_tokens=40, do_sample=False)
    assert passes(model) - before == 40
    assert before - 40 <= 2 * 12  # doubled from 4 to 43, and the numbers in the config


def test_another_shape_or_config_is_compared_again() -> None:
    model = planted()
    assert watch_once(model, text(29)) == 3
    layer = model.model.layers[0].mlp
    layer.down_proj.weight = nn.Parameter(layer.down_proj.weight[:, :-1].clone())
    layer.gate_proj.weight = nn.Parameter(layer.gate_proj.weight[:-1].clone())
    layer.up_proj.weight = nn.Parameter(layer.up_proj.weight[:-1].clone())
    assert watch_once(model, text(29)) == 3
    model.config.rms_norm_eps = 1e-4
    assert [watch_once(model, text(29)) for _ in range(2)] == [3, 1]
    model.set_attn_implementation("eager")
    assert watch_once(model, text(29)) == 3


def test_a_part_that_is_called_alone_is_checked() -> None:
    model = planted(fails_if(hides_keys))
    with watch(model), pytest.raises(ModelError, match="LlamaModel cannot be watched"):
        model.model(**text(hidden=2))


@pytest.mark.parametrize("kind", [DynamicCache, StaticCache])
def test_a_check_leaves_the_cache_and_the_mode_of_every_module(kind: type) -> None:
    model = planted().train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    caches = [kind(config=model.config, **more) for more in CACHE_OPTIONS[kind]]
    for length in (5, 2, 1):
        ids, logits = {"input_ids": text(length)["input_ids"]}, list[Tensor]()
        for cache, skips in zip(caches, (True, False), strict=True):
            with skip_check() if skips else nullcontext(), torch.no_grad(), watch(model):
                torch.manual_seed(4)
                logits.append(model(**ids, past_key_values=cache).logits)
        assert torch.equal(*logits)
        assert torch.equal(*(cache.layers[1].keys for cache in caches))
    assert caches[0].get_seq_length() == caches[1].get_seq_length() == 8
    assert [module.training for module in model.modules()] == modes
    assert passes(model) == 3 * 2 + 2 * 2


def test_a_check_does_not_disturb_gradients() -> None:
    model = planted()
    cache = DynamicCache(config=model.config)
    logits = []
    for length in (5, 2):
        with watch(model):
            logits.append(model(text(length)["input_ids"], past_key_values=cache).logits)
    assert passes(model) == 6
    sum(part.sum() for part in logits).backward()
    twin = copy.deepcopy(model)
    twin.zero_grad()
    cache = DynamicCache(config=model.config)
    parts = [twin(text(length)["input_ids"], past_key_values=cache).logits for length in (5, 2)]
    sum(part.sum() for part in parts).backward()
    for weight, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert weight.grad is not None and other.grad is not None
        torch.testing.assert_close(weight.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_random_states_are_the_same_after_a_check() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    def draws(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        drawn()
        return mask

    results = []
    for skips in (False, True):
        random.seed(3), np.random.seed(3), torch.manual_seed(3)
        model = planted(draws)
        torch.manual_seed(3)
        with skip_check() if skips else silence(model, []), watch(model):
            model(**text())
        results.append(drawn())
    assert results[0] == results[1]


def test_hooks_of_the_user_run_once() -> None:
    model, seen = planted(), list[str]()
    model.register_forward_pre_hook(lambda *_: seen.append("before"))
    model.model.layers[0].register_forward_hook(lambda *_: seen.append("inside"))
    with watch(model):
        model(**text())
    assert seen == ["before", "inside"] and passes(model) == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_compared_in_single_precision(dtype: torch.dtype) -> None:
    model = planted(dtype=dtype)
    weights = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    with torch.inference_mode(), watch(model):
        model(**text())
    assert {name: weight.data_ptr() for name, weight in model.named_parameters()} == weights
    assert not any(weight.is_inference() for weight in model.parameters())

    def slightly_wrong(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        if not is_watched(module):
            return mask
        shape = (1, 1, keys.shape[2], keys.shape[2])
        return torch.full(shape, -1e9, dtype=keys.dtype).triu(1) + 1e-2 * torch.ones(shape).tril(-1)

    wrong = planted(slightly_wrong, dtype=dtype)
    with watch(wrong), pytest.raises(ModelError, match="rounding explains only"):
        wrong(**text())


def test_rounding_that_a_router_exaggerates_is_not_refused() -> None:
    class Router(nn.Module):
        def __init__(self, head: nn.Module) -> None:
            super().__init__()
            self.head = head

        def forward(self, states: Tensor) -> Tensor:
            return torch.sin(1e4 * self.head(states))

    def rounds_otherwise(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        noise = torch.finfo(keys.dtype).eps * torch.ones(keys.shape[2], keys.shape[2]).to(keys)
        noise[:, ::2] *= -4
        hidden = torch.full_like(noise, -torch.inf).triu(1)
        return (hidden + noise * is_watched(module))[None, None]

    model = planted(rounds_otherwise)
    model.lm_head = Router(model.lm_head)
    with watch(model):
        model(**text(31))
    assert passes(model) == 5  # in float32, in float64, and the user's own


def test_an_eager_model_is_compared_on_a_prefix_of_a_long_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LARGEST_EAGER == 2**30
    monkeypatch.setattr("headwise.watching.output_check.LARGEST_EAGER", 4 * 2 * 3 * 11**2)
    lengths = list[int]()

    def note(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        lengths.append(keys.shape[2])
        return mask

    model = planted(note, native="eager")
    watch_once(model, text(23))
    assert lengths == [11, 11, 11, 11, 23, 23]
    with pytest.warns(UserWarning, match="not compared .* eager attention weights .* memory"):
        watch_once(model, {"inputs_embeds": torch.randn(1, 23, 24)})


def test_errors_of_the_model_itself_are_raised_as_they_are() -> None:
    model = planted()
    with watch(model), pytest.raises(IndexError):
        model(input_ids=torch.tensor([[VOCABULARY + 5]]))


def test_an_error_that_only_the_watched_model_raises_is_explained() -> None:
    def change(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        if is_watched(module):
            raise TypeError("no such mask")
        return mask

    model = planted(change)
    expected = r"stops with TypeError \(no such mask\), but not if it is not watched"
    with watch(model), pytest.raises(ModelError, match=expected):
        model(**text())


def test_a_model_that_runs_only_watched_is_reported_as_not_compared() -> None:
    def change(module: PlantedAttention, mask: Any, keys: Tensor) -> Any:
        if not is_watched(module):
            raise RuntimeError("out of luck")
        return mask

    model = planted(change)
    with pytest.warns(UserWarning, match="not compared .*stops with: out of luck"):
        watch_once(model, text())


def test_transformed_and_meta_tensors_are_not_compared() -> None:
    model = planted()
    with torch.no_grad(), watch(model):
        torch.func.vmap(lambda ids: model(input_ids=ids[None]).logits)(text(5)["input_ids"])
    assert passes(model) == 1
    with watch(model.to("meta")):
        model(input_ids=torch.ones(1, 5, dtype=torch.long, device="meta"))
    assert passes(model) == 2


def test_a_model_under_autocast_is_compared_without_it() -> None:
    model = planted()
    with watch(model), torch.autocast("cpu", torch.bfloat16):
        model(**text())
    assert passes(model) == 3


def test_a_copy_made_in_a_block_is_not_checked() -> None:
    model = planted(fails_if(hides_keys))
    with watch(model):
        twin = copy.deepcopy(model)
    twin.config._attn_implementation = "sdpa"
    before = passes(model)  # of the shared class
    twin(**text(hidden=3))
    assert passes(model) == before + 1


def test_records_of_deleted_models_are_deleted() -> None:
    import gc

    model = planted()
    watch_once(model, text())
    before = len(PASSED)
    del model
    gc.collect()
    assert len(PASSED) < before


def test_skipping_ends_with_its_block() -> None:
    model = planted(fails_if(hides_keys))
    with skip_check(), pytest.raises(KeyError):
        raise KeyError
    with watch(model), pytest.raises(HeadwiseError):
        model(**text(hidden=2))
