"""Gates change the output of each head before the output projection mixes the heads."""

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.watching.gates import MeanOutputs, gate, mean_outputs, silence
from headwise.watching.interface import OBSERVERS
from headwise.watching.routing import CHANGES
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from .helpers import (
    LENGTHS,
    ROUNDINGS,
    allow_weights,
    assert_close,
    each_family,
    family_model,
    run,
)
from .tiny import attention_modules, eagerly, output_of, output_projection, ragged, stack_of, tiny
from .tiny_configs import FAMILIES

pytestmark = allow_weights
Factors = dict[tuple[str, int], Tensor]


@contextmanager
def hooked(model: nn.Module, name: str, factors: Factors) -> Iterator[None]:
    """Gate each head's slice of the projection's input by hooks, without headwise."""
    family = FAMILIES[name]
    counts: Counter[str] = Counter()

    def multiply(stack: str, layer: int | None) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            number = layer
            if number is None:  # ALBERT: one module for all layers, which take turns
                number = counts[stack] % family.stacks[stack].num_layers
                counts[stack] += 1
            if (stack, number) not in factors:
                return inputs
            each = factors[stack, number].to(inputs[0])
            size = inputs[0].shape[-1] // len(each)
            return (inputs[0] * each.repeat_interleave(size), *inputs[1:])

        return hook

    numbers: Counter[str] = Counter()
    with ExitStack() as hooks:
        for path in attention_modules(model, family):
            stack = stack_of(path, family)
            layer = None if name == "albert" else numbers[stack]
            numbers[stack] += 1
            projection = output_projection(model, family, path)
            hooks.enter_context(projection.register_forward_pre_hook(multiply(stack, layer)))
        yield


def some_heads(name: str) -> tuple[list[HeadId], Factors]:
    """The first head of the first layer and the last two of the last, in every stack."""
    heads, factors = [], {}
    for stack, (num_layers, num_heads, _) in FAMILIES[name].stacks.items():
        chosen = [(0, 0), (num_layers - 1, num_heads - 1), (num_layers - 1, num_heads - 2)]
        heads += [HeadId(layer, head, stack) for layer, head in chosen]
        for layer, head in chosen:
            each = factors.setdefault((stack, layer), torch.ones(num_heads, dtype=torch.float64))
            each[head] = 0
    return heads, factors


@each_family
def test_silencing_heads_zeroes_their_slices_before_the_projection(name: str) -> None:
    model, inputs = family_model(name)
    heads, factors = some_heads(name)
    plain = output_of(run(model, inputs))
    with hooked(model, name, factors):
        want = output_of(run(model, inputs))
    with silence(model, heads):
        got = output_of(run(model, inputs))
    assert_close(name, got, want)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(name, got, plain)


@each_family
def test_silencing_nothing_changes_no_bit(name: str) -> None:
    model, inputs = family_model(name)
    want = output_of(run(model, inputs))
    with silence(model, []):
        assert torch.equal(output_of(run(model, inputs)), want)
    assert torch.equal(output_of(run(model, inputs)), want)


@each_family
def test_gates_of_one_change_nothing_and_others_scale_each_head(name: str) -> None:
    model, inputs = family_model(name)
    plain = output_of(run(model, inputs))
    shapes = {
        (stack, layer): facts.num_heads
        for stack, facts in FAMILIES[name].stacks.items()
        for layer in range(facts.num_layers)
    }
    ones = {label(key): torch.ones(count) for key, count in shapes.items()}
    with watch(model, lambda call: None):
        unchanged = output_of(run(model, inputs))
    with gate(model, ones):
        assert torch.equal(output_of(run(model, inputs)), unchanged)
    assert_close(name, unchanged, plain)
    factors = {key: 2 * torch.rand(count, dtype=torch.float64) for key, count in shapes.items()}
    with hooked(model, name, factors):
        want = output_of(run(model, inputs))
    with gate(model, {label(key): each for key, each in factors.items()}):
        assert_close(name, output_of(run(model, inputs)), want)


def label(key: tuple[str, int]) -> str:
    return f"{key[0]}.L{key[1]}" if key[0] else f"L{key[1]}"


@pytest.mark.parametrize("name", ["bert", "albert", "llama", "gemma2", "gpt_oss", "t5", "falcon"])
def test_learned_gates_get_the_gradient_of_their_hooks(name: str) -> None:
    model, inputs = tiny(name)
    model.requires_grad_(False)

    def learned() -> Factors:
        return {
            (stack, layer): torch.linspace(0.5, 1.5, facts.num_heads, dtype=torch.float64)
            for stack, facts in FAMILIES[name].stacks.items()
            for layer in range(facts.num_layers)
        }

    wants, gots = learned(), learned()
    for each in [*wants.values(), *gots.values()]:
        each.requires_grad_()
    with eagerly(model), hooked(model, name, wants):
        output_of(model(**inputs)).square().mean().backward()
    with gate(model, {label(key): each for key, each in gots.items()}):
        output_of(model(**inputs)).square().mean().backward()
    precision = FAMILIES[name].softmax_in
    for key, want in wants.items():
        assert want.grad.abs().min() > 0
        assert_same(gots[key].grad, want.grad, roundings=2 * ROUNDINGS, dtype=precision)


