"""Storage work runs in order on a thread; results and the first failure reach the loop."""

import asyncio
import threading

from taskraft_replication.node import storage_worker
from taskraft_replication.node.storage_worker import StorageWorker
from tests.turns import turns_until


class Work:
    """A worker, and its reports to the loop."""

    def __init__(self) -> None:
        self.reported: list[object] = []
        self.happened = asyncio.Event()
        self.marked = threading.Event()
        self.worker = StorageWorker(
            asyncio.get_running_loop(), "storage-test", self.marked.set, self._tell
        )

    def _tell(self, what: object) -> None:
        self.reported.append((what, threading.current_thread().name))
        self.happened.set()

    def submit(self, work) -> None:
        self.worker.submit(work, self._tell)

    async def until(self, count: int) -> None:
        while len(self.reported) < count:
            self.happened.clear()
            await self.happened.wait()


async def test_work_runs_in_order_on_the_thread_and_is_reported_on_the_loop():
    work = Work()
    names = []
    for number in range(3):
        work.submit(lambda number=number: names.append(threading.current_thread().name) or number)
    await work.until(3)
    here = threading.current_thread().name
    assert work.reported == [(0, here), (1, here), (2, here)]
    assert names == ["storage-test"] * 3
    await asyncio.to_thread(work.worker.stop)


async def test_the_loop_waits_until_an_idle_thread_has_begun_and_never_for_a_busy_one(monkeypatch):
    monkeypatch.setattr(storage_worker, "HAND_OVER_SECONDS", 60)
    work = Work()
    may_end = threading.Event()
    for number in range(3):
        await turns_until(lambda: work.worker._is_waiting)
        work.submit(may_end.wait)
        assert work.worker._queue.empty(), "the thread has taken the work"
        work.submit(lambda number=number: number)
        assert not work.worker._queue.empty(), "the thread is busy"
        may_end.set()
        await work.until(2 * number + 2)
        may_end.clear()
    await asyncio.to_thread(work.worker.stop)


async def test_no_work_runs_after_a_failure():
    work = Work()
    error = OSError("no room")

    def fail() -> None:
        raise error

    done = []
    work.submit(fail)
    work.submit(lambda: done.append("after the failure"))
    await work.until(1)
    await asyncio.to_thread(work.worker.stop)
    await asyncio.sleep(0)
    assert [what for what, _ in work.reported] == [error]
    assert not done


async def test_close_waits_for_all_submitted_work():
    work = Work()
    may_end = threading.Event()
    work.submit(may_end.wait)
    work.submit(lambda: "last")
    ending = asyncio.create_task(asyncio.to_thread(work.worker.stop))
    await asyncio.sleep(0)
    may_end.set()
    await ending
    await work.until(2)
    assert [what for what, _ in work.reported] == [True, "last"]


async def test_the_mark_is_synced_in_a_pause_and_busy_time_is_counted():
    work = Work()
    assert work.worker.busy_us == 0
    work.submit(lambda: sum(range(200_000)))
    await work.until(1)
    assert 0 < work.worker.busy_us < 60_000_000
    assert await asyncio.to_thread(work.marked.wait, 20)
    work.marked.clear()
    await asyncio.to_thread(work.worker.stop)
    assert not work.marked.is_set(), "nothing was written since"


def test_reports_to_a_closed_loop_are_dropped():
    loop = asyncio.new_event_loop()
    done, reported = [], []
    worker = StorageWorker(loop, "storage-test", lambda: None, lambda _: None)
    loop.close()
    worker.submit(lambda: done.append("work"), reported.append)
    worker.stop()
    assert (done, reported) == (["work"], [])
