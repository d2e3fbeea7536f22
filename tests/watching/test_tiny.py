"""The tiny models are what their table says: the ground truth of other tests."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..attention.tolerance import assert_same
from .helpers import LENGTHS, ROUNDINGS
from .tiny import (
    BATCH,
    LENGTH,
    eager_weights,
    eagerly,
    output_of,
    ragged,
    tiny,
    weights_of,
)
from .tiny_configs import FAMILIES, FRAMES, MEMORY, Family, Side

PADDED = [(name, side) for name, family in FAMILIES.items() for side in family.pads]
LEFT = [name for name, family in FAMILIES.items() if "left" in family.pads]
SINKS = {"gpt_oss"}


def keys_of(family: Family, stack: str, queries: int) -> int:
    """Number of keys of the stack."""
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


def test_every_model_is_what_its_row_says() -> None:
    for name, family in FAMILIES.items():
        model, inputs = tiny(name)
        with torch.no_grad():
            output = output_of(model(**inputs))
            with eagerly(model):
                want = output_of(model(**inputs))
        assert not model.training and output.dtype == torch.float64 and want.isfinite().all(), name
        assert_same(output, want, roundings=ROUNDINGS, dtype=torch.float32, name=name)
        weights = eager_weights(model, inputs)
        assert weights.keys() == family.stacks.keys(), name
        for stack, (num_layers, num_heads, _) in family.stacks.items():
            queries = queries_of(family, stack, LENGTH)
            shape = (BATCH, num_heads, queries, keys_of(family, stack, queries))
            assert [tuple(part.shape) for part in weights[stack]] == [shape] * num_layers, name
            for layer, part in enumerate(weights[stack]):
                assert_plausible(name, stack, layer, part)


def assert_plausible(name: str, stack: str, layer: int, weights: Tensor) -> None:
    """Queries see what the family allows, rows sum to one, and attention is far from uniform."""
    allowed = seen(FAMILIES[name], stack, layer, weights.shape[2])
    assert torch.equal(weights > 0, allowed.expand_as(weights)), (name, stack, layer)
    sums = weights.sum(-1)
    if name in SINKS:
        assert (sums < 1).all() and (sums < 0.9).any(), (name, stack, layer)
    else:
        precision = FAMILIES[name].softmax_in
        assert_same(sums, torch.ones_like(sums), roundings=17, dtype=precision, name=name)
    share = weights / sums[..., None]
    entropy = -torch.special.xlogy(share, share).sum(-1)
    assert entropy.sum() < 0.9 * (weights > 0).sum(-1).log().sum(), (name, stack, layer)
    assert weights.std(0).mean() > 0.02, (name, stack, layer)  # sequences differ as well


def test_padding_does_not_change_a_sequence() -> None:
    for name, side in PADDED:
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
    """Assert that real tokens have the same weights and outputs, and give padding no weight."""
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
        got = output_of(together)[row : row + 1]
        if family.kind != "text and vision":
            stack = "decoder" if family.kind in ("encoder-decoder", "speech") else ""
            got = got[:, real(family, stack, batch, row)[0]]
        assert_same(got, output_of(single), roundings=ROUNDINGS, dtype=torch.float32)


def real(family: Family, stack: str, batch: dict[str, Tensor], row: int) -> tuple[Tensor, Tensor]:
    """True for real queries and for real keys of the stack."""
    sound = torch.ones(17, dtype=torch.bool)  # Whisper's frames, and CLIP's patches
    read = batch["attention_mask"][row].bool() if "attention_mask" in batch else sound
    if stack == "vision":
        return sound, sound
    if stack in ("decoder", "cross"):
        decoder = batch["decoder_attention_mask"][row].bool()
        return decoder, decoder if stack == "decoder" else read
    return read, read


def test_a_mask_without_the_padding_fails_the_comparison() -> None:
    model, _ = tiny("bert")
    batch, alone = ragged("bert", LENGTHS)
    batch["attention_mask"][0, LENGTHS[0]] = 1
    with pytest.raises(AssertionError):
        assert_untouched_by_padding("bert", model, batch, alone)


def test_left_padding_moves_only_learned_positions() -> None:
    for name in LEFT:
        family = FAMILIES[name]
        model, _ = tiny(name, dtype=family.softmax_in)
        batch, alone = ragged(name, LENGTHS, "left")
        takes = "position_ids" in inspect.signature(model.forward).parameters
        assert ("position_ids" in batch) == takes == family.takes_positions, name
        batch.pop("position_ids", None)
        if family.needs_positions:
            with pytest.raises(AssertionError, match="largest difference"):
                assert_untouched_by_padding(name, model, batch, alone)
        else:
            assert_untouched_by_padding(name, model, batch, alone)


@pytest.mark.parametrize(("name", "side"), [("vit", "right"), ("bert", "left")])
def test_ragged_rejects_families_that_cannot_be_padded(name: str, side: Side) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{side}"):
        ragged(name, LENGTHS, side)


class CoarsestAttention(TorchDispatchMode):
    """Records the dtypes in which scores and weights are computed."""

    def __init__(self, sizes: set[tuple[int, int]]) -> None:
        super().__init__()
        self.sizes, self.dtypes = sizes, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_step = func.overloadpacket.__name__ in ("_softmax", "bmm", "baddbmm")
        if is_step and tuple(result.shape[-2:]) in self.sizes:
            self.dtypes.add(result.dtype)
        return result


def test_eager_weights_are_as_precise_as_claimed() -> None:
    for name, family in FAMILIES.items():
        model, inputs = tiny(name)
        weights = eager_weights(model, inputs)
        sizes = {tuple(part.shape[2:]) for layers in weights.values() for part in layers}
        with CoarsestAttention(sizes) as mode:
            eager_weights(model, inputs)
        assert min(mode.dtypes, key=lambda dtype: dtype.itemsize) == family.softmax_in, name


def test_tiny_is_deterministic_and_uses_no_global_random_numbers() -> None:
    before = torch.random.get_rng_state()
    first, second = tiny("llama")[0].state_dict(), tiny("llama")[0].state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first | second)


def test_eager_mode_ends_after_an_error() -> None:
    model, _ = tiny("clip")
    with pytest.raises(KeyError), eagerly(model):
        assert model.text_model.config._attn_implementation == "eager"
        raise KeyError
    assert model.config._attn_implementation == "sdpa"
    assert model.text_model.config._attn_implementation == "sdpa"
