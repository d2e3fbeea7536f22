"""A trace: every step of the textbook, and contributions that add up, on every family."""

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

import headwise
from headwise.attention.layer import MultiHeadAttention
from headwise.attention.positions import Alibi, Rotary
from headwise.attention.worked_example import cat_sleeps
from headwise.errors import ModelError, OptionError, ShapeError
from headwise.heads import HeadId
from headwise.reading.labels import word_numbers
from headwise.tracing.layer_trace import trace_layer
from headwise.tracing.record import STEPS, Trace, closing_lines, segregation
from headwise.tracing.trace import LayerChoice, trace
from headwise.watching.sites import find_sites

from ..attention.tolerance import assert_same
from ..measures.multimodal import tiny_gemma, tokenizer
from ..pruning.differences import tiny_of
from ..pruning.modern import CUT
from ..watching.tiny import ragged, tiny
from ..watching.tiny_configs import FAMILIES

ROUNDINGS = 3 * (48 + 17 + 43)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*attention interface.*")
        yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("name", FAMILIES)
def test_contributions_add_up_to_the_output(name: str) -> None:
    model, inputs = tiny(name)
    for site in find_sites(model):
        traced = trace(model, inputs, layer=site.layer, stack=site.stack)
        bias = 0 if traced.bias is None else traced.bias
        total = traced["contributions"].values.sum(1) + bias
        assert_same(total, traced["output"].values, roundings=ROUNDINGS, name=site.name)
        assert traced.adds_up
        projected = traced["concat"].values @ traced["Wo"].values + bias
        assert_same(projected, traced["output"].values, roundings=ROUNDINGS, name=site.name)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "t5", "bert", "vit"])
def test_the_layer_agrees_with_the_reference_head_by_head(name: str) -> None:
    model, inputs = tiny(name)
    for site in find_sites(model):
        traced = trace(model, inputs, layer=site.layer, stack=site.stack)
        assert traced.difference is not None
        assert traced.difference < ROUNDINGS * torch.finfo(torch.float32).eps, site.name


def test_tracing_leaves_no_change_or_hook_in_the_model() -> None:
    model, inputs = tiny("llama")
    model.train()
    before = model.config._attn_implementation
    trace(model, inputs, layer=1)
    assert model.training and model.config._attn_implementation == before
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert not any(hooks)


def test_a_grouped_layer_names_the_kv_head_of_each_head() -> None:
    layer = MultiHeadAttention(24, 6, num_kv_heads=2, d_key=8, position=Rotary())
    traced = trace_layer(layer, torch.randn(2, 7, 24))
    assert traced.kv_head_of == (0, 0, 0, 1, 1, 1)
    assert traced["keys"].shape == "[batch 2, kv_heads 2, key 7, d_key 8]"
    assert traced["scores"].shape == "[batch 2, heads 6, query 7, key 7]"
    names = [name for name, *_ in traced.matrices(traced["keys"])]
    assert names[3] == "L0H3 keys (KV head 1)"
    (_, Wk, *_) = list(traced.matrices(traced["Wk"]))[3]
    assert traced["Wk"].shape == "[kv_heads 2, d_model 24, d_key 8]"
    assert torch.equal(Wk, layer.heads[3].Wk)
    assert torch.equal(traced["Wq"].values[4], layer.heads[4].Wq)
    assert traced["scaled"].formula == "scores x 0.3536, which is 1 / sqrt(8)"


@pytest.mark.parametrize(
    "layer",
    [
        MultiHeadAttention(12, 3),
        MultiHeadAttention(12, 3, is_causal=True, window=3, softcap=2.0),
        MultiHeadAttention(14, 7, num_kv_heads=1, d_key=3, d_value=5, qk_norm=True, sinks=True),
        MultiHeadAttention(12, 2, position=Alibi(), bias=False),
    ],
)
def test_steps_of_our_layer_are_its_output_and_weights(layer: MultiHeadAttention) -> None:
    x = torch.randn(2, 11, layer.d_model, dtype=torch.float64)
    layer = layer.double()
    traced = trace_layer(layer, x, heads=[1])
    output, weights = layer(x, need_weights=True)
    assert_same(traced["output"].values, output, roundings=64)
    assert_same(traced["weights"].values, weights, roundings=64)
    assert traced.adds_up and traced.difference is not None and traced.difference < 1e-12
    assert list(traced.steps) == list(STEPS)
    assert traced.heads == (1,)


