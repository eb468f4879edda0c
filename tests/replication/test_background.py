"""Check that background tasks are referenced, can be ended together, and report errors at once."""

import asyncio

import pytest

from taskraft_replication.background import Background, run_beside


@pytest.fixture
async def defects():
    """Return what the exception handler of the loop hears; it stops a node on what has a handle."""
    heard = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    return heard


async def fail():
    raise KeyError("nobody expected this")


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_defect_is_heard_of_although_the_task_is_kept(defects):
    task = run_beside(fail())
    await turns()
    assert [type(context["exception"]) for context in defects] == [KeyError]
    assert "handle" in defects[0]
    assert task.done()


async def test_what_is_cancelled_is_no_defect(defects):
    background = Background()
    background.start(asyncio.Event().wait())
    await turns()
    background.cancel()
    await background.ended()
    await turns()
    assert defects == []


async def test_tasks_end_before_the_wait_for_them_does(defects):
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
    assert not background._tasks, "what has ended is let go"
