"""Similarity: CKA and divergence equal the papers' definitions and have the stated bounds."""

import math

import torch
from torch import Tensor

from headwise.measures.similarity import centred_kernels, cka, divergences, pairwise_hsic

from ..attention.tolerance import assert_same
from .definitions import plain_cka, unbiased_cka

HEADS, ROWS, D_VALUE, KEYS = 5, 61, 7, 13


def outputs(rows: int = ROWS, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(HEADS, rows, D_VALUE, generator=random, dtype=torch.float64) + 3


def cka_of(*documents: Tensor) -> Tensor:
    return cka(sum(pairwise_hsic(centred_kernels(document)) for document in documents))


def test_one_document_gives_the_unbiased_estimator() -> None:
    heads = outputs()
    want = torch.stack(
        [torch.stack([unbiased_cka(first, second) for second in heads]) for first in heads]
    )
    assert_same(cka_of(heads), want, roundings=ROWS * ROWS)


def test_many_rows_give_the_textbook_definition() -> None:
    heads = outputs(1499)
    heads[1] = heads[0] + 0.5 * heads[1]
    got, want = cka_of(heads)[0, 1], plain_cka(heads[0], heads[1])
    assert abs(got - want) < D_VALUE / 1499 * 2  # the textbook's bias is of order d / n


def test_rotated_scaled_and_moved_outputs_are_the_same() -> None:
    heads = outputs()
    rotation, _ = torch.linalg.qr(torch.randn(D_VALUE, D_VALUE, dtype=torch.float64))
    heads[3] = 5 * heads[1] @ rotation + 2
    assert_same(cka_of(heads)[1, 3], torch.ones((), dtype=torch.float64), roundings=ROWS * ROWS)


def test_independent_outputs_are_unlike() -> None:
    got = cka_of(*(outputs(seed=seed) for seed in range(40)))
    apart = got - torch.eye(HEADS, dtype=torch.float64)
    assert apart.abs().max() < 5 / math.sqrt(40 * ROWS)
    assert_same(got, got.T, roundings=1)


def test_the_order_of_documents_does_not_matter() -> None:
    documents = [outputs(rows, seed) for seed, rows in enumerate((5, 11, 61))]
    assert_same(cka_of(*documents), cka_of(*reversed(documents)), roundings=3)


def test_a_head_without_output_is_like_nothing() -> None:
    heads = outputs()
    heads[2] = 0
    got = cka_of(heads)
    assert got[2].isnan().all() and got[0, 1].isfinite()


def test_divergence_is_symmetric_bounded_and_zero_to_itself() -> None:
    weights = torch.randn(HEADS, 11, KEYS, dtype=torch.float64).mul(3).softmax(-1)
    weights[0] = torch.nn.functional.one_hot(torch.zeros(11, dtype=torch.long), KEYS)
    weights[1] = weights[0].roll(1, -1)
    got = divergences(weights)
    assert_same(got, got.transpose(0, 1), roundings=KEYS)
    assert_same(got[0, 1], torch.full((11,), math.log(2), dtype=got.dtype), roundings=KEYS)
    assert (got <= math.log(2) + KEYS * torch.finfo(got.dtype).eps).all()
    assert_same(got.diagonal(), torch.zeros(11, HEADS, dtype=got.dtype), roundings=KEYS)


def test_divergence_is_the_mean_of_two_relative_entropies() -> None:
    weights = torch.randn(HEADS, 11, KEYS, dtype=torch.float64).softmax(-1)
    first, second = weights[2], weights[4]
    mean = (first + second) / 2
    want = ((first * (first / mean).log()).sum(-1) + (second * (second / mean).log()).sum(-1)) / 2
    assert_same(divergences(weights)[2, 4], want, roundings=3 * KEYS)
