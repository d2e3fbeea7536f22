"""After a cut a model still generates, learns, compiles, is watched, copied and rebuilt."""

import ast
import copy
import inspect
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM, FalconForCausalLM, LlamaForCausalLM, PreTrainedModel

from headwise.models import exported_modeling
from headwise.models.exported_modeling import CutMixin, reshape
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.watching.gates import silence
from headwise.watching.watch import watch

from ...attention.tolerance import assert_same
from ...watching.helpers import ROUNDINGS, allow_weights, assert_close, run
from ...watching.tiny import Inputs, config_of, eager_weights, eagerly, output_of, tiny
from ...watching.tiny_configs import FAMILIES
from ..differences import ALL, every_head, mixed_plan, tiny_of

pytestmark = allow_weights

Plan = Callable[[PreTrainedModel], list[str]]


def first_emptied(model: PreTrainedModel) -> list[str]:
    return mixed_plan(model, empties=True)


each_plan = pytest.mark.parametrize("plan", [mixed_plan, first_emptied, every_head])
GENERATING = ["llama", "gpt2", "gpt_oss", "opt", "falcon", "gpt_neo", "mpt", "gemma3", "mt5"]
GENERATING += ["deepseek_v2"]


class Generated(NamedTuple):
    """Greedy tokens, and the scores of all tokens at every step."""

    sequences: Tensor
    scores: Tensor


