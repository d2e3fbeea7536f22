"""The processes that torchrun started, which share the batches of one scan.

In: the environment. Out: which batches belong to this process, and the sums of all processes.
"""

import atexit
import os
from dataclasses import dataclass

import torch.distributed as dist

from headwise.errors import OptionError
from headwise.scans.sums import ScanSums


@dataclass(frozen=True)
class ProcessGroup:
    """This process's rank among the `world` processes that share the work."""

    rank: int = 0
    world: int = 1

    @classmethod
    def from_environment(cls) -> "ProcessGroup":
        """The group that torchrun started, each of whose processes must call this, or one process.

        The group exists until the process ends, because torch cannot create it twice.
        """
        size = os.environ.get("WORLD_SIZE", "1")
        if not size.isdecimal() or int(size) < 1:
            raise OptionError(
                f"WORLD_SIZE is {size!r} in the environment: torchrun sets it to the number of "
                "processes; unset it to scan in one process"
            )
        if int(size) == 1 or "RANK" not in os.environ:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo")
            atexit.register(_leave)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def gather(self, sums: ScanSums) -> ScanSums:
        """Merge the sums of all processes and return the result in each of them."""
        if self.world == 1:
            return sums
        gathered: list[bytes] = [b""] * self.world
        dist.all_gather_object(gathered, sums.to_bytes())
        merged = ScanSums()
        for content in gathered:
            merged.merge(ScanSums.from_bytes(content))
        return merged


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
