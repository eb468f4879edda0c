"""The state machines of a worker's life cycle, in virtual time."""

import asyncio

import pytest

from taskraft.worker import App
from taskraft.worker.life_cycle import (
    STACKS_SECONDS,
    ExitReason,
    LifeCycle,
    Phase,
    ProcessLife,
    Response,
)
from taskraft.worker.options import CANCEL_GRACE_DEFAULT, GRACE_DEFAULT
from tests.clients.worker import handlers
from tests.clients.worker.handlers import running

GRACE, CANCEL_GRACE = 20.0, 5.0


def life_in(phase):
    """Return the life cycle of a worker that was started until a phase."""
    life = LifeCycle(GRACE, CANCEL_GRACE)
    for one in (Phase.WAITING, Phase.WORKING):
        if life.phase is not phase:
            life.reach(one)
    assert life.phase is phase
    return life


def process_with(*workers):
    process = ProcessLife()
    for worker in workers:
        process.add(worker, 0.0)
    return process


def test_both_graces_leave_3_s_of_the_30_s_of_kubernetes():
    assert int(GRACE_DEFAULT.rstrip("s")) + int(CANCEL_GRACE_DEFAULT.rstrip("s")) <= 27


@pytest.mark.parametrize(
    ("reached", "after", "seconds"),
    [
        (Phase.STARTING, Phase.ABANDONED, CANCEL_GRACE),
        (Phase.WAITING, Phase.ABANDONED, CANCEL_GRACE),
        (Phase.WORKING, Phase.DRAINING, GRACE + CANCEL_GRACE),
    ],
)
def test_a_stop_in_each_phase_sets_the_time_of_the_end(reached, after, seconds):
    life = life_in(reached)
    assert (life.is_stopping, life.ends_at) == (False, None)
    life.stop(100.0)
    assert (life.is_stopping, life.phase) == (True, after)
    assert life.ends_at == 100 + seconds + STACKS_SECONDS
    life.stop(110.0)
    assert life.ends_at == 100 + seconds + STACKS_SECONDS
    life.end(111.0)
    assert (life.phase, life.ends_at) == (Phase.ENDED, 100 + seconds + STACKS_SECONDS)


def test_a_stop_that_overtakes_the_start_is_kept():
    life = life_in(Phase.WAITING)
    life.stop(100.0)
    life.reach(Phase.WORKING)
    assert (life.phase, life.ends_at) == (Phase.ABANDONED, 100 + CANCEL_GRACE + STACKS_SECONDS)


@pytest.mark.parametrize("reached", [Phase.STARTING, Phase.WAITING, Phase.WORKING])
def test_the_first_signal_stops_all_workers_and_the_second_ends_the_process(reached):
    workers = life_in(reached), life_in(Phase.WORKING)
    process = process_with(*workers)
    assert process.signalled(10.0) is Response.STOP
    assert [worker.is_stopping for worker in workers] == [True, True]
    assert process.ends_at == 10 + GRACE + CANCEL_GRACE + STACKS_SECONDS
    assert process.signalled(10.5) is Response.EXIT


def test_the_first_signal_in_a_drain_without_a_signal_does_not_end_the_process():
    worker = life_in(Phase.WORKING)
    process = process_with(worker)
    worker.stop(5.0)
    assert process.signalled(6.0) is Response.STOP
    assert process.signalled(7.0) is Response.EXIT


def test_a_signal_before_the_worker_and_one_after_its_run_end_the_process():
    assert process_with().signalled(1.0) is Response.EXIT_UNBEGUN
    ended = life_in(Phase.WORKING)
    ended.end(1.0)
    assert process_with(ended).signalled(2.0) is Response.EXIT


def test_a_process_has_no_end_while_one_of_its_workers_goes_on():
    first, second = life_in(Phase.WORKING), life_in(Phase.WORKING)
    process = process_with(first, second)
    first.stop(1.0)
    assert process.ends_at is None
    process.remove(second)
    assert process.ends_at == 1 + GRACE + CANCEL_GRACE + STACKS_SECONDS
    process.remove(first)
    assert process.ends_at is None


def test_a_worker_that_starts_after_the_signal_stops_at_once():
    process = process_with(life_in(Phase.WORKING))
    process.signalled(1.0)
    late = LifeCycle(GRACE, CANCEL_GRACE)
    process.add(late, 2.0)
    assert late.phase is Phase.ABANDONED


async def test_a_stop_while_a_lifespan_begins_closes_the_earlier_lifespans():
    app = App("test", target="127.0.0.1:1")
    app.task(handlers.add)
    seen, waits = [], asyncio.Event()

    @app.lifespan
    async def first(_):
        seen.append("up")
        yield
        seen.append("down")

    @app.lifespan
    async def second(_):
        waits.set()
        await asyncio.Event().wait()
        yield

    run = asyncio.create_task(app.run(signals=False))
    await waits.wait()
    app.stop()
    assert await run is ExitReason.DRAINED
    assert seen == ["up", "down"]


async def test_a_stop_while_the_worker_waits_for_the_cluster_ends_it(app, ataskraft, monkeypatch):
    waits = asyncio.Event()

    async def never(_deployment):
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("taskraft.worker.worker.Deployment.create_tubes", never)
    app.task(handlers.add)
    run = asyncio.create_task(app.run(signals=False))
    await waits.wait()
    app.stop()
    assert await run is ExitReason.DRAINED


async def test_a_drain_whose_cluster_does_not_answer_ends_with_the_grace(app, monkeypatch):
    add = app.task(handlers.add)

    async def never(_receiver):
        await asyncio.Event().wait()

    async with running(app, grace="3s") as worker:
        assert await (await add.aput(1)).aresult("30s") == 3
        monkeypatch.setattr("taskraft.worker.pools.Receiver.stop", never)
        began = asyncio.get_running_loop().time()
        app.stop()
        assert await worker is ExitReason.GRACE_OVER
        assert 3 <= asyncio.get_running_loop().time() - began < 9