def test_a_gates_gradient_is_the_slope_of_the_loss() -> None:
    model, inputs = tiny("bert")
    gates = torch.ones(5, dtype=torch.float64, requires_grad=True)

    def loss(factors: Tensor) -> Tensor:
        with gate(model, {"L1": factors}):
            return output_of(model(**inputs)).square().mean()

    size = loss(gates)
    size.backward()
    step = torch.finfo(torch.float64).eps ** (1 / 3)
    for head in range(5):
        move = step * nn.functional.one_hot(torch.tensor(head), 5)
        with torch.no_grad():
            slope = (loss(gates + move) - loss(gates - move)) / (2 * step)
        # Rounding moves the losses by eps, hence their difference over the step by its square.
        assert abs(slope - gates.grad[head]) <= ROUNDINGS * step**2 * (1 + size)


@pytest.mark.parametrize("name", ["bert", "llama", "mpnet", "bart", "clip", "albert"])
def test_means_replace_silenced_heads(name: str) -> None:
    family = FAMILIES[name]
    model, _ = tiny(name, dtype=family.softmax_in)
    batch, alone = ragged(name, LENGTHS, dtype=family.softmax_in)
    means = mean_outputs(model, [batch])
    sums: dict[tuple[str, int], Tensor] = {}
    counts: dict[tuple[str, int], int] = {}
    for single in alone:
        with watch(model) as watched:
            run(model, single)
        for call in watched.calls:
            key = call.stack, call.layer
            sums[key] = sums.get(key, 0) + call.mixed.double().sum((0, 2))
            counts[key] = counts.get(key, 0) + call.mixed.shape[2]
    assert means.by_layer.keys() == sums.keys()
    for key, total in sums.items():
        want = total / counts[key]
        assert_same(means.by_layer[key], want, roundings=ROUNDINGS, dtype=torch.float32)
    heads, factors = some_heads(name)
    with watch(model) as watched:
        run(model, batch)
    projected: dict[tuple[str, int], Tensor] = {}
    with silence(model, heads, means=means), spy_on_projections(watched.sites, projected):
        run(model, batch)
    for (stack, layer), factor in factors.items():
        concat = projected[stack, layer]
        apart = concat.unflatten(-1, (len(factor), -1))
        for head in (factor == 0).nonzero()[:, 0].tolist():
            mean = means.by_layer[stack, layer][head].to(apart)
            assert torch.equal(apart[..., head, :], mean.expand_as(apart[..., head, :]))