def test_cat_sleeps_has_the_textbooks_numbers() -> None:
    layer, tokens, x = cat_sleeps()
    traced = trace_layer(layer, x, tokens=tokens)
    assert traced["scores"].values[0, 0].tolist() == [[5.0, 0.0], [0.0, 0.0]]
    rounded = (traced["weights"].values[0] * 100).round() / 100
    assert_same(rounded[0], torch.tensor([[0.97, 0.03], [0.5, 0.5]]), roundings=2)
    assert_same(rounded[1], torch.tensor([[0.5, 0.5], [0.03, 0.97]]), roundings=2)
    assert traced["concat"].values.shape == (1, 2, 4)


def test_wo_ends_the_segregation() -> None:
    layer = MultiHeadAttention(32, 4)
    traced = trace_layer(layer, torch.randn(1, 9, 32))
    assert segregation(traced.shares_before) == 1.0
    assert 0.0 < segregation(traced.shares_after) < 0.5
    columns = traced.shares_after.sum(0)
    assert_same(columns, torch.ones_like(columns), roundings=8)
    assert segregation(torch.full((4, 3), 0.25)) == pytest.approx(0.0, abs=1e-6)
    assert segregation(torch.ones(1, 3)) == 1.0


def test_each_sequence_has_its_own_mask() -> None:
    layer, x = MultiHeadAttention(12, 3).double(), torch.randn(2, 5, 12, dtype=torch.float64)
    mask = torch.rand(2, 5, 5) > 0.4
    traced = trace_layer(layer, x, mask=mask)
    assert traced.difference is not None and traced.difference < 1e-12 and traced.adds_up
    assert ((traced["weights"].values > 0) <= mask[:, None]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_adds_up_to_its_own_precision(dtype: torch.dtype) -> None:
    model, inputs = tiny("llama", dtype=dtype)
    traced = trace(model, inputs, layer=1)
    assert traced.adds_up and traced.rounding == torch.finfo(dtype).eps
    traced["contributions"].values[0, 0, 0] += traced["contributions"].values.abs().max()
    assert not traced.adds_up


def test_trace_rejects_other_modules_by_name() -> None:
    with pytest.raises(ModelError, match="MultiheadAttention"):
        trace(torch.nn.MultiheadAttention(12, 3), torch.zeros(1, 5, 12))


def test_a_wrong_contribution_does_not_add_up() -> None:
    traced = trace_layer(MultiHeadAttention(12, 3), torch.randn(1, 5, 12))
    traced["contributions"].values[0, 1, 2, 3] += 0.01
    assert not traced.adds_up
    assert "NOT" in closing_lines(traced)[0]


def test_maps_have_labels_and_merge_the_pieces_of_words() -> None:
    traced = trace(
        headwise.load_model("minilm"), "The catamaran didn't sink.", layer=2, heads=[0, 3]
    )
    assert traced.title == "minilm, layer 2"
    assert traced.labels.keys[0] == "[CLS]" and traced.labels.is_special[0]
    words = traced.maps(words=True)
    assert "catamaran" in words.labels.keys and "[CLS]" not in words.labels.keys
    assert words.heads == ("L2H0", "L2H3")
    hidden = traced.maps(special=False)
    assert len(hidden.labels.keys) == len(traced.labels.keys) - 2
    without_sink = traced.maps(sink=False).weights
    assert without_sink[:, :, 0].abs().max() == 0
    assert_same(without_sink.sum(-1), torch.ones(without_sink.shape[:2]), roundings=64)
    assert headwise.trace is trace


BAD_MODEL_CALLS: dict[str, dict[str, Any]] = {
    r"layer.* 9.* 0\.\.": {"layer": 9},
    "stack.*'decoder'": {"stack": "decoder"},
    r"heads.* 99.* 0\.\.": {"heads": [99]},
    "mask.* attention_mask": {"mask": torch.ones(3, 3).bool()},
    "tokenizer": {"inputs": "hello"},
    "inputs.* list": {"inputs": ["hello"]},
}


@pytest.mark.parametrize("fact", BAD_MODEL_CALLS)
def test_bad_arguments_for_a_model_raise(fact: str) -> None:
    model, inputs = tiny("llama")
    options = {"inputs": inputs, **BAD_MODEL_CALLS[fact]}
    with pytest.raises(OptionError, match=fact):
        inspect.unwrap(trace)(model, **options)  # without the shape checks, which come first


def test_words_need_a_tokenizer() -> None:
    model, inputs = tiny("llama")
    with pytest.raises(OptionError, match="tokenizer"):
        trace(model, inputs).maps(words=True)


BAD_LAYER_CALLS: dict[str, dict[str, Any]] = {
    "inputs.* str.* tensor": {"inputs": "hello"},
    r"\[1, 5, 11\].* 12": {"inputs": torch.zeros(5, 11)},
    r"\[1, 0, 12\]": {"inputs": torch.zeros(0, 12)},
    r"torch\.float64.* torch\.float32": {"inputs": torch.zeros(5, 12).double()},
    "layer.* 3": {"layer": 3},
    "layer.* 2": {"heads": "L2H2"},
    "tokenizer": {"tokenizer": object()},
}


@pytest.mark.parametrize("fact", BAD_LAYER_CALLS)
def test_bad_arguments_for_a_layer_raise(fact: str) -> None:
    options = {"inputs": torch.zeros(5, 12), **BAD_LAYER_CALLS[fact]}
    with pytest.raises((OptionError, ShapeError), match=fact):
        trace(MultiHeadAttention(12, 3), **options)


def test_unknown_step_and_wrong_number_of_labels_raise() -> None:
    layer = MultiHeadAttention(12, 3)
    with pytest.raises(OptionError, match=r"step.*'score'.* input, Wq, Wk"):
        _ = trace(layer, torch.zeros(5, 12))["score"]


@pytest.mark.parametrize(
    ("heads", "choice"),
    [
        (None, (None, None, None)),
        (3, (None, None, (3,))),
        ([0, 3], (None, None, (0, 3))),
        (torch.tensor([0, 3]), (None, None, (0, 3))),
        ("0,3", (None, None, (0, 3))),
        ("L2H3", (2, None, (3,))),
        (["L2H3", "L2H0"], (2, None, (3, 0))),
        (HeadId(2, 3), (2, None, (3,))),
        ("decoder.L1H0 decoder.L1H2", (1, "decoder", (0, 2))),
    ],
)
def test_heads_are_named_or_numbered(heads: Any, choice: tuple[Any, ...]) -> None:
    assert LayerChoice.parse(None, None, heads) == LayerChoice(*choice)


@pytest.mark.parametrize(
    ("heads", "facts"),
    [
        ([], r"heads.*\[\]"),
        ("a", "heads.*'a'"),
        (1.5, r"heads.* 1\.5"),
        (["L2H0", "L3H1"], "heads.* L2, L3"),
        ("L1H0", "L1H0.*layer"),
        (["L2H0", 1], "'1'"),
    ],
)
def test_bad_heads_raise(heads: Any, facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        LayerChoice.parse(2, None, heads)


def test_the_default_layer_is_the_first_with_attention() -> None:
    model, inputs = tiny_of(CUT["jamba"])
    assert trace(model, inputs).name_of(0) == "L1H0"
    with pytest.raises(OptionError, match=r"layer is 0: the layers with attention are 1$"):
        trace(model, inputs, layer=0)


def test_gated_heads_are_refused_with_the_reason() -> None:
    model, inputs = tiny_of(CUT["qwen3_next"])
    with pytest.raises(ModelError, match=r"layers\.1\.self_attn.*a gate, a norm.*headwise scan"):
        trace(model, inputs)


def test_the_name_of_a_head_chooses_the_layer() -> None:
    model, inputs = tiny("llama")
    traced = trace(model, inputs, heads=["L1H3"])
    assert traced.heads == (3,) and traced.name_of(3) == "L1H3"
    layer = MultiHeadAttention(12, 3)
    assert trace(layer, torch.zeros(5, 12), heads="L0H2").heads == (2,)


def test_a_single_head_is_written_in_the_singular() -> None:
    traced = trace_layer(MultiHeadAttention(12, 1), torch.randn(1, 5, 12))
    assert "1 head " in closing_lines(traced)[0]
    assert traced["queries"].formula.endswith("split into 1 head of 12")


def test_a_wrong_contribution_does_not_add_up_even_if_the_output_is_tiny() -> None:
    layer = MultiHeadAttention(12, 3)
    with torch.no_grad():
        for weight in layer.Wo.parameters():
            weight *= 1e-7
    traced = trace_layer(layer, torch.randn(1, 5, 12))
    assert traced.adds_up
    traced["contributions"].values[0, 1] *= 2
    assert not traced.adds_up
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
    assert trace_layer(layer, torch.randn(1, 5, 12)).adds_up


def test_html_for_a_notebook_is_escaped() -> None:
    layer, _, x = cat_sleeps()
    shown = trace_layer(layer, x, tokens=["<b>", "a&b"])._repr_html_()
    assert "<b>" not in shown and "&lt;b&gt;" in shown and "a&amp;b" in shown
    assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")
    assert len(shown) < 20_000
    alone = trace_layer(layer, x).head(1)._repr_html_()
    assert "L0H1" in alone and "L0H0" not in alone


def test_json_omits_the_values_of_large_steps_unless_they_are_named() -> None:
    traced: Trace = trace_layer(MultiHeadAttention(12, 3, is_causal=True), torch.randn(1, 5, 12))
    answer = traced.to_json(["masked", "weights"])
    assert [step["name"] for step in answer["steps"]] == ["masked", "weights"]
    assert answer["steps"][0]["values"][0][0][0][1] is None  # -inf
    assert answer["adds_up"] is True
    large = trace_layer(MultiHeadAttention(12, 3), torch.randn(1, 200, 12))
    assert large.large_steps == ["scores", "scaled", "masked", "weights"]
    without = [step["name"] for step in large.to_json()["steps"] if step["values"] is None]
    assert without == large.large_steps
    (weights,) = large.to_json(["weights"])["steps"]
    assert weights["shape"] == [1, 3, 200, 200]
    assert torch.equal(torch.tensor(weights["values"]), large["weights"].values)
    assert large.head(1).large_steps == []


def test_json_has_the_chosen_heads_with_their_keys_and_values() -> None:
    layer = MultiHeadAttention(24, 6, num_kv_heads=2, d_key=8)
    traced = trace_layer(layer, torch.randn(2, 7, 24), heads=[4, 1])
    answer = traced.to_json(["weights", "keys", "Wv", "concat"])
    weights, keys, Wv, concat = answer["steps"]
    assert answer["heads"] == ["L0H4", "L0H1"]
    assert torch.equal(torch.tensor(weights["values"]), traced["weights"].values[:, [4, 1]])
    assert torch.equal(torch.tensor(keys["values"]), traced["keys"].values[:, [1, 0]])
    assert keys["axes"] == ["batch", "heads", "key", "d_key"] and keys["shape"] == [2, 2, 7, 8]
    assert torch.equal(torch.tensor(Wv["values"]), traced["Wv"].values[[1, 0]])
    assert concat["shape"] == [2, 7, 48]


def test_a_text_is_traced_in_the_stack_that_reads_it() -> None:
    traced = trace(tiny_gemma(), "The cat sat down.", tokenizer=tokenizer(), layer=1)
    assert traced.name_of(0) == "text.L1H0"
    assert traced.labels.keys == ("[CLS]", "the", "cat", "sat", "down", ".", "[SEP]")
    with pytest.raises(OptionError, match=r"layer.* 2.* text .* 0\.\.1"):
        trace(tiny_gemma(), "The cat sat down.", tokenizer=tokenizer(), layer=2)


@pytest.mark.parametrize(
    ("inputs", "facts"),
    [
        ({}, "inputs.* tensor"),
        (torch.ones(5, dtype=torch.long), r"input_ids.*\[5\]"),
    ],
)
def test_trace_rejects_inputs_that_a_model_cannot_read(inputs: Any, facts: str) -> None:
    model, _ = tiny("bert")
    with pytest.raises((OptionError, ShapeError), match=facts):
        trace(model, inputs)


def test_a_trace_too_large_for_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tiny("bert")
    batch, length = inputs["input_ids"].shape
    numbers = batch * length**2 * trace(model, inputs).num_heads
    monkeypatch.setattr("headwise.watching.calls.LARGEST_WEIGHTS", 4 * numbers)
    trace(model, inputs)
    monkeypatch.setattr("headwise.watching.calls.LARGEST_WEIGHTS", 4 * numbers - 1)
    with pytest.raises(OptionError, match=r"weights.* GiB"):
        trace(model, inputs)


class Pieces:
    """A byte-level tokenizer that has these pieces and no others."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = ("Ġa", *pieces)

    def __call__(self, *_: object, **__: object) -> dict[str, list[int]]:
        return {"input_ids": [0, 0]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.pieces[token] for token in ids]

    def decode(self, ids: list[int]) -> str:
        marks = {"Ġ": b" ", "Ċ": b"\n", "ĉ": b"\t", "č": b"\r", "Ģ": b"\x80", "Ŀ": b"\x9d"}
        characters = [mark for token in ids for mark in self.pieces[token]]
        decoded = b"".join(marks.get(mark) or mark.encode("latin-1") for mark in characters)
        return decoded.decode("utf-8", errors="replace")


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["One", "Ċ", "Two", "Ġwords"], [0, 1, 2, 3]),  # a line break ends a word
        (["One", "čĊ", "ĉ", "Two"], [0, 1, 2, 3]),
        (["Un", "bel", "iev", "able", "Ġit"], [0, 0, 0, 0, 1]),
        (["Ġwell", "-", "known"], [0, 1, 2]),
        (["Ġ(", "cat", "s", ")"], [0, 1, 1, 2]),
        (["Ġcaf", "Ã©", "s"], [0, 0, 0]),
        (["Ġcaf", "Ã", "©", "s"], [0, 0, 0, 0]),  # half a character each
        (["Ġcat", "âĢĿ", "s"], [0, 1, 2]),  # a quotation mark
    ],
)
def test_words_of_a_byte_level_tokenizer(pieces: list[str], words: list[int]) -> None:
    ids = list(range(1, len(pieces) + 1))
    assert word_numbers((False,) * len(pieces), Pieces(*pieces), ids) == tuple(words)


def test_a_special_token_ends_a_word() -> None:
    special = (False, True, False)
    assert word_numbers(special, Pieces("on", "<s>", "ward"), [1, 2, 3]) == (0, -1, 1)


def test_a_text_with_one_token_too_many_raises() -> None:
    model = headwise.load_model("minilm")
    assert len(trace(model, "word " * 510, layer=5).labels.keys) == 512
    with pytest.raises(OptionError, match="512"):
        trace(model, "word " * 511, layer=5)


def test_a_head_name_without_a_stack_belongs_to_the_chosen_stack() -> None:
    assert LayerChoice.parse(None, "decoder", "L1H2") == LayerChoice(1, "decoder", (2,))
    model, inputs = tiny("t5")
    traced = trace(model, inputs, stack="decoder", heads="L1H2")
    assert traced.name_of(traced.heads[0]) == "decoder.L1H2"
    with pytest.raises(OptionError, match=r"encoder\.L1H2"):
        LayerChoice.parse(None, "decoder", "encoder.L1H2")


@pytest.mark.parametrize(
    ("name", "has_bias", "has_sinks"),
    [
        ("t5", True, False),
        ("gpt_oss", False, True),
        ("llama", False, False),
        ("bert", False, False),
    ],
)
def test_formulas_are_those_of_the_family(name: str, has_bias: bool, has_sinks: bool) -> None:
    model, inputs = tiny(name)
    assert_formulas_are_true(trace(model, inputs), has_bias=has_bias, has_sinks=has_sinks)


@pytest.mark.parametrize("mask", [None, torch.tensor([0.0, -torch.inf, 0.0]), torch.arange(3.0)])
def test_formulas_are_those_of_a_layer(mask: torch.Tensor | None) -> None:
    x, mask_of_rows = torch.randn(2, 3, 12), None if mask is None else mask.expand(3, 3)
    bare = trace(MultiHeadAttention(12, 2, sinks=True), x, mask=mask_of_rows)
    has_bias = mask is not None and bool(mask.sum() > 0)
    assert_formulas_are_true(bare, has_bias=has_bias, has_sinks=True)
    sloped = trace(MultiHeadAttention(12, 2, position=Alibi()), x, mask=mask_of_rows)
    assert_formulas_are_true(sloped, has_bias=True, has_sinks=False)


def assert_formulas_are_true(traced: Trace, *, has_bias: bool, has_sinks: bool) -> None:
    assert ("+ bias" in traced["masked"].formula) == has_bias
    seen = traced["masked"].values.isfinite()
    difference = (traced["masked"].values - traced["scaled"].values)[seen].abs().max()
    assert bool(difference > 0) == has_bias
    assert ("rows sum to less than 1" in traced["weights"].formula) == has_sinks
    sums = traced["weights"].values.sum(-1)
    assert bool((sums < 1 - ROUNDINGS * torch.finfo(sums.dtype).eps).any()) == has_sinks


def test_padding_does_not_count_in_shares_of_heads() -> None:
    batch, alone = ragged("bert", [5, 11])
    model, _ = tiny("bert")
    traced = trace(model, batch)
    contributions = [trace(model, inputs)["contributions"].values for inputs in alone]
    lengths = torch.cat([values.norm(dim=-1)[0] for values in contributions], -1).mean(-1)
    batch_lengths = torch.tensor([length for length, _ in traced.lengths])
    assert_same(batch_lengths, lengths, roundings=ROUNDINGS)
    sizes = sum(values.abs().sum((0, 2)) for values in contributions)
    assert_same(traced.shares_after, sizes / sizes.sum(0), roundings=ROUNDINGS)
