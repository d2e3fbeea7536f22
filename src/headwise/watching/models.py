"""Models: a model, its tokenizer and what is known of where it came from, in one piece."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to read text."""

    name: str
    model: nn.Module
    tokenizer: Any
    about: dict[str, Any] = field(default_factory=dict)
    """Where it came from: path or id, revision, digest, class, dtype; of a cut model the numbers
    that each layer's heads had before, as `kept`."""
