"""Every column of the measures by its plain definition, from one sequence's full weights.

In: a model's own eager attention on one layer and sequence, without padding. Out: for each column a
number per head and row, NaN where the column has none. Slow, and made to be read; it does not
import headwise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

NAN = math.nan
OFFSETS = {"back4": -4, "back3": -3, "back2": -2, "previous": -1, "self": 0}
AHEAD = {"next": 1, "ahead2": 2, "ahead3": 3, "ahead4": 4}


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One layer's attention in one sequence, all heads."""

    weights: Tensor  # heads query key
    allowed: Tensor  # query key
    mixed: Tensor  # heads query d_value
    projection: Tensor  # heads d_value d_model
    values: Tensor | None  # heads key d_value
    ids: Tensor | None  # key
    is_special: Tensor | None
    is_punctuation: Tensor | None
    is_cross: bool
    is_causal: bool

    @property
    def num_queries(self) -> int:
        return self.weights.shape[1]

    @property
    def num_keys(self) -> int:
        return self.weights.shape[2]

    def norms(self) -> Tensor:
        """`|v_k Wo_h|` of every head and key."""
        return torch.stack(
            [(v @ wo).norm(dim=-1) for v, wo in zip(self.values, self.projection, strict=True)]
        )

    def moved(self) -> Tensor:
        """`A[q,k] |v_k Wo|`, each row's shares of their sum: Kobayashi's weights."""
        lengths = self.weights * self.norms()[:, None]
        sums = lengths.sum(-1, keepdim=True)
        return torch.where(sums > 0, lengths / sums, 0.0)


Pick = Callable[[int], list[int] | None]
"""From a row to the keys of a class; None if the class is not defined for the row."""


def mass(weights: Tensor, pick: Pick) -> Tensor:
    """Total weight of each row on the keys picked for it."""
    picked = torch.zeros_like(weights[0])
    for q in range(len(picked)):
        keys = pick(q)
        picked[q, range(picked.shape[1]) if keys is None else keys] = NAN if keys is None else 1
    return torch.einsum("hqk,qk->hq", weights, picked)


def at(offset: int, num_keys: int) -> Pick:
    return lambda q: [q + offset] if 0 <= q + offset < num_keys else None


def first(count: int, is_cross: bool) -> Pick:
    return lambda q: list(range(count)) if is_cross or q >= count else None


def marked(is_marked: Tensor) -> Pick:
    return lambda q: is_marked.nonzero()[:, 0].tolist()


def copies(ids: list[int], shift: int) -> Pick:
    """Keys at an earlier copy of the row's token, or `shift` after one."""

    def pick(q: int) -> list[int] | None:
        return [k + shift for k in range(q) if ids[k] == ids[q]] or None

    return pick


def where_seen(pick: Pick, needed: Pick, allowed: Tensor, least: int = 1) -> Pick:
    """The pick, defined only for rows that see at least `least` of the keys in `needed`."""

    def pick_if_seen(q: int) -> list[int] | None:
        keys = needed(q)
        return pick(q) if keys is not None and allowed[q, keys].sum() >= least else None

    return pick_if_seen


def picks(case: Case) -> dict[str, Pick]:
    """Every class of keys that attention is summed over, by column: rows that see one count."""
    classes = all_picks(case)
    needed = classes | {"text_induction": classes.get("duplicate")}
    least = {"first4": 4}
    return {
        name: where_seen(pick, needed[name], case.allowed, least.get(name, 1))
        for name, pick in classes.items()
    }


def all_picks(case: Case) -> dict[str, Pick]:
    classes = {"first": first(1, case.is_cross), "first4": first(4, case.is_cross)}
    if not case.is_cross:
        offsets = OFFSETS if case.is_causal else OFFSETS | AHEAD
        classes |= {name: at(offset, case.num_keys) for name, offset in offsets.items()}
    if case.is_special is not None:
        classes["special"] = marked(case.is_special)
    if case.is_punctuation is not None:
        classes["punctuation"] = marked(case.is_punctuation)
    if case.ids is not None and not case.is_cross:
        ids = case.ids.tolist()
        classes |= {"duplicate": copies(ids, 0), "text_induction": copies(ids, 1)}
    return classes


def masses(case: Case) -> dict[str, Tensor]:
    columns = {name: mass(case.weights, pick) for name, pick in picks(case).items()}
    if case.values is not None:
        moved = case.moved()
        columns |= {f"value_{name}": mass(moved, pick) for name, pick in picks(case).items()}
    return columns


UNIFORM = (*OFFSETS, *AHEAD, "first", "first4", "special", "punctuation", "duplicate")