def generated(model: PreTrainedModel, inputs: Inputs, **options: Any) -> Generated:
    """The tokens that the model generates."""
    given = {name: part for name, part in inputs.items() if not name.startswith("decoder")}
    if model.config.is_encoder_decoder:
        options["decoder_start_token_id"] = 0
    result = model.generate(
        **given,
        max_new_tokens=7,
        min_new_tokens=7,
        do_sample=False,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    return Generated(result.sequences, torch.stack(result.scores))


@each_plan
@pytest.mark.parametrize("name", GENERATING)
def test_a_cut_model_generates_what_the_silenced_one_does(name: str, plan: Plan) -> None:
    model, inputs = tiny_of(ALL[name])
    heads = plan(model)
    plain = generated(model, inputs)
    with silence(model, heads):
        want = generated(model, inputs)
    cut(model, heads)
    got = generated(model, inputs)
    assert torch.equal(got.sequences, want.sequences)
    assert_same(got.scores, want.scores, roundings=ROUNDINGS, dtype=ALL[name].softmax_in)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_same(plain.scores, want.scores, roundings=ROUNDINGS, dtype=ALL[name].softmax_in)


def last_in_two_steps(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Logits of the last token, with the others read from a cache."""
    with torch.no_grad():
        cache = model(ids[:, :-1], use_cache=True).past_key_values
        logits: Tensor = model(ids[:, -1:], past_key_values=cache).logits
    return logits[:, -1]


@each_plan
@pytest.mark.parametrize("name", ["gpt2", "llama", "opt", "mpt"])
def test_a_cut_model_gives_the_same_logits_in_two_steps(name: str, plan: Plan) -> None:
    model, inputs = tiny(name)
    cut(model, plan(model))
    want = run(model, {"input_ids": inputs["input_ids"]}).logits[:, -1]
    assert_close(name, last_in_two_steps(model, inputs["input_ids"]), want)


def test_without_its_count_in_the_cache_an_emptied_layer_would_lose_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, inputs = tiny("gpt2")
    cut(model, first_emptied(model))
    want = last_in_two_steps(model, inputs["input_ids"])
    monkeypatch.setattr(exported_modeling, "count_keys", lambda _, hidden, *__: hidden.shape[1])
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close("gpt2", last_in_two_steps(model, inputs["input_ids"]), want)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_cut_model_generates_with_a_static_cache(name: str) -> None:
    model, inputs = tiny(name, batch=2, length=5)
    cut(model, first_emptied(model))
    want = generated(model, inputs)
    got = generated(model, inputs, cache_implementation="static", disable_compile=True)
    assert torch.equal(got.sequences, want.sequences)


@pytest.mark.parametrize("name", ["llama", "phi3", "t5", "bloom", "albert", "gpt2", "bert"])
def test_a_cut_model_learns(name: str) -> None:
    model, inputs = tiny(name)
    cut(model, first_emptied(model))
    model.train()
    output_of(model(**inputs)).square().mean().backward()
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    kept = [one for name, one in model.named_parameters() if ".1." in name and one.dim() == 2]
    assert kept == [] or any(one.grad is not None and one.grad.abs().max() > 0 for one in kept)


def test_the_gradient_of_a_cut_model_is_that_of_the_silenced_one() -> None:
    silent, inputs = tiny("llama")
    model, _ = tiny("llama")
    with silence(silent, "L1H0 L1H3"):
        output_of(silent(**inputs)).square().mean().backward()
    cut(model, "L1H0 L1H3")
    output_of(model(**inputs)).square().mean().backward()
    kept = [head * 8 + place for head in (1, 2, 4, 5) for place in range(8)]
    want = silent.model.layers[1].self_attn.q_proj.weight.grad[kept]
    assert_close("llama", model.model.layers[1].self_attn.q_proj.weight.grad, want)


def test_a_cut_model_compiles() -> None:
    model, inputs = tiny("phi3")
    cut(model, first_emptied(model))
    want = output_of(run(model, inputs))
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        assert_close("phi3", output_of(compiled(**inputs)), want)
    torch.compiler.reset()


@pytest.mark.parametrize("name", ["bert", "gpt2", "phi3", "t5", "falcon"])
def test_a_cut_model_is_copied_and_pickled(name: str) -> None:
    model, inputs = tiny(name)
    cut(model, first_emptied(model))
    want = output_of(run(model, inputs))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)  # the twin must not be part of it
        assert_close(name, output_of(run(twin, inputs)), want)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(1)


WATCHED = ["bert", "llama", "phi3", "t5", "mpnet", "falcon", "gpt_neo", "gptj", "bloom", "mpt"]


@pytest.mark.parametrize("name", WATCHED)
def test_a_cut_model_is_watched_with_the_heads_it_has(name: str) -> None:
    model, inputs = tiny(name)
    cut(model, first_emptied(model))
    want = output_of(run(model, inputs))
    with watch(model) as watched:
        assert_close(name, output_of(run(model, inputs)), want)
    heads = {f"{call.stack}.L{call.layer}".strip("."): call.mixed.shape[1] for call in watched}
    assert heads == {layer: count for layer, (count, _) in head_counts(model).items() if count}


@pytest.mark.parametrize("name", ["bert", "llama", "deberta_v2", "mpnet", "falcon"])
def test_emptied_layers_have_weights_of_no_heads(name: str) -> None:
    model, inputs = tiny(name)
    cut(model, first_emptied(model))
    shapes = [weights.shape for weights in eager_weights(model, inputs)[""]]
    counts = [count for count, _ in head_counts(model).values()]
    assert shapes == [(4, count, 13, 13) for count in counts]


def test_modules_with_a_config_of_their_own_follow_the_models_attention() -> None:
    model, inputs = tiny("phi3")
    cut(model, "L0H1 L0H4")
    own = model.model.layers[0].self_attn.config
    assert own.num_attention_heads == 4 and model.config.num_attention_heads == 6
    want, own_state = output_of(run(model, inputs)), dict(vars(own))
    with eagerly(model):
        assert own._attn_implementation == "eager"
        eager = run(model, inputs | {"output_attentions": True})
    assert own._attn_implementation == model.config._attn_implementation == "sdpa"
    assert [weights.shape[1] for weights in eager.attentions] == [4, 6]
    assert_close("phi3", output_of(eager), want)
    with watch(model):
        assert own._attn_implementation == "headwise"
    assert own._attn_implementation == "sdpa" and vars(own) == own_state
    with pytest.raises(AttributeError, match="no_such_option"):
        _ = own.no_such_option


# A fresh model takes the shape of the cut one.


class CutLlama(CutMixin, LlamaForCausalLM):
    """A Llama that is built with the cut in its config."""


class CutFalcon(CutMixin, FalconForCausalLM):
    """A Falcon that is built with the cut in its config."""


def test_a_class_that_comes_cut_is_saved_and_loaded(tmp_path: Any) -> None:
    model, inputs = tiny("llama")
    cut(model, first_emptied(model))
    model.save_pretrained(tmp_path)
    loaded = CutLlama.from_pretrained(tmp_path, dtype=torch.float64)
    assert_close("llama", output_of(run(loaded, inputs)), output_of(run(model, inputs)))
    assert loaded.config.headwise == model.config.headwise
    again = cut(loaded, "L1H0 L1H3")
    assert again.kept["L1"] == (1, 2, 4, 5)


def test_a_class_that_comes_cut_is_the_plain_one_without_a_block() -> None:
    config = config_of(FAMILIES["llama"])
    plain, same = LlamaForCausalLM(config), CutLlama(config)
    shapes = {key: value.shape for key, value in plain.state_dict().items()}
    assert shapes == {key: value.shape for key, value in same.state_dict().items()}


@pytest.mark.parametrize(
    ("kind", "plain"), [(CutLlama, LlamaForCausalLM), (CutFalcon, FalconForCausalLM)]
)
def test_a_class_that_comes_cut_can_set_what_the_plain_one_can(kind: Any, plain: Any) -> None:
    assert kind._can_set_attn_implementation() == plain._can_set_attn_implementation()
    assert kind._can_set_experts_implementation() == plain._can_set_experts_implementation()


def test_a_block_fits_a_model_with_another_head_on_top() -> None:
    model, inputs = tiny("bert")
    cut(model, first_emptied(model))
    plain = copy.deepcopy(model.bert)
    fresh = type(model.bert)(config_of(FAMILIES["bert"]), add_pooling_layer=False).double().eval()
    reshape(fresh, model.config.headwise)
    fresh.load_state_dict(plain.state_dict(), strict=True)
    want = run(plain, inputs).last_hidden_state
    assert_close("bert", run(fresh, inputs).last_hidden_state, want)


def test_shapes_are_taken_on_the_meta_device() -> None:
    model, _ = tiny("bert")
    cut(model, "L0H1 L2H0 L2H3")
    with torch.device("meta"):
        fresh = BertForMaskedLM(config_of(FAMILIES["bert"])).requires_grad_(False)
    reshape(fresh, model.config.headwise)
    assert all(one.is_meta and not one.requires_grad for one in fresh.parameters())
    assert head_counts(fresh) == head_counts(model)


def test_exported_modeling_imports_only_torch_and_transformers() -> None:
    tree = ast.parse(inspect.getsource(exported_modeling))
    froms = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [
        one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names
    ]
    packages = {str(name).partition(".")[0] for name in froms + names}
    assert packages == {"functools", "typing", "torch", "transformers"}


def test_buffers_are_resized_too() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.zeros(5, dtype=torch.int32))

    holder: Any = Holder()
    unchanged: dict[str, Any] = {"attributes": {}, "configs": {}, "biased": {}, "emptied": {}}
    reshape(SimpleNamespace(base_model=holder), {"parameters": {"places": [3]}, **unchanged})
    assert holder.places.shape == (3,) and holder.places.dtype == torch.int32
    assert "places" in holder.state_dict()
