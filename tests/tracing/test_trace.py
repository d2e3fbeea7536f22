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
    for place in find_sites(model):
        found = trace(model, inputs, layer=place.layer, stack=place.stack)
        whole = found["contributions"].values.sum(1)
        if found.bias is not None:
            whole = whole + found.bias
        assert_same(whole, found["output"].values, roundings=ROUNDINGS, name=place.name)
        assert found.adds_up
        projected = found["concat"].values @ found["Wo"].values
        if found.bias is not None:
            projected = projected + found.bias
        assert_same(projected, found["output"].values, roundings=ROUNDINGS, name=place.name)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "t5", "bert", "vit"])
def test_head_by_head_is_the_same(name: str) -> None:
    model, inputs = tiny(name)
    for place in find_sites(model):
        found = trace(model, inputs, layer=place.layer, stack=place.stack)
        assert found.difference is not None
        assert found.difference < ROUNDINGS * torch.finfo(torch.float32).eps, place.name


def test_the_model_is_as_it_was_and_its_hooks_are_gone() -> None:
    model, inputs = tiny("llama")
    model.train()
    before = model.config._attn_implementation
    trace(model, inputs, layer=1)
    assert model.training and model.config._attn_implementation == before
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert not any(hooks)


def test_a_grouped_layer_says_which_kv_head_serves_which() -> None:
    layer = MultiHeadAttention(24, 6, num_kv_heads=2, d_key=8, position=Rotary())
    found = trace_layer(layer, torch.randn(2, 7, 24))
    assert found.kv_head_of == (0, 0, 0, 1, 1, 1)
    assert found["keys"].shape == "[batch 2, kv_heads 2, key 7, d_key 8]"
    assert found["scores"].shape == "[batch 2, heads 6, query 7, key 7]"
    names = [name for name, *_ in found.matrices(found["keys"])]
    assert names[3] == "L0H3 keys (KV head 1)"
    (_, Wk, *_) = list(found.matrices(found["Wk"]))[3]
    assert found["Wk"].shape == "[kv_heads 2, d_model 24, d_key 8]"
    assert torch.equal(Wk, layer.heads[3].Wk)
    assert torch.equal(found["Wq"].values[4], layer.heads[4].Wq)
    assert found["scaled"].formula == "scores x 0.3536, which is 1 / sqrt(8)"


@pytest.mark.parametrize(
    "layer",
    [
        MultiHeadAttention(12, 3),
        MultiHeadAttention(12, 3, is_causal=True, window=3, softcap=2.0),
        MultiHeadAttention(14, 7, num_kv_heads=1, d_key=3, d_value=5, qk_norm=True, sinks=True),
        MultiHeadAttention(12, 2, position=Alibi(), bias=False),
    ],
)
def test_our_layers_steps_are_the_layers(layer: MultiHeadAttention) -> None:
    x = torch.randn(2, 11, layer.d_model, dtype=torch.float64)
    layer = layer.double()
    found = trace_layer(layer, x, heads=[1])
    output, weights = layer(x, need_weights=True)
    assert_same(found["output"].values, output, roundings=64)
    assert_same(found["weights"].values, weights, roundings=64)
    assert found.adds_up and found.difference is not None and found.difference < 1e-12
    assert list(found.steps) == list(STEPS)
    assert found.heads == (1,)


def test_cat_sleeps_has_the_textbooks_numbers() -> None:
    layer, tokens, x = cat_sleeps()
    found = trace_layer(layer, x, tokens=tokens)
    assert found["scores"].values[0, 0].tolist() == [[5.0, 0.0], [0.0, 0.0]]
    rounded = (found["weights"].values[0] * 100).round() / 100
    assert_same(rounded[0], torch.tensor([[0.97, 0.03], [0.5, 0.5]]), roundings=2)
    assert_same(rounded[1], torch.tensor([[0.5, 0.5], [0.03, 0.97]]), roundings=2)
    assert found["concat"].values.shape == (1, 2, 4)


def test_wo_ends_the_segregation() -> None:
    layer = MultiHeadAttention(32, 4)
    found = trace_layer(layer, torch.randn(1, 9, 32))
    assert segregation(found.shares_before) == 1.0
    assert 0.0 < segregation(found.shares_after) < 0.5
    columns = found.shares_after.sum(0)
    assert_same(columns, torch.ones_like(columns), roundings=8)
    assert segregation(torch.full((4, 3), 0.25)) == pytest.approx(0.0, abs=1e-6)
    assert segregation(torch.ones(1, 3)) == 1.0


