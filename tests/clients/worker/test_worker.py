"""A worker runs tasks, and settles them by the outcome of their handlers."""

import asyncio

import pytest

from taskraft import Retry, errors
from taskraft.worker import (
    App,
    Context,
    InvalidTask,
    Middleware,
    ResultNotKept,
    TaskCancelled,
    TaskFailed,
)
from taskraft.worker.life_cycle import ExitReason
from tests.clients.worker import handlers
from tests.clients.worker.handlers import events, released, running
from tests.turns import turns_until

WAIT = "30s"


async def ended(handle):
    return await handle.aoutcome(WAIT)


async def when(handle, reached):
    """Wait until a task is in the state that ``reached`` accepts."""
    async for event in handle._clients.here().changes([handle.tube], from_start=True):
        if event.task_id == handle.id:
            status = await handle.astatus()
            if reached(status):
                return status
    return None


async def test_a_coroutine_and_a_function_return_their_results(app):
    add, subtract = app.task(handlers.add), app.task(handlers.subtract)
    async with running(app):
        added, subtracted = await add.aput(40), await subtract.aput(a=9, b=4)
        assert (await added.aresult(WAIT), await subtracted.aresult(WAIT)) == (42, 5)


def test_a_program_without_an_event_loop_puts_and_waits(app):
    add = app.task(handlers.add)
    with app:
        app.create_tubes()
        handle = add.options(delay="1h").put(1)
        assert handle.status().state == "DELAYED"
        handle.cancel()
        with pytest.raises(ResultNotKept):
            handle.result(WAIT)


async def test_a_blocking_put_in_an_event_loop_names_its_twin(app):
    with pytest.raises(RuntimeError, match="aput"):
        app.task(handlers.add).put(1)


@pytest.mark.parametrize(
    ("kind", "state", "attempt", "failure"),
    [
        ("retry", "DELAYED", 1, "RetryTask: not yet"),
        ("snooze", "DELAYED", 0, ""),
        ("reject", "BURIED", 1, "RejectTask: no such order"),
        ("fatal", "BURIED", 1, "LookupError: gone"),
        ("broken", "DELAYED", 1, "ValueError: broken"),
        ("exit", "DELAYED", 1, "SystemExit: 3"),
        ("cancelled", "DELAYED", 1, "CancelledError: cancelled by its own code"),
    ],
)
async def test_a_failed_attempt_is_settled_by_its_exception(app, kind, state, attempt, failure):
    fail = app.task(fatal=(LookupError,), keep_result=0)(handlers.fail)
    async with running(app):
        handle = await fail.aput(kind)
        found = await when(handle, lambda task: task.state == state)
    assert (found.attempt, found.failure) == (attempt, failure)


async def test_an_undecodable_payload_is_rejected_after_one_attempt(app):
    add = app.task(handlers.add)
    async with running(app):
        tube = app.clients.here().tube(add.tube)
        task_id = await tube.put({"a": "x"}, type=add.name)
        found = await ended(add.handle(task_id))
    assert (found.outcome, found.attempt) == ("BURIED_OUT", 1)
    assert found.failure == "DecodeError: a: must be int, not 'x'"


async def test_a_type_that_no_worker_knows_stays_ready(app):
    add = app.task(handlers.add)
    async with running(app):
        tube = app.clients.here().tube(add.tube)
        stranger = await tube.put("?", type="stranger")
        assert await (await add.aput(1)).aresult(WAIT) == 3
        found = await tube.peek(stranger)
        assert (found.state, found.attempt) == ("READY", 0)


async def test_tasks_of_version_2_wait_for_workers_of_version_2(app):
    first = app.task(name="add")(handlers.add)
    async with running(app):
        tube = app.clients.here().tube(first.tube)
        newer = await tube.put({"a": 1}, type="add@2")
        await (await first.aput(1)).aresult(WAIT)
        assert (await tube.peek(newer)).state == "READY"
    app.tasks.clear()
    second = app.task(name="add", version=2)(handlers.add)
    async with running(app):
        assert await second.handle(newer).aresult(WAIT) == 3


async def test_seventy_types_in_one_tube_are_all_served(app):
    tasks = [app.task(name=f"add-{n}")(handlers.add) for n in range(70)]
    async with running(app):
        handles = [await task.aput(n) for n, task in enumerate(tasks)]
        assert [await handle.aresult(WAIT) for handle in handles] == [n + 2 for n in range(70)]


