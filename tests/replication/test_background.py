"""Check that background tasks are referenced, can be ended together, and report errors at once."""

import asyncio

import pytest

from taskraft_replication.background import Background, run_beside


@pytest.fixture
async def defects():
    """Return the errors that the loop's exception handler gets; in a node the handler stops it."""
    heard = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    return heard


async def fail():
    raise KeyError("nobody expected this")


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_error_is_reported_although_the_task_is_referenced(defects):
    task = run_beside(fail())
    await turns()
    assert [type(context["exception"]) for context in defects] == [KeyError]
    assert "handle" in defects[0]
    assert task.done()


async def test_a_cancelled_task_reports_no_error(defects):
    background = Background()
    background.start(asyncio.Event().wait())
    await turns()
    background.cancel()
    await background.ended()
    await turns()
    assert defects == []


async def test_ended_returns_after_all_tasks_have_ended(defects):
    background, ended = Background(), []

    async def work(number):
        await asyncio.sleep(0)
        ended.append(number)

    for number in range(3):
        background.start(work(number))
    background.start(fail())
    await background.ended()
    assert sorted(ended) == [0, 1, 2]
    await turns()
    assert len(defects) == 1
    assert not background._tasks, "ended tasks are not kept"
