"""Training: one model of a sweep, from fresh weights to what it can do.

In: a task, a variant, a learning rate and a seed. Out: an `Outcome`. Optimiser, batches, schedule
and stopping are the same for every variant; the learning rate is chosen for each by a rule that the
sweep states.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.formats import format_count
from headwise.sweeps.head_figures import HeadFigures, figures_of_heads
from headwise.sweeps.model import SweepModel, accuracy_of, count_parameters, loss_of
from headwise.sweeps.task import Examples, SweepTask, check_at_least
from headwise.sweeps.variants import Variant

BATCHES_AT_ONCE = 32
"""Batches whose sequences are drawn together."""
HELD_OUT_SEED = 10**9
"""The held-out sequences are the same for all models of a task."""


@dataclass(frozen=True)
class TrainingSettings:
    """How every model of a sweep is trained."""

    d_model: int = 32
    layers: int = 1
    steps: int = 1500
    batch: int = 32
    warmup: float = 0.05
    """Share of the steps over which the learning rate rises; it falls to 0 over the others."""
    weight_decay: float = 0.01
    checks: int = 20
    """How often a model is tested on its way."""
    held_out: int = 512
    """Sequences that it is tested on."""
    solved: float = 0.995
    """Held-out accuracy that ends training when it is reached twice in a row."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        check_at_least(1, **{name: getattr(self, name) for name in COUNTS})
        if self.checks > self.steps:
            raise OptionError(f"steps is {self.steps}: give at least {self.checks}", option="steps")


COUNTS = ("d_model", "layers", "steps", "batch", "checks", "held_out")


@dataclass(frozen=True)
class Outcome:
    """What one trained model can do on held-out sequences."""

    accuracy: float
    by_question: dict[str, float]
    loss: float
    """In nats."""
    steps: int
    is_solved: bool
    parameters: int
    heads: tuple[HeadFigures, ...] = field(repr=False, default=())
    seconds: float = 0.0


def train(
    task: SweepTask, variant: Variant, recipe: TrainingSettings, *, rate: float, seed: int
) -> Outcome:
    """Train one model; the same arguments give the same outcome."""
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]), in_one_thread():
        torch.manual_seed(seed)
        model = SweepModel(task, variant, d_model=recipe.d_model, layers=recipe.layers)
        held_out = held_out_of(task, recipe)
        steps, is_solved = fit(model, recipe, held_out, rate=rate, seed=seed)
        accuracy, loss = tested(model, held_out)
        heads = figures_of_heads(model, held_out)
    return Outcome(
        accuracy=float(accuracy.nanmean()),
        by_question={
            name: share
            for name, share in zip(task.questions, accuracy.tolist(), strict=True)
            if math.isfinite(share)  # a question that is never asked has none
        },
        loss=loss,
        steps=steps,
        is_solved=is_solved,
        parameters=count_parameters(model),
        heads=heads,
        seconds=time.perf_counter() - start,
    )


def fit(
    model: SweepModel, recipe: TrainingSettings, held_out: Examples, *, rate: float, seed: int
) -> tuple[int, bool]:
    """Train until the steps are used up or the task is solved.

    Gives the steps that were taken, and whether the task was solved when it was last tested.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=recipe.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: share_of_rate(step, recipe)
    )
    every = max(1, recipe.steps // recipe.checks)
    times_solved = 0
    for step, examples in enumerate(batches(model.task, recipe, seed), start=1):
        take_step(model, optimizer, examples)
        schedule.step()
        if step % every == 0:
            accuracy, _ = tested(model, held_out)
            times_solved = times_solved + 1 if float(accuracy.nanmean()) >= recipe.solved else 0
            if times_solved == 2:
                return step, True
    return recipe.steps, times_solved > 0


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, examples: Examples) -> None:
    """Learn from some examples."""
    optimizer.zero_grad(set_to_none=True)
    loss_of(model(examples.symbols), examples.answers).backward()
    optimizer.step()


def share_of_rate(step: int, recipe: TrainingSettings) -> float:
    """Up in a straight line, then down along half a cosine."""
    rise = max(1, round(recipe.warmup * recipe.steps))
    if step < rise:
        return (step + 1) / rise
    return (1 + math.cos(math.pi * (step - rise) / max(1, recipe.steps - rise))) / 2


def batches(task: SweepTask, recipe: TrainingSettings, seed: int) -> Iterator[Examples]:
    """As many batches as there are steps, the same for every variant."""
    random = torch.Generator().manual_seed(seed)
    left = recipe.steps
    while left > 0:
        count = min(left, BATCHES_AT_ONCE)
        drawn = task.examples(count * recipe.batch, random, held_out=False)
        for start in range(0, len(drawn), recipe.batch):
            yield drawn[start : start + recipe.batch]
        left -= count


def held_out_of(task: SweepTask, recipe: TrainingSettings) -> Examples:
    """What models are tested on."""
    random = torch.Generator().manual_seed(HELD_OUT_SEED)
    found = task.examples(recipe.held_out, random, held_out=True)
    if not (found.answers >= 0).any():
        raise OptionError(
            f"{format_count(recipe.held_out, 'held-out sequence')} of {task.name} ask nothing: "
            "give more of them, or longer ones"
        )
    return found


@torch.inference_mode()
def tested(model: nn.Module, held_out: Examples) -> tuple[Tensor, float]:
    """Accuracy of each question, and the mean loss."""
    said = model(held_out.symbols)
    return accuracy_of(said, held_out.answers), float(loss_of(said, held_out.answers))


@contextmanager
def in_one_thread() -> Iterator[None]:
    """While it lasts, torch uses one thread: small models are no faster with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
