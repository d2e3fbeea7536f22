"""Spread: the steps of one scan over the processes that torchrun started.

In: the environment. Out: which steps are this process's own, and everyone's sums.
"""

import os
from dataclasses import dataclass

import torch.distributed as dist

from headwise.measures.tally import Tally


@dataclass(frozen=True)
class Spread:
    """This process among those that share the work."""

    rank: int = 0
    world: int = 1

    @classmethod
    def here(cls) -> "Spread":
        """As torchrun set it up; alone without torchrun."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1 or "RANK" not in os.environ:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes and prints."""
        return self.rank == 0

    def owns(self, number: int) -> bool:
        """Whether the step of that number is this process's."""
        return number % self.world == self.rank

    def merged(self, tally: Tally) -> Tally:
        """Everyone's sums, in every process."""
        if self.world == 1:
            return tally
        gathered: list[bytes] = [b""] * self.world
        dist.all_gather_object(gathered, tally.to_bytes())
        merged = Tally()
        for content in gathered:
            merged.merge(Tally.from_bytes(content))
        return merged