async def test_a_result_that_is_not_kept_is_reported_instead_of_awaited(app):
    add = app.task(keep_result=0)(handlers.add)
    async with running(app):
        handle = await add.aput(1)
        await when_gone(handle)
        with pytest.raises(ResultNotKept, match="keep_result"):
            await handle.aresult(WAIT)


async def when_gone(handle):
    async for event in handle._clients.here().changes([handle.tube], from_start=True):
        if event.task_id == handle.id and event.to_state == 0:
            return


async def test_an_awaited_failure_raises(app):
    fail = app.task(fatal=(ValueError,))(handlers.fail)
    async with running(app):
        with pytest.raises(TaskFailed, match="ValueError: broken"):
            await (await fail.aput("broken")).aresult(WAIT)


async def test_the_time_limit_cancels_a_coroutine(app):
    hang = app.task(time_limit="1s")(handlers.hang)
    async with running(app):
        found = await when(await hang.aput(), lambda task: task.state == "DELAYED")
        assert found.failure == "TimeLimitExceeded: the time limit of 1 s is over"
        assert events == ["begun", "cleaned up"]


@pytest.mark.cluster
async def test_a_thread_beyond_its_time_limit_keeps_its_slot_and_the_worker_ends(real_app):
    block = real_app.task(time_limit="1s")(handlers.block)
    async with running(real_app, threads=2, grace="30s") as worker:
        handle = await block.aput()
        found = await when(handle, lambda task: task.state == "DELAYED")
        assert found.failure.startswith("TimeLimitExceeded")
        assert await worker is ExitReason.THREADS_STUCK


async def test_a_cancelled_task_interrupts_its_coroutine_and_ends(app):
    hang = app.task(handlers.hang)
    async with running(app, cancel_grace=0):
        handle = await hang.aput()
        await handlers.begun.wait()
        await handle.acancel()
        with pytest.raises((TaskCancelled, ResultNotKept)):
            await handle.aresult(WAIT)
    assert events == ["begun", "cleaned up"]


async def test_a_lost_lease_cancels_the_coroutine_and_drops_the_result(app):
    hang = app.task(handlers.hang)
    async with running(app, grace=0):
        handle = await hang.aput()
        await handlers.begun.wait()
        handlers.begun.clear()
        await app.clients.here().tube(hang.tube).snatch(handle.id)
        await handlers.begun.wait()  # the next attempt
        assert (await handle.astatus()).attempt == 2
    assert sorted(events) == ["begun", "begun", "cleaned up", "cleaned up"]


async def test_handlers_that_are_not_done_within_the_grace_are_handed_back_uncounted(app):
    hang = app.task(handlers.hang)
    async with running(app, grace="10ms") as worker:
        handle = await hang.aput()
        await handlers.begun.wait()
        app.stop()
        assert await worker is ExitReason.GRACE_OVER
    async with app:
        found = await handle.astatus()
    assert (found.state, found.attempt) == ("READY", 0)


async def test_a_stop_before_the_run_has_begun_ends_the_run_without_a_connection():
    app = App("test", target="127.0.0.1:1")
    app.task(handlers.add)
    begun = []

    @app.lifespan
    async def note(_):
        begun.append(True)
        yield

    app.stop()
    assert await app.run(signals=False, start_timeout="1s") is ExitReason.DRAINED
    scheduled = asyncio.create_task(app.run(signals=False, start_timeout="1s"))
    app.stop()
    assert await scheduled is ExitReason.DRAINED
    assert begun == []


async def test_a_draining_worker_finishes_its_handlers_and_takes_no_task(app):
    block = app.task(handlers.block)
    async with running(app, threads=4) as worker:
        first = await block.aput()
        await handlers.begun.wait()
        app.stop()
        second = await block.aput()
        released.set()
        assert await worker is ExitReason.DRAINED
    async with app:
        assert (await second.astatus()).attempt == 0
        with pytest.raises(ResultNotKept):
            await first.aresult(WAIT)


async def test_dependencies_are_opened_per_task_or_per_worker_and_closed(app):
    depends = app.task(handlers.depends)
    async with running(app):
        assert await (await depends.aput("a")).aresult(WAIT) == "a connected shared"
        assert await (await depends.aput("b")).aresult(WAIT) == "b connected shared"
    task = ["open 1", "close"]
    assert events == ["open 1", "open app", "close", *task, "close app"]


async def test_a_dependency_can_be_replaced(app):
    depends = app.task(handlers.depends)
    app.overrides[handlers.connection] = lambda: "fake"
    async with running(app):
        assert await (await depends.aput("a")).aresult(WAIT) == "a fake shared"


