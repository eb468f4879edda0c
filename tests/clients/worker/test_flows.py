"""Chains, fan-in and groups between tasks of a worker."""

import pytest

from taskraft import Retry
from taskraft.worker import Context, TaskFailed, chain, group
from tests.clients.worker import handlers
from tests.clients.worker.handlers import events, running
from tests.clients.worker.test_worker import WAIT


def count(word: str) -> int:
    if word == "broken":
        raise LookupError(word)
    return len(word)


async def double(ctx: Context) -> int:
    return 2 * ctx.previous(int)


def triple(ctx: Context) -> int:
    return 3 * ctx.previous(int)


BROKEN: set[str] = set()
"""Words that `count_unless_broken` refuses; a test removes them before a kick."""


def count_unless_broken(word: str) -> int:
    if word in BROKEN:
        raise LookupError(word)
    return len(word)


async def report(ctx: Context) -> list[str]:
    events.append("reported")
    return total(ctx)


def total(ctx: Context) -> list[str]:
    return [f"{one.outcome} {one.value} {one.failure}" for one in ctx.results(int)]


def wrong_type(ctx: Context) -> int:
    return len(ctx.previous(str))


async def count_all(words: list[str]) -> list[int]:
    return [len(word) for word in words]


async def bind(ctx: Context) -> str:
    name = ctx.task.headers["taskraft-group"].decode()
    found = await ctx.client.groups.get(name)
    events.append(("bound", found.processed, found.failed))
    handlers.begun.set()
    return name


async def alert(ctx: Context) -> None:
    events.append("alert")
    handlers.begun.set()


async def test_each_step_of_a_chain_reads_the_result_of_the_step_before(app):
    counted, doubled = (app.task(keep_result=0)(one) for one in (count, double))
    flow = chain(counted.plan("abc"), doubled.plan(), app.task(triple).plan())
    async with running(app):
        first, second = await flow.aput(), await flow.aput()
        assert [await first.aresult(WAIT), await second.aresult(WAIT)] == [18, 18]


async def test_a_chain_over_tubes_and_kinds_of_handlers(app):
    counted = app.batch_task(size=1)(count_all)
    doubled = app.task(tube=f"{app.defaults['tube']}-2", key=lambda: "my own key")(double)
    tripled = app.task(triple)
    async with running(app):
        handle = await chain(counted.plan("abcd"), doubled.plan(), tripled.plan()).aput()
        assert await handle.aresult(WAIT) == 24


async def test_a_fan_in_reads_all_results_in_order(app):
    counted, totalled = app.task(count), app.task(total)
    async with running(app):
        flow = group(counted.plan("a" * size) for size in (3, 1, 2)).then(totalled.plan())
        assert await (await flow.aput()).aresult(WAIT) == [
            "PROCESSED 3 ", "PROCESSED 1 ", "PROCESSED 2 ",
        ]  # fmt: skip


async def test_a_failed_member_cancels_the_fan_in_or_is_reported_to_it(app):
    counted, totalled = app.task(count), app.task(total)
    plans = [counted.plan("abc"), counted.options(delay="1h").plan("late")]
    async with running(app):
        ended = await group(plans).then(totalled.plan()).aput()
        runs = await group(plans).then(totalled.plan(), on_failure="run").aput()
        for handle in (ended, runs):
            await app.handle(f"{counted.tube}/{handle.id - 1}", counted).acancel()
        found = await ended.aoutcome(WAIT)
        assert found.outcome == "DEPENDENCY_FAILED"
        assert await runs.aresult(WAIT) == ["PROCESSED 3 ", "NOT_KEPT None the task was removed"]


@pytest.mark.parametrize("policy", [{"fatal": (LookupError,)}, {"retry": Retry(attempts_max=2)}])
async def test_a_buried_step_ends_the_chain_after_it(app, policy):
    broken = app.task(**policy)(count)
    flow = chain(broken.plan("broken"), app.task(double).plan(), app.task(triple).plan())
    async with running(app):
        handle = await flow.aput()
        with pytest.raises(TaskFailed, match="DEPENDENCY_FAILED"):
            await handle.aresult(WAIT)
        assert (await broken.handle(handle.id - 2).astatus()).state == "BURIED"


async def test_the_end_task_runs_once_although_a_buried_member_is_kicked(app, ataskraft):
    BROKEN.add("bad")
    counted = app.task(fatal=(LookupError,))(count_unless_broken)
    reported = app.task(report)
    async with running(app):
        members = [counted.plan("fine"), counted.plan("bad")]
        flow = group(members).then(reported.plan(), on_failure="run")
        handle = await flow.aput()
        failed, again = counted.handle(handle.id - 1), await flow.aput()
        text = "LookupError: bad"
        expected = ["PROCESSED 4 ", f"BURIED_OUT None {text}"]
        assert await handle.aresult(WAIT) == await again.aresult(WAIT) == expected
        BROKEN.clear()
        assert await app.clients.here().tube(counted.tube).kick(ids=[failed.id]) == 1
        assert await failed.aresult(WAIT) == 3
        assert events == ["reported", "reported"]
        # The other member stays BURIED, and no task is READY.
        assert await ataskraft.states(counted.tube) == {"ZOMBIE": 5, "BURIED": 1}


async def test_the_result_of_a_step_is_checked(app):
    flow = chain(app.task(count).plan("abc"), app.task(wrong_type).plan())
    async with running(app):
        with pytest.raises(TaskFailed, match="DecodeError: must be str, not 3"):
            await (await flow.aput()).aresult(WAIT)


async def test_a_task_without_a_step_before_it_says_so(app):
    task = app.task(fatal=(LookupError,))(triple)
    async with running(app):
        with pytest.raises(TaskFailed, match="has 0 steps before it, not one; put it as a step"):
            await (await task.aput()).aresult(WAIT)


async def test_a_group_of_any_size_ends_with_one_task(app):
    counted, bound = app.task(count), app.task(bind)
    name = f"group-{app.defaults['tube']}"
    async with running(app):
        async with app.group(name, then=bound.plan()) as words:
            handles = await words.aput_many(counted.plan("a" * size) for size in range(120))
            assert (await handles[0].astatus()).state == "HELD"
        await handlers.begun.wait()
    assert events == [("bound", 120, 0)]


async def put_and_break(words, task):
    async with words:
        await words.aput_many([task.plan("a")])
        raise ZeroDivisionError


async def test_an_exception_in_the_block_cancels_the_group(app):
    counted, bound, alerted = app.task(count), app.task(bind), app.task(alert)
    name = f"group-{app.defaults['tube']}"
    async with running(app):
        with pytest.raises(ZeroDivisionError):
            await put_and_break(
                app.group(name, then=bound.plan(), on_failure=alerted.plan()), counted
            )
        await handlers.begun.wait()
    assert events == ["alert"]


def test_a_program_without_an_event_loop_puts_flows_and_groups(app):
    counted, totalled = app.task(count), app.task(total)
    name = f"group-{app.defaults['tube']}"
    with app:
        app.create_tubes()
        handle = group([counted.plan("a")]).then(totalled.plan()).put()
        assert handle.status().state == "HELD"
        with app.group(name) as words:
            (member,) = words.put_many([counted.plan("a")])
            assert member.status().state == "HELD"
        assert member.status().state == "READY"


def test_a_flow_needs_steps(app):
    counted = app.task(count)
    with pytest.raises(ValueError, match="at least one call"):
        chain()
    with pytest.raises(ValueError, match=r"1 to 100 calls, not 101; use App\.group"):
        group(counted.plan("a") for _ in range(101))
