"""Tests of calls: their methods and tiles agree with the full weight matrix."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.attention.rules import Rules
from headwise.errors import ModelError, OptionError, ShapeError
from headwise.measures.sequence_view import RowLayout, SequenceView
from headwise.reading.batch import TokenFacts
from headwise.watching.calls import AttentionCall, WeightsCall
from headwise.watching.sequence_weights import LOWEST, SequenceWeights
from headwise.watching.sites import Site
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from .helpers import (
    LENGTHS,
    allow_weights,
    assert_close,
    each_family,
    each_routed,
    each_unrouted,
    family_model,
    run,
)
from .test_tiny import PADDED, real
from .tiny import ragged, tiny
from .tiny_configs import FAMILIES, Side

pytestmark = allow_weights
SITE = Site("", 5, "layers.5.attention", nn.Identity(), None, is_routed=True)


def calls_of(name: str) -> list[Any]:
    model, inputs = family_model(name)
    with watch(model) as watched:
        run(model, inputs)
    return watched.calls


@each_routed
@pytest.mark.parametrize("needs_lse", [False, True], ids=["computed later", "known"])
def test_lse_is_the_log_of_each_rows_denominator(name: str, needs_lse: bool) -> None:
    model, inputs = family_model(name)
    with watch(model, needs_lse=needs_lse) as watched:
        run(model, inputs)
    for call in watched.calls:
        assert (call.known_lse is not None) == (needs_lse or call.rules.sinks is not None)
        weights, scores = call.weights(), scores_of(call)
        is_seen = weights > 0
        got = (scores - call.lse[..., None])[is_seen].exp()
        assert_close(name, got, weights[is_seen], "exp(score - lse)")


def scores_of(call: AttentionCall) -> Tensor:
    """Capped and biased scores of all pairs, computed independently."""
    group = call.num_heads // call.keys.shape[1]
    keys = call.keys.repeat_interleave(group, 1)
    scale = call.rules.scale or call.queries.shape[-1] ** -0.5
    scores = torch.einsum("bhqd,bhkd->bhqk", call.queries, keys) * scale
    if call.rules.softcap is not None:
        scores = torch.tanh(scores / call.rules.softcap) * call.rules.softcap
    mask = call.rules.mask
    return scores if mask is None or not mask.is_floating_point() else scores + mask


@each_family
def test_features_are_averaged_under_the_weights(name: str) -> None:
    for call in calls_of(name):
        weights = call.weights()
        features = torch.randn(1, 1, weights.shape[-1], 3, dtype=torch.float64)
        assert_close(name, call.attend(features), weights @ features)


@each_family
def test_single_weights_are_those_of_the_matrix(name: str) -> None:
    for call in calls_of(name):
        weights = call.weights()
        query = torch.randint(weights.shape[2], (29,))
        key = torch.randint(weights.shape[3], (29,))
        assert_close(name, call.weight_at(query, key), weights[:, :, query, key])


@each_routed
def test_mixed_is_the_weighted_mean_of_the_values(name: str) -> None:
    for call in calls_of(name):
        assert_close(name, call.attend(call.values), call.mixed)


@each_unrouted
def test_mixed_of_unrouted_modules_is_the_input_of_the_projection(name: str) -> None:
    model, inputs = family_model(name)
    with watch(model) as watched:
        hooks, inputs_seen = [], []
        for site in watched.sites:
            hook = site.output_projection.register_forward_pre_hook(
                lambda _, args: inputs_seen.append(args[0])
            )
            hooks.append(hook)
        run(model, inputs)
    for hook in hooks:
        hook.remove()
    for call, concat in zip(watched.calls, inputs_seen, strict=True):
        assert torch.equal(call.mixed.transpose(1, 2).flatten(2), concat)


@each_family
def test_output_weight_maps_mixed_to_the_layers_output(name: str) -> None:
    model, inputs = family_model(name)
    outputs: list[Tensor] = []
    with watch(model) as watched:
        hooks = [
            projection.register_forward_hook(lambda *args: outputs.append(args[2]))
            for projection in {site.output_projection: None for site in watched.sites}
        ]
        run(model, inputs)
    for hook in hooks:
        hook.remove()
    for call, output in zip(watched.calls, outputs, strict=True):
        got = call.mixed.transpose(1, 2).flatten(2) @ call.output_weight
        bias = call.site.output_projection.bias
        assert_close(name, got if bias is None else got + bias, output.view(got.shape))


@pytest.mark.parametrize(("name", "side"), [*((name, "none") for name in FAMILIES), *PADDED])
def test_tiles_of_one_sequence_are_those_of_the_matrix(name: str, side: Side) -> None:
    family = FAMILIES[name]
    if side == "none":
        model, batch = family_model(name)
    else:
        model, _ = tiny(name, dtype=family.softmax_in)
        batch, _ = ragged(name, LENGTHS, side, dtype=family.softmax_in)
    with watch(model) as watched:
        run(model, batch)
    for call in watched.calls:
        weights = call.weights()
        for index in (0,) if side == "none" else (0, 2):
            spans = [span_of(is_real) for is_real in real_of(family, call, batch, index, side)]
            sequence = call.sequence(index, *spans)
            want = weights[index][:, spans[0], spans[1]]
            assert_tiles(name, sequence, want)
            last = sequence.num_heads - 1
            assert_tiles(name, sequence.of_head(last), want[last:])
            assert_same(sequence.mixed, call.mixed[index, :, spans[0]], roundings=0)


def real_of(family: Any, call: Any, batch: Any, index: int, side: str) -> tuple[Tensor, Tensor]:
    if side == "none":
        shape = call.weights().shape
        return torch.ones(shape[2], dtype=torch.bool), torch.ones(shape[3], dtype=torch.bool)
    return real(family, call.stack, batch, index)


def span_of(is_real: Tensor) -> slice:
    where = is_real.nonzero()[:, 0]
    return slice(int(where[0]), int(where[-1]) + 1)


def assert_tiles(name: str, sequence: SequenceWeights, want: Tensor) -> None:
    """Neighbouring, scattered and unordered rows, whole and in part, with and without room."""
    heads, queries, keys = want.shape
    assert (sequence.num_heads, sequence.num_queries, sequence.num_keys) == want.shape
    scattered = torch.arange(0, queries, 3)
    middle = keys // 3, keys // 3 + max(1, keys // 2)
    for rows, (low, high), has_room in (
        (torch.arange(queries), (0, keys), False),
        (torch.arange(queries)[1:4], middle, True),
        (scattered, middle, False),
        (scattered.flip(0), (0, keys), True),
    ):
        room = want.new_empty(heads * len(rows) * (high - low) + 5) if has_room else None
        logs = sequence.log_weights(sequence.tile(rows, low, high), room)
        assert logs.isfinite().all()
        assert_close(name, logs.exp(), want[:, rows, low:high], "tile")
    low, high = sequence.band.keys_of(0, queries - 1, keys)
    assert (want[..., :low] == 0).all() and (want[..., high:] == 0).all()


OF_FAST_EXPONENTIALS = 2**10
"""In half precision torch's fused kernel adds up exponentials that are good to 13 of float32's 23
bits on processors without AVX-512: its log-sum-exps are off by up to 6.3e-5."""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_calls_compute_in_float32(dtype: torch.dtype) -> None:
    call = random_call(dtype=dtype, is_causal=True)
    wide = random_call(dtype=dtype, is_causal=True)
    wide = replace(
        wide,
        **{name: getattr(wide, name).float() for name in ("queries", "keys", "values", "mixed")},
    )
    query, key = torch.arange(11), torch.arange(11)
    narrow, wider = (part.sequence(1, slice(0, 11), slice(0, 11)) for part in (call, wide))
    positions = torch.arange(11)[None, None, :, None] * 100.0
    pairs = {
        "lse": (call.lse, wide.lse),
        "weight_at": (call.weight_at(query, key), wide.weight_at(query, key)),
        "attend": (call.attend(positions), wide.attend(positions)),
        "tile": (*(part.log_weights(part.tile(query, 0, 11)).exp() for part in (narrow, wider)),),
    }
    for name, (got, want) in pairs.items():
        assert got.dtype == torch.float32
        roundings = 5 + 11 + (0 if name == "attend" else OF_FAST_EXPONENTIALS)
        assert_same(got, want, roundings=roundings, name=name)


def random_call(dtype: torch.dtype = torch.float64, **rules: Any) -> AttentionCall:
    """Two sequences of 11 positions, 6 heads over 2, of size 5."""
    queries = torch.randn(2, 6, 11, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    keys, values = torch.randn(2, 2, 2, 11, 5, generator=torch.Generator().manual_seed(2)).to(dtype)
    mixed = torch.zeros(2, 6, 11, 5, dtype=dtype)
    parts = {"queries": queries, "keys": keys, "values": values, "mixed": mixed}
    return AttentionCall(site=SITE, rules=Rules(**rules), **parts)


RULES: dict[str, dict[str, Any]] = {
    "window": {"is_causal": True, "window": 3},
    "two-sided window": {"window": (2, 1)},
    "softcap": {"softcap": 0.7, "is_causal": True},
    "sinks": {"sinks": torch.linspace(-1, 1, 6, dtype=torch.float64), "window": 4},
    "bias": {
        "mask": torch.randn(1, 6, 11, 11, generator=torch.Generator().manual_seed(3)).double()
    },
    "slopes": {"slopes": torch.linspace(0.1, 1, 6, dtype=torch.float64), "is_causal": True},
    "distances": {"distance_bias": torch.randn(6, 7, dtype=torch.float64)},
    "lengths": {"lengths": torch.tensor([4, 11]), "is_causal": True},
    "padding before": {
        "mask": torch.arange(11)[None, None, None] >= torch.tensor([3, 0])[:, None, None, None]
    },
    "holes": {"mask": torch.arange(11)[None, None, None] % 3 > 0, "is_causal": True},
    "nothing to see": {"window": (2, 2), "offset": 9},
    "shifted": {"is_causal": True, "offset": 4, "window": 5},
    "negative scale": {"scale": -0.6, "is_causal": True},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_pairs_and_tiles_follow_every_kind_of_rule(rules: dict[str, Any]) -> None:
    call = random_call(**rules)
    weights = call.weights()
    query, key = (
        part.flatten() for part in torch.meshgrid(torch.arange(11), torch.arange(11), indexing="ij")
    )
    roundings = 5 + 11 + 8
    got = call.weight_at(query, key).unflatten(-1, (11, 11))
    assert_same(got, weights, roundings=roundings, name="weight_at")
    for index in range(2):
        for queries in (slice(0, 11), slice(2, 9)):
            sequence = call.sequence(index, queries, slice(None))
            rows = torch.arange(queries.stop - queries.start)
            logs = sequence.log_weights(sequence.tile(rows, 0, 11))
            assert logs.isfinite().all()
            want = weights[index][:, queries]
            assert_same(logs.exp(), want, roundings=roundings, name="tile")
            for head in range(6):
                alone = sequence.of_head(head)
                logs = alone.log_weights(alone.tile(rows, 0, 11))
                assert_same(logs.exp(), want[head][None], roundings=roundings, name="one head")
            layout = RowLayout.of(sequence, rows, None)
            seen = SequenceView(sequence=sequence, layout=layout, output_roots=None).seen
            assert torch.equal(seen.expand(6, -1), (want > 0).sum(-1).to(want))


def test_the_band_covers_the_weights_of_all_heads_and_rows() -> None:
    def band(*weights: Tensor) -> tuple[int | None, int | None]:
        mixed = torch.zeros(len(weights), 7, 5)
        result = SequenceWeights(mixed=mixed, known_weights=torch.stack(weights)).band
        assert result.offset == 0
        return result.before, result.after

    full = torch.ones(7, 7)
    near, far = full.tril().triu(-1), full.tril() - full.tril(-2)
    far[6, 0] = 1.0
    assert band(near, far) == (None, 0), "one weight over 0 is enough"
    assert band(near) == (1, 0)
    assert band(full.tril(2).triu(-3)) == (3, 2)
    assert band(full, near) == (None, None)
    assert band(0 * full) == (None, None)


def test_padding_inside_a_span_is_not_seen() -> None:
    call = random_call(lengths=torch.tensor([4, 11]))
    sequence = call.sequence(0, slice(0, 4), slice(0, 7))
    logs = sequence.log_weights(sequence.tile(torch.arange(4), 0, 7))
    assert (logs[..., 4:] <= LOWEST / 2).all()
    want = call.weights()[0, :, :4, :7]
    assert_same(logs.exp(), want, roundings=16)


def test_a_tile_may_have_no_rows() -> None:
    sequence = random_call(is_causal=True).sequence(0, slice(None), slice(None))
    nothing = torch.arange(0)
    assert sequence.log_weights(sequence.tile(nothing, 0, 11)).shape == (6, 0, 11)


def test_a_sequence_of_a_model_in_training_carries_no_gradients() -> None:
    model, inputs = tiny("llama")
    with watch(model) as watched:
        model(**inputs)
    assert watched.calls[1].queries.requires_grad
    sequence = watched.calls[1].sequence(0, slice(None), slice(None))
    room = torch.empty(6 * 13 * 13, dtype=torch.float64)
    block = sequence.tile(torch.arange(13), 0, 13)
    assert not sequence.log_weights(block, room).requires_grad
    assert not sequence.mixed.requires_grad


def test_too_many_weights_raise_with_their_size() -> None:
    zero = torch.zeros(())
    parts = {"queries": zero.expand(1, 8, 70_000, 4), "keys": zero.expand(1, 8, 70_000, 4)}
    call = AttentionCall(
        site=SITE, rules=Rules(), values=parts["keys"], mixed=parts["keys"], **parts
    )
    with pytest.raises(OptionError, match=r"L5.* 146\.0 GiB"):
        call.weights()


def test_calls_with_only_weights_have_no_lse() -> None:
    weights = torch.full((1, 2, 3, 3), 1 / 3)
    call = WeightsCall(site=SITE, known_weights=weights, mixed=torch.zeros(1, 2, 3, 4))
    with pytest.raises(ModelError, match=r"L5.*log-sum-exp.*Identity"):
        _ = call.lse


def test_an_output_projection_of_another_size_gives_no_output_weight() -> None:
    site = replace(SITE, output_projection=nn.Linear(7, 3))
    call = WeightsCall(
        site=site, known_weights=torch.ones(1, 2, 1, 1), mixed=torch.zeros(1, 2, 1, 4)
    )
    assert call.output_weight is None


def test_the_real_tokens_of_a_sequence_are_one_span() -> None:
    is_real = torch.tensor([[False, True, True, False], [False] * 4])
    ids = torch.zeros(2, 4, dtype=torch.int64)
    facts = TokenFacts(ids=ids, is_real=is_real, is_special=~is_real, is_punctuation=~is_real)
    assert facts.spans[0] == slice(1, 3)
    assert facts.spans[1] == slice(0, 0)


def test_tiles_of_another_sequence_fail_the_comparison() -> None:
    call = calls_of("llama")[0]
    sequence = call.sequence(0, slice(None), slice(None))
    with pytest.raises(AssertionError, match="largest difference"):
        assert_tiles("llama", sequence, call.weights()[1])


@pytest.mark.parametrize("name", ["llama", "mpnet"])
def test_positions_may_be_negative_but_must_exist(name: str) -> None:
    call = calls_of(name)[1]
    weights = call.weights()
    num_queries, num_keys = weights.shape[2:]
    query, key = torch.tensor([-1, -1, 0, -2]), torch.tensor([0, -1, -1, 1])
    assert_close(name, call.weight_at(query, key), weights[:, :, query, key])
    for wrong in (num_keys, -num_keys - 1):
        with pytest.raises(ShapeError, match=rf"key.* {min(wrong, 0)} .*0\.\.{num_keys - 1}"):
            call.weight_at(torch.tensor([0, 0]), torch.tensor([0, wrong]))
    with pytest.raises(ShapeError, match=rf"query.* {num_queries}.*0\.\.{num_queries - 1}"):
        call.weight_at(torch.tensor([num_queries]), torch.tensor([0]))
    assert call.weight_at(query[:0], key[:0]).shape[2] == 0


def test_calls_and_watches_print_as_one_line() -> None:
    model, inputs = family_model("llama")
    with watch(model) as watched:
        model(**inputs)
    assert repr(watched) == "Watched(3 attention layers, 3 calls)"
    batch, heads, queries = watched.calls[1].mixed.shape[:3]
    sizes = f"batch {batch}, heads {heads}, query {queries}"
    assert repr(watched.calls[1]) == f"AttentionCall(L1, {sizes})"
