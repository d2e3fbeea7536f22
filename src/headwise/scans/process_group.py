"""Spread: the steps of one scan over the processes that torchrun started.

In: the environment. Out: which steps are this process's own, and everyone's sums.
"""

import atexit
import os
from dataclasses import dataclass

import torch.distributed as dist

from headwise.errors import OptionError
from headwise.scans.sums import ScanSums


def world_size() -> int:
    """How many processes torchrun has started; 1 without it."""
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal() or int(given) < 1:
        raise OptionError(
            f"WORLD_SIZE is {given!r} in the environment: torchrun sets it to the number of "
            "processes; unset it to scan in one"
        )
    return int(given)


def leave() -> None:
    """End the group of processes, if nobody has done so."""
    if dist.is_initialized():
        dist.destroy_process_group()


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that share the work."""

    rank: int = 0
    world: int = 1

    @classmethod
    def here(cls) -> "ProcessGroup":
        """As torchrun set it up; alone without torchrun. Every process has to come here.

        A group that is made for it lasts as long as the process: torch cannot make it twice.
        """
        if world_size() == 1 or "RANK" not in os.environ:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo")
            atexit.register(leave)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes and prints."""
        return self.rank == 0

    def owns(self, number: int) -> bool:
        """Whether the step of that number is this process's."""
        return number % self.world == self.rank

    def merged(self, tally: ScanSums) -> ScanSums:
        """Everyone's sums, in every process."""
        if self.world == 1:
            return tally
        gathered: list[bytes] = [b""] * self.world
        dist.all_gather_object(gathered, tally.to_bytes())
        merged = ScanSums()
        for content in gathered:
            merged.merge(ScanSums.from_bytes(content))
        return merged
