"""Cut models: finds the class that loads an exported directory, without running code in it."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from headwise.errors import ModelError
from headwise.models.exported_modeling import CutMixin
from headwise.models.load_errors import quiet

BLOCK = "headwise"
"""Key in config.json of the block that `cut` writes."""
FORMAT = 1
"""Version of the block's format."""
BUILD_ERRORS = (StrictDataclassError, AttributeError, ValueError, TypeError, RuntimeError)
"""Errors that transformers raises if it cannot build a model from a config."""


def find_cut_class(folder: Path, *, keeps_head: bool) -> type[PreTrainedModel] | None:
    """The class that builds the cut model in a directory; None if the model there is not cut.

    With `keeps_head`, the class has the model's prediction head.
    """
    if not (folder / "config.json").is_file():
        return None
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except ValueError as error:
        raise ModelError(
            f"{folder} is not a model directory: config.json is not JSON: {error}"
        ) from error
    if not isinstance(config, dict):
        raise ModelError(f"{folder} is not a model directory: config.json is not a JSON object")
    block = config.get(BLOCK)
    if block is None:
        return None
    block_format = block.get("format") if isinstance(block, dict) else block
    if block_format != FORMAT:
        raise ModelError(
            f"{folder} has a cut model in format {block_format!r}, but this version of headwise "
            f"reads format {FORMAT}: install the version that wrote it"
        )
    name = (config.get("architectures") or [""])[0]
    plain = getattr(transformers, name, None)
    if not (isinstance(plain, type) and issubclass(plain, PreTrainedModel)):
        raise ModelError(
            f"{folder} has a cut model of class {name!r}, which transformers "
            f"{transformers.__version__} does not have: install the version that wrote it"
        )
    return cut_class(plain if keeps_head else bare_class(AutoConfig.from_pretrained(folder)))


def cut_class(plain: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """A subclass of `CutMixin` and `plain`, with the name of `plain`."""
    return type(
        plain.__name__, (CutMixin, plain), {"__module__": __name__, "__doc__": plain.__doc__}
    )


def bare_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class without a prediction head that `AutoModel` builds for a config."""
    known: Any = AutoModel._model_mapping[type(config)]
    bare: type[PreTrainedModel] = known[0] if isinstance(known, tuple) else known
    return bare


def empty_model(
    kind: type[PreTrainedModel], config: PreTrainedConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """A model of class `kind` on the meta device, built from a copy of the config."""
    build: Any = kind._from_config
    with quiet(), torch.device("meta"):
        built: PreTrainedModel = build(copy.deepcopy(config), dtype=dtype)
    return built
