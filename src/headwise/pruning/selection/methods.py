"""Methods: the order in which to cut a model's heads.

In: an evaluation, and the units that can be cut. Out: the units in the order in which a method cuts
them, cheapest first, so that every cut is a prefix of it. `METHODS` has all methods by name.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.heads import HeadCounts, HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.importance.gradients import (
    Gradients,
    advise_without_gradients,
    divide_by_layer_norm,
    gradients,
)
from headwise.pruning.stages import PruneStage
from headwise.pruning.units import Unit, membership, one_of_each_group, sum_by_unit
from headwise.watching.gates import silence

BEST = "rounds"
BY_GRADIENTS = ("rounds", "quadratic", "michel", "fisher")
"""Methods that need gradients of the objective."""


@dataclass(frozen=True, eq=False)
class CutSearch:
    """A model whose heads are to go, on text to measure them on."""

    evaluation: Evaluation
    units: tuple[Unit, ...]
    is_uniform: bool = False
    """Whether every layer loses the same number of units."""
    is_nested: bool = False
    """Whether each layer's units can only be cut in their order."""
    rounds: int = 12
    """Number of rounds that a full cut is divided into."""
    draws: int = 4
    seed: int = 0
    progress: Progress = field(default=no_progress)

    @property
    def counts(self) -> HeadCounts:
        """Heads and KV heads of the model by layer."""
        return self.evaluation.counts

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """Every head of the model."""
        return self.evaluation.heads

    @property
    def units_by_layer(self) -> dict[str, list[Unit]]:
        """The units of every layer that has units."""
        units: dict[str, list[Unit]] = {}
        for unit in self.units:
            units.setdefault(unit.layer, []).append(unit)
        return units

    @property
    def cuttable(self) -> tuple[Unit, ...]:
        """As many units as can be cut; the smallest layer limits a uniform cut."""
        layers = self.units_by_layer.values()
        if not self.is_uniform:
            return self.units
        fewest = min(map(len, layers), default=0)
        return tuple(unit for own in layers for unit in own[:fewest])


@dataclass(frozen=True)
class CutOrder:
    """Units in the order of cutting them, and the loss that each is expected to add."""

    method: str
    units: tuple[Unit, ...]
    costs: tuple[float, ...]

    def first(self, count: int) -> tuple[HeadId, ...]:
        """Heads of the first `count` units."""
        return tuple(sorted(head for unit in self.units[:count] for head in unit.heads))


def order_units(method: str, problem: CutSearch, *, count: int | None = None) -> CutOrder:
    """The first `count` units that a method cuts, in order; by default all that can be cut."""
    if method not in METHODS:
        raise OptionError(
            f"method is {method!r}: choose from {', '.join(METHODS)}", option="method"
        )
    most = len(problem.cuttable)
    count = most if count is None else min(count, most)
    found = METHODS[method](problem, count)
    return CutOrder(
        method, tuple(problem.units[one] for one, _ in found), tuple(c for _, c in found)
    )


Found = list[tuple[int, float]]
"""Units by number, with the cost of each."""


def at_random(problem: CutSearch, count: int) -> Found:
    """A random order."""
    costs = torch.tensor(
        random.Random(problem.seed).sample(range(len(problem.units)), len(problem.units))
    )
    found = ranked(problem, costs.double(), count)
    return [(one, math.nan) for one, _ in found]


def with_seed(problem: CutSearch, seed: int) -> CutSearch:
    """The search with another seed; nested units also get another random order of heads."""
    if not problem.is_nested:
        return replace(problem, seed=seed)
    drawn = random.Random(seed)
    scores = [drawn.random() for _ in problem.heads]
    units = one_of_each_group(problem.heads, problem.counts, scores)
    return replace(problem, seed=seed, units=units)


def random_cut(problem: CutSearch, heads: Sequence[HeadId], seed: int) -> tuple[HeadId, ...]:
    """The same number of random heads: whole units if `heads` are, else a cut of the same shape."""
    units, gone = problem.units, set(heads)
    is_whole = gone == {head for unit in units if gone >= set(unit.heads) for head in unit.heads}
    if is_whole and not problem.is_nested:  # nested units fix which head of a group is cut first
        found: list[HeadId] = []
        for unit in order_units("random", replace(problem, seed=seed)).units:
            if len(found) + len(unit.heads) <= len(heads):
                found += unit.heads
        if len(found) == len(heads):
            return tuple(sorted(found))
    return drawn_alike(heads, problem.counts, seed)


