"""ScoredModel: a model with its objective, the loss that it is measured by.

In: a model, and optionally the user's objective. Out: both. The default is next-token loss for
causal models, masked-token loss for masked ones, cosine distance for embedding models, and
divergence of the logits for all others.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from headwise.errors import OptionError, warn_user
from headwise.formats import join_words
from headwise.models.loaded import LoadedModel, Source, open_model
from headwise.models.loading import LoadOptions
from headwise.objectives.losses import CustomLoss, Divergence, Embedding, MaskedToken, NextToken
from headwise.objectives.objective import Objective
from headwise.reading.batch import Inputs, has_decoder

POOLING_FILE = "1_Pooling/config.json"
"""The file in which a sentence-transformers model states its pooling mode."""
POOLING_NAMES = {"cls": "cls", "cls_token": "cls", "mean": "mean", "mean_tokens": "mean"}
"""Pooling modes by name; the names depend on the version of sentence-transformers."""


@dataclass(frozen=True)
class ScoredModel(LoadedModel):
    """A loaded model with the objective that it is measured by."""

    objective: Objective = field(kw_only=True)


def open_scored_model(
    source: Source,
    tokenizer: Any = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
    *,
    options: LoadOptions | None = None,
    needs_tokenizer: bool = True,
) -> ScoredModel:
    """Load a model with its output layer and choose its objective.

    Without `options`, the directory of a model that reads text must contain a tokenizer, unless
    `tokenizer` is given or `needs_tokenizer` is False.
    """
    needs_tokenizer = needs_tokenizer and tokenizer is None
    default = LoadOptions(keeps_head=True, needs_tokenizer=needs_tokenizer)
    loaded = open_model(source, tokenizer, options=options or default)
    return ScoredModel(**vars(loaded) | {"objective": objective_for(loaded, objective)})


def objective_for(
    loaded: LoadedModel, objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None
) -> Objective:
    """The user's objective, or the default one for the model's class."""
    if isinstance(objective, Objective):
        return objective
    if objective is not None:
        return CustomLoss(objective)
    if predicts_next_token(loaded.model):
        return NextToken()
    if predicts_masked_tokens(loaded.model):
        mask_id = getattr(loaded.tokenizer, "mask_token_id", None)
        return MaskedToken(mask_id, frozenset(getattr(loaded.tokenizer, "all_special_ids", ())))
    if re.search(r"For[A-Z]", type(loaded.model).__name__):
        return Divergence()
    if loaded.folder and loaded.is_from_hub and not (loaded.folder / POOLING_FILE).is_file():
        warn_user(
            f"mean pooling is assumed for {loaded.name}, because the cache has no {POOLING_FILE}"
        )
    return Embedding(pooling_in(loaded.folder))


def predicts_next_token(model: nn.Module) -> bool:
    """Whether the model's class is a causal language model with its prediction head."""
    name = type(model).__name__
    is_causal = "CausalLM" in name or "LMHead" in name
    return is_causal and not has_decoder(getattr(model, "config", None))


def predicts_masked_tokens(model: nn.Module) -> bool:
    """Whether the model's class is a masked language model with its prediction head."""
    return "MaskedLM" in type(model).__name__


def pooling_in(folder: Path | None) -> str:
    """Pooling mode of the sentence-transformers model in `folder`: `cls` or `mean`."""
    file = None if folder is None else folder / POOLING_FILE
    if file is None or not file.is_file():
        return "mean"
    try:
        facts = json.loads(file.read_text("utf-8"))
        modes = facts.get("pooling_mode")  # since version 5.4; before that, one flag per mode
        if modes is None:
            flags = [name.partition("pooling_mode_") for name in facts if facts[name] is True]
            modes = [mode for start, flag, mode in flags if flag and not start]
        modes = [modes] if isinstance(modes, str) else list(map(str, modes))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"{file} does not say how embeddings are pooled: {error}") from error
    if len(modes) != 1 or modes[0] not in POOLING_NAMES:
        named = join_words(modes) or "no pooling"
        raise OptionError(
            f"{file} names {named}, but only cls and mean are supported: pass an objective"
        )
    return POOLING_NAMES[modes[0]]
