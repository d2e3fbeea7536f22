"""Subject: a loaded model with its objective."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwise.models.loaded import LoadedModel, Source, open_model
from headwise.models.loading import LoadOptions
from headwise.objectives.model_objective import objective_for
from headwise.objectives.objective import Objective
from headwise.reading.batch import Inputs


@dataclass(frozen=True, kw_only=True)
class Subject(LoadedModel):
    """A loaded model with its objective."""

    objective: Objective


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
