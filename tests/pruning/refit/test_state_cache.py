"""States come back as they were, from memory and from disk."""

from pathlib import Path

import pytest
import torch

from headwise.pruning.refit.state_cache import StateCache


@pytest.mark.parametrize("room", [0, 100, 1 << 20])
def test_states_come_back_equal_from_memory_and_disk(room: int) -> None:
    cache = StateCache(3, room=room)
    one, other = torch.randn(2, 3, 5), (torch.randn(7), None, torch.arange(3))
    assert cache[0] is None
    cache[0], cache[1] = one, other
    assert torch.equal(cache[0], one)
    assert torch.equal(cache[1][0], other[0]) and cache[1][1] is None
    assert torch.equal(cache[1][2], other[2])
    cache[0] = one + 1
    assert torch.equal(cache[0], one + 1)


def test_states_that_do_not_fit_are_on_disk_until_the_cache_is_deleted() -> None:
    cache = StateCache(2, room=60)
    cache[0], cache[1] = torch.zeros(11), torch.ones(11)
    assert isinstance(cache.states[0], torch.Tensor)
    assert isinstance(cache.states[1], Path)
    folder = cache.states[1].parent
    assert folder.is_dir()
    del cache
    assert not folder.exists()
