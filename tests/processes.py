"""Separate processes that do not need to import torch and transformers again.

They are forked from a server that has imported both and nothing else: each begins without headwise,
and no thread or gradient of the tests is there.
"""

import functools
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

IMPORTED = ["torch", "torch.distributed.tensor", "transformers.models.auto.modeling_auto"]
IMPORTED += [f"transformers.models.{name}.modeling_{name}" for name in ("bert", "llama")]
PATIENCE = 240.0


@functools.cache
def context() -> ForkServerContext:
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(IMPORTED)
    return found


def start(text: str, *arguments: object, says: Path, **environment: str) -> ForkServerProcess:
    """A process that runs a program; what it prints goes to a file."""
    words = [str(one) for one in arguments]
    mine = {**os.environ, **environment}
    found = context().Process(target=run_program, args=(text, words, says, mine))
    found.start()
    return found


def run_program(text: str, arguments: list[str], says: Path, environment: dict[str, str]) -> None:
    """Run the program in the new process, with these words as its arguments."""
    heard = os.open(says, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(heard, stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(compile(text, "-c", "exec"), {"__name__": "__main__"})


def printed(says: Path) -> str:
    """The output of a process so far."""
    return says.read_text() if says.exists() else ""


def ended(*processes: ForkServerProcess, says: Sequence[Path]) -> str:
    """The output of each process; fails if one of them exits with an error."""
    deadline = time.monotonic() + PATIENCE
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode != 0:
                break  # the others may wait for it
    finally:
        for process in processes:
            process.kill()
    text = "".join(map(printed, says))
    assert all(process.exitcode == 0 for process in processes), text[-3000:]
    return text


def together(text: str, *arguments: object, folder: Path) -> str:
    """The output of two processes started with the environment that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    says = [folder / f"rank {rank}" for rank in range(2)]
    ranks = [
        start(text, *arguments, says=file, RANK=str(rank), LOCAL_RANK=str(rank), **shared)
        for rank, file in enumerate(says)
    ]
    return ended(*ranks, says=says)
