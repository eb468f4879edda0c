"""Workers: concurrent handlers, which may wait for other tasks."""

import asyncio
import json
import logging
import signal
import threading

import pytest

from taskraft import AsyncClient, errors
from taskraft.v1 import task_pb2
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

DONE = task_pb2.Task.DONE
READY = task_pb2.Task.READY
DEPTH = 4


def results(cluster):
    return [task.result for task in cluster.tasks()]


# --------------------------------------------------------------------------------- coroutines


async def test_as_many_handlers_run_at_once_as_there_is_credit(cluster, client):
    await client.tube("emails").put_many(["a", "b", "c", "d", "e"])
    running, most, go_on = set(), 0, asyncio.Event()

    async def handle(task):
        nonlocal most
        running.add(task.id)
        most = max(most, len(running))
        await go_on.wait()
        running.discard(task.id)

    async with client.subscribe("emails", credit=2) as tasks:
        working = asyncio.create_task(tasks.work(handle))
        await turns_until(lambda: len(running) == 2)
        go_on.set()
        await turns_until(lambda: cluster.states() == [DONE] * 5)
        await tasks.stop()
        await working
    assert most == 2


async def test_the_return_value_of_a_handler_is_the_result(cluster, client):
    await client.tube("emails").put_many(["1", "2", "3"])

    async def handle(task):
        if task.text() == "3":
            await task.ack("by hand")
        return None if task.text() == "1" else {"n": task.json()}

    async with client.subscribe("emails") as tasks:
        working = asyncio.create_task(tasks.work(handle))
        await turns_until(lambda: cluster.states() == [DONE] * 3)
        await tasks.stop()
        await working
    assert results(cluster) == [b"", b'{"n":2}', b"by hand"]


async def test_an_exception_of_a_handler_is_logged_and_the_worker_continues(
    cluster, client, caplog
):
    await client.tube("emails").put_many(["fail", "fine"])

    async def handle(task):
        if task.text() == "fail" and task.attempt == 1:
            raise ValueError("no such address")

    async with client.subscribe("emails", credit=1) as tasks:
        working = asyncio.create_task(tasks.work(handle))
        await turns_until(lambda: cluster.states() == [DONE, DONE])
        await tasks.stop()
        await working
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.getMessage() == "emails/1 failed at attempt 1"
    assert "no such address" in str(record.exc_info)


async def test_a_failed_acknowledgement_is_not_logged_as_a_failed_task(cluster, caplog):
    async with AsyncClient(cluster.target, timeout="1s") as client:
        await client.tube("emails").put("a")
        cluster.refuse("StreamSettle", "NO_LEADER", times=1_000)

        async def handle(_):
            await tasks.stop()

        async with client.subscribe("emails", credit=1) as tasks:
            await tasks.work(handle)
            assert cluster.states() == [task_pb2.Task.TAKEN]
            cluster.accept("StreamSettle")
    (record,) = [each for each in caplog.records if "emails/1" in each.getMessage()]
    assert record.levelno == logging.WARNING
    assert "was processed but not acknowledged" in record.getMessage()


async def test_a_worker_stops_on_a_signal(cluster, client):
    await client.tube("emails").put_many(["a", "b"])
    before = signal.getsignal(signal.SIGTERM)

    async def handle(_):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)

    async with client.subscribe("emails", credit=1) as tasks:
        tasks.stop_on()
        await tasks.work(handle)
    assert cluster.states() == [DONE, READY]
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_stopped_worker_finishes_its_running_handlers(cluster, client):
    await client.tube("emails").put_many(["a", "b", "c"])
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(_):
        begun.set()
        await go_on.wait()

    async with client.subscribe("emails", credit=1) as tasks:
        working = asyncio.create_task(tasks.work(handle))
        await begun.wait()
        await tasks.stop()
        assert not working.done()
        go_on.set()
        await working
    assert cluster.states() == [DONE, READY, READY]


async def test_a_cancelled_worker_releases_the_tasks_of_running_handlers(cluster, client):
    await client.tube("emails").put("a")
    begun = asyncio.Event()

    async def handle(_):
        begun.set()
        await asyncio.Event().wait()

    async with client.subscribe("emails") as tasks:
        working = asyncio.create_task(tasks.work(handle))
        await begun.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    handed_back = [
        settlement.release
        for message in cluster.requests("StreamMessage")
        for settlement in message.settlements
    ]
    assert [each.uncounted for each in handed_back] == [True]


async def test_a_failed_subscription_ends_the_worker_with_its_error(cluster, client):
    begun, ended = asyncio.Event(), asyncio.Event()
    await client.tube("emails").put("a")

    async def handle(_):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with client.subscribe("emails") as tasks:
        working = asyncio.create_task(tasks.work(handle))
        await begun.wait()
        await asyncio.to_thread(cluster.go_away, "NOT_ALLOWED")
        with pytest.raises(errors.NotAllowed):
            await working
    assert ended.is_set()


