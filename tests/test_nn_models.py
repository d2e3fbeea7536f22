"""The drop-in with other code: transformers, `swap`, copies, compiler and transforms."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from headwise import nn as ours
from headwise.errors import OptionError

from .attention.tolerance import assert_same
from .nn_cases import (
    EMPTYING,
    MASKS,
    WEIGHTS,
    Case,
    all_of,
    assert_all_same,
    blocked_sequence,
    drop_in,
    inputs_of,
    noise,
    padding,
    results,
    torch_layer,
)


def swapped(model: nn.Module) -> nn.Module:
    """The same model with drop-ins."""
    twin = copy.deepcopy(model)
    assert ours.swap(twin) > 0
    return twin


def encoder(*, layers: int = 2, norm_first: bool = False, heads: int = 2) -> nn.TransformerEncoder:
    """Without dropout, so that training and eval are comparable."""
    layer = nn.TransformerEncoderLayer(
        22, heads, 31, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "enable_nested_tensor")
        return nn.TransformerEncoder(layer, layers)


@pytest.mark.parametrize("is_right", [True, False], ids=["right padding", "left padding"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_gives_torchs_result_on_real_tokens(norm_first: bool, is_right: bool) -> None:
    theirs = encoder(norm_first=norm_first).eval()
    mine = swapped(theirs)
    case = Case()
    tokens, blocked = inputs_of(case)[0], padding(case)
    blocked = blocked if is_right else blocked.flip(-1)
    with torch.no_grad():
        want, got = (model(tokens, src_key_padding_mask=blocked) for model in (theirs, mine))
    assert_same(got[~blocked], want[~blocked], roundings=4 * case.roundings)


@pytest.mark.parametrize("is_training", [True, False])
def test_a_causal_encoder_gives_torchs_result(is_training: bool) -> None:
    theirs = encoder().train(is_training)
    mine = swapped(theirs)
    case = Case()
    tokens = inputs_of(case)[0]
    mask = nn.Transformer.generate_square_subsequent_mask(case.num_queries, dtype=case.dtype)
    with torch.set_grad_enabled(is_training):
        want, got = (model(tokens, mask=mask) for model in (theirs, mine))
    assert_same(got, want, roundings=4 * case.roundings)


@pytest.mark.parametrize("make", ["swap", "constructor", "deepcopy", "pickle"])
def test_an_encoder_layer_in_eval_has_no_nan(make: str) -> None:
    theirs = encoder().layers[0].eval()
    mine = swapped(theirs)
    if make == "constructor":
        mine.self_attn = ours.MultiheadAttention(22, 2, batch_first=True, dtype=torch.float64)
        mine.self_attn.load_state_dict(theirs.self_attn.state_dict())
        mine.eval()
    elif make == "deepcopy":
        mine = copy.deepcopy(mine)
    elif make == "pickle":
        mine = pickle.loads(pickle.dumps(mine))
    case = Case()
    tokens = inputs_of(case)[0]
    blocked = blocked_sequence(case)
    with torch.no_grad():
        want, got = (layer(tokens, src_key_padding_mask=blocked) for layer in (theirs, mine))
    assert want[-1].isnan().all()
    assert_same(got[:-1], want[:-1], roundings=4 * case.roundings)
    alone = theirs.norm1(tokens[-1] + theirs.self_attn.out_proj.bias)
    alone = theirs.norm2(alone + theirs._ff_block(alone))
    assert_same(got[-1], alone, roundings=4 * case.roundings)


def test_an_encoder_with_a_blocked_sequence_has_no_nan_in_training_or_eval() -> None:
    model, case = swapped(encoder()), Case()
    tokens = inputs_of(case)[0].requires_grad_()
    blocked = blocked_sequence(case)
    outputs = model(tokens, src_key_padding_mask=blocked)
    grads = torch.autograd.grad((outputs * noise(outputs)).sum(), [tokens, *model.parameters()])
    assert all(part.isfinite().all() for part in (outputs, *grads))
    with torch.no_grad():
        assert model.eval()(tokens, src_key_padding_mask=blocked).isfinite().all()


@pytest.mark.parametrize("is_training", [True, False])
def test_a_whole_transformer_gives_torchs_result(is_training: bool) -> None:
    theirs = nn.Transformer(22, 2, 2, 3, 31, dropout=0.0, dtype=torch.float64).train(is_training)
    mine = copy.deepcopy(theirs)
    assert ours.swap(mine) == 2 + 2 * 3
    case = Case("positions first", "cross")
    target, source, _ = inputs_of(case)
    mask = theirs.generate_square_subsequent_mask(case.num_queries, dtype=case.dtype)
    masks = {"tgt_mask": mask, "memory_key_padding_mask": padding(case)}
    with torch.set_grad_enabled(is_training):
        want, got = (model(source, target, **masks) for model in (theirs, mine))
    assert_same(got, want, roundings=10 * case.roundings)


class Renamed(nn.MultiheadAttention):
    """A subclass of torch's layer that is not ours."""


