"""Tests of counting: which rows are measured, on which device, and where heads are compared."""

import gc
from dataclasses import replace
from typing import Any, ClassVar

import pandas as pd
import pytest
import torch
import transformers
from torch import Tensor

from headwise.measures.counter import (
    LayerCache,
    RowChoice,
    compared_rows,
    make_measures,
    sequence_views,
)
from headwise.measures.measure import Measure, RowValues, Sums, measure_rows
from headwise.measures.sequence_view import RowLayout, SequenceView, TileWeights
from headwise.measures.similarity import LOOKS
from headwise.reading.batch import Batch
from headwise.reading.reader import Reader
from headwise.reading.tensors import batch_from_tensors
from headwise.scans.scan import ScanJob, scan
from headwise.scans.settings import ScanSettings
from headwise.scans.sums import ScanSums
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from ..watching.tiny import tiny
from .multimodal import tiny_gemma, tokenizer

ENTROPY = ScanSettings(measures=("entropy",))
TEXTS = (
    "The cat sat down. The cat sat down again, and the cat was tired of it.",
    "A dog. A dog saw a cat and ran.",
)


def test_text_of_a_vision_language_model_is_measured_with_tokens_and_without_padding() -> None:
    model, quick = tiny_gemma(), ScanSettings(repeats=False, probe=False)
    lengths = [len(window.ids) for window in Reader(tokenizer(), model.config).windows(TEXTS)]
    assert lengths[1] < lengths[0] < 2 * lengths[1], "they share a batch, one of them padded"
    both, *single = (
        scan(model, texts, tokenizer=tokenizer(), settings=quick).df
        for texts in (TEXTS, TEXTS[:1], TEXTS[1:])
    )
    assert set(both["stack"]) == {"text"}
    mean = (single[0]["entropy"] * lengths[0] + single[1]["entropy"] * lengths[1]) / sum(lengths)
    rounding = float(torch.finfo(torch.float32).eps) * max(lengths) * len(both)
    assert (both["entropy"] - mean).abs().max() < rounding
    assert both[["special", "punctuation", "duplicate"]].notna().all(axis=None)


def test_induction_of_a_vision_language_model_is_measured() -> None:
    table = scan(tiny_gemma(), TEXTS[1], tokenizer=tokenizer(), settings=ScanSettings(probe=False))
    assert table.df["induction"].notna().all()


def test_all_pictures_are_measured_even_if_there_are_fewer_texts() -> None:
    sizes = {"hidden_size": 15, "intermediate_size": 7, "num_hidden_layers": 1}
    config = transformers.CLIPConfig(
        text_config={**sizes, "num_attention_heads": 3, "vocab_size": 53},
        vision_config={**sizes, "num_attention_heads": 5, "image_size": 28, "patch_size": 14},
    )
    torch.manual_seed(0)
    model, pictures = transformers.CLIPModel(config).eval(), torch.randn(3, 3, 28, 28)
    inputs = {"input_ids": torch.randint(3, 53, (2, 11)), "pixel_values": pictures}
    with_third, without_third = (
        scan(model, inputs=[{**inputs, "pixel_values": some}], settings=ENTROPY).df
        for some in (pictures, pictures[:2])
    )
    is_text = with_third["stack"] == "text"
    assert (with_third["entropy"] == without_third["entropy"])[is_text].all()
    assert (with_third["entropy"] != without_third["entropy"])[~is_text].all(), (
        "the third picture counts"
    )