async def test_a_plain_function_is_refused_as_an_async_handler(client, caplog):
    await client.tube("emails").put("a")

    async with client.subscribe("emails") as tasks:
        seen = []
        working = asyncio.create_task(tasks.work(seen.append))
        await turns_until(lambda: seen)
        await tasks.stop()
        await working
    assert "async def" in str(caplog.records[0].exc_info)


# ------------------------------------------------------------------------------------ threads


def test_as_many_threads_run_as_there_is_credit(cluster, blocking_client):
    blocking_client.tube("emails").put_many(["1", "2", "3", "4"])
    both = threading.Barrier(2)
    with blocking_client.subscribe("emails", credit=2) as tasks:

        def handle(task):
            both.wait(10)
            if task.json() == 4:
                tasks.stop()
            return task.json()

        tasks.work(handle)
    assert cluster.states() == [DONE] * 4
    assert results(cluster) == [b"1", b"2", b"3", b"4"]


def test_a_handler_that_raises_or_exits_releases_its_task(cluster, blocking_client, caplog):
    blocking_client.tube("emails").put_many(["raise", "exit", "stop"])
    with blocking_client.subscribe("emails", credit=1) as tasks:

        def handle(task):
            if task.attempt == 1 and task.text() == "raise":
                raise ValueError("no")
            if task.attempt == 1 and task.text() == "exit":
                raise SystemExit(3)
            if task.text() == "exit":
                tasks.stop()

        tasks.work(handle)
    assert cluster.states() == [DONE] * 3
    messages = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert messages == ["emails/1 failed at attempt 1", "emails/2 failed at attempt 1"]


UNUSUAL = (
    StopIteration("no"),
    GeneratorExit("no"),
    KeyboardInterrupt("no"),
    asyncio.CancelledError("no"),
)


@pytest.mark.parametrize("error", UNUSUAL, ids=lambda error: type(error).__name__)
def test_whatever_a_handler_raises_fails_its_attempt(cluster, blocking_client, error):
    blocking_client.tube("emails").put("a")
    with blocking_client.subscribe("emails", credit=1) as tasks:

        def handle(task):
            if task.attempt == 1:
                raise error
            assert task.failure.startswith(type(error).__name__)
            tasks.stop()

        tasks.work(handle)
    assert cluster.states() == [DONE]


@pytest.mark.parametrize("error", UNUSUAL, ids=lambda error: type(error).__name__)
async def test_whatever_a_coroutine_raises_fails_its_attempt(cluster, client, error):
    await client.tube("emails").put("a")
    failures = []

    async with client.subscribe("emails", credit=1) as tasks:

        async def handle(task):
            if task.attempt == 1:
                raise error
            failures.append(task.failure)
            await tasks.stop()

        await tasks.work(handle)
    assert len(failures) == 1
    assert type(error).__name__ in failures[0]


def test_ctrl_c_lets_a_worker_finish_its_running_handlers(cluster, blocking_client):
    blocking_client.tube("emails").put_many(["a", "b"])

    def handle(task):
        if task.text() == "a":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with (
        pytest.raises(KeyboardInterrupt),
        blocking_client.subscribe("emails", credit=1) as tasks,
    ):
        tasks.work(handle)
    assert cluster.states()[0] == DONE


def test_a_coroutine_function_is_refused_as_a_thread_handler(blocking_client):
    async def handle(_):
        pass

    with (
        blocking_client.subscribe("emails") as tasks,
        pytest.raises(TypeError, match="AsyncClient"),
    ):
        tasks.work(handle)


# ------------------------------------------------------------- handlers that wait for other tasks


@pytest.mark.cluster
async def test_a_handler_may_wait_for_tasks_of_its_own_kind(node, tube):
    async with AsyncClient(node.target) as client:
        numbers = client.tube(tube.name)

        async def depth(task):
            rest = task.json()
            if not rest:
                return 0
            child = await numbers.put_and_wait(rest - 1, wait="20s")
            return 1 + json.loads(child.result)

        async with client.subscribe(tube.name, credit=1) as tasks:
            working = asyncio.create_task(tasks.work(depth))
            root = await numbers.put_and_wait(DEPTH, wait="30s")
            await tasks.stop()
            await working
        assert (root.outcome, root.result) == ("PROCESSED", b"%d" % DEPTH)


@pytest.mark.cluster
def test_a_thread_may_wait_for_tasks_of_its_own_kind(real_client, tube):
    def depth(task):
        rest = task.json()
        if not rest:
            return 0
        child_id = tube.put(rest - 1)
        (child,) = tube.wait(child_id, wait="20s")
        return 1 + json.loads(child.result)

    with real_client.subscribe(tube.name, credit=1) as tasks:
        working = threading.Thread(target=tasks.work, args=(depth,))
        working.start()
        root = tube.put_and_wait(DEPTH, wait="30s")
        tasks.stop()
        working.join()
    assert (root.outcome, root.result) == ("PROCESSED", b"%d" % DEPTH)
