"""Methods: the order in which to cut a model's heads.

In: an evaluation, and the units that can be cut. Out: the units in the order in which a method cuts
them, cheapest first, so that every cut is a prefix of it. `METHODS` has all methods by name.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
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
    """An evaluation of a model, and the units of heads that can be cut from it."""

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
    """NaN for methods that rank units by a score that is not a loss."""

    def first(self, count: int) -> tuple[HeadId, ...]:
        """Heads of the first `count` units."""
        return tuple(sorted(head for unit in self.units[:count] for head in unit.heads))


def order_units(method: str, search: CutSearch, *, count: int | None = None) -> CutOrder:
    """The first `count` units that a method cuts, in order; by default all that can be cut."""
    if method not in METHODS:
        raise OptionError(
            f"method is {method!r}: choose from {', '.join(METHODS)}", option="method"
        )
    most = len(search.cuttable)
    indices, costs = METHODS[method](search, most if count is None else min(count, most))
    return CutOrder(method, tuple(search.units[index] for index in indices), tuple(costs))


def with_seed(search: CutSearch, seed: int) -> CutSearch:
    """The search with another seed; nested units also get another random order of heads."""
    if not search.is_nested:
        return replace(search, seed=seed)
    generator = random.Random(seed)
    scores = [generator.random() for _ in search.heads]
    units = one_of_each_group(search.heads, search.counts, scores)
    return replace(search, seed=seed, units=units)


def random_cut(search: CutSearch, heads: Sequence[HeadId], seed: int) -> tuple[HeadId, ...]:
    """The same number of random heads: whole units if `heads` are, else a cut of the same shape."""
    excluded = set(heads)
    whole_units = [unit for unit in search.units if excluded >= set(unit.heads)]
    is_whole = excluded == {head for unit in whole_units for head in unit.heads}
    if is_whole and not search.is_nested:  # nested units fix which head of a group is cut first
        random_heads: list[HeadId] = []
        for unit in order_units("random", replace(search, seed=seed)).units:
            if len(random_heads) + len(unit.heads) <= len(heads):
                random_heads += unit.heads
        if len(random_heads) == len(heads):
            return tuple(sorted(random_heads))
    return _random_heads_of_same_shape(heads, search.counts, seed)


def _random_heads_of_same_shape(
    heads: Sequence[HeadId], counts: HeadCounts, seed: int
) -> tuple[HeadId, ...]:
    """Random heads, with the same numbers per KV group and per layer as `heads`.

    Shuffles layers with equal numbers of heads, then groups of a layer, then heads of a group, so
    that the result can be cut if `heads` can.
    """
    generator = random.Random(seed)
    random_heads = []
    for shape in dict.fromkeys(counts.values()):
        layers = [layer for layer, own in counts.items() if own == shape]
        size = shape[0] // shape[1]
        for layer, other in zip(layers, generator.sample(layers, len(layers)), strict=True):
            lost = [0] * shape[1]
            for head in heads:
                if head.layer_name == layer:
                    lost[head.head // size] += 1
            generator.shuffle(lost)
            for group, count in enumerate(lost):
                numbers = generator.sample(range(group * size, (group + 1) * size), count)
                random_heads += [HeadId.parse(f"{other}H{number}") for number in numbers]
    return tuple(sorted(random_heads))


# The methods: each returns the indices of the first `count` units, and the cost of each.

IndicesAndCosts = tuple[list[int], list[float]]


def _random(search: CutSearch, count: int) -> IndicesAndCosts:
    numbers = range(len(search.units))
    order = random.Random(search.seed).sample(numbers, len(numbers))
    return _smallest_scores(search, torch.tensor(order).double(), count)


def _ablation(search: CutSearch, count: int) -> IndicesAndCosts:
    """Exact ablation of every unit alone, measured once."""
    costs = ablate(search.evaluation, search.units, progress=search.progress)
    return _cheapest(
        search, torch.tensor([cost.value for cost in costs], dtype=torch.float64), count
    )


def _michel(search: CutSearch, count: int) -> IndicesAndCosts:
    """Michel's scores, divided by their layer's norm and summed over a unit's heads."""
    scores = divide_by_layer_norm(measure_gradients(search, draws=1).michel, search.heads)
    return _smallest_scores(search, membership(search.units, search.heads) @ scores, count)


def _fisher(search: CutSearch, count: int) -> IndicesAndCosts:
    """Fisher information, summed over a unit's heads."""
    scores = measure_gradients(search, draws=1).fisher
    return _smallest_scores(search, membership(search.units, search.heads) @ scores, count)


def _quadratic(search: CutSearch, count: int) -> IndicesAndCosts:
    """Smallest expected loss by the interaction matrix, measured once."""
    return _cheapest_together(search, measure_gradients(search, search.draws), count)


