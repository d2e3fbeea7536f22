"""A model's objective follows from its class, and its pooling from its files."""

import json
import warnings
from pathlib import Path

import pytest
import torch

from headwise.errors import OptionError
from headwise.models.loaded import LoadedModel
from headwise.objectives.losses import CustomLoss, Divergence, Embedding, MaskedToken, NextToken
from headwise.objectives.scored_model import objective_for, pooling_in

from ..pruning.tiny_models import model_of, objective_of, plain, words_tokenizer


def loaded(name: str, folder: Path | None = None) -> LoadedModel:
    return LoadedModel(name, model_of(name), words_tokenizer(), {}, folder)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert", MaskedToken),
        ("gpt2", NextToken),
        ("llama", NextToken),
        ("bart", Divergence),
        ("t5", Divergence),
        ("vit", Divergence),
        ("whisper", Divergence),
        ("embedding", Embedding),
    ],
)
def test_class_decides_the_objective(name: str, kind: type) -> None:
    objective = objective_for(loaded(name))
    assert type(objective) is kind
    if isinstance(objective, MaskedToken):
        assert objective == objective_of("bert")


def test_user_objective_comes_first() -> None:
    own = objective_for(loaded("gpt2"), lambda model, inputs: torch.zeros(len(inputs)))
    assert isinstance(own, CustomLoss)
    assert objective_for(loaded("gpt2"), Embedding("cls")) == Embedding("cls")


def test_masked_model_without_a_mask_token_needs_labels() -> None:
    objective = objective_for(LoadedModel("bert", model_of("bert"), None))
    inputs = plain("bert")
    with pytest.raises(OptionError, match="mask token"):
        objective.prepare(inputs, 0)
    labelled = objective.prepare({**inputs, "labels": inputs["input_ids"]}, 0)
    assert labelled.targets is inputs["input_ids"] and "labels" not in labelled.inputs


def test_missing_pooling_file_warns_for_hub_models_only(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots/0123abc"
    with pytest.warns(UserWarning, match=r"embedding.*1_Pooling"):
        assert objective_for(loaded("embedding", snapshot)) == Embedding("mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective_for(loaded("embedding", snapshot), Embedding("mean"))
        objective_for(loaded("embedding", tmp_path))
        objective_for(loaded("embedding"))


def write_pooling(folder: Path, facts: dict[str, object]) -> None:
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(facts), "utf-8")


def test_pooling_file_decides_the_embedding(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots/0123abc"
    write_pooling(snapshot, {"pooling_mode_cls_token": True})
    assert objective_for(loaded("embedding", snapshot)) == Embedding("cls")
    assert pooling_in(None) == pooling_in(tmp_path) == "mean"


@pytest.mark.parametrize(
    ("facts", "pooling"),
    [
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
    ],
)
def test_both_formats_of_the_pooling_file_are_read(
    facts: dict[str, object], pooling: str, tmp_path: Path
) -> None:
    write_pooling(tmp_path, facts)
    assert pooling_in(tmp_path) == pooling


@pytest.mark.parametrize(
    ("facts", "pattern"),
    [
        ({"pooling_mode": "lasttoken"}, "lasttoken.* cls and mean"),
        ({"pooling_mode": ["cls", "mean"]}, "cls and mean.* cls and mean"),
        ({"pooling_mode_max_tokens": True}, "max_tokens.* cls and mean"),
        ({"pooling_mode_cls_token": False}, "no pooling.* cls and mean"),
        ({"pooling_mode": 5}, "1_Pooling"),
    ],
)
def test_unsupported_pooling_raises(facts: dict[str, object], pattern: str, tmp_path: Path) -> None:
    write_pooling(tmp_path, facts)
    with pytest.raises(OptionError, match=pattern):
        pooling_in(tmp_path)


def test_unknown_pooling_raises() -> None:
    with pytest.raises(OptionError, match=r"pooling is 'max'.* mean, cls"):
        Embedding("max")
