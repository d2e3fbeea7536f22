"""Loading a cut model: from a directory that `export` wrote, or any model by its name.

In: a directory, `minilm`, or a hub id. Out: the model in evaluation mode, cut as its config says,
and its tokenizer. No code that lies in the directory is run: the class is rebuilt from the name in
config.json and headwise's own mixin. It refuses blocks of a format that it does not know.
"""

from os import PathLike
from pathlib import Path
from typing import Any

from headwise.watching.loading import AS_SAVED, LoadOptions, load_model, loaded
from headwise.watching.models import LoadedModel


def load(
    path: str | Path, *, dtype: str | None = None, device: str = "cpu", keeps_head: bool = True
) -> LoadedModel:
    """The model as it was exported, with what it predicts with, and its tokenizer if it has one.

    Weights come in the dtype that they were saved in unless another is named. What is no directory
    is a name, and loaded as `load_model` does, then in float32 by default.
    """
    is_name = not isinstance(path, str | PathLike) or not Path(path).expanduser().is_dir()
    usual = "float32" if is_name else AS_SAVED
    options = LoadOptions(dtype or usual, device, keeps_head=keeps_head, needs_tokenizer=False)
    return load_model(path, options)


def model_of(folder: Path) -> Any:
    """The model that a directory holds, cut or plain, in evaluation mode, as it was saved."""
    options = LoadOptions(AS_SAVED, keeps_head=True, needs_tokenizer=False)
    return loaded(str(folder), str(folder), options, {}).model