@contextmanager
def spy_on_projections(sites: Any, projected: dict[tuple[str, int], Tensor]) -> Iterator[None]:
    """Record the inputs of the output projections; ALBERT's single one takes turns."""
    rounds: Counter[nn.Module] = Counter()

    def hook_of(sites_of_projection: list[Any]) -> Any:
        def hook(projection: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            site = sites_of_projection[rounds[projection]]
            rounds[projection] += 1
            projected[site.stack, site.layer] = inputs[0]

        return hook

    with ExitStack() as hooks:
        for projection in {site.output_projection: None for site in sites}:
            sites_of_projection = [site for site in sites if site.output_projection is projection]
            hook = projection.register_forward_pre_hook(hook_of(sites_of_projection))
            hooks.enter_context(hook)
        yield


def test_means_over_batches_are_means_over_tokens() -> None:
    model, inputs = tiny("llama")
    together = mean_outputs(model, [inputs])
    batches = [{key: part[rows] for key, part in inputs.items()} for rows in ([0], [1, 2, 3])]
    in_batches = mean_outputs(model, batches)
    for key, mean in together.by_layer.items():
        assert_same(in_batches.by_layer[key], mean, roundings=ROUNDINGS, dtype=torch.float32)


def test_mean_outputs_ignore_training_mode() -> None:
    model, inputs = tiny("bert")
    want = mean_outputs(model, [inputs]).by_layer
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    model.train()
    model.bert.encoder.layer[1].eval()
    modes = [module.training for module in model.modules()]
    got = mean_outputs(model, [inputs]).by_layer
    assert all(torch.equal(got[key], mean) for key, mean in want.items())
    assert [module.training for module in model.modules()] == modes


def test_silence_nests_in_watch_and_in_silence() -> None:
    model, inputs = tiny("bert")
    with silence(model, "L0H1 L2H3"):
        want = output_of(run(model, inputs))
    with silence(model, "L0H1"), watch(model), silence(model, "L2H3"):
        got = output_of(run(model, inputs))
    assert torch.equal(got, want)


def test_nested_gates_multiply() -> None:
    model, inputs = tiny("bert")
    halves = {"L0": torch.full((5,), 0.5)}
    with gate(model, halves), gate(model, halves):
        got = output_of(run(model, inputs))
    with gate(model, {"L0": torch.full((5,), 0.25)}):
        assert torch.equal(got, output_of(run(model, inputs)))


@pytest.mark.parametrize("name", ["llama", "mpnet", "albert"])
def test_gates_end_after_an_error(name: str) -> None:
    model, inputs = tiny(name)
    want = output_of(run(model, inputs))
    with pytest.raises(KeyError, match="in between"), silence(model, "L0H1"):
        raise KeyError("in between")
    with pytest.raises(KeyError, match="in between"), gate(model, {"L1": torch.zeros(6)}):
        raise KeyError("in between")
    assert torch.equal(output_of(run(model, inputs)), want)
    assert not OBSERVERS and not CHANGES


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_an_unknown_head_raises_with_the_known_heads(name: str) -> None:
    model, _ = tiny(name)
    last = FAMILIES[name].stacks[""].num_heads - 1
    facts = rf"L1H11.*L1.*0\.\.{last}"
    with pytest.raises(OptionError, match=facts):
        silence(model, "L1H11").__enter__()


def test_an_unknown_head_raises_when_it_runs_if_the_config_counts_wrongly() -> None:
    model, inputs = tiny("llama")
    for module in model.modules():
        if type(module).__name__ == "LlamaAttention":
            module.config = copy.copy(module.config)
            module.config.num_attention_heads = 12
    facts = r"L1H11.*L1.*0\.\.5"
    with pytest.raises(OptionError, match=facts), silence(model, "L1H11"):
        run(model, inputs)


@each_family
def test_sites_have_the_number_of_heads(name: str) -> None:
    model, inputs = family_model(name)
    with watch(model) as watched:
        run(model, inputs)
    counts = {site.layer_name: site.num_heads for site in watched.sites}
    assert counts == {call.site.layer_name: call.num_heads for call in watched}


def test_an_unknown_layer_raises_with_the_known_layers() -> None:
    model, _ = tiny("bart")
    layers = r"encoder\.L0, encoder\.L1, decoder\.L0, \.\.\., cross\.L1, cross\.L2"
    with pytest.raises(OptionError, match=rf"L0H1.*{layers}"):
        silence(model, "L0H1").__enter__()
    with pytest.raises(OptionError, match=rf"L9.*{layers}"):
        gate(model, {"L9": torch.ones(3)}).__enter__()


def test_a_malformed_head_name_raises() -> None:
    model, _ = tiny("bert")
    with pytest.raises(OptionError, match=r"'0\.1'"):
        silence(model, "0.1").__enter__()


def test_gates_for_another_number_of_heads_raise() -> None:
    model, inputs = tiny("bert")
    facts = r"gates.*L1.*\[3\].*\[batch 4, heads 5\].*\[heads 5\]"
    with pytest.raises(OptionError, match=facts), gate(model, {"L1": torch.ones(3)}):
        run(model, inputs)


def test_mean_outputs_of_no_batch_or_another_layer_raise() -> None:
    model, _ = tiny("bert")
    with pytest.raises(OptionError, match="batches"):
        mean_outputs(model, [])
    with pytest.raises(OptionError, match=r"means.*L1"):
        silence(model, "L1H0", means=MeanOutputs({})).__enter__()


def test_mean_outputs_of_a_decoder_leave_out_padded_labels() -> None:
    model, inputs = tiny("t5")
    model.config.decoder_start_token_id = 0
    texts = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
    batch = len(texts["input_ids"])
    labels = torch.randint(3, 20, (batch, 5))
    padded = torch.cat([labels, torch.full((batch, 6), -100)], 1)
    want = mean_outputs(model, [texts | {"labels": labels}]).by_layer
    got = mean_outputs(model, [texts | {"labels": padded}]).by_layer
    for key, mean in want.items():
        assert_same(got[key], mean, roundings=ROUNDINGS, dtype=torch.float32)


def test_mean_outputs_of_a_decoder_only_model_use_its_mask() -> None:
    config = GPT2Config(n_embd=20, n_head=5, n_layer=2, vocab_size=97, add_cross_attention=True)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).double().eval()
    ids, mask = torch.randint(3, 97, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    other = {"encoder_hidden_states": torch.randn(2, 3, 20, dtype=torch.float64)}
    mask[:, 4:] = 0
    want = mean_outputs(model, [{"input_ids": ids[:, :4], **other}]).by_layer
    got = mean_outputs(model, [{"input_ids": ids, "attention_mask": mask, **other}]).by_layer
    assert set(want) == {(stack, n) for stack in ("decoder", "cross") for n in range(2)}
    for key, mean in want.items():
        assert_same(got[key], mean, roundings=ROUNDINGS, dtype=torch.float32)
