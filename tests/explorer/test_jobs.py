"""Jobs run beside the page: they report progress, can be stopped, and fail with one sentence."""

import threading

import pytest

from headwise.errors import OptionError
from headwise.explorer.api_types import JobAnswer
from headwise.explorer.jobs import Job

from .sessions import fresh_session, tiny_session


def test_a_job_reports_its_progress_and_result() -> None:
    job, half, go_on = Job("work"), threading.Event(), threading.Event()

    def work(mine: Job) -> str:
        mine.progress("first", 1, 2)
        mine.progress("a remark on how much there is", 0, 0)
        half.set()
        go_on.wait(10.0)
        return "found"

    assert job.start(work) and half.wait(10.0)
    assert not job.start(work), "one of a kind at a time"
    assert job.answer() == JobAnswer("work", "running", "first", 1, 2, "", None)
    go_on.set()
    job.thread.join(10.0)
    assert (job.state, job.result) == ("done", "found")


def test_a_job_stops_at_its_next_step() -> None:
    job, steps = Job("work"), []

    def work(mine: Job) -> None:
        for step in range(1000):
            steps.append(step)
            if step == 2:
                mine.stop()
            mine.progress("", step, 1000)

    job.start(work)
    job.thread.join(10.0)
    assert job.state == "stopped" and steps == [0, 1, 2]


def test_a_waiting_job_reports_it_and_can_be_stopped() -> None:
    turn, begun = threading.Lock(), threading.Event()

    def work(mine: Job) -> str:
        begun.set()
        with mine.hold(turn):
            return "found"

    with turn:
        job = Job("work")
        assert job.start(work) and begun.wait(10.0)
        while job.stage != "waiting for other work":
            job.thread.join(0.005)
        job.stop()
        job.thread.join(10.0)
        assert job.state == "stopped"
        assert job.start(work)
    job.thread.join(10.0)
    assert (job.state, job.result, turn.locked()) == ("done", "found", False)


def test_a_failed_job_reports_its_error() -> None:
    job = Job("work")

    def refuse(_: Job) -> None:
        raise OptionError("a sentence")

    job.start(refuse)
    job.thread.join(10.0)
    assert (job.state, job.error) == ("failed", "a sentence")
    job.start(lambda _: 1 / 0)
    job.thread.join(10.0)
    assert (job.state, job.error) == ("failed", "ZeroDivisionError: division by zero")


def test_the_copy_for_jobs_shares_weights_but_not_modules() -> None:
    session = tiny_session("llama")
    model, twin = session.scored.model, session.job_model.model
    assert {id(part) for part in model.parameters()} == {id(part) for part in twin.parameters()}
    assert not {id(part) for part in model.modules()} & {id(part) for part in twin.modules()}
    assert model.config is not twin.config


def test_a_scan_runs_beside_the_page_and_adds_roles() -> None:
    session = tiny_session("bert")
    assert session.job_answer("scan").found is None and session.scan_table is None
    session.start("scan")
    session.jobs["scan"].thread.join(60.0)
    assert session.jobs["scan"].error == ""
    grid = session.job_answer("scan").found
    assert grid is not None and len(grid.names) == 15
    assert "induction" in grid.measures and session.scan_table is not None


def test_importance_runs_beside_the_page() -> None:
    session = tiny_session("gpt2")
    session.start("importance")
    session.jobs["importance"].thread.join(120.0)
    assert session.jobs["importance"].error == ""
    grid = session.job_answer("importance").found
    assert grid is not None and set(grid.measures) == {"zero", "michel"}
    assert all(value is not None for value in grid.measures["zero"])
    assert grid.words["zero"] == "Loss added when it is silenced, on built-in text"


@pytest.mark.slow
def test_jobs_started_together_give_the_results_of_separate_jobs() -> None:
    alone, together = fresh_session("gpt2"), fresh_session("gpt2")
    for name in alone.jobs:
        alone.start(name)
        alone.jobs[name].thread.join(120.0)
    for name in together.jobs:
        together.start(name)
    for name, job in together.jobs.items():
        job.thread.join(120.0)
        assert job.error == ""
        assert together.job_answer(name).found == alone.job_answer(name).found
