"""Loading a cut model: from a directory that `export` wrote, or any model by its name.

In: a directory, `minilm`, or a hub id. Out: the model in evaluation mode, cut as its config says,
and its tokenizer. No code that lies in the directory is run: the class is rebuilt from the name in
config.json and headwise's own mixin. It refuses blocks of a format that it does not know.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer

from headwise.errors import ModelError
from headwise.watching.cut_models import class_of
from headwise.watching.loading import (
    DTYPES,
    TOKENIZER_FILES,
    LoadOptions,
    check_complete,
    check_folder,
    check_numbers,
    explained,
    load_model,
    one_sentence,
    quiet,
)
from headwise.watching.models import LoadedModel


def load(
    path: str | Path, *, dtype: str | None = None, device: str = "cpu", keeps_head: bool = True
) -> LoadedModel:
    """The model as it was exported, with what it predicts with, and its tokenizer if it has one.

    Weights come in the dtype that they were saved in unless another is named. What is no directory
    is a name, and loaded as `load_model` does, then in float32 by default.
    """
    options = LoadOptions(dtype or "float32", device, keeps_head=keeps_head)
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return load_model(str(path), options)
    check_folder(folder)
    with quiet(), explained(str(path), is_here=True):
        model = model_of(folder, dtype=dtype, keeps_head=keeps_head)
        check_numbers(str(path), model)
        is_read = any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES)
        tokenizer = AutoTokenizer.from_pretrained(folder) if is_read else None
    about = {"source": str(path), "class": type(model).__name__, "dtype": name_of(model.dtype)}
    return LoadedModel(str(path), model.to(device), tokenizer, about)


def name_of(dtype: torch.dtype) -> str:
    """The dtype's name as options spell it."""
    return str(dtype).removeprefix("torch.")


def model_of(folder: Path, *, dtype: str | None = None, keeps_head: bool = True) -> Any:
    """The model that a directory holds, cut or plain, in evaluation mode."""
    of = class_of(folder, keeps_head=keeps_head)
    try:
        model, notes = of.from_pretrained(
            folder,
            dtype="auto" if dtype is None else DTYPES[dtype],
            use_safetensors=True,
            output_loading_info=True,
        )
    except (SafetensorError, AttributeError, TypeError) as error:
        reason = one_sentence(error)
        raise ModelError(
            f"{folder} cannot be loaded: its files do not go together: {reason}"
        ) from error
    check_complete(str(folder), notes["missing_keys"], keeps_head=keeps_head)
    return model.eval()
