"""Run model work off the event loop: ModelQueue for requests, Job for work that takes minutes.

In: functions that take a progress callback. Out: their results. The callback raises StopWork once
the browser has disconnected or the user has pressed Stop.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request

from headwise.errors import HeadwiseError
from headwise.explorer.api_types import HeadGrid, JobAnswer, ProgressAnswer
from headwise.progress import Progress, StopWork

MAX_WAITING = 64
POLL_REQUEST, POLL_LOCK = 0.25, 0.1
"""Seconds between checks for a closed connection, and for a waiting job that was stopped."""

Answer = TypeVar("Answer")


class Busy(HeadwiseError):
    """The queue is full."""


class ModelQueue:
    """Runs the work that requests need the model for, one request at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        # Always the same thread: torch keeps a thread pool for every thread that computes, and idle
        # pools compete with the busy one for processor time.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwise")
        self._waiting, self._done, self._total = 0, 0, 0
        self._stage = ""

    def progress(self) -> ProgressAnswer:
        """The current work's stage, steps done and total steps, and the length of the queue."""
        return ProgressAnswer(self._stage, self._done, self._total, self._waiting)

    async def run(self, request: Request, work: Callable[[Progress], Answer]) -> Answer:
        """Call `work` in the queue's thread when its turn comes, and return its result.

        The progress callback passed to `work` raises StopWork once the client has disconnected.
        """
        if self._waiting >= MAX_WAITING:
            raise Busy(f"{self._waiting} requests are waiting for the model: try again in a second")
        self._waiting += 1
        try:
            async with self._lock:
                if await request.is_disconnected():
                    raise StopWork
                return await self._run_now(request, work)
        finally:
            self._waiting -= 1

    async def _run_now(self, request: Request, work: Callable[[Progress], Answer]) -> Answer:
        is_disconnected = threading.Event()
        self._stage, self._done, self._total = "", 0, 0

        def report(stage: str, done: int, total: int, /) -> None:
            self._stage = stage.format(done=done, total=total)
            self._done, self._total = done, total
            if is_disconnected.is_set():
                raise StopWork

        task = asyncio.get_running_loop().run_in_executor(self._thread, work, report)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=POLL_REQUEST)
                if not task.done() and await request.is_disconnected():
                    is_disconnected.set()
        except asyncio.CancelledError:
            is_disconnected.set()
            await asyncio.wait({task})
            raise
        return task.result()


@dataclass
class Job:
    """Work that runs in its own thread while the page stays usable."""

    name: str
    state: str = "idle"
    """One of idle, running, done, stopped or failed."""
    stage: str = ""
    done: int = 0
    total: int = 0
    error: str = ""
    result: Any = None
    """Result of the last finished run."""
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    thread: threading.Thread | None = field(default=None, repr=False)

    def start(self, work: Callable[["Job"], Any]) -> bool:
        """Call `work` in a new thread unless the job is running; return whether it started."""
        if self.state == "running":
            return False
        self.state, self.stage, self.done, self.total, self.error = "running", "", 0, 0, ""
        self._stop.clear()
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()
        return True

    def _run(self, work: Callable[["Job"], Any]) -> None:
        try:
            self.result = work(self)
            self.state = "done"
        except StopWork:
            self.state = "stopped"
        except HeadwiseError as error:
            self.state, self.error = "failed", str(error)
        except Exception as error:
            self.state, self.error = "failed", f"{type(error).__name__}: {error}"

    @contextmanager
    def hold(self, lock: threading.Lock) -> Iterator[None]:
        """Hold `lock` inside the block; raise StopWork if the job is stopped while waiting."""
        self.stage = "waiting for other work"
        while not lock.acquire(timeout=POLL_LOCK):
            self.progress("", 0, 0)
        self.stage = ""
        try:
            yield
        finally:
            lock.release()

    def progress(self, stage: str, done: int, total: int, /) -> None:
        """Record the progress unless `total` is 0; raise StopWork if the job was stopped."""
        if total:
            self.stage, self.done, self.total = stage, done, total
        if self._stop.is_set():
            raise StopWork

    def stop(self) -> None:
        """Stop the job at its next progress report."""
        self._stop.set()

    def answer(self, grid: HeadGrid | None = None) -> JobAnswer:
        """The job's state and progress; `grid` has the columns that its last finished run added."""
        return JobAnswer(self.name, self.state, self.stage, self.done, self.total, self.error, grid)
