"""Whatever code of an app raises is one failed attempt: kind of exception, pool, place."""

import asyncio
import logging
from collections import Counter

import pytest

from taskraft import Retry
from taskraft.worker import Middleware
from taskraft.worker.clients import AppClients
from tests.clients.worker import failing, handlers
from tests.clients.worker.failing import KINDS, PLACES, FailingCodec, FailingMiddleware
from tests.clients.worker.handlers import running
from tests.clients.worker.test_worker import WAIT, when

HANDLERS = {
    "async": failing.in_coroutine,
    "thread": failing.in_thread,
    "batch": failing.batch,
    "batch in a thread": failing.batch_in_thread,
}
TABLE = [
    (pool, place)
    for pool in HANDLERS
    for place in (*PLACES, "item")
    if pool.startswith("batch") or place != "item"
    if not (pool.startswith("batch") and place == "settle")  # batches have no such middleware
]
EVENTS_MAX = 20
"""Events of a task after which its attempts are taken to be endless."""
BACK_OFF = Retry(attempts_max=5, backoff="1h")


def declare(app, pool, place, **options):
    """Return a task that fails at a place, next to one that does not fail."""
    app.tube("worker", retry=BACK_OFF)
    app.middleware = (FailingMiddleware(),)
    handler = HANDLERS[pool]
    decorator = app.task
    if pool.startswith("batch"):
        options["size"] = 1
        decorator = app.batch_task
    decorator(name="fine", **options)(handler)
    return decorator(name=place, codec=FailingCodec(place), **options)(handler)


async def failed(app, *tasks):
    """Put a task for each kind of exception; return what became of the tasks, by type."""
    left = {(await task.aput(kind)).id: (task.name, kind) for task in tasks for kind in KINDS}
    return await ends_of(app, left)


async def ends_of(app, left):
    """Return state, attempts and failure of tasks; `left` has type and kind by task id."""
    tube = app.clients.here().tube("worker")
    found, events = {}, Counter()
    async for event in app.clients.here().changes(["worker"], from_start=True):
        if event.task_id not in left:
            continue
        events[event.task_id] += 1
        status = await tube.peek(event.task_id)
        if status.state in ("DELAYED", "BURIED") or events[event.task_id] == EVENTS_MAX:
            name, kind = left.pop(event.task_id)
            failure = kind if kind in status.failure else status.failure
            found.setdefault(name, {})[kind] = (status.state, status.attempt, failure)
        if not left:
            break
    return found


FAILED = {kind: ("DELAYED", 1, kind) for kind in KINDS}
"""State, attempts, and type of the failure."""


@pytest.mark.parametrize(("pool", "place"), TABLE)
async def test_an_exception_of_any_kind_is_a_failed_attempt(app, caplog, pool, place):
    caplog.set_level(logging.WARNING, "taskraft")
    task = declare(app, pool, place)
    async with running(app) as worker:
        assert await failed(app, task) == {place: FAILED}
        assert await (await app.tasks["fine"].aput("x")).aresult(WAIT) == "result x"
        assert not worker.done()
    assert len(caplog.records) <= 2 * len(KINDS)


REJECTED = {
    "too large": ("BURIED", 1, "has 1048578 bytes; the server stores at most 1048576"),
    "wrong type": ("BURIED", 1, "must be str, not 5"),
    "no text": ("BURIED", 1, "surrogates not allowed"),
}
"""State, attempts, and end of the failure."""


async def rejected(app, task):
    """Put a task for each result that can never be stored; return what became of the tasks."""
    left = {(await task.aput(kind)).id: (task.name, kind) for kind in failing.RESULTS}
    found = (await ends_of(app, left))["result"]
    assert all(failure.startswith("InvalidResult: the result of") for *_, failure in found.values())
    for kind, (state, attempts, failure) in found.items():
        told = REJECTED[kind][2]
        found[kind] = (state, attempts, told if failure.endswith(told) else failure)
    return found


@pytest.mark.parametrize("pool", HANDLERS)
async def test_a_result_that_can_never_be_stored_rejects_its_task(app, pool):
    task = declare(app, pool, "result")
    async with running(app):
        assert await rejected(app, task) == REJECTED
        assert await (await task.aput("x")).aresult(WAIT) == "result x"


