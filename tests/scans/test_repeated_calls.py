"""Models that run an attention module several times in one pass are scanned, all calls together."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import headwise
from headwise import ScanSettings

from ..watching.tiny import spread_out

SIZES = {"hidden_size": 24, "intermediate_size": 31, "num_attention_heads": 4}
VOCABULARY = 53
Parts = tuple[Any, dict[str, Tensor]]


def text(batch: int = 2, length: int = 19) -> dict[str, Tensor]:
    ids = torch.randint(6, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(5))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def diffllama(vocab_size: int = VOCABULARY) -> Parts:
    """Two calls in every layer, for the two halves of the values."""
    sizes = {**SIZES, "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 8}
    config = transformers.DiffLlamaConfig(vocab_size=vocab_size, **sizes)
    return transformers.DiffLlamaForCausalLM(config), text()


def hrm_text(vocab_size: int = VOCABULARY) -> Parts:
    """Two stacks, run in turn: the first four times, the second twice."""
    sizes = {**SIZES, "num_hidden_layers": 12, "num_layers_per_stack": 2, "head_dim": 8}
    config = transformers.HrmTextConfig(vocab_size=vocab_size, **sizes, H_cycles=2, L_cycles=2)
    return transformers.AutoModelForCausalLM.from_config(config), text()


def timesfm() -> Parts:
    """All layers on a series, and again on its negative."""
    lengths = {"patch_length": 8, "context_length": 64, "horizon_length": 8}
    heads = {"head_dim": 8, "num_attention_heads": 3, "num_key_value_heads": 3}
    sizes = {"hidden_size": 24, "intermediate_size": 31, "num_hidden_layers": 3}
    config = transformers.TimesFm2_5Config(**lengths, **heads, **sizes, output_quantile_len=8)
    series = torch.randn(2, 64, generator=torch.Generator().manual_seed(5))
    return transformers.TimesFm2_5ModelForPrediction(config), {"past_values": series}


def blip_2() -> Parts:
    """One stack on an image's 5 queries and on 19 tokens."""
    vision = {**SIZES, "num_hidden_layers": 2, "image_size": 28, "patch_size": 14}
    queries = {**SIZES, "vocab_size": VOCABULARY, "num_hidden_layers": 4, "encoder_hidden_size": 24}
    config = transformers.Blip2Config(
        vision_config=vision,
        qformer_config=queries | {"use_qformer_text_input": True},
        num_query_tokens=5,
        image_text_hidden_size=16,
    )
    model = transformers.Blip2ForImageTextRetrieval(config)
    return model, text() | {"pixel_values": torch.randn(2, 3, 28, 28)}


def minicpm() -> Parts:
    """Every image layer on each image, and layers in which each has 16 and 4 positions."""
    vision = {**SIZES, "num_hidden_layers": 3, "insert_layer_id": 1, "image_size": 64}
    words = {**SIZES, "model_type": "qwen3", "vocab_size": VOCABULARY, "num_hidden_layers": 2}
    config = transformers.AutoConfig.for_model(
        "minicpmv4_6",
        vision_config=vision | {"patch_size": 4, "window_kernel_size": (2, 2)},
        text_config=words | {"num_key_value_heads": 2, "head_dim": 8},
        image_token_id=5,
        insert_layer_id=1,
    )
    inputs = text(batch=1)
    inputs["input_ids"][0, [3, 9]] = 5
    inputs["pixel_values"] = torch.randn(1, 3, 4, 4 * 32)
    inputs["target_sizes"] = torch.tensor([[4, 4], [4, 4]], dtype=torch.int32)
    return transformers.AutoModelForImageTextToText.from_config(config), inputs


def built(make: Callable[[], Parts]) -> Parts:
    torch.manual_seed(3)
    model, inputs = make()
    spread_out(model)
    return model.eval(), inputs


@pytest.mark.parametrize("make", [diffllama, hrm_text, timesfm, blip_2, minicpm])
def test_a_module_that_runs_several_times_is_measured_over_all_its_calls(
    make: Callable[[], Parts],
) -> None:
    model, inputs = built(make)
    table = headwise.scan(model, inputs=[inputs]).df.set_index(["stack", "layer", "head"])
    with torch.no_grad(), headwise.watch(model) as watched:
        model(**inputs)
    calls: dict[tuple[str, int], list[Tensor]] = {}
    for call in watched:
        entropies = torch.special.entr(call.weights()).sum(-1)
        of_heads = entropies.transpose(0, 1).flatten(1)
        calls.setdefault((call.stack, call.layer), []).append(of_heads)
    assert max(map(len, calls.values())) > 1
    for (stack, layer), parts in calls.items():
        want = torch.cat(parts, dim=1).mean(1)
        got = torch.tensor(table.loc[stack, layer]["entropy"].to_numpy())
        torch.testing.assert_close(got.float(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*induction is not measured")
@pytest.mark.parametrize("make", [diffllama, hrm_text])
def test_relations_are_scored_on_the_first_call_of_every_layer(make: Callable[..., Parts]) -> None:
    tokenizer = headwise.load_model("minilm").tokenizer
    model, _ = built(lambda: make(vocab_size=len(tokenizer)))
    settings = ScanSettings(repeats=False)
    words = ("The", "old", "lamp", "was", "red", ".")
    arc = headwise.Arc("colour", dependent=4, governor=2)
    sentences = [headwise.ProbeSentence(words=words, arcs=(arc,))] * 3
    table = headwise.scan(model, tokenizer=tokenizer, treebank=sentences, settings=settings)
    assert len(table) == {"diffllama": 3 * 4, "hrm_text": 2 * 2 * 4}[make.__name__]
