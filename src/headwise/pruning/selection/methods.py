"""Methods: which heads can be cut together, and in which order.

In: an evaluation on several registers. Out: units, each a tuple of heads in one layer, or in all
layers that share one layer's weights, in the order in which a method cuts them, cheapest first;
every cut is a prefix of that order. `METHODS` has all methods by name. Units keep KV groups equal
in size, because no model supports groups of different sizes.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadCounts, HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.registers import RegisterEvaluation
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.ablation import Unit, ablate
from headwise.pruning.importance.gradients import divide_by_layer_norm, gradients
from headwise.pruning.importance.workload import limit_tokens
from headwise.pruning.stages import PruneStage
from headwise.watching.gates import MeanOutputs, silence

BEST = "rounds"
SHORTLIST = 3
"""Number of units to measure for each one to cut."""
CHECKED_TOKENS = 1536
"""Number of tokens that costs are measured directly on, equally many of each register. Registers
that are read in long windows have more, because each has at least one window."""
BY_GRADIENTS = ("rounds", "quadratic", "michel", "fisher")
"""Methods that need gradients of the objective."""


def whole_groups(heads: Sequence[HeadId], counts: HeadCounts) -> tuple[Unit, ...]:
    """One unit per KV head, containing all query heads that it serves."""
    return tuple(map(tuple, _by_group(heads, counts).values()))


def one_of_each_group(
    heads: Sequence[HeadId], counts: HeadCounts, scores: Sequence[float]
) -> tuple[Unit, ...]:
    """Units per layer: the lowest-scored head of each KV group, then the second-lowest, and so on.

    Cutting any number of a layer's units in this order leaves its KV groups equal in size. The last
    head of each group is in no unit: without it, a KV head would serve no query head.
    """
    score_of = dict(zip(heads, scores, strict=True))
    layers: dict[str, list[list[HeadId]]] = {}
    for (layer, _), group in _by_group(heads, counts).items():
        layers.setdefault(layer, []).append(sorted(group, key=lambda head: (score_of[head], head)))
    return tuple(
        tuple(sorted(ranked))
        for groups in layers.values()
        for ranked in list(zip(*groups, strict=True))[:-1]
    )


def _by_group(heads: Sequence[HeadId], counts: HeadCounts) -> dict[tuple[str, int], list[HeadId]]:
    groups: dict[tuple[str, int], list[HeadId]] = {}
    for head in heads:
        num_heads, num_kv_heads = counts[head.layer_name]
        group = head.head // (num_heads // num_kv_heads)
        groups.setdefault((head.layer_name, group), []).append(head)
    return groups


def in_shared_layers(
    heads: Sequence[HeadId], shared_layers: Sequence[tuple[str, ...]]
) -> tuple[HeadId, ...]:
    """Heads of each set's first layer in all layers of the set; other heads as they are.

    Leaves out heads given for the other layers of a set.
    """
    sets = {layers[0]: layers for layers in shared_layers}
    repeats = {layer for layers in shared_layers for layer in layers[1:]}
    return tuple(
        HeadId.parse(f"{layer}H{head.head}")
        for head in heads
        if head.layer_name not in repeats
        for layer in sets.get(head.layer_name, (head.layer_name,))
    )


def share_units(
    units: Sequence[Unit], shared_layers: Sequence[tuple[str, ...]]
) -> tuple[Unit, ...]:
    """The units of each set's first layer, extended to all layers of the set; one per KV group."""
    extended = (in_shared_layers(unit, shared_layers) for unit in units)
    return tuple(tuple(sorted(unit)) for unit in extended if unit)


def membership(units: Sequence[Unit], heads: Sequence[HeadId]) -> Float[Tensor, "units heads"]:
    """A matrix with 1 where a unit contains a head, 0 elsewhere."""
    index = {head: number for number, head in enumerate(heads)}
    member = torch.zeros(len(units), len(heads), dtype=torch.float64)
    for row, unit in enumerate(units):
        member[row, [index[head] for head in unit]] = 1
    return member


