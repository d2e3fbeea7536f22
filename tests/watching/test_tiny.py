"""The table of tiny families tells the truth about the models that it builds."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..attention.tolerance import assert_same
from .tiny import (
    BATCH,
    LENGTH,
    attention_modules,
    eager_weights,
    eagerly,
    output_of,
    output_projection,
    ragged,
    tiny,
    weights_of,
)
from .tiny_configs import FAMILIES, FRAMES, MEMORY, Family, Side

ROUTED = [name for name, family in FAMILIES.items() if family.is_routed]
UNROUTED = [name for name, family in FAMILIES.items() if not family.is_routed]
PADDED = [(name, side) for name, family in FAMILIES.items() for side in family.pads]
LEFT = [name for name, family in FAMILIES.items() if "left" in family.pads]
SPY = "headwise_tiny_spy"
ROUNDINGS = 3 * (48 + 17 + 43)
"""Of the longest chain: three layers, each with sums over d_model, keys and the hidden units."""
LENGTHS = (7, 13, 1, 11)
SINKS = {"gpt_oss"}

each_family = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Unrouted families warn, rightly, that they do not switch to eager: they are so already."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


def keys_of(family: Family, stack: str, queries: int) -> int:
    """How many keys a query of the stack may have."""
    memory = FRAMES // 2 if family.kind == "speech" else queries + MEMORY
    return memory if stack == "cross" else queries


def queries_of(family: Family, stack: str, length: int) -> int:
    if stack == "encoder":
        return keys_of(family, "cross", length)
    if stack == "vision" or family.name == "dinov2":
        return 17  # 4 x 4 patches, and the first token
    return length


def seen(family: Family, stack: str, layer: int, queries: int) -> Tensor:
    """True where a query of an unpadded sequence may see a key."""
    keys = keys_of(family, stack, queries)
    back = torch.arange(queries)[:, None] - torch.arange(keys)
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    if family.kind == "decoder" or stack in ("decoder", "text"):
        allowed &= back >= 0
    if family.reach and (reach := family.reach[layer]) is not None:
        allowed &= back.abs() <= reach
    return allowed


@each_family
def test_a_model_says_the_same_by_default_and_eagerly(name: str) -> None:
    model, inputs = tiny(name)
    with torch.no_grad():
        output = output_of(model(**inputs))
        with eagerly(model):
            want = output_of(model(**inputs))
    assert not model.training
    assert output.dtype == torch.float64
    assert want.isfinite().all()
    assert_same(output, want, roundings=ROUNDINGS, dtype=torch.float32)


@each_family
def test_a_model_has_the_claimed_stacks(name: str) -> None:
    family = FAMILIES[name]
    model, inputs = tiny(name)
    weights = eager_weights(model, inputs)
    assert weights.keys() == family.stacks.keys()
    for stack, (num_layers, num_heads, _) in family.stacks.items():
        queries = queries_of(family, stack, LENGTH)
        shape = (BATCH, num_heads, queries, keys_of(family, stack, queries))
        assert [tuple(part.shape) for part in weights[stack]] == [shape] * num_layers


@each_family
def test_a_query_sees_what_the_family_lets_it_see(name: str) -> None:
    family = FAMILIES[name]
    model, inputs = tiny(name)
    for stack, layers in eager_weights(model, inputs).items():
        for layer, weights in enumerate(layers):
            want = seen(family, stack, layer, weights.shape[2])
            assert torch.equal(weights > 0, want.expand_as(weights)), (stack, layer)


@each_family
def test_rows_sum_to_one_unless_a_sink_takes_its_share(name: str) -> None:
    model, inputs = tiny(name)
    for layers in eager_weights(model, inputs).values():
        for weights in layers:
            sums = weights.sum(-1)
            if name in SINKS:
                assert (sums < 1).all()
                assert (sums < 0.9).any()
            else:
                precision = FAMILIES[name].softmax_in
                assert_same(sums, torch.ones_like(sums), roundings=17, dtype=precision)


@each_family
def test_attention_is_far_from_uniform_in_every_layer(name: str) -> None:
    model, inputs = tiny(name)
    for stack, layers in eager_weights(model, inputs).items():
        for layer, weights in enumerate(layers):
            share = weights / weights.sum(-1, keepdim=True)
            entropy = -torch.special.xlogy(share, share).sum(-1)
            uniform = (weights > 0).sum(-1).log()
            assert entropy.sum() < 0.9 * uniform.sum(), (stack, layer)
            assert weights.std(0).mean() > 0.02, (stack, layer)  # sequences differ, too


@pytest.mark.parametrize(("name", "side"), PADDED)
def test_a_sequence_says_the_same_alone_and_padded(name: str, side: Side) -> None:
    dtype = FAMILIES[name].softmax_in
    model, _ = tiny(name, dtype=dtype)
    batch, alone = ragged(name, LENGTHS, side, dtype=dtype)
    assert_untouched_by_padding(name, model, batch, alone)


@pytest.mark.parametrize(
    ("name", "side"), [("llama", "left"), ("mistral", "right"), ("modernbert", "right")]
)
def test_padding_is_nan_where_float64_meets_a_softmax_in_float32(name: str, side: Side) -> None:
    model, _ = tiny(name)
    batch, _ = ragged(name, LENGTHS, side)
    last = eager_weights(model, batch)[""][-1][0]
    assert last[:, batch["attention_mask"][0].bool()].isnan().all()


def assert_untouched_by_padding(
    name: str, model: nn.Module, batch: dict[str, Tensor], alone: list[dict[str, Tensor]]
) -> None:
    """Real tokens give each other the same weights, padding none, and say the same."""
    family = FAMILIES[name]
    with torch.no_grad(), eagerly(model):
        together = model(**batch, output_attentions=True)
        singles = [model(**single, output_attentions=True) for single in alone]
    for row, single in enumerate(singles):
        for stack, layers in weights_of(single).items():
            for layer, want in enumerate(layers):
                got = weights_of(together)[stack][layer][row : row + 1]
                queries, keys = real(family, stack, batch, row)
                got = got[:, :, queries]
                assert (got[..., ~keys] == 0).all(), (stack, layer)
                assert_same(got[..., keys], want, roundings=ROUNDINGS, dtype=torch.float32)
        said = output_of(together)[row : row + 1]
        if family.kind != "text and vision":
            stack = "decoder" if family.kind in ("encoder-decoder", "speech") else ""
            said = said[:, real(family, stack, batch, row)[0]]
        assert_same(said, output_of(single), roundings=ROUNDINGS, dtype=torch.float32)


def real(family: Family, stack: str, batch: dict[str, Tensor], row: int) -> tuple[Tensor, Tensor]:
    """Which queries and which keys of the stack are no padding."""
    sound = torch.ones(17, dtype=torch.bool)  # Whisper's frames, and CLIP's patches
    read = batch["attention_mask"][row].bool() if "attention_mask" in batch else sound
    if stack == "vision":
        return sound, sound
    if stack in ("decoder", "cross"):
        written = batch["decoder_attention_mask"][row].bool()
        return written, written if stack == "decoder" else read
    return read, read


def test_a_mask_that_forgets_the_padding_is_found() -> None:
    model, _ = tiny("bert")
    batch, alone = ragged("bert", LENGTHS)
    batch["attention_mask"][0, LENGTHS[0]] = 1
    with pytest.raises(AssertionError):
        assert_untouched_by_padding("bert", model, batch, alone)


@pytest.mark.parametrize("name", LEFT)
def test_left_padding_moves_learned_positions_alone(name: str) -> None:
    family = FAMILIES[name]
    model, _ = tiny(name, dtype=family.softmax_in)
    batch, alone = ragged(name, LENGTHS, "left")
    takes = "position_ids" in inspect.signature(model.forward).parameters
    assert ("position_ids" in batch) == takes == family.takes_positions
    batch.pop("position_ids", None)
    if family.needs_positions:
        with pytest.raises(AssertionError, match="largest difference"):
            assert_untouched_by_padding(name, model, batch, alone)
    else:
        assert_untouched_by_padding(name, model, batch, alone)


@pytest.mark.parametrize(("name", "side"), [("vit", "right"), ("bert", "left")])
def test_what_is_not_to_be_padded_is_refused(name: str, side: Side) -> None:
    with pytest.raises(ValueError, match=f"{name} is not to be padded on the {side}"):
        ragged(name, LENGTHS, side)


class Spy:
    """Notes each call of the interface, and answers with noise."""

    def __init__(self) -> None:
        self.calls: list[tuple[nn.Module, int, int, Tensor]] = []

    def __call__(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, None]:
        shape = (query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        mixed = torch.randn(shape, dtype=query.dtype)
        self.calls.append((module, query.shape[1], key.shape[1], mixed))
        return mixed, None


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, SPY, spy)
    return spy


@pytest.mark.parametrize("name", ROUTED)
def test_a_routed_family_asks_the_interface_once_a_layer(name: str, spy: Spy) -> None:
    family = FAMILIES[name]
    model, inputs = tiny(name)
    arrived: list[Tensor] = []
    modules = attention_modules(model, family)
    for module in modules:
        projection = output_projection(model, family, module)
        projection.register_forward_pre_hook(lambda _, given: arrived.append(given[0]))
    model.set_attn_implementation(SPY)
    with torch.no_grad():
        model(**inputs)
    assert {id(call[0]) for call in spy.calls} == {id(module) for module in modules.values()}
    want = [stack[1:] for stack in family.stacks.values() for _ in range(stack.num_layers)]
    assert sorted(call[1:3] for call in spy.calls) == sorted(want)
    for (_, _, _, mixed), concat in zip(spy.calls, arrived, strict=True):
        assert torch.equal(mixed.flatten(2), concat.reshape(mixed.flatten(2).shape))


@pytest.mark.parametrize("name", UNROUTED)
def test_an_unrouted_family_does_not_switch_and_gives_weights_unasked(name: str, spy: Spy) -> None:
    family = FAMILIES[name]
    model, inputs = tiny(name)
    want = eager_weights(model, inputs)
    model.set_attn_implementation(SPY)  # warns, and does nothing
    with torch.no_grad():
        got = weights_of(model(**inputs, output_attentions=True))
    assert model.config._attn_implementation == "eager"
    assert spy.calls == []
    for weights, same in zip(got[""], want[""], strict=True):
        assert torch.equal(weights, same)
    for module in attention_modules(model, family):
        projection = output_projection(model, family, module)
        assert projection.weight.shape[1] % family.stacks[""].num_heads == 0


class CoarsestAttention(TorchDispatchMode):
    """Notes the least precise dtype that scores and weights are computed in."""

    def __init__(self, sizes: set[tuple[int, int]]) -> None:
        super().__init__()
        self.sizes, self.dtypes = sizes, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_step = func.overloadpacket.__name__ in ("_softmax", "bmm", "baddbmm")
        if is_step and tuple(result.shape[-2:]) in self.sizes:
            self.dtypes.add(result.dtype)
        return result


@each_family
def test_eager_weights_are_as_precise_as_claimed(name: str) -> None:
    model, inputs = tiny(name)
    weights = eager_weights(model, inputs)
    sizes = {tuple(part.shape[2:]) for layers in weights.values() for part in layers}
    with CoarsestAttention(sizes) as watch:
        eager_weights(model, inputs)
    assert min(watch.dtypes, key=lambda dtype: dtype.itemsize) == FAMILIES[name].softmax_in


def test_a_model_is_the_same_at_every_call_and_takes_no_random_numbers() -> None:
    before = torch.random.get_rng_state()
    first, second = tiny("llama")[0].state_dict(), tiny("llama")[0].state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first | second)


def test_eager_is_undone_after_an_error() -> None:
    model, _ = tiny("clip")
    with pytest.raises(KeyError), eagerly(model):
        assert model.text_model.config._attn_implementation == "eager"
        raise KeyError
    assert model.config._attn_implementation == "sdpa"
    assert model.text_model.config._attn_implementation == "sdpa"
