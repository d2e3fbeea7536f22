"""Jobs: long work beside the page, one of a kind at a time, with progress and a way to stop it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headwise.errors import HeadwiseError

LOOK_EVERY = 0.1
"""Seconds between looks whether work that waits was told to stop."""


class Stopped(Exception):
    """The work was told to stop."""


@dataclass
class Job:
    """One piece of long work."""

    name: str
    state: str = "idle"
    """idle, running, done, stopped or failed."""
    done: int = 0
    total: int = 0
    stage: str = ""
    said: str = ""
    """Why it failed, in a sentence."""
    result: Any = None
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def start(self, work: Callable[["Job"], Any]) -> bool:
        """Begin, unless it is under way; whether it was begun."""
        if self.state == "running":
            return False
        self.state, self.done, self.total, self.stage, self.said = "running", 0, 0, "", ""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        return True

    def _run(self, work: Callable[["Job"], Any]) -> None:
        try:
            self.result = work(self)
            self.state = "done"
        except Stopped:
            self.state = "stopped"
        except HeadwiseError as error:
            self.state, self.said = "failed", str(error)
        except Exception as error:
            self.state, self.said = "failed", f"{type(error).__name__}: {error}"

    @contextmanager
    def turn(self, lock: threading.Lock) -> Iterator[None]:
        """Wait until nobody else has the lock, and say so; raises if told to stop meanwhile."""
        self.stage = "waiting for other work"
        while not lock.acquire(timeout=LOOK_EVERY):
            self.check()
        self.stage = ""
        try:
            yield
        finally:
            lock.release()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Say how far the work has come; raises if it was told to stop. A remark is not kept."""
        if total:
            self.stage, self.done, self.total = stage, done, total
        self.check()

    def check(self) -> None:
        """Raise if the work was told to stop."""
        if self._stop.is_set():
            raise Stopped

    def stop(self) -> None:
        """Tell it to stop at its next step."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)

    def as_json(self) -> dict[str, Any]:
        """How far it has come."""
        return {
            "name": self.name,
            "state": self.state,
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
            "said": self.said,
        }