@dataclass(frozen=True, eq=False)
class CutSearch:
    """An evaluation of a model and the units of heads that can be cut from it."""

    registers: RegisterEvaluation
    units: tuple[Unit, ...]
    means: MeanOutputs | None = None
    """Outputs to put in the place of cut heads, if these will be added to the biases."""
    is_uniform: bool = False
    """Whether every layer loses the same number of units."""
    is_nested: bool = False
    """Whether each layer's units must be cut in the order of `units`."""
    shared_layers: tuple[tuple[str, ...], ...] = ()
    """Sets of layers that share their weights, as in ALBERT; all of a set lose the same heads."""
    rounds: int = 8
    """Number of rounds that a full cut is divided into."""
    draws: int = 1
    """Number of random scalars per example; more examples tell more than more draws."""
    seed: int = 0
    progress: Progress = no_progress

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation on all registers together."""
        return self.registers.whole

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """Every head of the model."""
        return self.evaluation.heads

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Name of each unit's layer; of layers that share their weights, the first."""
        return tuple(unit[0].layer_name for unit in self.units)

    @property
    def units_by_layer(self) -> dict[str, list[Unit]]:
        """The units of every layer that has any."""
        units: dict[str, list[Unit]] = {}
        for layer, unit in zip(self.layers, self.units, strict=True):
            units.setdefault(layer, []).append(unit)
        return units

    @property
    def cuttable(self) -> tuple[Unit, ...]:
        """As many units as can be cut; the layer with the fewest units limits a uniform cut."""
        if not self.is_uniform:
            return self.units
        layers = self.units_by_layer.values()
        fewest = min(map(len, layers), default=0)
        return tuple(unit for units in layers for unit in units[:fewest])


