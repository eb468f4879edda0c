"""Batch handlers, puts of many calls, and consumers of untyped tasks."""

import pytest

from taskraft import errors
from taskraft.worker import InvalidTask
from tests.clients.worker import handlers
from tests.clients.worker.handlers import events, running
from tests.clients.worker.test_worker import WAIT, when


def batched(app, handler, **options):
    """Return a task whose batches have exactly three items."""
    return app.batch_task(size=3, linger="60s", **options)(handler)


@pytest.mark.parametrize(
    ("rows", "ended"),
    [
        ((1, 2, 3), ["'1'", "'2'", "'3'"]),
        ((1, 13, 3), ["'1'", "ValueError: unlucky", "'3'"]),
        ((1, 99, 3), ["LookupError: no index"] * 3),
        ((1, [2], 3), ["'1'", "DecodeError: must be int, not [2]", "'3'"]),
        (([1], [2], [3]), [f"DecodeError: must be int, not [{row}]" for row in (1, 2, 3)]),
        ((1, 8, 3), ["InvalidResult: worker must return a list of 3 results, not 'all'"] * 3),
        ((1, 7, 3), ["TypeError: worker must return a list of 3 results, not ['one']"] * 3),
    ],
)
async def test_each_task_of_a_batch_has_its_own_outcome(app, rows, ended):
    failures = (ValueError, LookupError, TypeError)
    task = batched(app, handlers.index, fatal=failures, name="worker")
    async with running(app):
        tube = app.clients.here().tube(task.tube)
        ids = await tube.put_many(rows, type=task.name, content_type="application/json")
        found = [await task.handle(one).aoutcome(WAIT) for one in ids]
    assert [one.failure or repr(one.value) for one in found] == ended
    assert len(events) <= 1


async def test_a_batch_runs_in_a_thread_and_sees_its_tasks(app):
    task = batched(app, handlers.index_in_thread, keep_result="1m")
    async with running(app):
        handles = await app.aput_many(task.plan(row) for row in range(6))
        assert [await handle.aresult(WAIT) for handle in handles] == [None] * 6
    assert [count for count, _ in events] == [3, 3]
    assert sorted(events[0][1] + events[1][1]) == list(range(6))


async def test_an_incomplete_batch_is_run_after_the_linger(app):
    task = app.batch_task(size=100, linger="10ms")(handlers.index)
    async with running(app):
        assert await (await task.aput(5)).aresult(WAIT) == "5"


async def test_the_time_limit_of_a_batch_fails_all_its_tasks(app):
    task = batched(app, handlers.hang_all, time_limit="50ms")
    async with running(app):
        handles = await app.aput_many(task.plan(row) for row in range(3))
        for handle in handles:
            found = await when(handle, lambda seen: seen.state == "DELAYED")
            assert found.failure == "TimeLimitExceeded: the time limit of 0.05 s is over"


async def test_a_batch_beyond_the_grace_is_handed_back_uncounted(app):
    task = batched(app, handlers.hang_all)
    async with running(app, grace=0):
        handles = await app.aput_many(task.plan(row) for row in range(3))
        await handlers.begun.wait()
        app.stop()
    async with app:
        found = [await handle.astatus() for handle in handles]
    assert [(one.state, one.attempt) for one in found] == [("READY", 0)] * 3


async def test_a_batch_task_can_be_called_with_one_item(app):
    assert await app.batch_task()(handlers.index)(4) == "4"


async def test_a_batch_task_needs_no_options(app):
    task = app.batch_task(handlers.index)
    async with running(app):
        assert await (await task.aput(5)).aresult(WAIT) == "5"


def one_item(row: int) -> int:
    return row


def single_result(rows: list[int]) -> int:
    return len(rows)


@pytest.mark.parametrize(
    ("handler", "options", "told"),
    [
        (one_item, {}, "takes one list"),
        (single_result, {}, "a list with one result for each item"),
        (handlers.index_in_thread, {"pool": "process"}, "pool 'async' or 'thread'"),
        (handlers.index, {"payload": "single"}, "no option payload"),
    ],
)
def test_a_function_that_handles_no_batches_is_refused_at_import(app, handler, options, told):
    with pytest.raises(InvalidTask, match=told):
        app.batch_task(**options)(handler)


def test_many_calls_of_several_tasks_are_put_and_refused_one_by_one(app):
    add = app.task(key=lambda a: f"key {a}")(handlers.add)
    subtract = app.task(tube=f"{add.tube}-other")(handlers.subtract)
    with app:
        app.create_tubes()
        plans = [add.plan(1), subtract.plan(5, 3), add.plan(2)]
        handles = app.put_many(plans)
        assert [handle.tube for handle in handles] == [add.tube, subtract.tube, add.tube]
        assert handles[1].status().json() == {"a": 5, "b": 3}
        with pytest.raises(errors.ItemsRefused) as refused:
            app.put_many([subtract.plan(1, 1), add.plan(2), add.plan(3)])
        assert list(refused.value.refused) == [1]
        assert isinstance(refused.value.refused[1], errors.KeyTaken)
        assert add.handle(refused.value.task_ids[2]).status().json() == {"a": 3}


def test_a_planned_task_is_put_in_its_own_tube_only(taskraft):
    taskraft.client.create_tube("plain")
    tube = taskraft.client.tube("plain")
    other = tube.task("a", priority=3)
    (task_id,) = tube.put_many([other])
    assert tube.peek(task_id).priority == 3
    with pytest.raises(TypeError, match="which have their own"):
        tube.put_many([other], priority=4)
    stranger = type(other)("elsewhere", other.spec)
    with pytest.raises(ValueError, match="planned for elsewhere"):
        tube.put_many([stranger])


async def test_a_consumer_gets_tasks_of_all_types(app):
    tube = app.defaults["tube"]

    @app.consumer(tube, concurrency=2)
    async def consume(task):
        return f"{task.message.spec.type} {task.text()}"

    async with running(app):
        inner = app.clients.here().tube(tube)
        done = await inner.put_and_wait("a", type="stranger", wait=WAIT)
        assert done.result == b"stranger a"


def test_an_unknown_option_of_a_consumer_is_refused(app):
    with pytest.raises(TypeError, match="no option"):
        app.consumer("tube", threads=3)
