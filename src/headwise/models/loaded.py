"""Models in memory: one record for a model, its tokenizer and its files.

`open_model` accepts every kind of model; `loading.py` loads the files of one that has a name.
"""

from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headwise.errors import ModelError

if TYPE_CHECKING:
    from headwise.models.loading import LoadOptions


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer and its origin."""

    name: str
    model: nn.Module
    tokenizer: Any
    about: dict[str, Any] = field(default_factory=dict)
    """Path or id, revision, digest, class and dtype; for a cut model also `kept`: the remaining
    heads of each changed layer, with their numbers in the uncut model."""
    folder: Path | None = None
    """Directory of the model's files; None if unknown."""

    def __repr__(self) -> str:
        return f"LoadedModel({self.name!r}, {type(self.model).__name__})"

    @property
    def device(self) -> torch.device:
        """Device of the model's first weight."""
        return next(self.model.parameters()).device

    @property
    def is_from_hub(self) -> bool:
        """Whether `folder` is a hub snapshot in the local cache, which may lack some files."""
        return self.folder is not None and self.folder.parent.name == "snapshots"


Source = str | PathLike[str] | LoadedModel | nn.Module
"""Types accepted as a model: a name, a directory, a LoadedModel or a torch module."""


def open_model(
    source: Source, tokenizer: Any = None, *, options: "LoadOptions | None" = None
) -> LoadedModel:
    """Load a model from a name or directory; a model in memory is returned without a copy.

    `tokenizer` replaces the model's own.
    """
    if isinstance(source, nn.Module):
        source = _unwrap_compiled(source)
        return LoadedModel(type(source).__name__, source, tokenizer)
    if isinstance(source, str | PathLike):
        from headwise.models.loading import load_model

        source = load_model(source, options)
    if not isinstance(source, LoadedModel):
        raise ModelError(
            f"a {type(source).__name__} is not a model: pass a name, a directory, a LoadedModel or "
            "a torch module"
        )
    return source if tokenizer is None else replace(source, tokenizer=tokenizer)


def as_module(model: nn.Module | LoadedModel) -> nn.Module:
    """The torch module of a model in memory."""
    if isinstance(model, LoadedModel):
        model = model.model
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{str(model)!r} is not a loaded model: pass the result of load_model, or a torch "
            "module"
        )
    return _unwrap_compiled(model)


def _unwrap_compiled(model: nn.Module) -> nn.Module:
    return getattr(model, "_orig_mod", model)
