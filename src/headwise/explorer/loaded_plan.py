"""The plan of the loaded model, from its config.

In: a model. Out: what its attention costs at its own context, or the reason why that is unknown.
"""

from typing import Any

import msgspec

from headwise.errors import HeadwiseError
from headwise.explorer.api_types import LoadedPlanAnswer, PlanAnswer
from headwise.models.loaded import LoadedModel
from headwise.planning.configs import shape_of_config
from headwise.planning.plans import plan


def loaded_plan(loaded: LoadedModel) -> LoadedPlanAnswer:
    """Costs of the model's attention in bfloat16, at its context, but at most 8,192 positions."""
    model: Any = loaded.model
    try:
        shape = shape_of_config(model.config.to_dict(), loaded.name)
    except HeadwiseError as error:
        return LoadedPlanAnswer(None, str(error))
    row = plan(shape=shape).to_row() | {"name": loaded.name}
    return LoadedPlanAnswer(msgspec.convert(row, PlanAnswer), None)
