"""The desk: work on a model off the event loop, one piece at a time, stopped when nobody waits."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from headwise.errors import HeadwiseError
from headwise.explorer.jobs import Stopped

MOST_WAITING = 64
"""Requests that wait for the model at most."""
LOOK_EVERY = 0.25
"""Seconds between looks whether the one who asked is still there."""

Told = Callable[[int, int], None]
Answer = TypeVar("Answer")


class Busy(HeadwiseError):
    """Too many requests wait already."""


class ModelQueue:
    """Where work on one model queues."""

    def __init__(self) -> None:
        """Nothing to do yet."""
        self._lock = asyncio.Lock()
        # Always the same thread: torch keeps a team of its own for every thread that computes, and
        # teams that wait for work take the processors from the one that has some.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwise")
        self.waiting = 0
        self.done, self.total = 0, 0
        """How far the work under way has come, in layers."""

    async def do(self, request: Request, work: Callable[[Told], Answer]) -> Answer:
        """The answer of some work, done in a thread when it is its turn.

        The work is given a function to tell how far it has come, which raises `Stopped` as soon as
        the one who asked has gone.
        """
        if self.waiting >= MOST_WAITING:
            raise Busy("too many requests wait for the model: try again in a second")
        self.waiting += 1
        try:
            async with self._lock:
                if await request.is_disconnected():
                    raise Stopped
                return await self._run(request, work)
        finally:
            self.waiting -= 1

    async def _run(self, request: Request, work: Callable[[Told], Answer]) -> Answer:
        gone = threading.Event()
        self.done, self.total = 0, 0

        def told(done: int, total: int) -> None:
            self.done, self.total = done, total
            if gone.is_set():
                raise Stopped

        task = asyncio.get_running_loop().run_in_executor(self._thread, work, told)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_EVERY)
                if not task.done() and await request.is_disconnected():
                    gone.set()
        except asyncio.CancelledError:
            gone.set()
            await asyncio.wait({task})
            raise
        return task.result()
