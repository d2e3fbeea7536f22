"""Task, variant, learning rate and seed -> Outcome: one model, trained from scratch.

The models in a sweep differ only in their attention. Optimiser, batches, schedule and stopping rule
are the same for every variant.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from headwise.attention.layer import MultiHeadAttention
from headwise.errors import OptionError
from headwise.formats import format_count
from headwise.sweeps.head_figures import HeadFigures, measure_heads
from headwise.sweeps.settings import TrainingSettings, Variant
from headwise.sweeps.task import SweepTask, TaskExamples

BATCHES_AT_ONCE = 32
"""Number of batches whose sequences are drawn in one call."""
HELD_OUT_SEED = 10**9
"""Seed for the held-out sequences, which are the same for all models of a task."""
FEED_FORWARD = 2
"""Width of the feed-forward parts, in multiples of d_model."""


class SweepBlock(nn.Module):
    """Attention, then a feed-forward part, each with a norm before it and a residual around it."""

    def __init__(self, d_model: int, variant: Variant) -> None:
        super().__init__()
        wide = FEED_FORWARD * d_model
        self.attention = MultiHeadAttention(
            d_model, variant.num_heads, d_key=variant.d_key, d_value=variant.d_value, is_causal=True
        )
        self.before, self.between = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.up, self.down = nn.Linear(d_model, wide), nn.Linear(wide, d_model)

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """Hidden states after this block."""
        x = x + self.attention(self.before(x))
        added: Tensor = self.down(gelu(self.up(self.between(x))))
        return x + added


class SweepModel(nn.Module):
    """A small transformer that answers every question at every position."""

    def __init__(self, task: SweepTask, variant: Variant, *, d_model: int, layers: int) -> None:
        """Initialise the weights with torch's global random generator."""
        super().__init__()
        self.task = task
        self.symbols = nn.Embedding(task.shape.num_symbols, d_model)
        self.places = nn.Embedding(task.shape.length, d_model)
        self.layers = nn.Sequential(*(SweepBlock(d_model, variant) for _ in range(layers)))
        self.norm = nn.LayerNorm(d_model)
        self.readout = nn.Linear(d_model, len(task.shape.questions) * task.shape.num_answers)
        for table in (self.symbols, self.places):
            nn.init.normal_(table.weight, std=d_model**-0.5)

    def forward(
        self, symbols: Int[Tensor, "batch position symbol"]
    ) -> Float[Tensor, "batch position question answer"]:
        """Logits for every answer."""
        x = self.symbols(symbols).sum(2) + self.places.weight[: symbols.shape[1]]
        logits: Tensor = self.readout(self.norm(self.layers(x)))
        by_question: Tensor = logits.unflatten(-1, (len(self.task.shape.questions), -1))
        return by_question


@dataclass(frozen=True)
class Outcome:
    """Results of one trained model on held-out sequences."""

    accuracy: float
    by_question: dict[str, float]
    """Accuracy on each question."""
    loss: float
    """Mean cross-entropy, in nats."""
    steps: int
    is_solved: bool
    parameters: int
    heads: tuple[HeadFigures, ...] = field(repr=False, default=())
    seconds: float = 0.0


def train(
    task: SweepTask, variant: Variant, recipe: TrainingSettings, *, rate: float, seed: int
) -> Outcome:
    """Train one model; the same arguments give the same outcome."""
    start, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(1)  # small models are no faster with more threads
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = SweepModel(task, variant, d_model=recipe.d_model, layers=recipe.layers)
            held_out = draw_held_out(task, recipe)
            steps, is_solved = fit(model, recipe, held_out, rate=rate, seed=seed)
            accuracy, loss = evaluate(model, held_out)
            heads = measure_heads(model, held_out, task.shape.questions)
    finally:
        torch.set_num_threads(threads)
    return Outcome(
        accuracy=float(accuracy.nanmean()),
        by_question={
            name: share
            for name, share in zip(task.shape.questions, accuracy.tolist(), strict=True)
            if math.isfinite(share)  # NaN for a question that is never asked
        },
        loss=loss,
        steps=steps,
        is_solved=is_solved,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        heads=heads,
        seconds=time.perf_counter() - start,
    )


def fit(
    model: SweepModel, recipe: TrainingSettings, held_out: TaskExamples, *, rate: float, seed: int
) -> tuple[int, bool]:
    """Train for up to `recipe.steps` steps; return their number and whether the task is solved."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=recipe.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_share(step, recipe)
    )
    steps_per_check = max(1, recipe.steps // recipe.checks)
    times_solved = 0
    for step, examples in enumerate(training_batches(model.task, recipe, seed), start=1):
        take_step(model, optimizer, examples)
        schedule.step()
        if step % steps_per_check == 0:
            accuracy, _ = evaluate(model, held_out)
            times_solved = times_solved + 1 if float(accuracy.nanmean()) >= recipe.solved else 0
            if times_solved == 2:
                return step, True
    return recipe.steps, times_solved > 0


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, examples: TaskExamples) -> None:
    """Update the model once."""
    optimizer.zero_grad(set_to_none=True)
    logits = model(examples.symbols)
    cross_entropy(logits.flatten(0, 2), examples.answers.flatten()).backward()
    optimizer.step()


def learning_rate_share(step: int, recipe: TrainingSettings) -> float:
    """Share of the peak learning rate at a step: a linear rise, then half a cosine down to 0."""
    rise = max(1, round(recipe.warmup * recipe.steps))
    if step < rise:
        return (step + 1) / rise
    return (1 + math.cos(math.pi * (step - rise) / max(1, recipe.steps - rise))) / 2


def training_batches(
    task: SweepTask, recipe: TrainingSettings, seed: int
) -> Iterator[TaskExamples]:
    """One batch per step, the same for every variant."""
    random = torch.Generator().manual_seed(seed)
    for first in range(0, recipe.steps, BATCHES_AT_ONCE):
        count = min(recipe.steps - first, BATCHES_AT_ONCE)
        examples = task.examples(count * recipe.batch, random, held_out=False)
        for start in range(0, len(examples), recipe.batch):
            yield examples[start : start + recipe.batch]


def draw_held_out(task: SweepTask, recipe: TrainingSettings) -> TaskExamples:
    """Draw the held-out sequences that models are tested on."""
    random = torch.Generator().manual_seed(HELD_OUT_SEED)
    examples = task.examples(recipe.held_out, random, held_out=True)
    if not (examples.answers >= 0).any():
        raise OptionError(
            f"there is no question in {format_count(recipe.held_out, 'held-out sequence')} of "
            f"{task.name}: increase held_out, or use longer sequences"
        )
    return examples


@torch.inference_mode()
def evaluate(model: nn.Module, held_out: TaskExamples) -> tuple[Float[Tensor, " question"], float]:
    """Accuracy on each question (NaN if it is never asked), and the mean loss in nats."""
    logits, answers = model(held_out.symbols), held_out.answers
    is_asked = answers >= 0
    is_right = (logits.argmax(-1) == answers) & is_asked
    accuracy = is_right.sum((0, 1)) / is_asked.sum((0, 1))
    return accuracy, float(cross_entropy(logits.flatten(0, 2), answers.flatten()))