def _rounds(search: CutSearch, count: int) -> IndicesAndCosts:
    """Smallest expected loss; each round measures the model without the units chosen so far."""
    cut: list[int] = []
    costs: list[float] = []
    step = max(1, -(-len(search.units) // search.rounds))
    rounds = -(-count // step)
    for start in range(0, count, step):

        def report(stage: str, done: int, total: int, /, number: int = start // step) -> None:
            search.progress(stage, number * total + done, rounds * total)

        now = replace(search, seed=search.seed + start, progress=report)
        with _silence_units(search, cut):
            gradients_now = measure_gradients(now, search.draws)
        next_cut, next_costs = _cheapest_together(
            search, gradients_now, min(step, count - start), cut
        )
        cut, costs = cut + next_cut, costs + next_costs
    return cut, costs


def _greedy(search: CutSearch, count: int) -> IndicesAndCosts:
    """Exact ablation of every remaining unit, measured again after each cut."""
    cut: list[int] = []
    costs: list[float] = []
    while len(cut) < count:
        search.progress(PruneStage.GREEDY, len(cut), count)
        left = [index for index in range(len(search.units)) if index not in cut]
        with _silence_units(search, cut):
            estimates = ablate(search.evaluation, [search.units[index] for index in left])
        added = torch.full((len(search.units),), torch.inf, dtype=torch.float64)
        added[left] = torch.tensor([cost.value for cost in estimates], dtype=torch.float64)
        next_cut, next_costs = _cheapest(search, added, 1, cut)
        cut, costs = cut + next_cut, costs + next_costs
    return cut, costs


METHODS: dict[str, Callable[[CutSearch, int], IndicesAndCosts]] = {
    "rounds": _rounds,
    "quadratic": _quadratic,
    "greedy": _greedy,
    "ablation": _ablation,
    "michel": _michel,
    "fisher": _fisher,
    "random": _random,
}
"""Every method by name, the best first."""


def measure_gradients(search: CutSearch, draws: int) -> Gradients:
    """Gradients of the evaluation's loss by the heads of the model as it is now."""
    with advise_without_gradients("prune by ablation, greedy or random"):
        return gradients(search.evaluation, draws=draws, seed=search.seed, progress=search.progress)


def _silence_units(search: CutSearch, indices: Sequence[int]) -> AbstractContextManager[None]:
    heads = [head for index in indices for head in search.units[index].heads]
    return silence(search.evaluation.model, heads)


def _cheapest(
    search: CutSearch, costs: Float[Tensor, " units"], count: int, cut: Sequence[int] = ()
) -> IndicesAndCosts:
    """The cheapest units, if costs do not depend on each other."""
    units = OpenUnits(search, cut)
    indices = [units.take_cheapest(costs) for _ in range(count)]
    return indices, [float(costs[index]) for index in indices]


def _smallest_scores(search: CutSearch, scores: Tensor, count: int) -> IndicesAndCosts:
    """The units with the smallest scores; their costs are unknown."""
    indices, _ = _cheapest(search, scores, count)
    return indices, [math.nan] * count


def _cheapest_together(
    search: CutSearch, scores: Gradients, count: int, cut: Sequence[int] = ()
) -> IndicesAndCosts:
    """Units one by one, each adding least to the loss expected of all of them together."""
    matrix = sum_by_unit(scores.interaction, search.units, search.heads)
    added = matrix.diagonal() / 2 - membership(search.units, search.heads) @ scores.pull
    units = OpenUnits(search, cut)
    indices: list[int] = []
    costs: list[float] = []
    for _ in range(count):
        indices.append(units.take_cheapest(added))
        costs.append(float(added[indices[-1]]))
        added = added + matrix[:, indices[-1]]
    return indices, costs


class OpenUnits:
    """The units that may be cut next; in a uniform cut, those of layers that lost fewest."""

    def __init__(self, search: CutSearch, cut: Sequence[int]) -> None:
        """Start without the units whose indices are in `cut`."""
        self.search = search
        self.layers = [unit.layer for unit in search.units]
        self.left = [index for index in range(len(self.layers)) if index not in set(cut)]
        self.lost = Counter(self.layers[index] for index in cut)

    def take_cheapest(self, costs: Float[Tensor, " units"]) -> int:
        """Remove the cheapest unit that may be cut now, and return its index."""
        allowed = self.left
        if self.search.is_nested:
            first = {self.layers[index]: index for index in reversed(allowed)}
            allowed = sorted(first.values())
        if self.search.is_uniform:
            fewest = min(self.lost[self.layers[index]] for index in allowed)
            allowed = [index for index in allowed if self.lost[self.layers[index]] == fewest]
        best = min(allowed, key=lambda index: float(costs[index]))
        self.left.remove(best)
        self.lost[self.layers[best]] += 1
        return best