def uniform(case: Case) -> dict[str, Tensor]:
    """The masses of a head with equal weights on all keys that a row may see."""
    allowed = case.allowed.to(case.weights)
    alike = (allowed / allowed.sum(-1, keepdim=True)).expand_as(case.weights)
    known = {name: pick for name, pick in picks(case).items() if name in UNIFORM}
    return {f"uniform_{name}": mass(alike, pick) for name, pick in known.items()}


def entropy(case: Case) -> dict[str, Tensor]:
    nats = -torch.special.xlogy(case.weights, case.weights).sum(-1)
    seen = case.allowed.sum(-1)
    most = torch.where(seen > 1, seen.to(nats).log(), NAN)
    return {"entropy": nats, "normalised_entropy": nats / most}


def distance(case: Case) -> dict[str, Tensor]:
    if case.is_cross:
        return {}
    apart = torch.arange(case.num_keys) - torch.arange(case.num_queries)[:, None]
    return {
        "distance": (case.weights * apart.abs()).sum(-1),
        "signed_distance": (case.weights * apart).sum(-1),
    }


def confidence(case: Case) -> dict[str, Tensor]:
    """Voita's, over the ordinary tokens of rows that see one; and where the largest weight is."""
    ordinary = torch.ones(case.num_keys, dtype=torch.bool)
    if case.is_special is not None:
        ordinary = ~case.is_special
    largest = (case.weights * ordinary).amax(-1)
    has_any = (case.allowed & ordinary).any(-1)
    columns = {"confidence": torch.where(has_any, largest, NAN)}
    if not case.is_cross:
        place = case.weights.argmax(-1) - torch.arange(case.num_queries)
        offsets = OFFSETS if case.is_causal else OFFSETS | AHEAD
        for name, offset in offsets.items():
            has_key = mass(case.weights, picks(case)[name]).isfinite()
            is_largest = (place == offset).to(case.weights)
            columns[f"largest_{name}"] = torch.where(has_key, is_largest, NAN)
    return columns


def lead(case: Case) -> Tensor:
    """How much larger each row's largest weight is than its second; 0 for a tie."""
    if case.num_keys == 1:
        return case.weights[..., 0]
    first, second = case.weights.topk(2, dim=-1).values.unbind(-1)
    return first - second


def alignment(case: Case) -> dict[str, Tensor]:
    """Only in cross-attention: where the largest weight is, and whether that is not further back
    than in the row before."""
    if not case.is_cross or case.num_keys == 1:
        return {}
    peak = case.weights.argmax(-1).double()
    order = torch.full_like(peak, NAN)
    for q in range(1, case.num_queries):
        order[:, q] = (peak[:, q] >= peak[:, q - 1]).double()
    return {"peak": peak / (case.num_keys - 1), "peak_order": order}


def outputs(case: Case) -> dict[str, Tensor]:
    parts = torch.stack([mixed @ wo for mixed, wo in zip(case.mixed, case.projection, strict=True)])
    lengths = parts.norm(dim=-1)
    return {"output_norm": lengths, "output_share": lengths / lengths.sum(0)}


def every_column(case: Case) -> dict[str, Tensor]:
    """All columns that the case has, NaN where a row has no number."""
    columns: dict[str, Tensor] = {}
    for define in (masses, uniform, entropy, distance, confidence, alignment, outputs):
        columns |= define(case)
    return columns


def unbiased_hsic(first: Tensor, second: Tensor) -> Tensor:
    """Song's estimator of HSIC with linear kernels, as written in https://arxiv.org/abs/2010.15327.

    `1/(n(n-3)) (tr KL + 1'K1 1'L1 / ((n-1)(n-2)) - 2/(n-2) 1'KL1)`, K and L with empty diagonals.
    """
    n = len(first)
    kernel = (first @ first.T).fill_diagonal_(0)
    second_kernel = (second @ second.T).fill_diagonal_(0)
    traced = torch.trace(kernel @ second_kernel)
    sums = kernel.sum() * second_kernel.sum() / ((n - 1) * (n - 2))
    crossed = (kernel @ second_kernel).sum() * 2 / (n - 2)
    return (traced + sums - crossed) / (n * (n - 3))


def unbiased_cka(first: Tensor, second: Tensor) -> Tensor:
    variances = unbiased_hsic(first, first) * unbiased_hsic(second, second)
    return unbiased_hsic(first, second) / variances.sqrt()


def plain_cka(first: Tensor, second: Tensor) -> Tensor:
    """`|Y'X|^2 / (|X'X| |Y'Y|)` of centred columns: the textbook's, biased by few rows."""
    first, second = first - first.mean(0), second - second.mean(0)
    return (second.T @ first).norm() ** 2 / ((first.T @ first).norm() * (second.T @ second).norm())
