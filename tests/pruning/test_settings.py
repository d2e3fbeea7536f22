"""What is asked for is checked before anything is loaded, and told what would work."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.models.loaded import LoadedModel
from headwise.objectives.losses import CustomLoss, Divergence, Embedding, LabelLoss, NextToken
from headwise.pruning.bench import make_bench
from headwise.pruning.prune import fitting, smallest
from headwise.pruning.selection.methods import METHODS
from headwise.pruning.setting import (
    LENGTH,
    batch_task,
    calibration,
    folder_of,
    make_subject,
    most_tokens,
    pooling_in,
    text_task,
)
from headwise.pruning.settings import POLICIES, REFITS, Amount, PruneSettings
from headwise.pruning.units import Unit

from .subjects import model_of, plain, texts, words_tokenizer


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "cut, keep and max_loss, and by none of them here"),
        ({"cut": 3, "keep": 0.5}, "max_loss, and by cut and keep here"),
        ({"cut": -1}, "cut is -1: it counts heads, and cannot be below 0"),
        ({"keep": 1.5}, r"keep is 1\.5: it is the share of heads that stay, 0 to 1"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"keep": "60%"}, "keep is '60%': give a number such as 0.6"),
        ({"cut": "3"}, "cut is '3': give a whole number"),
        ({"max_loss": "1%"}, "max_loss is '1%': give a number such as 0.01"),
        ({"max_loss": -0.1}, r"max_loss is -0\.1: it must be 0 or more, as 0\.01 is"),
        ({"max_loss": float("inf")}, "max_loss is inf: it must be 0 or more"),
        ({"max_loss": float("nan")}, "max_loss is nan"),
    ],
)
def test_an_amount_that_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Amount(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "best"}, f"method is 'best': choose from {', '.join(METHODS)}"),
        ({"policy": "some"}, f"policy is 'some': choose from {', '.join(POLICIES)}"),
        ({"refit": "half"}, f"refit is 'half': choose from {', '.join(REFITS)}"),
        ({"choose_tokens": 0}, "choose_tokens is 0: it must be at least 16"),
        ({"fit_tokens": -5}, "fit_tokens is -5: it must be at least 64"),
        ({"held_tokens": 0}, "held_tokens is 0: it must be at least 16"),
    ],
)
def test_settings_that_there_are_not_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        PruneSettings(**options)


UNEVEN = ((0, (0, 1)), (1, (0, 1, 2)), (0, (2,)))
"""Units of a model that was cut before: layers and the heads that go together."""


def test_an_amount_becomes_a_number_of_heads() -> None:
    assert Amount(cut=7).wanted(18, 18) == 7
    assert Amount(keep=0.5).wanted(18, 18) == 9
    assert Amount(keep=0.0).wanted(18, 18) == 18
    assert Amount(keep=1.0).wanted(18, 18) == 0
    with pytest.raises(OptionError, match=r"keep is 0\.99: of 18 heads that leaves every one"):
        Amount(keep=0.99).wanted(18, 18)
    assert Amount(max_loss=0.1).wanted(18, 18) is None
    assert Amount(heads="L0H1").wanted(18, 18) is None
    with pytest.raises(OptionError, match="19 heads are to go, and only 18 of the model's 18 can"):
        Amount(cut=19).wanted(18, 18)
    with pytest.raises(OptionError, match="18 heads are to go, and only 12 of the model's 18 can"):
        Amount(keep=0.0).wanted(18, 12)


def test_no_more_heads_go_than_asked_for_and_layers_lose_alike_in_steps() -> None:
    units = [Unit(tuple(HeadId(layer, head) for head in heads)) for layer, heads in UNEVEN]
    assert [fitting(units, wanted, 1) for wanted in range(8)] == [0, 0, 1, 1, 1, 2, 3, 3]
    assert [fitting(units, wanted, 2) for wanted in (4, 5, 7)] == [0, 2, 2]
    assert smallest(units) == 1


def test_a_subject_knows_its_name_tokenizer_and_objective() -> None:
    model, tokenizer = model_of("gpt2"), words_tokenizer()
    plain_one = make_subject(model, tokenizer)
    assert plain_one.name == "GPT2LMHeadModel" and isinstance(plain_one.objective, NextToken)
    assert plain_one.about == {"model": "GPT2LMHeadModel"} and plain_one.folder is None
    assert plain_one.device == torch.device("cpu")
    loaded = LoadedModel("mine", model, tokenizer, {"dtype": "float64"})
    named = make_subject(loaded, objective=lambda model, inputs: torch.zeros(len(inputs)))
    assert named.name == "mine" and isinstance(named.objective, CustomLoss)
    assert named.tokenizer is tokenizer
    assert named.about == {"model": "mine", "dtype": "float64"}
    assert make_subject(loaded, objective=Embedding()).objective == Embedding()


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The snapshot of someone/small in a cache of its own, with a config alone."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    home = tmp_path / "models--someone--small"
    snapshot = home / "snapshots/0123abc"
    for file, text in ((home / "refs/main", "0123abc"), (snapshot / "config.json", "{}")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return snapshot


def by_id(name: str = "someone/small") -> LoadedModel:
    """An embedding model that was loaded by its id."""
    about = {"source": name, "revision": None}
    return LoadedModel(name, model_of("embedding"), words_tokenizer(), about)


def test_a_model_of_the_hub_pools_as_its_cached_files_say(cached: Path) -> None:
    (cached / "1_Pooling").mkdir()
    (cached / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    found = make_subject(by_id())
    assert found.objective == Embedding("cls") and found.folder == cached


def test_that_the_pooling_of_a_model_of_the_hub_is_not_known_is_told(cached: Path) -> None:
    assert (cached / "config.json").is_file()
    with pytest.warns(UserWarning, match="someone/small are taken for means over tokens: no 1_P"):
        assert make_subject(by_id()).objective == Embedding("mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_subject(by_id(), objective=Embedding("mean"))
        make_subject(by_id("no/such/id"))
        make_subject(model_of("embedding"))


def test_pooling_is_what_the_folder_says(tmp_path: Path) -> None:
    assert pooling_in(None) == pooling_in(tmp_path) == "mean"
    (tmp_path / "1_Pooling").mkdir()
    for is_cls, want in ((True, "cls"), (False, "mean")):
        facts = {"pooling_mode_cls_token": is_cls, "pooling_mode_mean_tokens": not is_cls}
        (tmp_path / "1_Pooling/config.json").write_text(json.dumps(facts), "utf-8")
        assert pooling_in(tmp_path) == want
    assert folder_of(str(tmp_path)) == tmp_path
    assert folder_of(str(tmp_path / "none")) is None


def test_texts_and_batches_at_once_are_refused() -> None:
    subject = make_subject(model_of("gpt2"), words_tokenizer())
    with pytest.raises(OptionError, match="texts and batches to measure on: give one of them"):
        calibration(subject, texts(2), [plain("gpt2")], max_tokens=None)


def test_a_model_without_a_tokenizer_reads_batches_alone() -> None:
    subject = make_subject(model_of("gpt2"))
    with pytest.raises(OptionError, match="GPT2LMHeadModel reads no text, or came without a token"):
        calibration(subject, texts(2), None, max_tokens=None)
    assert calibration(subject, None, [plain("gpt2")], max_tokens=None).num_examples == 4


def test_a_text_may_be_given_as_it_is() -> None:
    subject = make_subject(model_of("gpt2"), words_tokenizer())
    document = "\n\n".join(texts(3))
    found = [calibration(subject, one, None, max_tokens=None) for one in (document, [document])]
    assert found[0].num_tokens == found[1].num_tokens == len(document.split())


def test_texts_are_read_up_to_a_number_of_tokens_in_an_order_of_the_seeds() -> None:
    subject = make_subject(model_of("gpt2"), words_tokenizer())
    found = [text_task(subject, texts(), max_tokens=90, seed=seed) for seed in (1, 1, 2)]
    tokens = [
        sum(int(one.inputs["attention_mask"].sum()) for one in task.samples) for task in found
    ]
    assert all(80 < count <= 90 for count in tokens)
    ids = [[one.inputs["input_ids"].tolist() for one in task.samples] for task in found]
    assert ids[0] == ids[1] != ids[2]


def test_batches_with_labels_measure_how_well_they_are_predicted() -> None:
    subject = make_subject(model_of("vit"))
    assert isinstance(batch_task(subject, [plain("vit")]).objective, Divergence)
    labelled = {**plain("vit"), "labels": torch.tensor([0, 1, 1, 0])}
    assert isinstance(batch_task(subject, [labelled]).objective, LabelLoss)


def test_embeddings_are_of_sentences() -> None:
    subject = make_subject(model_of("embedding"), words_tokenizer())
    document = "\n\n".join(texts(5))
    assert text_task(subject, [document], max_tokens=None).num_examples == 5
    short = make_subject(model_of("gpt2"), words_tokenizer())
    assert text_task(short, [document], max_tokens=None).num_examples < 5


def test_a_batch_has_room_for_the_logits_of_its_tokens() -> None:
    words = most_tokens(make_subject(model_of("gpt2"), words_tokenizer()))
    states = most_tokens(make_subject(model_of("embedding"), words_tokenizer()))
    assert LENGTH < words < states
    assert words == states // 101


@pytest.mark.parametrize(
    ("facts", "want"),
    [
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
    ],
)
def test_pooling_is_read_as_either_version_writes_it(
    facts: dict[str, object], want: str, tmp_path: Path
) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(facts), "utf-8")
    assert pooling_in(tmp_path) == want


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"pooling_mode": "lasttoken"}, "pooled by lasttoken, and only cls and mean are known"),
        ({"pooling_mode": ["cls", "mean"]}, "pooled by cls and mean, and only"),
        ({"pooling_mode_max_tokens": True}, "pooled by max_tokens, and only"),
        ({"pooling_mode_cls_token": False}, "pooled by nothing that it names, and only"),
        ({"pooling_mode": 5}, "does not say how embeddings are pooled"),
    ],
)
def test_a_pooling_that_is_not_known_is_refused(
    facts: dict[str, object], words: str, tmp_path: Path
) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(facts), "utf-8")
    with pytest.raises(OptionError, match=words):
        pooling_in(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"texts": Path("a.txt")}, "texts is .*: give the text itself as str"),
        ({"texts": [Path("a.txt")]}, "a text is a PosixPath: give documents as str"),
        ({"batches": {"input_ids": torch.ones(2, 3)}}, "inputs is of type dict: give a list of"),
        ({"batches": [torch.ones(2, 3)]}, "a batch of inputs is a Tensor: give a list of mapp"),
        ({"batches": [{"input_ids": [[1, 2]]}]}, "input_ids is of type list: give a tensor"),
        ({"batches": [{"input_id": torch.ones(2, 3)}]}, "has no input 'input_id': perhaps input"),
    ],
)
def test_what_a_model_cannot_be_measured_on_is_refused(given: dict[str, Any], words: str) -> None:
    subject = make_subject(model_of("gpt2"), words_tokenizer())
    with pytest.raises(OptionError, match=words):
        calibration(subject, given.get("texts"), given.get("batches"), max_tokens=None)
    with pytest.raises(OptionError, match=words):
        make_bench(subject, given.get("texts"), PruneSettings(), batches=given.get("batches"))
