"""A task that waits for a process has not begun: its limit does not run, its attempt is not used.

The processes are replaced by objects, so that a test decides which of them start.
"""

import asyncio

import pytest

from taskraft.worker import process_pool
from taskraft.worker.child_process import Returned
from taskraft.worker.clients import AppClients
from taskraft.worker.errors import WorkerError, WorkerLost
from tests.clients.worker import process_tasks
from tests.clients.worker.handlers import running
from tests.clients.worker.test_worker import WAIT, when
from tests.turns import turns_until


class Starts:
    """Decides which starts of processes fail."""

    def __init__(self):
        self.can_start = True
        self.calls = []


class FakeProcess:
    """A process that dies of its first task, and runs each later one; see `Starts`."""

    starts: Starts

    def __init__(self, _reference, _names):
        self.is_usable = False
        self.calls = 0
        self.growth_bytes = 0

    def start(self):
        if not self.starts.can_start:
            raise WorkerError("a process of the pool cannot start: no module")
        self.is_usable = True

    def is_alive(self):
        return True

    def call(self, call, _progress):
        self.starts.calls.append(call)
        if len(self.starts.calls) == 1:
            self.starts.can_start = self.is_usable = False
            raise WorkerLost("the process of the handler ended by SIGKILL")
        return Returned(b'["ran"]', (), 0)

    def send(self, _frame):
        pass

    def close(self, _timeout_seconds=0):
        self.is_usable = False

    kill = close


@pytest.fixture
def starts(monkeypatch):
    monkeypatch.setattr(process_pool, "PooledProcess", FakeProcess)
    FakeProcess.starts = Starts()
    return FakeProcess.starts


@pytest.fixture
def app(ataskraft, starts, monkeypatch):
    monkeypatch.setattr(process_tasks.app, "clients", AppClients(None, {}))
    for task in process_tasks.app.tasks.values():
        monkeypatch.setattr(task, "tube", "worker")
        monkeypatch.setattr(task, "time_limit", 1.0)
    return process_tasks.app


async def test_a_task_that_no_process_can_run_goes_back_uncounted(app, starts):
    async with running(app, processes=1):
        dying = await process_tasks.where.aput("dies")
        await when(dying, lambda task: task.state == "DELAYED")
        await turns_until(lambda: app._worker._processes.is_down)
        assert not app._worker._health.is_ready
        handle = await process_tasks.where.aput("a")
        found = await when(handle, lambda task: task.state == "DELAYED")
        assert (found.attempt, found.failure) == (0, "")
        starts.can_start = True
        assert await handle.aresult(WAIT) == ["ran"]
        assert app._worker._health.is_ready


async def test_the_wait_for_a_process_does_not_use_the_time_limit(app, starts, monkeypatch):
    starts.calls.append("the one that ends the process")
    take = process_pool.ProcessPool.take

    async def take_later(pool):
        is_over = asyncio.Event()
        asyncio.get_running_loop().call_later(60, is_over.set)
        await is_over.wait()
        return await take(pool)

    monkeypatch.setattr(process_pool.ProcessPool, "take", take_later)
    async with running(app, processes=1):
        handle = await process_tasks.where.aput("a")
        put_at = asyncio.get_running_loop().time()
        found = await handle.aoutcome("1h")
    assert (found.value, found.attempt) == (["ran"], 1)
    assert put_at + 60 < starts.calls[-1].deadline <= put_at + 65
