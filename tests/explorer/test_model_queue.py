"""The queue runs one request at a time, stops for clients that leave, and is limited in length."""

import asyncio
import threading
from typing import Any

import pytest

from headwise.explorer import jobs as jobs_module
from headwise.explorer.api_types import ProgressAnswer
from headwise.explorer.jobs import Busy, ModelQueue
from headwise.explorer.routes import Explorer
from headwise.progress import Progress, StopWork

from .sessions import tiny_session


class Asker:
    """A request that a test can disconnect."""

    def __init__(self, *, is_gone: bool = False) -> None:
        self.is_gone = is_gone

    async def is_disconnected(self) -> bool:
        return self.is_gone


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "POLL_REQUEST", 0.01)


def run(queue: ModelQueue, asker: Asker, work: Any) -> Any:
    unchecked: Any = (
        ModelQueue.run.__wrapped__ if hasattr(ModelQueue.run, "__wrapped__") else ModelQueue.run
    )
    return unchecked(queue, asker, work)


def test_requests_are_computed_one_at_a_time_and_all_are_answered() -> None:
    at_once, most = 0, 0

    def work(_: Progress) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threading.Event().wait(0.005)
        at_once -= 1
        return 7

    async def many() -> list[int]:
        queue = ModelQueue()
        answers = await asyncio.gather(*(run(queue, Asker(), work) for _ in range(12)))
        assert queue.progress().waiting == 0
        return answers

    assert asyncio.run(many()) == [7] * 12 and most == 1


def test_progress_states_the_work_in_words() -> None:
    seen: list[ProgressAnswer] = []

    async def read() -> None:
        queue = ModelQueue()

        def work(progress: Progress) -> None:
            for layer in (4, 5):
                progress("Reading layer {done} of {total}", layer, 30)
                seen.append(queue.progress())

        assert queue.progress() == ProgressAnswer("", 0, 0, 0)
        await run(queue, Asker(), work)

    asyncio.run(read())
    assert seen == [
        ProgressAnswer("Reading layer 4 of 30", 4, 30, 1),
        ProgressAnswer("Reading layer 5 of 30", 5, 30, 1),
    ]


def test_work_stops_when_its_request_disconnects() -> None:
    steps: list[int] = []

    async def leave() -> None:
        queue, asker = ModelQueue(), Asker()

        def work(report: Progress) -> None:
            for step in range(10_000):
                steps.append(step)
                if step == 3:
                    asker.is_gone = True
                threading.Event().wait(0.005)
                report("step", step, 10_000)

        with pytest.raises(StopWork):
            await run(queue, asker, work)
        assert (await run(queue, Asker(), lambda _: 1)) == 1

    asyncio.run(leave())
    assert 3 <= len(steps) < 5000


def test_work_of_a_disconnected_request_does_not_start() -> None:
    async def never() -> None:
        with pytest.raises(StopWork):
            await run(ModelQueue(), Asker(is_gone=True), lambda _: pytest.fail("begun"))

    asyncio.run(never())


def test_a_full_queue_rejects_requests_and_serves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs_module, "MAX_WAITING", 3)

    async def crowd() -> list[Any]:
        queue = ModelQueue()
        waiting = (run(queue, Asker(), lambda _: 1) for _ in range(5))
        return await asyncio.gather(*waiting, return_exceptions=True)

    answers = asyncio.run(crowd())
    assert answers[:3] == [1, 1, 1]
    assert all(isinstance(answer, Busy) and "try again" in str(answer) for answer in answers[3:])


def test_an_error_in_the_work_reaches_the_caller() -> None:
    async def fail() -> None:
        with pytest.raises(ZeroDivisionError):
            await run(ModelQueue(), Asker(), lambda _: 1 / 0)

    asyncio.run(fail())


def test_a_client_that_leaves_while_it_sends_causes_no_error() -> None:
    app, sent = Explorer(tiny_session("llama")).app(), list[Any]()
    headers = ((b"host", b"127.0.0.1"), (b"content-type", b"application/json"))
    scope = {"type": "http", "method": "POST", "path": "/api/readings", "headers": [*headers]}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""}

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 499