def drawn_alike(heads: Sequence[HeadId], counts: HeadCounts, seed: int) -> tuple[HeadId, ...]:
    """Random heads, with the same numbers per KV group and per layer as these.

    Shuffles layers with equal numbers of heads, then groups of a layer, then heads of a group, so
    that the result can be cut if `heads` can.
    """
    drawn = random.Random(seed)
    found = []
    for shape in dict.fromkeys(counts.values()):
        layers = [layer for layer, own in counts.items() if own == shape]
        group = shape[0] // shape[1]
        for layer, other in zip(layers, drawn.sample(layers, len(layers)), strict=True):
            lost = [0] * shape[1]
            for head in heads:
                if head.layer_name == layer:
                    lost[head.head // group] += 1
            drawn.shuffle(lost)
            for number, count in enumerate(lost):
                numbers = drawn.sample(range(number * group, (number + 1) * group), count)
                found += [HeadId.parse(f"{other}H{one}") for one in numbers]
    return tuple(sorted(found))


def by_ablation(problem: CutSearch, count: int) -> Found:
    """One exact measurement of every unit alone."""
    costs = ablate(problem.evaluation, problem.units, progress=problem.progress)
    values = torch.tensor([one.value for one in costs], dtype=torch.float64)
    return ranked(problem, values, count)


def by_michel(problem: CutSearch, count: int) -> Found:
    """Gradient scores, each over its layer's norm, added up over a unit's heads."""
    found = measured(problem, draws=1)
    scores = divide_by_layer_norm(found.michel, problem.heads)
    return scored(problem, membership(problem.units, problem.heads) @ scores, count)


def by_fisher(problem: CutSearch, count: int) -> Found:
    """Fisher information, added up over a unit's heads."""
    found = measured(problem, draws=1)
    return scored(problem, membership(problem.units, problem.heads) @ found.fisher, count)


def scored(problem: CutSearch, scores: Tensor, count: int) -> Found:
    """The smallest scores first; a score is no loss, so that no cost is known."""
    return [(one, math.nan) for one, _ in ranked(problem, scores, count)]


def by_quadratic(problem: CutSearch, count: int) -> Found:
    """Cheapest first by the interaction matrix, measured once."""
    return cheapest(problem, measured(problem), (), count)


def by_rounds(problem: CutSearch, count: int) -> Found:
    """The same, measured anew on the model without what has gone so far."""
    found: Found = []
    step = max(1, -(-len(problem.units) // problem.rounds))
    for start in range(0, count, step):
        gone = [one for one, _ in found]
        told = part_of(problem.progress, start // step, -(-count // step))
        with silence(problem.evaluation.model, heads_of(problem.units, gone)):
            now = measured(replace(problem, seed=problem.seed + start, progress=told))
        found += cheapest(problem, now, gone, min(step, count - start))
    return found


def part_of(progress: Progress, number: int, parts: int) -> Progress:
    """Progress of part `number` of `parts` equal parts, reported as progress of the whole stage."""

    def told(stage: str, done: int, total: int) -> None:
        progress(stage, number * total + done, parts * total)

    return told


def by_greedy(problem: CutSearch, count: int) -> Found:
    """Exact ablation of every unit left, measured anew after each cut."""
    found: Found = []
    while len(found) < count:
        problem.progress(PruneStage.GREEDY, len(found), count)
        gone = [one for one, _ in found]
        left = [one for one in range(len(problem.units)) if one not in set(gone)]
        units = [problem.units[one] for one in left]
        with silence(problem.evaluation.model, heads_of(problem.units, gone)):
            costs = ablate(problem.evaluation, units)
        values = torch.full((len(problem.units),), torch.inf, dtype=torch.float64)
        values[left] = torch.tensor([one.value for one in costs], dtype=torch.float64)
        found += ranked(problem, values, 1, gone)
    return found


METHODS: dict[str, Callable[[CutSearch, int], Found]] = {
    "rounds": by_rounds,
    "quadratic": by_quadratic,
    "greedy": by_greedy,
    "ablation": by_ablation,
    "michel": by_michel,
    "fisher": by_fisher,
    "random": at_random,
}
"""Every method by name, the best first."""


def measured(problem: CutSearch, *, draws: int | None = None) -> Gradients:
    """Gradients of the problem's task as its model is now."""
    with advise_without_gradients("prune by ablation, greedy or random"):
        return gradients(
            problem.evaluation,
            draws=problem.draws if draws is None else draws,
            seed=problem.seed,
            progress=problem.progress,
        )


def heads_of(units: Sequence[Unit], chosen: Sequence[int]) -> list[HeadId]:
    """All heads of the units with these numbers."""
    return [head for one in chosen for head in units[one].heads]


def ranked(
    problem: CutSearch, costs: Float[Tensor, " units"], count: int, gone: Sequence[int] = ()
) -> Found:
    """The cheapest units, if costs do not depend on each other."""
    turn = OpenUnits(problem, gone)
    found: Found = []
    while len(found) < count:
        best = min(turn.open(), key=lambda one: float(costs[one]))
        turn.take(best)
        found.append((best, float(costs[best])))
    return found


def cheapest(problem: CutSearch, now: Gradients, gone: Sequence[int], count: int) -> Found:
    """Units taken one by one, each adding least to the loss expected of all of them together."""
    matrix = sum_by_unit(now.interaction, problem.units, problem.heads)
    pull = membership(problem.units, problem.heads) @ now.pull
    turn = OpenUnits(problem, gone)
    added = matrix.diagonal() / 2 - pull
    found: Found = []
    while len(found) < count:
        best = min(turn.open(), key=lambda one: float(added[one]))
        turn.take(best)
        found.append((best, float(added[best])))
        added = added + matrix[:, best]
    return found


class OpenUnits:
    """The units that may be cut next; in a uniform cut, those of layers that lost fewest."""

    def __init__(self, problem: CutSearch, gone: Sequence[int]) -> None:
        """Start without the units numbered `gone`."""
        self.problem, self.units = problem, problem.units
        self.left = [one for one in range(len(self.units)) if one not in set(gone)]
        self.lost = dict.fromkeys((unit.layer for unit in self.units), 0)
        for one in gone:
            self.lost[self.units[one].layer] += 1

    def open(self) -> list[int]:
        """Numbers of the units that may be cut now."""
        found = self.left
        if self.problem.is_nested:
            firsts: dict[str, int] = {}
            for one in found:
                firsts.setdefault(self.units[one].layer, one)
            found = list(firsts.values())
        if self.problem.is_uniform:
            fewest = min(self.lost[self.units[one].layer] for one in found)
            found = [one for one in found if self.lost[self.units[one].layer] == fewest]
        return found

    def take(self, one: int) -> None:
        """Cut the unit with this number."""
        self.left.remove(one)
        self.lost[self.units[one].layer] += 1
