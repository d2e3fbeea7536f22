"""Cut models: the class that a directory with a cut model is loaded as.

In: a directory whose config.json holds a block that `cut` wrote. Out: the family's own class with
headwise's mixin before it. No code that lies in the directory is run.
"""

import json
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from headwise.errors import ModelError
from headwise.models.cut_modeling import CutMixin

BLOCK = "headwise"
"""The key of config.json under which a cut is written down."""
FORMAT = 1
"""The one format of blocks that there is."""


def is_cut(folder: Path) -> bool:
    """Whether a directory holds a model that headwise cut and plain transformers cannot build."""
    return (folder / "config.json").is_file() and read_config(folder).get(BLOCK) is not None


def class_of(folder: Path, *, keeps_head: bool) -> type[PreTrainedModel]:
    """The class to load a directory with a cut model with: the family's, headwise's mixin first."""
    names = read_config(folder).get("architectures") or [""]
    plain = getattr(transformers, names[0], None)
    if not (isinstance(plain, type) and issubclass(plain, PreTrainedModel)):
        raise ModelError(
            f"{folder} holds a cut model of class {names[0]!r}, which transformers "
            f"{transformers.__version__} does not have: install the version that wrote it"
        )
    return cut_class(plain if keeps_head else bare_class(AutoConfig.from_pretrained(folder)))


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says, its block checked."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"{folder} holds no model: its config.json is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{folder} holds no model: its config.json is no JSON object")
    check_block(folder, config.get(BLOCK))
    return config


def check_block(folder: Path, block: Any) -> None:
    """Raise where a config's block is not one that this version can read."""
    found = block.get("format") if isinstance(block, dict) else block
    if block is not None and found != FORMAT:
        raise ModelError(
            f"{folder} holds a cut model of format {found!r}, and this headwise reads format "
            f"{FORMAT}: install the version that wrote it"
        )


def cut_class(plain: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The class with headwise's mixin before it, of the same name."""
    return type(
        plain.__name__, (CutMixin, plain), {"__module__": __name__, "__doc__": plain.__doc__}
    )


def bare_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class that `AutoModel` gives such a config: without what the model predicts with."""
    found: Any = AutoModel._model_mapping[type(config)]
    bare: type[PreTrainedModel] = found[0] if isinstance(found, tuple) else found
    return bare