@pytest.mark.real_time
async def test_a_result_that_can_never_be_stored_rejects_its_task_in_a_process(
    ataskraft, monkeypatch
):
    app = failing.app
    monkeypatch.setattr(app, "clients", AppClients(None, {}))
    app.tube("worker", retry=BACK_OFF)
    async with running(app, processes=1):
        assert await rejected(app, app.tasks["result"]) == REJECTED


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        ("x" * ((1 << 20) + 1), "ValueError: the result has 1048577 bytes"),
        (object(), "TypeError: a payload must be bytes, a string, or a JSON value"),
        ("\ud800", "ValueError: a payload must be text that UTF-8 can encode"),
    ],
)
async def test_a_consumer_whose_result_can_never_be_stored_rejects_the_task(app, result, failure):
    app.tube("worker", retry=BACK_OFF)

    @app.consumer("worker")
    async def consume(task):
        return result

    async with running(app):
        tube = app.clients.here().tube("worker")
        left = {await tube.put("any"): ("consumer", "any")}
        state, attempts, told = (await ends_of(app, left))["consumer"]["any"]
    assert (state, attempts) == ("BURIED", 1)
    assert told.startswith(failure)


@pytest.mark.real_time
async def test_an_exception_of_any_kind_in_a_process_is_a_failed_attempt(ataskraft, monkeypatch):
    app = failing.app
    monkeypatch.setattr(app, "clients", AppClients(None, {}))
    app.tube("worker", retry=BACK_OFF)
    async with running(app, processes=1):
        found = await failed(app, *(app.tasks[place] for place in PLACES))
        assert await (await app.tasks["fine"].aput("x")).aresult(WAIT) == "result x"
    assert found == dict.fromkeys(PLACES, FAILED)


async def test_a_consumer_that_raises_any_exception_fails_the_attempt(app):
    app.tube("worker", retry=BACK_OFF)

    @app.consumer("worker")
    async def consume(task):
        raise KINDS[task.text()]

    async with running(app) as worker:
        tube = app.clients.here().tube("worker")
        left = {await tube.put(kind): ("consumer", kind) for kind in KINDS}
        assert await ends_of(app, left) == {"consumer": FAILED}
        assert not worker.done()


@pytest.mark.parametrize("pool", ["thread", "batch in a thread"])
async def test_an_exception_that_no_future_can_hold_may_be_fatal(app, pool):
    task = declare(app, pool, "handler", fatal=(StopIteration, failing.Unreadable))
    async with running(app):
        found = (await failed(app, task))["handler"]
    buried = {kind for kind, (state, _, _) in found.items() if state == "BURIED"}
    assert buried == {"StopIteration", "Unreadable"}


@pytest.mark.parametrize("then", ["wait", "return"])
async def test_a_cancellation_by_the_code_of_a_handler_is_its_own(app, then):
    app.tube("worker", retry=BACK_OFF)
    task = app.task(handlers.cancel_itself)
    async with running(app):
        handle = await task.aput(then)
        if then == "return":
            assert await handle.aresult(WAIT) == "returned"
        else:
            found = await when(handle, lambda seen: seen.state == "DELAYED")
            assert found.failure == "CancelledError: cancelled by its own code"


async def test_the_time_limit_of_a_middleware_cancels_the_handler(app):
    class Limit(Middleware):
        async def run(self, ctx, call_next):
            async with asyncio.timeout(1):
                return await call_next()

    app.middleware = (Limit(),)
    app.tube("worker", retry=BACK_OFF)
    task = app.task(handlers.hang)
    async with running(app):
        found = await when(await task.aput(), lambda seen: seen.state == "DELAYED")
    assert found.failure.startswith("TimeoutError")


async def test_the_task_of_a_cancelled_worker_goes_back_uncounted(app):
    app.tube("worker", retry=BACK_OFF)
    task = app.task(handlers.hang)
    handlers.begun = asyncio.Event()
    async with app:
        await app.acreate_tubes()
        worker = asyncio.create_task(app.run(signals=False))
        handle = await task.aput()
        await handlers.begun.wait()
        worker.cancel()
        await asyncio.wait([worker])
        assert worker.cancelled()
    async with app:
        found = await handle.astatus()
    assert (found.state, found.attempt) == ("READY", 0)


async def test_a_dependency_whose_opening_is_interrupted_is_opened_by_another_task(app):
    app.tube("worker", retry=BACK_OFF)
    impatient = app.task(name="impatient", time_limit="1s")(handlers.depends_on_slow)
    patient = app.task(name="patient", time_limit="1h")(handlers.depends_on_slow)
    async with running(app):
        first = await impatient.aput()
        await handlers.begun.wait()
        second = await patient.aput()
        found = await when(first, lambda seen: seen.state == "DELAYED")
        assert found.failure.startswith("TimeLimitExceeded")
        assert await second.aresult(WAIT) == "opened"