def test_each_sequence_has_its_own_mask() -> None:
    layer, x = MultiHeadAttention(12, 3).double(), torch.randn(2, 5, 12, dtype=torch.float64)
    mask = torch.rand(2, 5, 5) > 0.4
    found = trace_layer(layer, x, mask=mask)
    assert found.difference is not None and found.difference < 1e-12 and found.adds_up
    assert ((found["weights"].values > 0) <= mask[:, None]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_adds_up_as_far_as_it_is_precise(dtype: torch.dtype) -> None:
    model, inputs = tiny("llama", dtype=dtype)
    found = trace(model, inputs, layer=1)
    assert found.adds_up and found.rounding == torch.finfo(dtype).eps
    found["contributions"].values[0, 0, 0] += found["contributions"].values.abs().max()
    assert not found.adds_up


def test_trace_rejects_other_modules_by_name() -> None:
    with pytest.raises(ModelError, match="MultiheadAttention"):
        trace(torch.nn.MultiheadAttention(12, 3), torch.zeros(1, 5, 12))


def test_a_wrong_contribution_is_found() -> None:
    found = trace_layer(MultiHeadAttention(12, 3), torch.randn(1, 5, 12))
    found["contributions"].values[0, 1, 2, 3] += 0.01
    assert not found.adds_up
    assert "do NOT add up" in closing_lines(found)[0]


def test_a_text_is_labelled_and_its_pieces_are_merged() -> None:
    found = trace(
        headwise.load_model("minilm"), "The catamaran didn't sink.", layer=2, heads=[0, 3]
    )
    assert found.title == "minilm, layer 2"
    assert found.labels.keys[0] == "[CLS]" and found.labels.is_special[0]
    words = found.maps(words=True)
    assert "catamaran" in words.labels.keys and "[CLS]" not in words.labels.keys
    assert words.heads == ("L2H0", "L2H3")
    hidden = found.maps(special=False)
    assert len(hidden.labels.keys) == len(found.labels.keys) - 2
    dry = found.maps(sink=False).weights
    assert dry[:, :, 0].abs().max() == 0
    assert_same(dry.sum(-1), torch.ones(dry.shape[:2]), roundings=64)
    assert headwise.trace is trace


BAD_MODEL_CALLS: dict[str, dict[str, Any]] = {
    r"layer is 9: .* 0\.\.": {"layer": 9},
    "stack is 'decoder'": {"stack": "decoder"},
    r"heads is 99: .* 0\.\.": {"heads": [99]},
    "mask is set: .* attention_mask": {"mask": torch.ones(3, 3).bool()},
    "no tokenizer": {"inputs": "hello"},
    "inputs is a list": {"inputs": ["hello"]},
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
    "inputs is a str: .* tensor": {"inputs": "hello"},
    r"x is \[1, 5, 11\]": {"inputs": torch.zeros(5, 11)},
    r"x is \[1, 0, 12\]": {"inputs": torch.zeros(0, 12)},
    r"of torch\.float64: .* of torch\.float32": {"inputs": torch.zeros(5, 12).double()},
    "layer is 3": {"layer": 3},
    "layer is 2": {"heads": "L2H2"},
    "tokenizer is set": {"tokenizer": object()},
}


@pytest.mark.parametrize("fact", BAD_LAYER_CALLS)
def test_bad_arguments_for_a_layer_raise(fact: str) -> None:
    options = {"inputs": torch.zeros(5, 12), **BAD_LAYER_CALLS[fact]}
    with pytest.raises((OptionError, ShapeError), match=fact):
        trace(MultiHeadAttention(12, 3), **options)


def test_unknown_step_and_wrong_number_of_labels_raise() -> None:
    layer = MultiHeadAttention(12, 3)
    with pytest.raises(OptionError, match=r"step is 'score': .* input, Wq, Wk"):
        _ = trace(layer, torch.zeros(5, 12))["score"]
    with pytest.raises(ShapeError, match="3 labels, but x has 5"):
        trace_layer(layer, torch.zeros(5, 12), tokens=["a", "b", "c"])


@pytest.mark.parametrize(
    ("heads", "place"),
    [
        (None, (0, None, None)),
        (3, (0, None, (3,))),
        ([0, 3], (0, None, (0, 3))),
        (torch.tensor([0, 3]), (0, None, (0, 3))),
        ("0,3", (0, None, (0, 3))),
        ("L2H3", (2, None, (3,))),
        (["L2H3", "L2H0"], (2, None, (3, 0))),
        (HeadId(2, 3), (2, None, (3,))),
        ("decoder.L1H0 decoder.L1H2", (1, "decoder", (0, 2))),
    ],
)
def test_heads_are_named_or_numbered(heads: Any, place: tuple[Any, ...]) -> None:
    assert LayerChoice.parse(None, None, heads) == LayerChoice(*place)


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ([], r"heads is \[\]"),
        ("a", "heads is 'a'"),
        (1.5, r"heads is 1\.5"),
        (["L2H0", "L3H1"], "layers L2, L3"),
        ("L1H0", "L1H0 is not in the layer"),
        (["L2H0", 1], "'1' is not a head"),
    ],
)
def test_bad_heads_raise(heads: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        LayerChoice.parse(2, None, heads)


def test_a_name_says_the_layer() -> None:
    model, inputs = tiny("llama")
    found = trace(model, inputs, heads=["L1H3"])
    assert found.heads == (3,) and found.name_of(3) == "L1H3"
    layer = MultiHeadAttention(12, 3)
    assert trace(layer, torch.zeros(5, 12), heads="L0H2").heads == (2,)


def test_one_head_is_not_several() -> None:
    found = trace_layer(MultiHeadAttention(12, 1), torch.randn(1, 5, 12))
    assert "The contributions of 1 head and the bias" in closing_lines(found)[0]
    assert found["queries"].formula.endswith("split into 1 head of 12")


def test_a_wrong_contribution_is_found_however_small_the_output_is() -> None:
    layer = MultiHeadAttention(12, 3)
    with torch.no_grad():
        for weight in layer.Wo.parameters():
            weight *= 1e-7
    found = trace_layer(layer, torch.randn(1, 5, 12))
    assert found.adds_up
    found["contributions"].values[0, 1] *= 2
    assert not found.adds_up
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
    assert trace_layer(layer, torch.randn(1, 5, 12)).adds_up


def test_a_notebook_shows_it_safely() -> None:
    layer, _, x = cat_sleeps()
    shown = trace_layer(layer, x, tokens=["<b>", "a&b"])._repr_html_()
    assert "<b>" not in shown and "&lt;b&gt;" in shown and "a&amp;b" in shown
    assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")
    assert len(shown) < 20_000
    alone = trace_layer(layer, x).head(1)._repr_html_()
    assert "L0H1" in alone and "L0H0" not in alone


def test_json_leaves_large_values_out_unless_they_are_named() -> None:
    found: Trace = trace_layer(MultiHeadAttention(12, 3, is_causal=True), torch.randn(1, 5, 12))
    made = found.to_json(["masked", "weights"])
    assert [step["name"] for step in made["steps"]] == ["masked", "weights"]
    assert made["steps"][0]["values"][0][0][0][1] is None  # -inf
    assert made["adds_up"] is True
    large = trace_layer(MultiHeadAttention(12, 3), torch.randn(1, 200, 12))
    assert large.large_steps == ["scores", "scaled", "masked", "weights"]
    without = [step["name"] for step in large.to_json()["steps"] if step["values"] is None]
    assert without == large.large_steps
    (weights,) = large.to_json(["weights"])["steps"]
    assert weights["shape"] == [1, 3, 200, 200]
    assert torch.equal(torch.tensor(weights["values"]), large["weights"].values)
    assert large.head(1).large_steps == []


def test_json_holds_the_chosen_heads_and_what_serves_them() -> None:
    layer = MultiHeadAttention(24, 6, num_kv_heads=2, d_key=8)
    found = trace_layer(layer, torch.randn(2, 7, 24), heads=[4, 1])
    made = found.to_json(["weights", "keys", "Wv", "concat"])
    weights, keys, Wv, concat = made["steps"]
    assert made["heads"] == ["L0H4", "L0H1"]
    assert torch.equal(torch.tensor(weights["values"]), found["weights"].values[:, [4, 1]])
    assert torch.equal(torch.tensor(keys["values"]), found["keys"].values[:, [1, 0]])
    assert keys["axes"] == ["batch", "heads", "key", "d_key"] and keys["shape"] == [2, 2, 7, 8]
    assert torch.equal(torch.tensor(Wv["values"]), found["Wv"].values[[1, 0]])
    assert concat["shape"] == [2, 7, 48]


def test_a_text_is_traced_in_the_stack_that_reads_it() -> None:
    found = trace(tiny_gemma(), "The cat sat down.", tokenizer=tokenizer(), layer=1)
    assert found.name_of(0) == "text.L1H0"
    assert found.labels.keys == ("[CLS]", "the", "cat", "sat", "down", ".", "[SEP]")
    with pytest.raises(OptionError, match=r"layer is 2: .* 0\.\.1 of text"):
        trace(tiny_gemma(), "The cat sat down.", tokenizer=tokenizer(), layer=2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "a batch of inputs has no tensor"),
        (torch.ones(5, dtype=torch.long), r"input_ids is \[5\]"),
    ],
)
def test_trace_rejects_inputs_that_a_model_cannot_read(given: object, words: str) -> None:
    model, _ = tiny("bert")
    with pytest.raises((OptionError, ShapeError), match=words):
        trace(model, given)  # type: ignore[arg-type]


