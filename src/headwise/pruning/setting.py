"""Subject: a loaded model with its objective."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.models.loaded import Source, open_model
from headwise.models.loading import LoadOptions
from headwise.objectives.model_objective import objective_for
from headwise.objectives.objective import Objective
from headwise.reading.batch import Inputs


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with its tokenizer and its objective."""

    name: str
    model: nn.Module
    tokenizer: Any
    objective: Objective
    folder: Path | None = None
    """Directory of the model's files; None if unknown."""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Device of the model's first weight."""
        return next(self.model.parameters()).device


def make_subject(
    source: Source,
    tokenizer: Any = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
    *,
    options: LoadOptions | None = None,
) -> Subject:
    """Load a model with its output layer, and choose its objective."""
    loaded = open_model(source, tokenizer, options=options or LoadOptions(keeps_head=True))
    return Subject(
        name=loaded.name,
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        about={"model": loaded.name, **loaded.about},
        folder=loaded.folder,
        objective=objective_for(loaded, objective),
    )