class Recorder(Middleware):
    async def put(self, request, call_next):
        events.append(f"put {request.payload.decode()}")
        request.options["priority"] = 7
        return await call_next(request)

    async def run(self, ctx: Context, call_next):
        result = await call_next()
        events.append(f"ran at {ctx.task.priority}")
        return result + 1


@pytest.mark.parametrize("handler", [handlers.add, handlers.subtract])
async def test_a_middleware_wraps_puts_and_handlers(app, handler):
    app.middleware = (Recorder(),)
    task = app.task(handler)
    async with running(app):
        assert await (await task.aput(1, 2)).aresult(WAIT) in (4, 0)
    assert events == ['put {"a":1,"b":2}', "ran at 7"]


class Answers(Middleware):
    async def settle(self, ctx: Context, call_next):
        try:
            await call_next()
        except errors.LeaseStale as refused:
            events.append(refused.reason)
            raise
        events.append("accepted")


async def release_itself(ctx: Context) -> None:
    await ctx.task.release("1h")


async def test_a_middleware_sees_how_the_server_answers_settlements(app):
    app.middleware = (Answers(),)
    add, fail = app.task(handlers.add), app.task(fatal=(LookupError,))(followed)
    LATER[:] = [add]
    stale = app.task(release_itself)
    async with running(app):
        await add.aput(1)
        await turns_until(lambda: events == ["accepted"])
        await fail.aput("broken")
        await turns_until(lambda: events == ["accepted"] * 2)
        await stale.aput()
        await turns_until(lambda: len(events) == 3)
    assert events == ["accepted", "accepted", "LEASE_STALE"]


async def test_the_context_is_found_in_the_thread_of_a_handler(app):
    current = app.task(handlers.current)
    async with running(app):
        handle = await current.aput("task")
        assert await handle.aresult(WAIT) == f"task {handle.id}"


async def test_progress_is_shown_while_the_handler_runs(app):
    report = app.task(handlers.report)
    async with running(app, grace=0):
        handle = await report.aput()
        (seen,) = await app.clients.here().tube(report.tube).wait(handle.id, progress=True)
        assert (seen.message.progress.basis_points, seen.message.progress.note) == (5_000, "half")


async def followed(ctx: Context, word: str) -> str:
    ctx.put_on_success(LATER[0].plan(word))
    if word == "broken":
        raise LookupError(word)
    return word


LATER = []


async def test_tasks_are_put_with_the_acknowledgement_or_not_at_all(app):
    LATER[:] = [app.task(handlers.forget)]
    task = app.task(fatal=(LookupError,))(followed)
    async with running(app):
        assert await (await task.aput("word")).aresult(WAIT) == "word"
        assert (await ended(await task.aput("broken"))).outcome == "BURIED_OUT"
        await when_gone(LATER[0].handle(2))
        assert events == ["word"]


def parent(n: int) -> int:
    return CHILD[0].put(n).result(WAIT)


CHILD = []


async def test_a_handler_that_waits_for_its_own_pool_lends_its_slot(app):
    CHILD[:] = [app.task(handlers.subtract)]
    CHILD[0] = app.task(name="child")(child)
    task = app.task(parent)
    async with running(app, threads=1):
        assert await (await task.aput(5)).aresult(WAIT) == 10


def child(n: int) -> int:
    return 2 * n


async def test_an_app_runs_only_the_chosen_tasks(app):
    app.task(handlers.add)
    with pytest.raises(ValueError, match="no task nothing"):
        await app.run(only=["nothing"], signals=False)
    with pytest.raises(ValueError, match="no task in these tubes"):
        await app.run(tubes=["x.*"], signals=False)


async def test_tubes_with_weights_share_the_slots(app):
    work = {tube: app.task(tube=tube, name=f"note {tube}")(handlers.note) for tube in "abc"}
    await app.acreate_tubes()
    handles = [await task.aput(tube) for tube, task in work.items() for _ in range(12)]
    async with running(app, async_slots=1, weights={"a": 4, "c": 2}):
        await asyncio.gather(*(ended(handle) for handle in handles))
    # Of 14 tasks, 8 are of tube a, 2 of tube b, and 4 of tube c.
    assert {tube: events[:14].count(tube) for tube in work} == {"a": 8, "b": 2, "c": 4}