def test_a_trace_that_would_not_fit_says_how_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tiny("bert")
    batch, length = inputs["input_ids"].shape
    numbers = batch * length**2 * trace(model, inputs).num_heads
    monkeypatch.setattr("headwise.watching.calls.LARGEST_WEIGHTS", 4 * numbers)
    trace(model, inputs)
    monkeypatch.setattr("headwise.watching.calls.LARGEST_WEIGHTS", 4 * numbers - 1)
    with pytest.raises(OptionError, match=r"the weights of .* would take"):
        trace(model, inputs)


class Pieces:
    """A byte-level tokenizer that has these pieces and no others."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = ("Ġa", *pieces)

    def __call__(self, *_: object, **__: object) -> dict[str, list[int]]:
        return {"input_ids": [0, 0]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.pieces[one] for one in ids]

    def decode(self, ids: list[int]) -> str:
        marks = {"Ġ": b" ", "Ċ": b"\n", "ĉ": b"\t", "č": b"\r", "Ģ": b"\x80", "Ŀ": b"\x9d"}
        read = [
            marks.get(mark) or mark.encode("latin-1") for one in ids for mark in self.pieces[one]
        ]
        return b"".join(read).decode("utf-8", errors="replace")


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["One", "Ċ", "Two", "Ġwords"], [0, 1, 2, 3]),  # lines are not glued together
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


def test_a_text_of_one_token_too_many_is_refused() -> None:
    model = headwise.load_model("minilm")
    assert len(trace(model, "word " * 510, layer=5).labels.keys) == 512
    with pytest.raises(OptionError, match="longer than the 512 tokens"):
        trace(model, "word " * 511, layer=5)


def test_a_name_without_a_stack_is_of_the_stack_that_is_given() -> None:
    assert LayerChoice.parse(None, "decoder", "L1H2") == LayerChoice(1, "decoder", (2,))
    model, inputs = tiny("t5")
    found = trace(model, inputs, stack="decoder", heads="L1H2")
    assert found.name_of(found.heads[0]) == "decoder.L1H2"
    with pytest.raises(OptionError, match="is not in the layer"):
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
    x, given = torch.randn(2, 3, 12), None if mask is None else mask.expand(3, 3)
    bare = trace(MultiHeadAttention(12, 2, sinks=True), x, mask=given)
    has_bias = mask is not None and bool(mask.sum() > 0)
    assert_formulas_are_true(bare, has_bias=has_bias, has_sinks=True)
    sloped = trace(MultiHeadAttention(12, 2, position=Alibi()), x, mask=given)
    assert_formulas_are_true(sloped, has_bias=True, has_sinks=False)


def assert_formulas_are_true(found: Trace, *, has_bias: bool, has_sinks: bool) -> None:
    assert ("+ bias" in found["masked"].formula) == has_bias
    seen = found["masked"].values.isfinite()
    difference = (found["masked"].values - found["scaled"].values)[seen].abs().max()
    assert bool(difference > 0) == has_bias
    assert ("rows sum to less than 1" in found["weights"].formula) == has_sinks
    sums = found["weights"].values.sum(-1)
    assert bool((sums < 1 - ROUNDINGS * torch.finfo(sums.dtype).eps).any()) == has_sinks


def test_padding_counts_in_no_head_s_share() -> None:
    batch, alone = ragged("bert", [5, 11])
    model, _ = tiny("bert")
    found = trace(model, batch)
    each = [trace(model, one) for one in alone]
    lengths = [one["contributions"].values.norm(dim=-1)[0] for one in each]
    together = torch.cat(lengths, -1).mean(-1)
    assert_same(torch.tensor([one for one, _ in found.lengths]), together, roundings=ROUNDINGS)
    sizes = sum(one["contributions"].values.abs().sum((0, 2)) for one in each)
    assert_same(found.shares_after, sizes / sizes.sum(0), roundings=ROUNDINGS)