def test_swap_counts_what_it_changes() -> None:
    model = nn.ModuleDict(
        {"one": nn.MultiheadAttention(22, 2), "other": Renamed(22, 2), "deep": encoder(layers=3)}
    )
    assert ours.swap(model) == 4
    assert ours.swap(model) == 0
    assert type(model["one"]) is ours.MultiheadAttention
    assert type(model["other"]) is Renamed
    assert ours.swap(nn.Linear(2, 3)) == 0


def test_swap_takes_a_single_layer() -> None:
    layer = nn.MultiheadAttention(22, 2)
    assert ours.swap(layer) == 1
    assert type(layer) is ours.MultiheadAttention


def test_swap_keeps_shared_layers_shared() -> None:
    shared = nn.MultiheadAttention(22, 2)
    model = nn.ModuleList([shared, nn.Sequential(shared)])
    assert ours.swap(model) == 1
    assert model[0] is shared and model[1][0] is shared
    assert type(shared) is ours.MultiheadAttention


def test_swap_keeps_parameters_hooks_and_modes() -> None:
    case = Case()
    model = nn.ModuleList([torch_layer(case), torch_layer(case).eval()])
    model[0].in_proj_bias.requires_grad_(False)
    model[1].note = "kept"
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append("hook"))
    before = dict(model.named_parameters())
    inputs = inputs_of(case)
    want = [results(layer, inputs, {}) for layer in model]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    assert ours.swap(model) == 2
    after = dict(model.named_parameters())
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
    assert [layer.training for layer in model] == [True, False]
    assert not model[0].in_proj_bias.requires_grad and model[1].note == "kept"
    for layer, each in zip(model, want, strict=True):
        assert_all_same(results(layer, inputs, {}), each, case)
    assert calls == ["hook", "hook"]
    results(model[0], inputs, {})["output"].square().sum().backward()
    optimizer.step()
    assert not torch.equal(results(model[0], inputs, {})["output"], want[0]["output"])


def test_from_torch_shares_parameters_and_leaves_the_original_alone() -> None:
    case = Case()
    theirs = torch_layer(case).eval()
    mine = ours.MultiheadAttention.from_torch(theirs)
    assert type(theirs) is nn.MultiheadAttention and not theirs.out_proj._forward_pre_hooks
    assert not mine.training
    pairs = zip(theirs.parameters(), mine.parameters(), strict=True)
    assert all(one is other for one, other in pairs)
    mine.in_proj_bias = None
    assert theirs.in_proj_bias is not None


def test_from_torch_rejects_a_subclass() -> None:
    with pytest.raises(OptionError, match=r"Renamed.*subclass"):
        ours.MultiheadAttention.from_torch(Renamed(22, 2))


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_compute_the_same(twin: Callable[[nn.Module], Any]) -> None:
    case = Case()
    layer = drop_in(torch_layer(case))
    inputs, call = inputs_of(case), EMPTYING["blocked query"](case)
    other = twin(layer)
    assert type(other) is ours.MultiheadAttention
    assert_all_same(all_of(other, inputs, call), all_of(layer, inputs, call), case)


def test_the_drop_in_is_an_instance_of_torchs_layer() -> None:
    assert isinstance(ours.MultiheadAttention(22, 2), nn.MultiheadAttention)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["no weights", "mean weights"])
@pytest.mark.parametrize(
    ("num_queries", "mask"),
    [
        *((Case().num_queries, name) for name in ("no mask", "causal hint and padding")),
        (Case().num_queries, "blocked query"),
        (131, "no mask"),
    ],
)
def test_the_drop_in_compiles_to_one_graph(num_queries: int, mask: str, weights: str) -> None:
    case = Case(num_queries=num_queries)
    layer, inputs = drop_in(torch_layer(case)), inputs_of(case)
    call = (MASKS | EMPTYING)[mask](case) | WEIGHTS[weights]
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert_all_same(results(compiled, inputs, call), results(layer, inputs, call), case)


@pytest.mark.parametrize("weights", ["no weights", "mean weights"])
def test_vmap_equals_a_loop(weights: str) -> None:
    case = Case("unbatched")
    layer, call = drop_in(torch_layer(case)), EMPTYING["blocked query"](case) | WEIGHTS[weights]
    many = torch.stack([inputs_of(case)[0] for _ in range(7)])
    got = torch.func.vmap(lambda tokens: layer(tokens, tokens, tokens, **call)[0])(many)
    want = torch.stack([layer(tokens, tokens, tokens, **call)[0] for tokens in many])
    assert_same(got, want, roundings=case.roundings)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_autocast_gives_torchs_dtypes(weights: str) -> None:
    case = Case(dtype=torch.float32)
    theirs, inputs = torch_layer(case), inputs_of(case)
    mine = drop_in(theirs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for make in (MASKS["no mask"], MASKS["bool padding"], EMPTYING["blocked query"]):
            call = make(case) | WEIGHTS[weights]
            want, got = results(theirs, inputs, call), results(mine, inputs, call)
            assert {name: part.dtype for name, part in got.items()} == {
                name: part.dtype for name, part in want.items()
            }
            assert all(part.isfinite().all() for part in got.values())
