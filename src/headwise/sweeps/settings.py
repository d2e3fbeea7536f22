"""Names and numbers -> SweepSettings: the task, the training recipe and the variants to compare."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.planning.shapes import divisors
from headwise.sweeps.characters import Characters
from headwise.sweeps.synthetic_tasks import Brackets, Recall, Relations
from headwise.sweeps.task import SweepTask

TASKS: dict[str, type[SweepTask]] = {
    task.name: task for task in (Relations, Recall, Brackets, Characters)
}
GROUPS = ("split", "free", "big", "narrow")
"""Groups of variants, each of which answers one question:

split: every number of heads that divides d_model, always with the same number of parameters;
free: a growing number of heads of a fixed width, and so a growing number of parameters;
big: a single head with as many parameters as all heads of a `free` variant together;
narrow: a single head whose keys vary in width and whose values are as wide as d_model.
"""
DEFAULT_GROUPS = {"relations": ("split", "free", "big"), "recall": ("narrow", "split")}
"""Default groups by task; a task not listed here has `split` and `free`."""
PILOT_SEED = 10_000
"""Seed for the runs that choose a learning rate; they are not part of the results."""


@dataclass(frozen=True)
class Variant:
    """One of the attention shapes to compare."""

    group: str
    num_heads: int
    d_key: int
    d_value: int


@dataclass(frozen=True)
class TrainingSettings:
    """How every model in a sweep is trained."""

    d_model: int = 32
    layers: int = 1
    steps: int = 1500
    batch: int = 32
    warmup: float = 0.05
    """Share of the steps over which the learning rate rises; it falls to 0 over the rest."""
    weight_decay: float = 0.01
    checks: int = 20
    """Number of evaluations on held-out sequences during training."""
    held_out: int = 512
    solved: float = 0.995
    """Training ends when this accuracy is reached in two evaluations in a row."""

    def __post_init__(self) -> None:
        for name in ("d_model", "layers", "batch", "checks", "held_out"):
            whole_number(name, getattr(self, name), least=1)
        whole_number("steps", self.steps, least=self.checks)


QUICK = TrainingSettings(steps=600, checks=12, held_out=256)


@dataclass(frozen=True)
class SweepSettings:
    """Everything that determines a sweep's results: equal settings give equal results."""

    task: SweepTask = field(default_factory=Relations)
    groups: tuple[str, ...] = ()
    """Groups of variants; empty for the task's defaults."""
    recipe: TrainingSettings = field(default_factory=TrainingSettings)
    width: int = 8
    """Head size in the group `free`."""
    rates: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08)
    """Learning rates, each of which is tried once for every variant."""
    seeds: int = 5

    def __post_init__(self) -> None:
        """Fill in the groups and check every value."""
        groups = self.groups or DEFAULT_GROUPS.get(self.task.name, ("split", "free"))
        object.__setattr__(self, "groups", tuple(dict.fromkeys(groups)))
        object.__setattr__(self, "rates", tuple(dict.fromkeys(self.rates)))
        if unknown := [group for group in self.groups if group not in GROUPS]:
            raise OptionError(f"unknown group {unknown[0]!r}: the groups are {', '.join(GROUPS)}")
        whole_number("seeds", self.seeds, least=1, most=PILOT_SEED)
        if not self.rates or not all(0 < rate < math.inf for rate in self.rates):
            raise OptionError(
                f"rates is {self.rates!r}: give at least one learning rate above 0", option="rates"
            )
        whole_number("width", self.width, least=1, most=self.recipe.d_model)
        if self.recipe.layers < self.task.layers_needed:
            raise OptionError(
                f"layers is {self.recipe.layers}: {self.task.name} with these settings needs "
                f"at least {self.task.layers_needed}",
                option="layers",
            )

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants to compare, group by group."""
        d_model, width = self.recipe.d_model, self.width
        counts = [2**power for power in range(16) if 2**power * width <= 4 * d_model]
        heads_and_sizes = {
            "split": [(heads, d_model // heads) for heads in divisors(d_model)],
            "free": [(heads, width) for heads in counts],
            "big": [(1, heads * width) for heads in counts[1:]],
            "narrow": [(1, size) for size in divisors(d_model)],
        }
        return tuple(
            Variant(group, heads, size, d_model if group == "narrow" else size)
            for group in self.groups
            for heads, size in heads_and_sizes[group]
        )

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
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
    def from_json(cls, values: Mapping[str, Any]) -> "SweepSettings":
        """Settings from the result of `as_json`; raises OptionError if the data changed."""
        task = sweep_task(**values["task"])
        if task.digest() != values["data"]:
            raise OptionError(
                f"the data for {task.name} changed while the sweep was running: start the sweep "
                "again"
            )
        rest = {name: values[name] for name in ("groups", "width", "rates", "seeds")}
        return cls(task=task, recipe=TrainingSettings(**values["recipe"]), **rest)


def sweep_task(name: str, **options: Any) -> SweepTask:
    """The task called `name`; options that are None keep their default."""
    if name not in TASKS:
        raise OptionError(f"unknown task {name!r}: the tasks are {', '.join(TASKS)}")
    options = {key: value for key, value in options.items() if value is not None}
    known = [option.name for option in fields(TASKS[name])]
    if unknown := [key for key in options if key not in known]:
        raise OptionError(f"{name} has no setting {unknown[0]}: it has {', '.join(known)}")
    return TASKS[name](**options)


def make_settings(
    task: str | SweepTask, *, quick: bool = False, layers: int | None = None, **options: Any
) -> SweepSettings:
    """Settings for a task; a quick sweep has fewer seeds, rates and steps.

    `options` are fields of SweepSettings or TrainingSettings and, if `task` is a name, settings of
    the task; None keeps the default.
    """
    if isinstance(task, str):
        names = [option.name for option in fields(TASKS[task])] if task in TASKS else []
        task = sweep_task(task, **{name: options.pop(name, None) for name in names})
    defaults: dict[str, Any] = {"rates": (0.02, 0.04), "seeds": 3} if quick else {}
    options = defaults | {key: value for key, value in options.items() if value is not None}
    for_training = [option.name for option in fields(TrainingSettings)]
    known = [*for_training, "groups", "width", "rates", "seeds"]
    if unknown := [key for key in options if key not in known]:
        raise OptionError(f"unknown setting {unknown[0]}: choose from {', '.join(known)}")
    for key in ("groups", "rates"):
        if isinstance(options.get(key), str | int | float):
            options[key] = (options[key],)
    recipe = replace(
        QUICK if quick else TrainingSettings(),
        layers=max(task.layers, task.layers_needed) if layers is None else layers,
        **{key: options.pop(key) for key in for_training if key in options},
    )
    return SweepSettings(task=task, recipe=recipe, **options)