@torch.no_grad()
def _measured_text(search: CutSearch) -> list[Evaluation]:
    """Some examples of every register, on which outputs are compared with the uncut model's.

    Call it while no head is silent.
    """
    parts = search.registers.parts.values()
    return [_some_examples(part, CHECKED_TOKENS // len(parts)) for part in parts]


def _some_examples(part: Evaluation, tokens: int) -> Evaluation:
    """Random examples, because batches are sorted by length; all if these have no target."""
    few = limit_tokens(part, tokens, fewest=1)
    chosen = few if any(sample.has_targets for sample in few.samples) else part
    objective = part.objective.distance()
    if objective is part.objective:
        return chosen
    samples = (
        replace(sample, reference=objective.output(part.model, sample.inputs))
        for sample in chosen.samples
    )
    return replace(chosen, objective=objective, samples=tuple(samples))


@dataclass(frozen=True)
class CutOrder:
    """Units in the order in which to cut them, and the loss that each is expected to add."""

    method: str
    units: tuple[Unit, ...]
    costs: tuple[float, ...]
    """NaN for methods that rank units by a score that is not a loss."""

    def first(self, count: int) -> tuple[HeadId, ...]:
        """Heads of the first `count` units."""
        return tuple(sorted(head for unit in self.units[:count] for head in unit))


def order_units(method: str, search: CutSearch, *, count: int | None = None) -> CutOrder:
    """The first `count` units that `method` cuts, in order; by default all that can be cut."""
    most = len(search.cuttable)
    indices, costs = METHODS[method](search, most if count is None else min(count, most))
    return CutOrder(method, tuple(search.units[index] for index in indices), tuple(costs))


def with_seed(search: CutSearch, seed: int) -> CutSearch:
    """The search with another seed; nested units also get another random order of heads."""
    if not search.is_nested:
        return replace(search, seed=seed)
    generator = random.Random(seed)
    scores = [generator.random() for _ in search.heads]
    units = one_of_each_group(search.heads, search.evaluation.counts, scores)
    units = share_units(units, search.shared_layers)
    units = tuple(unit for unit in units if unit[0].layer_name in search.units_by_layer)
    return replace(search, seed=seed, units=units)


def random_cut(search: CutSearch, heads: Sequence[HeadId], seed: int) -> tuple[HeadId, ...]:
    """As many random heads as in `heads`: whole units if `heads` are, else spread like `heads`."""
    excluded = set(heads)
    whole_units = [unit for unit in search.units if excluded >= set(unit)]
    is_whole = excluded == {head for unit in whole_units for head in unit}
    if is_whole and not search.is_nested:  # nested units fix which head of a group is cut first
        random_heads: list[HeadId] = []
        for unit in order_units("random", replace(search, seed=seed)).units:
            if len(random_heads) + len(unit) <= len(heads):
                random_heads += unit
        if len(random_heads) == len(heads):
            return tuple(sorted(random_heads))
    return _random_heads_of_same_shape(search, heads, seed)


def _random_heads_of_same_shape(
    search: CutSearch, heads: Sequence[HeadId], seed: int
) -> tuple[HeadId, ...]:
    """Random heads, distributed over layers and KV groups like `heads`.

    Shuffles layers with equal numbers of heads, then groups in a layer, then heads in a group, so
    that the result can be cut if `heads` can.
    """
    generator = random.Random(seed)
    random_heads = []
    sets = {layers[0]: len(layers) for layers in search.shared_layers}
    repeats = {layer for layers in search.shared_layers for layer in layers[1:]}
    shapes = {
        layer: (*pair, sets.get(layer, 1))
        for layer, pair in search.evaluation.counts.items()
        if layer not in repeats
    }
    for shape in dict.fromkeys(shapes.values()):
        layers = [layer for layer, other in shapes.items() if other == shape]
        num_heads, num_kv_heads, _ = shape
        size = num_heads // num_kv_heads
        for layer, other in zip(layers, generator.sample(layers, len(layers)), strict=True):
            lost = [0] * num_kv_heads
            for head in heads:
                if head.layer_name == layer:
                    lost[head.head // size] += 1
            generator.shuffle(lost)
            for group, count in enumerate(lost):
                numbers = generator.sample(range(group * size, (group + 1) * size), count)
                random_heads += [HeadId.parse(f"{other}H{number}") for number in numbers]
    return tuple(sorted(in_shared_layers(random_heads, search.shared_layers)))


# The methods: each returns the indices of the first `count` units, and the cost of each.

IndicesAndCosts = tuple[list[int], list[float]]


def _rounds(search: CutSearch, count: int) -> IndicesAndCosts:
    """Cut in rounds: interactions propose units, measurements decide, without those already cut.

    Interactions of heads are quick to measure for all units together, but they describe small
    changes. So they only propose; what a unit's removal does to the output is then measured.
    """
    cut, costs = list[int](), list[float]()
    text = _measured_text(search)
    member = membership(search.units, search.heads)
    step = max(1, -(-len(search.units) // search.rounds))
    rounds = -(-count // step)
    for start in range(0, count, step):

        def report(stage: str, done: int, total: int, /, number: int = start // step) -> None:
            search.progress(stage, number * total + done, rounds * total)

        now = replace(search, seed=search.seed + start, progress=report)
        with _silence_units(search, cut):
            interaction = _measure_interaction(now)
        matrix = member @ interaction @ member.T
        costs += _cut_round(now, text, matrix, cut, min(step, count - start))
    return cut, costs


def _cut_round(
    search: CutSearch,
    text: Sequence[Evaluation],
    matrix: Float[Tensor, "units units"],
    cut: list[int],
    count: int,
) -> list[float]:
    """Append the cheapest `count` units to `cut`; returns the cost of each."""
    measured = _measure_directly(search, text, cut, _propose(search, matrix, cut, count))
    sizes, costs, outdated = Counter(search.layers), list[float](), set[int]()
    while len(costs) < count:
        unit = _cheapest(search, measured, cut)
        layer = search.layers[unit]
        same_layer = [index for index in measured if search.layers[index] == layer]
        if unit in outdated:
            measured |= _measure_directly(search, text, cut, same_layer)
            outdated.difference_update(same_layer)
            continue
        cut.append(unit)
        costs.append(measured.pop(unit))
        if 2 * sum(search.layers[index] == layer for index in cut) >= sizes[layer]:
            outdated.update(same_layer)  # a layer's last heads may be worth more than they were
    return costs


def _propose(
    search: CutSearch, matrix: Float[Tensor, "units units"], cut: Sequence[int], count: int
) -> list[int]:
    """SHORTLIST times `count` units with low expected costs, or all that are left."""
    added, both = matrix.diagonal() / 2, list(cut)
    for _ in range(min(SHORTLIST * count, len(search.cuttable) - len(cut))):
        both.append(_cheapest(search, dict(enumerate(added.tolist())), both))
        added = added + matrix[:, both[-1]]
    return both[len(cut) :]


def _measure_directly(
    search: CutSearch, text: Sequence[Evaluation], cut: Sequence[int], units: Sequence[int]
) -> dict[int, float]:
    """Distance from the uncut model that cutting each unit adds, without the units in `cut`.

    A mean over registers; NaN counts as infinite.
    """
    order, by_register = sorted(units), []
    with _silence_units(search, cut):
        for number, part in enumerate(text):
            search.progress(PruneStage.ABLATION, number, len(text))
            silent = [search.units[index] for index in order]
            by_register.append(ablate(part, silent, means=search.means))
    values, _ = torch.tensor(by_register, dtype=torch.float64).unbind(-1)
    costs = values.mean(0)
    return dict(zip(order, costs.where(~costs.isnan(), torch.inf).tolist(), strict=True))


def costs_alone(search: CutSearch) -> list[float]:
    """Distance from the uncut model that cutting each head by itself adds, measured directly."""
    heads = replace(search, units=tuple((head,) for head in search.heads))
    measured = _measure_directly(heads, _measured_text(heads), (), range(len(search.heads)))
    return list(measured.values())


def _greedy(search: CutSearch, count: int) -> IndicesAndCosts:
    """Smallest exact ablation first, measured again after each cut."""
    cut, costs = list[int](), list[float]()
    while len(cut) < count:
        search.progress(PruneStage.GREEDY, len(cut), count)
        left = [index for index in range(len(search.units)) if index not in cut]
        units = [search.units[index] for index in left]
        with _silence_units(search, cut):
            estimates = ablate(search.evaluation, units, means=search.means)
        added = {index: cost.value for index, cost in zip(left, estimates, strict=True)}
        cut.append(_cheapest(search, added, cut))
        costs.append(added[cut[-1]])
    return cut, costs


def _each_alone(method: str, search: CutSearch, count: int) -> IndicesAndCosts:
    """Smallest score first, measured once: exact ablation, a sum over a unit's heads, or random."""
    if method == "random":
        numbers = range(len(search.units))
        scores = [*map(float, random.Random(search.seed).sample(numbers, len(numbers)))]
    elif method == "ablation":
        estimates = ablate(
            search.evaluation, search.units, means=search.means, progress=search.progress
        )
        scores = [cost.value for cost in estimates]
    else:
        measured = gradients(
            search.evaluation,
            draws=1,
            seed=search.seed,
            means=search.means,
            advice=ADVICE,
            progress=search.progress,
        )
        by_head = measured.fisher
        if method == "michel":
            by_head = divide_by_layer_norm(measured.michel, search.heads)
        scores = (membership(search.units, search.heads) @ by_head).tolist()
    cut, by_unit = list[int](), dict(enumerate(scores))
    for _ in range(count):
        cut.append(_cheapest(search, by_unit, cut))
    return cut, [scores[index] if method == "ablation" else math.nan for index in cut]


METHODS: dict[str, Callable[[CutSearch, int], IndicesAndCosts]] = {
    "rounds": _rounds,
    "quadratic": lambda search, count: _rounds(replace(search, rounds=1), count),
    "greedy": _greedy,
    **{name: partial(_each_alone, name) for name in ("ablation", "michel", "fisher", "random")},
}
"""Every method by name, the best first."""


ADVICE = "prune by ablation, greedy or random"
"""Advice for objectives without gradients."""


def _measure_interaction(search: CutSearch) -> Float[Tensor, "heads heads"]:
    """Interactions of heads in the model's current state, in which heads may be silenced."""
    evaluation = search.evaluation
    return gradients(
        replace(evaluation, objective=evaluation.objective.when_choosing()),
        draws=search.draws,
        seed=search.seed,
        means=search.means,
        has_slopes=False,
        advice=ADVICE,
        progress=search.progress,
    ).interaction


def _silence_units(search: CutSearch, indices: Sequence[int]) -> AbstractContextManager[None]:
    heads = [head for index in indices for head in search.units[index]]
    return silence(search.evaluation.model, heads, means=search.means)


def _cheapest(search: CutSearch, costs: Mapping[int, float], cut: Sequence[int]) -> int:
    """Index of the cheapest unit in `costs` that may be cut after those in `cut`."""
    layers, done = search.layers, set(cut)
    allowed = [index for index in range(len(layers)) if index in costs and index not in done]
    if search.is_nested:
        first = {layers[index]: index for index in reversed(allowed)}
        allowed = sorted(first.values())
    if search.is_uniform:  # next, a layer that has lost the fewest units
        lost = Counter(layers[index] for index in cut)
        fewest = min(lost[layers[index]] for index in allowed)
        allowed = [index for index in allowed if lost[layers[index]] == fewest]
    return min(allowed, key=lambda index: costs[index])