def assert_entropies(df: pd.DataFrame, model: Any, pictures: Tensor) -> None:
    """The last layer's entropies are those of the weights that the model itself returns."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(pixel_values=pictures, output_attentions=True).attentions[-1].double()
    want = torch.special.entr(weights).sum(-1).mean((0, 2))
    got = torch.tensor(df["entropy"].to_numpy()[-len(want) :])
    assert_same(got, want, roundings=weights.shape[-1], dtype=torch.float32)


def test_attention_within_windows_is_measured_window_by_window() -> None:
    config = transformers.SwinConfig(
        image_size=56, patch_size=4, embed_dim=12, depths=[2], num_heads=[3], window_size=7
    )
    torch.manual_seed(0)
    model, pictures = transformers.SwinModel(config).eval(), torch.randn(2, 3, 56, 56)
    df = scan(model, inputs=[{"pixel_values": pictures}], settings=ENTROPY).df
    assert_entropies(df, model, pictures)


def test_keys_made_of_several_positions_are_measured_without_distances() -> None:
    config = transformers.SegformerConfig(
        depths=[1], hidden_sizes=[9], num_attention_heads=[3], sr_ratios=[4], patch_sizes=[7],
        strides=[4], mlp_ratios=[2], num_encoder_blocks=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model, pictures = transformers.SegformerModel(config).eval(), torch.randn(2, 3, 64, 64)
    settings = ScanSettings(measures=("entropy", "distance"), compares=False)
    df = scan(model, inputs=[{"pixel_values": pictures}], settings=settings).df
    assert_entropies(df, model, pictures)
    assert df["distance"].isna().all()


def test_layers_of_different_lengths_are_not_compared_with_each_other() -> None:
    config = transformers.SwinConfig(
        image_size=56, patch_size=4, embed_dim=12, depths=[1, 1], num_heads=[3, 2], window_size=7
    )
    model = transformers.SwinModel(config).eval()
    table = scan(model, inputs=[{"pixel_values": torch.randn(2, 3, 56, 56)}])
    assert len(table) == 5 and "nearest" not in table.df.columns


def test_a_short_or_empty_sequence_may_precede_a_longer_one() -> None:
    model = small_llama()
    ids, mask = torch.randint(0, 53, (3, 11)), torch.ones(3, 11, dtype=torch.long)
    mask[0], mask[1, 3:] = 0, 0
    both = scan(model, inputs=[{"input_ids": ids, "attention_mask": mask}])
    alone = scan(model, inputs=[{"input_ids": ids[2:]}])
    assert both.df["nearest_cka"].notna().all()
    assert list(both.df["nearest"]) == list(alone.df["nearest"])


def test_padding_of_embeddings_is_not_measured() -> None:
    model, inputs = tiny("bert", batch=2, dtype=torch.float32)
    embed, ids = model.get_input_embeddings(), inputs["input_ids"]
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    by_vectors = {"attention_mask": mask, "inputs_embeds": embed(ids).detach()}
    by_ids = scan(model, inputs=[{"attention_mask": mask, "input_ids": ids}], settings=ENTROPY)
    by_embeddings = scan(model, inputs=[by_vectors], settings=ENTROPY)
    assert (by_ids.df["entropy"] == by_embeddings.df["entropy"]).all()
    assert by_embeddings.df["duplicate"].isna().all(), "the tokens are unknown"


def test_padding_of_labels_is_not_measured() -> None:
    model, inputs = tiny("t5", batch=2, dtype=torch.float32)
    model.config.decoder_start_token_id = 0
    labels, length = inputs.pop("decoder_input_ids"), inputs.pop("decoder_attention_mask").shape[1]
    labels[1, 4:] = -100
    both_inputs = {**inputs, "labels": labels}
    first = {name: part[:1] for name, part in both_inputs.items()}
    second = {name: part[1:] for name, part in both_inputs.items()} | {"labels": labels[1:, :4]}
    table, first_table, second_table = (
        scan(model, inputs=[some]).df for some in (both_inputs, first, second)
    )
    mean = (first_table["entropy"] * length + second_table["entropy"] * 4) / (length + 4)
    is_written = table["stack"] != "encoder"
    rounding = float(torch.finfo(torch.float32).eps) * 1000
    assert (table["entropy"] - mean)[is_written].abs().max() < rounding


def layouts() -> set[int]:
    """Ids of all existing layouts, those of other tests included."""
    return {id(item) for item in gc.get_objects() if type(item) is RowLayout}


def test_a_batch_leaves_nothing_behind() -> None:
    model = small_llama()
    inputs = [{"input_ids": torch.randint(0, 53, (2, 11))} for _ in range(3)]
    batches, sums = ScanJob.of(model, inputs=inputs).batches(), ScanSums()
    before = layouts()
    for batch in batches:
        batch.count(batch.build(), sums)
    assert layouts() <= before
    assert sums.counts == {"tokens": 66, "windows": 6}


def test_a_picture_has_no_tokens() -> None:
    config = transformers.ViTConfig(
        image_size=28, patch_size=14, hidden_size=15, num_attention_heads=3, num_hidden_layers=1,
        intermediate_size=7,
    )  # fmt: skip
    pictures = {"pixel_values": torch.randn(2, 3, 28, 28)}
    table = scan(transformers.ViTModel(config).eval(), inputs=[pictures], settings=ENTROPY)
    assert "tokens" not in table.about
    assert table.about["counts"] == {"windows": 2}


def views(call: AttentionCall, batch: Batch) -> list[SequenceView]:
    return [view for _, _, view in sequence_views(call, batch, RowChoice("all"), LayerCache())]


def small_llama() -> transformers.LlamaModel:
    config = transformers.LlamaConfig(
        vocab_size=53, hidden_size=30, intermediate_size=7, num_hidden_layers=1,
        num_attention_heads=5, num_key_value_heads=5,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaModel(config).eval()


def calls_of(length: int) -> tuple[list[Call], Batch]:
    """A causal model's calls on two sequences."""
    model = small_llama()
    batch = batch_from_tensors({"input_ids": torch.randint(0, 53, (2, length))}, model.config)
    with torch.no_grad(), watch(model, needs_lse=True) as seen:
        model(**batch.inputs)
    return list(seen.calls), batch


