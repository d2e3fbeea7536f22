"""A planted head is found and its shuffled twin is not; runs resume; mistakes are named."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from headwise.errors import ModelError, OptionError, OutputError
from headwise.heads import HeadId
from headwise.models.loaded import LoadedModel
from headwise.patching import patch as patching
from headwise.patching.patch import patch
from headwise.patching.prompts import PromptPair
from headwise.patching.requests import choose_metric, choose_pairs
from headwise.patching.result import PatchResult, bootstrap_shares
from headwise.patching.settings import PatchSettings
from headwise.patching.store import PROGRESS

from ..pruning.tiny_models import WORDS
from .tiny_prompts import load_encoder, load_tiny

PLANTED = HeadId(1, 2)
QUICK = PatchSettings(exact=False, control=0)


def pairs_of(count: int = 12, *, lengths: tuple[int, ...] = (9,)) -> list[PromptPair]:
    """Prompts of random words that differ in one of them; the answers are always the same."""
    generator, pairs = random.Random(5), []
    for number in range(count):
        words = generator.choices(WORDS, k=lengths[number % len(lengths)])
        other = [*words]
        other[4] = generator.choice([word for word in WORDS if word != words[4]])
        pairs.append(PromptPair(" ".join(words), " ".join(other), WORDS[0], WORDS[1]))
    return pairs


@torch.no_grad()
def planted_model(*, is_shuffled: bool = False) -> LoadedModel:
    """A tiny Llama in which one head writes along the difference of the two answers."""
    loaded = load_tiny("llama")
    model: Any = loaded.model
    for layer in model.model.layers:  # what the other heads write hardly matters
        layer.self_attn.o_proj.weight.mul_(0.1)
        layer.mlp.down_proj.weight.mul_(0.1)
    rows = [loaded.tokenizer.convert_tokens_to_ids(word) for word in WORDS[:2]]
    direction: Tensor = model.lm_head.weight[rows[0]] - model.lm_head.weight[rows[1]]
    projection = model.model.layers[PLANTED.layer].self_attn.o_proj.weight
    size = projection.shape[1] // model.config.num_attention_heads
    columns = slice(PLANTED.head * size, (PLANTED.head + 1) * size)
    generator = torch.Generator().manual_seed(1)
    written = torch.randn(size, generator=generator, dtype=direction.dtype)
    block = 4 * torch.outer(direction, written)
    if is_shuffled:
        block = block[torch.randperm(len(block), generator=generator)]
    projection[:, columns] = block
    return loaded


def test_a_planted_head_is_found_in_every_column() -> None:
    result = patch(
        planted_model(), pairs=pairs_of(), settings=PatchSettings(steps=4, grad_drop=True)
    )
    assert isinstance(result, PatchResult)
    df = result.table.df.set_index(result.table.df.apply(name_of, axis=1))
    for column in ("patch_denoise", "patch_noise", "attribution", "attribution_steps"):
        assert df[column].abs().idxmax() == str(PLANTED)
        assert df[column][str(PLANTED)] > 0.5
        low, high = (df[f"{column}{end}"][str(PLANTED)] for end in ("_low", "_high"))
        assert math.isnan(low) or low <= df[column][str(PLANTED)] <= high
    assert df["attribution_drops"].idxmax() == str(PLANTED)
    assert df["direct_logit"].abs().idxmax() == str(PLANTED)


def name_of(row: Any) -> str:
    return f"L{row['layer']}H{row['head']}"


def test_the_planted_heads_shuffled_twin_is_not_found() -> None:
    planted, shuffled = (
        patch(planted_model(is_shuffled=is_shuffled), pairs=pairs_of(), settings=QUICK).table
        for is_shuffled in (False, True)
    )
    assert abs(shuffled[PLANTED]["direct_logit"]) < abs(planted[PLANTED]["direct_logit"]) / 2
    assert abs(shuffled.about["difference"]) < abs(planted.about["difference"]) / 2


def test_results_record_what_was_measured_and_how_far_estimates_agree() -> None:
    result = patch(planted_model(), pairs=pairs_of())
    about = result.table.about
    assert about["difference"] == pytest.approx(about["clean"] - about["corrupted"])
    assert set(about["agreement"]["attribution"]) == {
        *("top", "recall", "mean_absolute_error", "largest_error")
    }
    assert about["control"]["heads"] == len(result.table)


def test_a_number_of_heads_with_the_largest_estimates_is_patched_exactly() -> None:
    loaded, pairs = planted_model(), pairs_of(4)
    every, some = (
        patch(loaded, pairs=pairs, settings=PatchSettings(exact=exact, control=2)).table.df
        for exact in (True, 3)
    )
    chosen = some["patch_denoise"].notna()
    assert chosen.sum() == 3
    largest = every["attribution"].abs().nlargest(3).index
    assert set(some.index[chosen]) == set(largest)
    assert some["patch_noise"][chosen].tolist() == pytest.approx(
        every["patch_noise"][chosen].tolist()
    )
    assert some["control"].notna().sum() == 2


def test_pairs_of_several_lengths_keep_their_order() -> None:
    loaded = planted_model()
    pairs = pairs_of(6, lengths=(9, 12))
    result = patch(loaded, pairs=pairs, settings=QUICK)
    alone = [patch(loaded, pairs=[pair], settings=QUICK).table for pair in pairs]
    clean = sum(table.about["clean"] for table in alone) / len(alone)
    assert result.table.about["clean"] == pytest.approx(clean)
    changes = [table[PLANTED]["attribution"] * table.about["difference"] for table in alone]
    expected = sum(changes) / sum(table.about["difference"] for table in alone)
    assert result.table[PLANTED]["attribution"] == pytest.approx(expected)


def test_an_encoder_is_measured_by_the_cosine_and_has_no_direct_effects() -> None:
    pairs = [PromptPair(pair.clean, pair.corrupted) for pair in pairs_of(4)]
    result = patch(load_encoder(), pairs=pairs)
    about = result.table.about
    assert (about["metric"], about["clean"]) == ("cosine", pytest.approx(1.0))
    assert "direct_logit" not in result.table.df
    assert (result.table.df["patch_noise"] != 0).any()


@pytest.mark.parametrize("metric", ["probability", "kl", "logit-difference"])
def test_every_metric_explains_its_own_difference(metric: str) -> None:
    result = patch(planted_model(), pairs=pairs_of(4), metric=metric)
    about = result.table.about
    assert about["metric"] == metric
    assert about["clean"] > about["corrupted"] or metric != "kl"
    assert result.table.df["patch_denoise"].abs().max() > 0.1


def test_a_function_can_be_the_metric() -> None:
    def spread(model: Any, inputs: Any) -> Tensor:
        return model(**inputs).logits[:, -1].std(-1)  # type: ignore[no-any-return]

    result = patch(planted_model(), pairs=pairs_of(4), metric=spread)
    assert result.table.about["metric"] == "custom metric"
    with pytest.raises(OptionError, match=r"returned \[4, \d+\].*4 examples"):
        patch(
            planted_model(),
            pairs=pairs_of(4),
            metric=lambda model, inputs: model(**inputs).logits[:, -1],
        )
    with pytest.raises(OptionError, match=r"no gradients.*attribution"):
        patch(
            planted_model(),
            pairs=pairs_of(4),
            metric=lambda model, inputs: spread(model, inputs).detach(),
        )


@pytest.mark.parametrize("metric", ["kl", "cosine"])
def test_noising_has_no_estimate_where_the_metric_is_at_its_largest(metric: str) -> None:
    loaded = load_encoder() if metric == "cosine" else load_tiny("llama")
    pairs = [PromptPair(pair.clean, pair.corrupted) for pair in pairs_of(4)]
    noise = PatchSettings(directions=("noise",), control=0)
    result = patch(loaded, pairs=pairs, metric=metric, settings=noise)
    assert "attribution" not in result.table.df
    assert result.table.df["patch_noise"].abs().max() > 0
    for settings in (replace(noise, exact=2), replace(noise, exact=False)):
        with pytest.raises(OptionError, match=f"metric {metric} has no gradient in the clean run"):
            patch(loaded, pairs=pairs, metric=metric, settings=settings)


def test_runs_with_a_function_as_the_metric_do_not_resume(tmp_path: Path) -> None:
    def first(model: Any, inputs: Any) -> Tensor:
        return model(**inputs).logits[:, -1].std(-1)  # type: ignore[no-any-return]

    loaded, pairs = planted_model(), pairs_of(4)
    patch(loaded, pairs=pairs, metric=first, out=tmp_path)
    with pytest.raises(OutputError, match="settings differ"):
        patch(loaded, pairs=pairs, metric=lambda model, inputs: -first(model, inputs), out=tmp_path)


def test_models_without_a_place_for_the_answer_are_refused_or_read_as_a_whole() -> None:
    with pytest.raises(OptionError, match="tiny-t5 has an encoder and a decoder"):
        choose_metric(load_tiny("t5"), "kl", has_answers=False)
    torch.manual_seed(0)
    config = load_tiny("bert").model.config
    classifier = AutoModelForSequenceClassification.from_config(config, dtype=torch.float64).eval()
    with torch.no_grad():
        classifier.classifier.weight.mul_(100)
    loaded = LoadedModel("classifier", classifier, load_tiny("bert").tokenizer)
    pairs = [PromptPair(pair.clean, pair.corrupted) for pair in pairs_of(4)]
    assert patch(loaded, pairs=pairs).table.df["patch_denoise"].abs().max() > 0
    tagger = AutoModelForTokenClassification.from_config(config, dtype=torch.float64).eval()
    with pytest.raises(ModelError, match="predicts no tokens"):
        patch(LoadedModel("tagger", tagger, loaded.tokenizer), pairs=pairs)


def test_intervals_are_unknown_if_the_mean_difference_may_be_zero() -> None:
    changes, differences = torch.ones(1, 2).double(), torch.tensor([1.0, -0.9]).double()
    value, *rest = bootstrap_shares(changes, differences, resamples=99, seed=0)[0]
    assert value == pytest.approx(20)
    assert all(number != number for number in rest)


def test_paths_to_a_receiver_have_a_row_per_sender() -> None:
    settings = replace(QUICK, receiver="L2H1")
    result = patch(planted_model(), pairs=pairs_of(4), settings=settings)
    assert result.paths is not None
    heads = len(result.table) // result.table.num_layers
    assert len(result.paths) == 2 * heads
    assert {"sender", "receiver", "query", "key_low", "value_high"} <= set(result.paths)


def test_a_stopped_run_resumes_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, pairs, folder = planted_model(), pairs_of(4), tmp_path / "run"
    monkeypatch.setattr("headwise.patching.store.SECONDS_BETWEEN_SAVES", 0.0)
    whole = patch(loaded, pairs=pairs)

    def stop(stage: str, done: int, total: int, /) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        patch(loaded, pairs=pairs, out=folder, progress=stop)
    saved = json.loads((folder / PROGRESS).read_text("utf-8"))
    assert 0 < len(saved) < 2 * whole.table.num_layers
    measured: list[HeadId] = []
    patch_layers = patching.patch_layers

    def count(runs: Any, direction: str, outputs: Any, heads: Any) -> Any:
        measured.extend(heads)
        return patch_layers(runs, direction, outputs, heads)

    monkeypatch.setattr(patching, "patch_layers", count)
    resumed = patch(loaded, pairs=pairs, out=folder)
    assert len(measured) < 3 * len(whole.table)
    assert resumed.table.df.equals(whole.table.df)
    assert PatchResult.read(folder).table.df["patch_noise"].equals(whole.table.df["patch_noise"])


def test_another_run_is_not_replaced_without_force(tmp_path: Path) -> None:
    loaded = planted_model()
    patch(loaded, pairs=pairs_of(4), settings=QUICK, out=tmp_path / "run")
    with pytest.raises(OutputError, match="settings differ"):
        patch(loaded, pairs=pairs_of(5), settings=QUICK, out=tmp_path / "run")
    again = patch(loaded, pairs=pairs_of(5), settings=QUICK, out=tmp_path / "run", force=True)
    assert again.table.about["pairs"] == 5


def test_damaged_progress_is_named(tmp_path: Path) -> None:
    loaded = planted_model()
    patch(loaded, pairs=pairs_of(4), settings=QUICK, out=tmp_path)
    (tmp_path / PROGRESS).write_text('{"noise-0-L0": [[NaN]]}')
    with pytest.raises(OutputError, match=f"{PROGRESS} is not a readable progress file"):
        patch(loaded, pairs=pairs_of(4), settings=QUICK, out=tmp_path)


def test_prompts_that_the_model_answers_alike_are_refused() -> None:
    words = list(WORDS[:9])
    other = [*words[:-1], WORDS[20]]
    pair = PromptPair(" ".join([*words, "w30"]), " ".join([*other, "w30"]), WORDS[0], WORDS[1])
    loaded = load_tiny("llama")
    with torch.no_grad():
        for layer in loaded.model.model.layers:  # type: ignore[union-attr]
            layer.self_attn.o_proj.weight.zero_()  # type: ignore[union-attr,operator]
    with pytest.raises(OptionError, match="logit-difference is the same in both runs"):
        patch(loaded, pairs=[pair])


def test_exactly_one_way_to_give_pairs_is_accepted() -> None:
    loaded = load_tiny("llama")
    with pytest.raises(OptionError, match="exactly one of these, not none"):
        choose_pairs(loaded, None, None)
    with pytest.raises(OptionError, match="not clean and pairs"):
        choose_pairs(loaded, "a", "b", pairs=pairs_of(1))
    with pytest.raises(OptionError, match="exactly one"):
        choose_pairs(loaded, "a", None)
    with pytest.raises(OptionError, match=r"\(2, 3, 3, 3\)"):
        choose_pairs(loaded, ["a", "b"], ["c", "d", "e"])
    with pytest.raises(OptionError, match="no pairs"):
        choose_pairs(loaded, None, None, pairs=[])


def test_metrics_that_do_not_fit_are_named() -> None:
    loaded = load_tiny("llama")
    with pytest.raises(OptionError, match=r"metric is 'loss'.*kl"):
        choose_metric(loaded, "loss", has_answers=True)
    with pytest.raises(OptionError, match="'probability', but the pairs have no answers"):
        choose_metric(loaded, "probability", has_answers=False)
    assert choose_metric(loaded, None, has_answers=False).name == "kl"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"directions": ("up",)}, "directions are up.*denoise"),
        ({"directions": ()}, "directions are empty"),
        ({"part": "query"}, "part is 'query'.*pattern"),
        ({"steps": -1}, "steps is -1"),
        ({"positions": ()}, "positions is empty"),
        ({"exact": False, "attribution": False}, "all off"),
        ({"exact": 5, "attribution": False}, "exact is 5, but attribution"),
        ({"exact": 0}, "exact is 0"),
        ({"receiver": "L1"}, "L1"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        PatchSettings(**wrong)


def test_positions_outside_the_prompt_are_named() -> None:
    with pytest.raises(OptionError, match="position 9 is not in a prompt of 9 tokens"):
        patch(planted_model(), pairs=pairs_of(2), settings=replace(QUICK, positions=(9,)))


def test_bootstrap_intervals_cover_the_mean_and_shrink_with_more_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    changes = torch.randn(1, 400, generator=generator, dtype=torch.float64) + 1
    ones = torch.ones(400, dtype=torch.float64)
    few, many = (
        bootstrap_shares(changes[:, :count], ones[:count], resamples=500, seed=1)[0]
        for count in (20, 400)
    )
    assert many[2] < 1 < many[3]
    assert many[1] < few[1] / 2
    assert bootstrap_shares(changes[:, :1], ones[:1], resamples=9, seed=0)[0][0] == changes[0, 0]


def test_the_picture_names_every_head() -> None:
    result = patch(planted_model(), pairs=pairs_of(2), settings=QUICK)
    drawn = result.svg()
    assert all(f"<title>{head}: " in drawn for head in result.table.heads)
    assert json.loads(result.to_json())["about"]["pairs"] == 2
