"""Text that a causal model samples from itself: exact, repeatable, cached and without traces."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from headwise.errors import ModelError, OptionError
from headwise.files import write_aside
from headwise.models.loaded import LoadedModel
from headwise.objectives import own_text
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.own_text import STAGE, sample_windows, why_not_sampled
from headwise.objectives.scored_model import open_scored_model
from headwise.progress import StopWork
from headwise.reading.reader import Window

from ..pruning.tiny_models import SPECIAL, words_tokenizer
from ..watching.tiny import tiny
from ..watching.tiny_configs import FAMILIES, VOCABULARY

DECODERS = [name for name, family in FAMILIES.items() if family.kind == "decoder"]
START = SPECIAL["[CLS]"]
SIZES = {"tokens": 3 * 17 - 5, "length": 17}


def writer(name: str = "gpt2") -> LoadedModel:
    """A tiny causal model whose tokenizer begins texts with [CLS]."""
    tokenizer = words_tokenizer()
    tokenizer.bos_token = "[CLS]"
    return LoadedModel(name, tiny(name, dtype=torch.float32)[0], tokenizer)


def sample(loaded: LoadedModel, **options: Any) -> list[Window]:
    return sample_windows(loaded, **{"uses_cache": False} | SIZES | options)


def as_tensor(windows: list[Window]) -> Tensor:
    return torch.tensor([window.ids for window in windows])


@torch.no_grad()
def written_without_cache(loaded: LoadedModel, count: int, length: int, seed: int) -> Tensor:
    """One full pass per token; an exponential variable over each probability, the least wins."""
    random, ids = torch.Generator().manual_seed(seed), torch.full((count, 1), START)
    while ids.shape[1] < length:
        shares = loaded.model(input_ids=ids).logits[:, -1].float().softmax(-1)
        times = torch.empty(shares.shape).exponential_(generator=random) / shares
        ids = torch.cat([ids, times.argmin(-1, keepdim=True)], 1)
    return ids


@pytest.mark.parametrize("name", DECODERS)
def test_every_token_comes_from_the_model_that_read_those_before_it(name: str) -> None:
    loaded = writer(name)
    assert as_tensor(sample(loaded)).tolist() == written_without_cache(loaded, 3, 17, 0).tolist()


@torch.no_grad()
def test_tokens_are_as_surprising_as_the_model_expects() -> None:
    """At another temperature, or cut to the likely tokens, the mean surprise would be different."""
    loaded = writer("llama")
    ids = as_tensor(sample(loaded, tokens=64 * 41, length=41))
    logs = loaded.model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    surprise = -logs.gather(-1, ids[:, 1:, None])[..., 0]
    entropy = -(logs.exp() * logs).sum(-1)
    assert entropy.mean() > 0.5
    difference = surprise - entropy
    error = difference.std() / difference.numel() ** 0.5
    assert difference.mean().abs() < 4 * error < 0.2 * entropy.mean()


def test_seed_decides_the_text_whatever_the_state_of_torch() -> None:
    loaded = writer()
    first = sample(loaded, seed=1)
    torch.rand(7)
    assert sample(loaded, seed=1) == first != sample(loaded, seed=2)


def test_number_and_length_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = writer()
    monkeypatch.setattr(own_text, "TOGETHER", 2)
    windows = sample(loaded, tokens=5 * 11 - 3, length=11)
    assert [window.index for window in windows] == [0, 1, 2, 3, 4]
    assert as_tensor(windows).shape == (5, 11) and len(set(windows)) == 5
    limit = loaded.model.config.max_position_embeddings
    assert {len(window.ids) for window in sample(loaded, tokens=90, length=500)} == {limit}


def test_an_end_in_the_generation_config_stops_nothing() -> None:
    loaded = writer("llama")
    expected = sample(loaded)
    config: Any = loaded.model.generation_config
    config.eos_token_id = [expected[0].ids[3], expected[1].ids[2]]
    config.repetition_penalty = 7.0
    config.suppress_tokens = list(range(50))
    assert sample(loaded) == expected


def test_model_and_random_state_are_left_as_they_were() -> None:
    loaded = writer()
    loaded.model.train()
    loaded.model.transformer.h[1].eval()
    modes = [module.training for module in loaded.model.modules()]
    config, state = loaded.model.generation_config, torch.get_rng_state()
    before, weights = copy.deepcopy(config), copy.deepcopy(loaded.model.state_dict())

    def stop(stage: str, done: int, total: int, /) -> None:
        raise StopWork

    sample(loaded)
    with pytest.raises(StopWork):
        sample(loaded, progress=stop)
    assert [module.training for module in loaded.model.modules()] == modes
    assert loaded.model.generation_config is config and config.to_dict() == before.to_dict()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(weights[name], part) for name, part in loaded.model.state_dict().items())


def test_dropout_is_off_while_the_model_writes() -> None:
    loaded = writer()
    expected = sample(loaded)
    loaded.model.train()
    assert sample(loaded) == expected


def test_progress_counts_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "TOGETHER", 2)
    reports: list[tuple[str, int, int]] = []
    sample(writer(), progress=lambda *report: reports.append(report))
    counts = [done for _, done, _ in reports]
    assert {(stage, total) for stage, _, total in reports} == {(STAGE, 3 * 17)}
    assert counts == sorted(counts) and counts[0] == 3 and counts[-1] == 3 * 17
    assert len(counts) == 2 * 16 + 1


def test_windows_can_be_measured() -> None:
    loaded = writer("llama")
    scored = open_scored_model(loaded)
    evaluation = Evaluation.of_windows(scored, sample(loaded))
    (batch,) = evaluation.samples
    assert sorted(batch.inputs["input_ids"].tolist()) == sorted(as_tensor(sample(loaded)).tolist())
    assert (evaluation.num_examples, evaluation.num_tokens) == (3, 51)
    assert 0 < evaluation.loss().value < 20


# The cache.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/own_text"


def never(*_: object) -> Tensor:
    raise AssertionError("sampled again")


def test_cached_windows_are_read_instead_of_sampled(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, reports = writer(), []
    windows = sample(loaded, uses_cache=True)
    assert windows == sample(loaded) and len(list(cache.iterdir())) == 1
    monkeypatch.setattr(own_text, "_sample", never)
    again = sample(loaded, uses_cache=True, progress=lambda *report: reports.append(report))
    assert again == windows and reports == [(STAGE, 51, 51)]
    with pytest.raises(AssertionError, match="sampled again"):
        sample(loaded)


def test_without_the_cache_nothing_is_written(cache: Path) -> None:
    sample(writer())
    assert not cache.exists()


def test_other_weights_settings_and_tokenizers_have_their_own_samples(cache: Path) -> None:
    loaded = writer()
    sample(loaded, uses_cache=True)
    for options in ({"seed": 1}, {"length": 13}, {"tokens": 7}):
        sample(loaded, uses_cache=True, **options)
    loaded.tokenizer.bos_token = "[SEP]"
    sample(loaded, uses_cache=True)
    with torch.no_grad():
        loaded.model.lm_head.weight[5, 3] += 1
    assert sample(loaded, uses_cache=True) == sample(loaded)
    assert len(list(cache.iterdir())) == 6


@pytest.mark.parametrize(
    "content",
    ["", "[[1, 2", "{}", "null", "[[1, 2], [3]]", "[[1, 2, 3]]", "\ufffd", "[" * 9999],
    ids=["empty", "cut off", "object", "null", "ragged", "too small", "text", "deep"],
)
def test_damaged_cache_file_is_replaced(cache: Path, content: str) -> None:
    loaded = writer()
    windows = sample(loaded, uses_cache=True)
    (file,) = cache.iterdir()
    sound = file.read_text("utf-8")
    write_aside(file, content)
    assert sample(loaded, uses_cache=True) == windows
    assert file.read_text("utf-8") == sound and list(cache.iterdir()) == [file]


@pytest.mark.parametrize("token", [VOCABULARY, -1, 2.5, 10**30, "7"])
def test_cache_file_with_a_token_that_the_model_lacks_is_replaced(
    cache: Path, token: object
) -> None:
    loaded = writer()
    windows = sample(loaded, uses_cache=True)
    (file,) = cache.iterdir()
    rows = json.loads(file.read_text("utf-8"))
    write_aside(file, json.dumps([[*rows[0][:-1], token], *rows[1:]]))
    assert sample(loaded, uses_cache=True) == windows
    assert json.loads(file.read_text("utf-8")) == rows


def test_cache_that_cannot_be_written_changes_nothing(cache: Path) -> None:
    cache.parent.write_text("a file where the folder would be", "utf-8")
    assert sample(writer(), uses_cache=True) == sample(writer())


# How a text begins.


def test_text_begins_with_the_first_token_that_fits() -> None:
    loaded = LoadedModel("llama", tiny("llama")[0], words_tokenizer())

    def first_tokens() -> set[int]:
        return {window.ids[0] for window in sample(loaded)}

    config: Any = loaded.model.generation_config
    config.bos_token_id, config.eos_token_id = None, [11, 12]
    assert first_tokens() == {11}
    config.bos_token_id = 10
    assert first_tokens() == {10}
    loaded.tokenizer.eos_token = "[SEP]"
    assert first_tokens() == {SPECIAL["[SEP]"]}
    loaded.tokenizer.bos_token = "[CLS]"
    assert first_tokens() == {SPECIAL["[CLS]"]}
    loaded.tokenizer.get_vocab = lambda: {"<|endoftext|>": 9}
    assert first_tokens() == {9}
    loaded.tokenizer.get_vocab = lambda: {"<|endoftext|>": VOCABULARY}  # the model lacks this one
    assert first_tokens() == {SPECIAL["[CLS]"]}
    loaded.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[MASK] $A", special_tokens=[("[MASK]", SPECIAL["[MASK]"])]
    )
    assert first_tokens() == {SPECIAL["[MASK]"]}


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("bert", "BertForMaskedLM"),
        ("bart", "BartForConditionalGeneration"),
        ("vit", "ViTForImageClassification"),
    ],
)
def test_model_that_is_not_causal_is_rejected(name: str, facts: str) -> None:
    loaded = LoadedModel(name, tiny(name)[0], words_tokenizer())
    assert facts in why_not_sampled(loaded)
    with pytest.raises(ModelError, match=f"{name} .*{facts}"):
        sample(loaded)


def test_causal_model_is_accepted_and_a_plain_module_is_not() -> None:
    assert why_not_sampled(writer()) == ""
    assert "Linear" in why_not_sampled(LoadedModel("own", torch.nn.Linear(2, 3), None))


def test_model_without_a_tokenizer_or_a_start_is_rejected() -> None:
    model = tiny("gpt2")[0]  # the config's ids of starts and ends are outside its vocabulary
    with pytest.raises(ModelError, match="tokenizer"):
        sample(LoadedModel("gpt2", model, None))
    with pytest.raises(ModelError, match="no token that begins"):
        sample(LoadedModel("gpt2", model, words_tokenizer()))


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"tokens": 0}, "tokens is 0"),
        ({"tokens": 2.5}, "tokens is 2.5"),
        ({"seed": -1}, "seed is -1"),
        ({"length": 1}, "length is 1"),
    ],
)
def test_impossible_sizes_are_rejected(options: dict[str, Any], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        sample(writer(), **options)