async def test_a_task_with_a_concurrency_runs_few_attempts_at_once(app):
    limited = app.task(concurrency=2)(handlers.hang)
    await app.acreate_tubes()
    handles = await app.aput_many([limited.plan() for _ in range(4)])
    async with running(app, async_slots=9, grace="1ms"):
        await turns_until(lambda: len(events) >= 2)
        states = [(await handle.astatus()).state for handle in handles]
        assert (states, events) == (["TAKEN", "TAKEN", "READY", "READY"], ["begun", "begun"])


async def test_urgent_slots_run_urgent_tasks_while_all_others_are_busy(app):
    hang = app.task(handlers.hang)
    add = app.task(handlers.add)
    async with running(app, async_slots=3, urgent_slots=1, urgent_bound=-5, grace="1ms"):
        for _ in range(4):
            await hang.aput()
        await handlers.begun.wait()
        late = await add.aput(1)
        urgent = await add.options(priority=-5).aput(1)
        assert await urgent.aresult(WAIT) == 3
        assert (await late.astatus()).state == "READY"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"urgent_slots": 1}, "need each other"),
        ({"urgent_bound": 1}, "need each other"),
        ({"urgent_slots": 8, "urgent_bound": 1}, "less than the 8 slots of the pool thread"),
    ],
)
async def test_invalid_urgent_slots_are_refused(app, options, text):
    app.task(handlers.subtract)
    with pytest.raises(ValueError, match=text):
        await app.run(**options, signals=False)


def test_an_invalid_concurrency_is_refused(app):
    with pytest.raises(InvalidTask, match="concurrency must be a whole number from 1"):
        app.task(concurrency=0)(handlers.add)
    with pytest.raises(InvalidTask, match="a batch handler has no option concurrency"):
        app.batch_task(concurrency=1)(total)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ({"wrker": 2}, "no task of this worker has the tube wrker"),
        ({"worker": 0}, "the weight of worker must be a whole number from 1 to 1000000"),
    ],
)
async def test_invalid_weights_are_refused(app, weights, text):
    app.task(handlers.add)
    with pytest.raises(ValueError, match=text):
        await app.run(weights=weights, signals=False)


async def test_the_lifespan_surrounds_the_worker(app):
    app.task(handlers.add)

    @app.lifespan
    async def around(_app):
        events.append("up")
        handlers.begun.set()
        yield
        events.append("down")

    async with running(app):
        await handlers.begun.wait()
    assert events == ["up", "down"]


async def total(prices: list[int]) -> int:
    return sum(prices)


def from_1(price: int) -> dict[str, list[int]]:
    return {"prices": [price]}


async def test_tasks_of_version_1_run_on_workers_of_version_2_with_an_upgrade(app):
    task = app.task(name="total", version=2)(total)
    task.upgrade(1)(from_1)
    async with running(app):
        tube = app.clients.here().tube(task.tube)
        older = await tube.put({"price": 5}, type="total")
        assert await task.handle(older).aresult(WAIT) == 5
        assert await (await task.aput([1, 2])).aresult(WAIT) == 3


async def report_twice(ctx: Context) -> int | None:
    ctx.progress(0.25, "begun")
    await handlers.begun.wait()
    return ctx.attempts_max


async def test_a_handle_yields_the_progress_until_the_task_has_ended(app):
    task = app.task(retry=Retry(attempts_max=4))(report_twice)
    async with running(app):
        handle = await task.aput()
        seen = []
        async for progress in handle.aprogress():
            seen.append(progress)
            handlers.begun.set()
        assert seen == [(0.25, "begun")]
        assert await handle.aresult(WAIT) == 4


async def test_a_worker_ends_after_its_maximum_lifetime(app, caplog):
    app.task(handlers.add)
    with caplog.at_level("INFO", "taskraft.worker"):
        async with running(app, max_lifetime="10ms") as worker:
            assert await worker is ExitReason.DRAINED
    told = [line.removeprefix("test: ") for line in caplog.messages]
    assert told.index("the maximum lifetime is over") < told.index("draining")


async def test_a_worker_runs_in_the_background_of_a_block(app):
    add = app.task(handlers.add)
    async with app.running(start_timeout=WAIT):
        assert await (await add.aput(1)).aresult(WAIT) == 3
    handle = await add.aput(1)
    assert (await handle.astatus()).state == "READY"
    await app.clients.close_here()


async def test_a_background_worker_that_cannot_start_raises_at_the_beginning():
    app = App("test", target="127.0.0.1:1")
    app.task(handlers.add)
    with pytest.raises(errors.TaskraftError):
        async with app.running(start_timeout="10ms"):
            raise AssertionError("the block has begun without a worker")
