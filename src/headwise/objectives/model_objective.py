"""A model's objective: what it is measured by if the user does not say.

In: a loaded model. Out: next-token loss for causal models, masked-token loss for masked ones,
distance of the pooled embedding for embedding models, divergence of the logits for all others.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from headwise.errors import OptionError, warn_user
from headwise.formats import join_words
from headwise.models.loaded import LoadedModel
from headwise.objectives.losses import CustomLoss, Divergence, Embedding, MaskedToken, NextToken
from headwise.objectives.objective import Objective
from headwise.reading.batch import Inputs

POOLING_FILE = "1_Pooling/config.json"
"""The file in which a sentence-transformers model says how it pools."""
POOLINGS = {"cls": "cls", "cls_token": "cls", "mean": "mean", "mean_tokens": "mean"}
"""Supported poolings, by the names that versions of sentence-transformers have for them."""


def objective_for(
    loaded: LoadedModel,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
) -> Objective:
    """The user's objective, or the one that the model's class stands for."""
    if isinstance(objective, Objective):
        return objective
    if objective is not None:
        return CustomLoss(objective)
    name = type(loaded.model).__name__
    is_pair = getattr(getattr(loaded.model, "config", None), "is_encoder_decoder", False)
    if ("CausalLM" in name or "LMHead" in name) and not is_pair:
        return NextToken()
    if "MaskedLM" in name:
        mask_id = getattr(loaded.tokenizer, "mask_token_id", None)
        return MaskedToken(mask_id, frozenset(getattr(loaded.tokenizer, "all_special_ids", ())))
    if re.search(r"For[A-Z]", name):
        return Divergence()
    if loaded.folder and loaded.is_from_hub and not (loaded.folder / POOLING_FILE).is_file():
        warn_user(
            f"mean pooling is assumed for {loaded.name}: the cache has no {POOLING_FILE} to say so"
        )
    return Embedding(pooling_in(loaded.folder))


def pooling_in(folder: Path | None) -> str:
    """How a sentence-transformers model pools: `cls` or `mean`."""
    file = None if folder is None else folder / POOLING_FILE
    if file is None or not file.is_file():
        return "mean"
    try:
        modes = _pooling_modes(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"{file} does not say how embeddings are pooled: {error}") from error
    if len(modes) != 1 or modes[0] not in POOLINGS:
        named = join_words(modes) or "no pooling"
        raise OptionError(
            f"{file} names {named}, but only cls and mean are supported: pass an objective"
        )
    return POOLINGS[modes[0]]


def _pooling_modes(facts: Mapping[str, Any]) -> list[str]:
    """The modes that a file names: in `pooling_mode` since version 5.4, by flags before."""
    mode = facts.get("pooling_mode")
    if mode is not None:
        return [mode] if isinstance(mode, str) else [str(name) for name in mode]
    flags = "pooling_mode_"
    return [
        name.removeprefix(flags)
        for name, is_set in facts.items()
        if name.startswith(flags) and is_set is True
    ]
