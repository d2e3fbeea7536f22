"""Settings: everything that decides the figures of a sweep, and the two sets of it that are ready.

In: names and numbers. Out: a task, a recipe and a list of variants. Two sweeps with the same
settings give the same figures.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from headwise.errors import OptionError
from headwise.sweeps.characters import Characters
from headwise.sweeps.synthetic_tasks import Brackets, Recall, Relations
from headwise.sweeps.task import SweepTask
from headwise.sweeps.training import TrainingSettings
from headwise.sweeps.variants import Variant, variants_of

TASKS: dict[str, type[SweepTask]] = {
    task.name: task for task in (Relations, Recall, Brackets, Characters)
}
GROUPS_OF = {
    "relations": ("split", "free", "big"),
    "recall": ("narrow", "split"),
    "brackets": ("split", "free"),
    "characters": ("split", "free"),
}
"""What is compared on each task unless it is said."""
PILOT_SEED = 10_000
"""Seed of the runs that choose a learning rate; they are not among the results."""


@dataclass(frozen=True)
class SweepSettings:
    """Everything that decides the results of a sweep."""

    task: SweepTask = field(default_factory=Relations)
    groups: tuple[str, ...] = ()
    """Empty for those that suit the task."""
    recipe: TrainingSettings = field(default_factory=TrainingSettings)
    width: int = 8
    """Of the heads of the group `free`."""
    rates: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08)
    """Learning rates that every variant tries once."""
    seeds: int = 5

    def __post_init__(self) -> None:
        """Fill in the groups, and refuse what cannot be swept."""
        if not self.groups:
            groups = GROUPS_OF.get(self.task.name, ("split", "free"))
            object.__setattr__(self, "groups", groups)
        if self.seeds < 1 or self.seeds > PILOT_SEED:
            raise OptionError(
                f"seeds is {self.seeds}: give from 1 to {PILOT_SEED:,}", option="seeds"
            )
        if not self.rates or not all(0 < rate < math.inf for rate in self.rates):
            raise OptionError("rates must be learning rates above 0, and at least one")
        object.__setattr__(self, "groups", tuple(dict.fromkeys(self.groups)))
        object.__setattr__(self, "rates", tuple(dict.fromkeys(self.rates)))
        if not 1 <= self.width <= self.recipe.d_model:
            raise OptionError(
                f"width is {self.width}: give from 1 to d_model {self.recipe.d_model}",
                option="width",
            )
        needed = self.task.layers_needed
        if self.recipe.layers < needed:
            raise OptionError(
                f"{self.task.name} as asked needs {needed} layers: {self.recipe.layers} are given"
            )
        variants_of(self.groups, self.recipe.d_model, self.width)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The shapes of attention that are compared."""
        return variants_of(self.groups, self.recipe.d_model, self.width)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "task": {"name": self.task.name, **self.task.settings()},
            "data": self.task.digest(),
            "groups": list(self.groups),
            "recipe": asdict(self.recipe),
            "width": self.width,
            "rates": list(self.rates),
            "seeds": self.seeds,
        }

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> "SweepSettings":
        """The settings that `as_json` wrote; an error where their data are not what they were."""
        task = sweep_task(**held["task"])
        if task.digest() != held["data"]:
            raise OptionError(
                f"the data of {task.name} have changed since the sweep began: begin it anew"
            )
        return cls(
            task=task,
            groups=tuple(held["groups"]),
            recipe=TrainingSettings(**held["recipe"]),
            width=held["width"],
            rates=tuple(held["rates"]),
            seeds=held["seeds"],
        )


def sweep_task(name: str, **options: Any) -> SweepTask:
    """A task by its name, with those settings that are not None."""
    if name not in TASKS:
        raise OptionError(f"there is no task {name!r}: the tasks are {', '.join(TASKS)}")
    kind = TASKS[name]
    given = {key: value for key, value in options.items() if value is not None}
    known = [one.name for one in fields(kind)]
    unknown = [key for key in given if key not in known]
    if unknown:
        raise OptionError(f"{name} has no setting {unknown[0]}: it has {', '.join(known)}")
    return kind(**given)


def task_options(name: str) -> set[str]:
    """Names of a task's settings; none for a task that there is not."""
    return {one.name for one in fields(TASKS[name])} if name in TASKS else set()


def make_settings(
    task: SweepTask, *, quick: bool = False, layers: int | None = None, **options: Any
) -> SweepSettings:
    """Settings of a task; a quick sweep has fewer seeds, rates and steps."""
    needed = max(task.layers, task.layers_needed) if layers is None else layers
    recipe = replace(QUICK if quick else TrainingSettings(), layers=needed)
    told = {key: value for key, value in options.items() if value is not None}
    of_recipe = {one.name for one in fields(TrainingSettings)} & set(told)
    recipe = replace(recipe, **{key: told.pop(key) for key in of_recipe})
    own = [one.name for one in fields(SweepSettings) if one.name not in ("task", "recipe")]
    unknown = [key for key in told if key not in own]
    if unknown:
        known = [*(one.name for one in fields(TrainingSettings)), *own]
        raise OptionError(f"there is no setting {unknown[0]}: choose from {', '.join(known)}")
    told |= {key: several(told[key]) for key in ("groups", "rates") if key in told}
    if quick:
        told = {"rates": (0.02, 0.04), "seeds": 3} | told
    return SweepSettings(task=task, recipe=recipe, **told)


def several(given: Any) -> tuple[Any, ...]:
    """What may be given as one name or number, or as several."""
    return (given,) if isinstance(given, str | int | float) else tuple(given)


QUICK = TrainingSettings(steps=600, checks=12, held_out=256)