def test_rows_and_tokens_are_where_the_model_computes() -> None:
    (call,), batch = calls_of(11)
    assert isinstance(call, AttentionCall) and call.known_lse is not None
    tensors = ("queries", "keys", "values", "mixed", "known_lse")
    away = replace(call, **{name: getattr(call, name).to("meta") for name in tensors})
    for view in views(call, batch) + views(away, batch):
        device, tokens = view.sequence.mixed.device, view.layout.tokens
        assert tokens is not None
        assert {part.device for part in (view.layout.rows, tokens.ids)} == {device}
        assert tokens.is_special is None and tokens.is_punctuation is None, "there is no tokenizer"


@pytest.mark.parametrize("length", [5, 23, 199])
def test_weights_are_compared_on_random_rows_that_see_a_choice(length: int) -> None:
    (call,), batch = calls_of(length)
    (view, _) = views(call, batch)
    samples = [compared_rows(replace_layout(view), 1, index)[1].rows for index in range(40)]
    counts = torch.bincount(torch.cat(samples), minlength=length)
    assert counts[0] == 0, "the first row sees itself alone"
    assert {len(rows) for rows in samples} == {min(LOOKS, length - 1)}
    often = 40 * min(LOOKS, length - 1) / (length - 1)
    assert counts[1:].max() <= often + 5 * often**0.5, "no row is drawn every time"


def replace_layout(view: SequenceView) -> SequenceView:
    """The same view with an empty cache."""
    return replace(view, layout=replace(view.layout, _cache={}))


def test_the_order_of_measures_does_not_matter() -> None:
    (call,), batch = calls_of(13)
    (view, _) = views(call, batch)
    want = measure_rows(view, make_measures())
    got = measure_rows(view, [*reversed(make_measures()), Logs()])
    for name, column in want.items():
        assert_same(got[name].values, column.values, roundings=13 * 13, name=name)
    assert torch.equal(got["logs"].values, want["entropy"].values)


class Logs(Measure):
    """A measure that reads the logs after all other measures."""

    columns: ClassVar[dict[str, str]] = {"logs": "Entropy once more."}

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        sums.add("logs", tile.span, -torch.linalg.vecdot(tile.logs, tile.weights))

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"logs": RowValues(sums["logs"])}
