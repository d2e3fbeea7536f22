"""Blocks are as large as a window or a tile allows, and the largest come first."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headwise.attention import paths
from headwise.attention.attend import attend
from headwise.attention.prepare import Computation
from headwise.attention.rules import Rules


@pytest.mark.parametrize(
    ("rules", "tile_bytes", "size"),
    [
        (Rules(is_causal=True), 1, 64),
        (Rules(is_causal=True), 2**20, 64),
        (Rules(is_causal=True), 5 * 2**20, 320),
        (Rules(is_causal=True), 2**30, 1024),
        (Rules(window=(None, 3)), 2**30, 1024),
        (Rules(window=1), 2**30, 64),
        (Rules(window=(255, 0)), 2**30, 128),
        (Rules(is_causal=True, window=400), 2**30, 192),
        (Rules(is_causal=True, window=3000), 2**30, 1024),
    ],
)
def test_a_block_is_half_a_window_or_what_fits_a_tile(
    rules: Rules, tile_bytes: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two heads and 2,048 keys of float32: 16 KiB per query."""
    monkeypatch.setattr(paths, "TILE_BYTES", tile_bytes)
    tensors = torch.empty(3, 1, 2, 2048, 1)
    computation = Computation.of(*tensors, replace(rules, offset=0))
    assert paths.tile_rows(computation, is_dense=False) == size


@pytest.mark.parametrize("rules", [Rules(softcap=1.0), Rules(slopes=torch.ones(8))])
@pytest.mark.parametrize("window", [(255, 0), (400, 100), (None, 0)])
def test_no_block_computes_more_scores_than_a_tile(
    rules: Rules, window: tuple[int | None, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tile, sizes, original = 2**20, [], paths.bias_tile

    def spy(computation: Computation) -> Tensor | None:
        shape = (computation.num_queries, computation.num_keys)
        sizes.append(paths.score_bytes(computation.queries, *shape))
        return original(computation)

    monkeypatch.setattr(paths, "TILE_BYTES", tile)
    monkeypatch.setattr(paths, "bias_tile", spy)
    with torch.no_grad():
        attend(*torch.zeros(3, 1, 8, 512, 2), rules=replace(rules, window=window))
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= tile
