"""Models: a model, its tokenizer and what is known of where it came from, in one piece.

In: what verbs are given for a model: a name, a directory, a loaded model, or a module alone. Out:
one of the two that a verb works with. Loading itself is the business of `loading.py`.
"""

from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import nn

from headwise.errors import ModelError

if TYPE_CHECKING:
    from headwise.models.loading import LoadOptions


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to read text."""

    name: str
    model: nn.Module
    tokenizer: Any
    about: dict[str, Any] = field(default_factory=dict)
    """Where it came from: path or id, revision, digest, class, dtype; of a cut model the numbers
    that each layer's heads had before, as `kept`."""

    def __repr__(self) -> str:
        """One line: which model, and of what class."""
        return f"LoadedModel({self.name!r}, {type(self.model).__name__})"


Source = str | PathLike[str] | LoadedModel | nn.Module
"""What verbs that load models take for one."""


def as_loaded(
    source: Source, tokenizer: Any = None, *, options: "LoadOptions | None" = None
) -> LoadedModel:
    """The model of a name or directory, loaded; one that is there already as it is.

    A tokenizer that is given takes the place of the model's own.
    """
    if isinstance(source, nn.Module):
        source = as_written(source)
        return LoadedModel(type(source).__name__, source, tokenizer)
    if isinstance(source, str | PathLike):
        from headwise.models.loading import load_model

        source = load_model(source, options)
    if not isinstance(source, LoadedModel):
        raise ModelError(
            f"a {type(source).__name__} is no model: give a name, a directory, what load_model "
            "gives, or a module"
        )
    return source if tokenizer is None else replace(source, tokenizer=tokenizer)


def module_of(model: nn.Module | LoadedModel) -> nn.Module:
    """The model itself, of one that is in memory: what happens to it is seen by who holds it."""
    if isinstance(model, LoadedModel):
        model = model.model
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{str(model)!r} is no model in memory: give what load_model gives, or a module"
        )
    return as_written(model)


def as_written(model: nn.Module) -> nn.Module:
    """The model that `torch.compile` was given, of one that it gave; any other itself."""
    return getattr(model, "_orig_mod", model)
