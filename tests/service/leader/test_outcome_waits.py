"""Waits for outcomes: which tasks are watched, kept and released; slices of what is told."""

import asyncio
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from taskraft_service import limits
from taskraft_service.leader import expected_outcomes, waited_tasks
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.leader.expected_outcomes import OUTCOMES_MIN
from taskraft_service.leader.outcome_waits import (
    EMPTIED_AT_ONCE,
    TOLD_AT_ONCE,
    OutcomeWaits,
)
from taskraft_service.leader.waited_tasks import OutcomeQuery
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore
from tests.service.counted_calls import calls_of, calls_of_turns


class Stage:
    def __init__(self):
        self.queue = Queue(MemoryStore(), Limits())
        self.outcomes = OutcomeWaits(QueueLocator(lambda: self.queue))
        self.index = 0
        create = [CreateTube(name, TubeKind.FIFOTTL, TubeOptions()) for name in ("t", "other")]
        self.do(Startup(1, 0, "f", 1), *create)

    def do(self, *commands):
        self.index += 1
        results = self.queue.apply(self.index, self.index * 10, commands)
        self.outcomes.applied(0)
        return results

    def put(self, *bodies, tube="t", **wishes):
        tasks = [NewTask(body, len(body), **wishes) for body in bodies]
        return list(self.do(Put(tube, tasks))[0].ids)

    async def finish(self, wait, patience=5.0):
        views = await self.outcomes.finish(wait, patience)
        return [view and view.extras.outcome for view in views]

    @contextmanager
    def expecting(self, tube="t"):
        """Begin a put that waits for outcomes, and yield it."""
        with self.outcomes.expecting(tube) as put:
            put.begin_attempt()
            yield put


@pytest.fixture
async def stage():
    return Stage()


async def test_outcomes_before_the_put_is_answered_are_kept(stage):
    with stage.expecting() as expectation:
        ids = stage.put(b"1", b"2", ttl_ms=5)
        stage.do()
        assert stage.queue.get_tasks("t", ids) == [None, None]
        wait = stage.outcomes.begin(OutcomeQuery("t", ids), expectation)
    assert await stage.finish(wait) == [TaskOutcome.EXPIRED] * 2
    assert not stage.queue.watch.tubes


@pytest.mark.parametrize("ended_before", [0, 3, 5])
async def test_a_wait_keeps_a_maximum_of_content_and_counts_the_rest(
    stage, monkeypatch, ended_before
):
    monkeypatch.setattr(waited_tasks, "CONTENT_BYTES_MAX", 250)
    ids = stage.put(*[b"x" * 100] * 4, b"small")
    stage.do(Bury("t", ByIds(ids[:ended_before])))
    wait = stage.outcomes.begin(OutcomeQuery("t", ids))
    stage.do(Bury("t", ByIds(ids[ended_before:])))
    views = await stage.outcomes.finish(wait, 5.0)
    assert [len(view.body) for view in views] == [100, 100, 0, 0, 0]
    assert {view.extras.outcome for view in views} == {TaskOutcome.BURIED_OUT}
    assert wait.dropped_bytes == 205
    assert sum(view.content_bytes for view in wait.known.values()) == 200


@pytest.mark.parametrize(
    ("limit", "kept", "exceeded"),
    [
        ("WAITED_CONTENT_BYTES_MAX", [100, 100, 0, 0], "waited_content_bytes_max"),
        ("WAITED_CONTENT_BYTES_SHARE_MAX", [100, 100, 0, 100], "waited_content_bytes_share_max"),
    ],
)
async def test_all_waits_keep_a_maximum_of_content(stage, monkeypatch, limit, kept, exceeded):
    monkeypatch.setattr(limits, limit, 250)
    ids = stage.put(*[b"x" * 100] * 4)
    callers = ("mailer", "mailer", "mailer", "other")
    waits = [
        stage.outcomes.begin(OutcomeQuery("t", [task_id], principal=caller))
        for task_id, caller in zip(ids, callers, strict=True)
    ]
    stage.do(Bury("t", ByIds(ids)))
    await calls_of_turns(1)
    bodies = [len(view.body) for wait in waits for view in wait.known.values()]
    assert bodies == kept
    reasons = [wait.exceeded and wait.exceeded[0] for wait in waits]
    assert reasons == [None if size else exceeded for size in kept]
    assert len(stage.outcomes.content) == sum(kept)
    for wait in waits:
        assert await stage.finish(wait) == [TaskOutcome.BURIED_OUT]
    assert len(stage.outcomes.content) == 0


async def test_a_cancelled_wait_keeps_no_content(stage):
    ids = stage.put(b"x" * 100, b"open")
    stage.do(Bury("t", ByIds(ids[:1])))
    wait = stage.outcomes.begin(OutcomeQuery("t", ids))
    assert len(stage.outcomes.content) == 100
    finishing = asyncio.ensure_future(stage.outcomes.finish(wait, 5.0))
    await asyncio.sleep(0)
    finishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert len(stage.outcomes.content) == 0


async def test_a_wait_that_times_out_looks_at_few_open_tasks_in_a_turn(stage):
    ids = stage.put(*[b"x"] * 1_000)
    costs = [calls_of(begin := partial(stage.outcomes.begin, OutcomeQuery("t", ids)))]
    ending = asyncio.ensure_future(stage.finish(begin(), 0.0))
    while not ending.done():
        costs.append(await calls_of_turns(1))
        if len(costs) == 4:  # the first tasks have been looked at
            stage.do(Delete("t", ByIds([ids[0], ids[-1]])))
    assert max(costs) < 30_000
    late = [TaskOutcome.TIMEOUT] * 998
    assert ending.result() == [TaskOutcome.DELETED, *late, TaskOutcome.DELETED]


async def test_only_new_tasks_of_the_tube_are_remembered(stage):
    (old,) = stage.put(b"old")
    with stage.expecting() as expectation:
        stage.do(Delete("t", ByIds([old])))
        stage.put(b"x", tube="other", ttl_ms=5)
        stage.do()
        assert expectation.ended == {}
    with stage.expecting("nowhere") as expectation:
        assert (expectation.number, expectation.ended) == (None, {})


async def test_a_put_that_waits_for_capacity_keeps_no_outcomes(stage):
    with stage.expecting() as put:
        stage.do(Delete("t", ByIds(stage.put(b"1"))))
        assert list(put.ended) == [1]
        put.end_attempt()
        assert not stage.queue.watch.tubes
        stage.do(Delete("t", ByIds(stage.put(b"2"))))
        assert put.ended == {}
        put.begin_attempt()
        stage.do(Delete("t", ByIds(stage.put(b"3"))))
        assert list(put.ended) == [3]
        wait = stage.outcomes.begin(OutcomeQuery("t", [3]), put)
    assert await stage.finish(wait) == [TaskOutcome.DELETED]
    assert not stage.queue.watch.tubes


def calls_of_deletes(puts):
    """Return the calls of deleting tasks while puts that wait are in flight."""
    stage = Stage()
    stage.put(*[b"old"] * 100)
    with ExitStack() as in_flight:
        for _ in range(puts):
            expectation = in_flight.enter_context(stage.expecting())
        new = stage.put(*[b"new"] * 100)
        calls = calls_of(stage.do, Delete("t", ByIds([*range(1, 101), *new])))
        assert list(expectation.ended) == new
    return calls


def test_puts_in_flight_share_the_outcomes_of_their_tube():
    assert calls_of_deletes(puts=300) <= calls_of_deletes(puts=1) + 10


def test_outcomes_that_no_put_in_flight_expects_are_removed():
    stage, in_flight, first = Stage(), ExitStack(), ExitStack()
    first.enter_context(stage.expecting())
    stage.do(Delete("t", ByIds(stage.put(*[b"x"] * OUTCOMES_MIN))))
    with in_flight:
        expectation = in_flight.enter_context(stage.expecting())
        first.close()
        assert len(expectation.ended) == OUTCOMES_MIN
        (last,) = stage.put(b"x")
        stage.do(Delete("t", ByIds([last])))
        assert list(expectation.ended) == [last]


def test_the_outcomes_that_puts_in_flight_expect_have_a_maximum_of_content(monkeypatch):
    monkeypatch.setattr(expected_outcomes, "CONTENT_BYTES_MAX", 250)
    stage = Stage()
    content = stage.outcomes._expected._content
    first, second = ExitStack(), ExitStack()
    one = first.enter_context(stage.expecting())
    other = second.enter_context(stage.expecting("other"))
    ids = stage.put(*[b"x" * 100] * 3)
    stage.do(Delete("t", ByIds(ids)))
    assert [len(one.ended[task_id].body) for task_id in ids] == [100, 100, 0]
    assert {view.extras.outcome for view in one.ended.values()} == {TaskOutcome.DELETED}
    (late,) = stage.put(b"x" * 100, tube="other")
    stage.do(Delete("other", ByIds([late])))
    assert (len(other.ended[late].body), content.kept_bytes) == (0, 200)
    with stage.expecting() as newer:
        first.close()
        (last,) = stage.put(b"x" * 100)
        stage.do(Delete("t", ByIds([last])))
        assert [len(view.body) for view in newer.ended.values()] == [100], "room was made"
    second.close()
    assert content.kept_bytes == 0


async def test_tubes_without_waiting_calls_are_not_watched(stage):
    stage.put(b"1", b"2")
    stage.put(b"1", tube="other")
    wait = stage.outcomes.begin(OutcomeQuery("t", [1]))
    assert set(stage.queue.watch.tubes) == {stage.queue.tube_number("t")}
    stage.do(Delete("other", ByIds([1])), Delete("t", ByIds([2])))
    assert not wait.known
    stage.do(Delete("t", ByIds([1])))
    assert await stage.finish(wait) == [TaskOutcome.DELETED]
    assert not stage.queue.watch.tubes


async def test_two_calls_that_wait_for_one_task_both_get_its_outcome(stage):
    stage.put(b"1")
    waits = [stage.outcomes.begin(OutcomeQuery("t", [1])) for _ in range(2)]
    assert len(stage.outcomes) == 2
    stage.do(Bury("t", ByIds([1])))
    assert [await stage.finish(wait) for wait in waits] == [[TaskOutcome.BURIED_OUT]] * 2
    assert len(stage.outcomes) == 0


@pytest.mark.parametrize("is_buried", [True, False])
async def test_the_outcome_of_a_task_that_moves_and_ends_in_one_entry_is_found(stage, is_buried):
    stage.put(b"1")
    wait = stage.outcomes.begin(OutcomeQuery("t", [1]))
    ends = [Bury("other", ByIds([1]))] if is_buried else []
    stage.do(Move("t", ByIds([1]), "other"), *ends)
    if not is_buried:
        assert wait.open
        stage.do(Bury("other", ByIds([1])))
    assert await stage.finish(wait) == [TaskOutcome.BURIED_OUT]
    assert len(stage.outcomes) == 0


async def test_a_recreated_tube_is_another_tube(stage):
    stage.put(b"1")
    wait = stage.outcomes.begin(OutcomeQuery("t", [1]))
    stage.do(DropTube("t"), CreateTube("t", TubeKind.FIFOTTL, TubeOptions()))
    stage.put(b"another task 1")
    assert await stage.finish(wait) == [TaskOutcome.DELETED]


async def waits_on_many_tasks(stage, tasks):
    """Return a wait for many tasks of one tube."""
    for _ in range(tasks // 1_000):
        stage.put(*[b"x"] * 1_000)
    return stage.outcomes.begin(OutcomeQuery("t", range(1, tasks + 1)))


@pytest.mark.parametrize("command", [DropTube("t"), TruncateTube("t")])
async def test_the_tasks_of_an_emptied_tube_are_noted_in_slices(stage, command):
    wait = await waits_on_many_tasks(stage, 2_000)
    stage.do(command)
    ended = [2_000 - len(stage.outcomes)]
    for _ in range(2_000):
        await asyncio.sleep(0)
        ended.append(2_000 - len(stage.outcomes) - sum(ended))
    assert max(ended) <= EMPTIED_AT_ONCE + Limits().steps_beside_max
    assert await stage.finish(wait) == [TaskOutcome.DELETED] * 2_000
    assert not stage.queue.watch.tubes


async def test_the_drop_of_a_tube_calls_no_function_for_each_awaited_task():
    calls = []
    for awaited in (100, 2_000):
        stage = Stage()
        for _ in range(2):
            stage.put(*[b"x"] * 1_000)
        stage.outcomes.begin(OutcomeQuery("t", range(1, awaited + 1)))
        calls.append(calls_of(stage.do, DropTube("t")))
    assert calls[1] <= calls[0] + 10


async def test_entries_that_remove_the_tasks_first_tell_the_calls(stage):
    wait = await waits_on_many_tasks(stage, 1_000)
    stage.do(DropTube("t"))
    while stage.queue.next_deadline_ms() is not None:
        stage.do()
    assert not stage.queue.watch.tubes
    assert await stage.finish(wait) == [TaskOutcome.DELETED] * 1_000


async def test_a_put_whose_tube_is_dropped_before_the_answer_waits_for_the_removal(stage):
    with stage.expecting() as expectation:
        ids = stage.put(*[b"x"] * 1_000)
        stage.do(DropTube("t"))
        wait = stage.outcomes.begin(OutcomeQuery("t", ids), expectation)
        assert len(wait.open) == 1_000 - len(expectation.ended)
    while stage.queue.next_deadline_ms() is not None:
        stage.do()
    assert await stage.finish(wait) == [TaskOutcome.DELETED] * 1_000
    assert not stage.queue.watch.tubes


async def test_losing_leadership_redirects_all_waiting_calls(stage):
    stage.put(b"1")
    wait = stage.outcomes.begin(OutcomeQuery("t", [1]))
    finishing = asyncio.ensure_future(stage.outcomes.finish(wait, 5.0))
    await asyncio.sleep(0)
    stage.outcomes.redirect_all()
    with pytest.raises(NotProposed):
        await finishing
    assert len(stage.outcomes) == 0


TASKS = 500
CALLS = 7


async def many_waits(stage, calls=CALLS):
    """Return waits of several calls for the same tasks, and a function that counts the told."""
    stage.put(*[b"x"] * TASKS)
    waits = [stage.outcomes.begin(OutcomeQuery("t", range(1, TASKS + 1))) for _ in range(calls)]
    return waits, lambda: sum(len(wait.known) for wait in waits)


async def test_waiting_calls_are_told_in_slices(stage):
    waits, told = await many_waits(stage)
    stage.do(Delete("t", ByIds(range(1, TASKS + 1))))
    slices = [told()]
    while sum(slices) < TASKS * CALLS:
        await asyncio.sleep(0)
        slices.append(told() - sum(slices))
    assert max(slices) <= TOLD_AT_ONCE
    assert [list(wait.known) for wait in waits] == [list(range(1, TASKS + 1))] * CALLS
    for wait in waits:
        assert await stage.finish(wait) == [TaskOutcome.DELETED] * TASKS
    assert len(stage.outcomes) == 0
    assert not stage.queue.watch.tubes


async def test_a_wait_that_ends_too_early_has_the_outcomes_that_were_not_told_yet(stage):
    waits, told = await many_waits(stage, 5 * CALLS)
    stage.do(Delete("t", ByIds(range(1, TASKS + 1))))
    assert await stage.finish(waits[-1], patience=0) == [TaskOutcome.DELETED] * TASKS
    assert told() < TASKS * 5 * CALLS
    for wait in waits[:-1]:
        assert await stage.finish(wait) == [TaskOutcome.DELETED] * TASKS
    assert len(stage.outcomes) == 0


async def test_a_wait_that_begins_before_earlier_calls_are_told_is_another_wait(stage):
    stage.put(b"1")
    earlier = stage.outcomes.begin(OutcomeQuery("t", [1]))
    stage.do(Bury("t", ByIds([1])))
    stage.do(Kick("t"))
    later = stage.outcomes.begin(OutcomeQuery("t", [1]))
    assert await stage.finish(earlier) == [TaskOutcome.BURIED_OUT]
    assert later.open
    assert not later.known
    stage.do(Delete("t", ByIds([1])))
    assert await stage.finish(later) == [TaskOutcome.DELETED]


async def test_waiting_calls_are_redirected_in_slices(stage):
    stage.put(b"1")
    calls = 2 * TOLD_AT_ONCE + 1
    waits = [stage.outcomes.begin(OutcomeQuery("t", [1])) for _ in range(calls)]
    finishing = [asyncio.ensure_future(stage.outcomes.finish(wait, 5.0)) for wait in waits]
    await asyncio.sleep(0)
    stage.outcomes.redirect_all()
    slices = [sum(wait.future.done() for wait in waits)]
    while sum(slices) < calls:
        await asyncio.sleep(0)
        slices.append(sum(wait.future.done() for wait in waits) - sum(slices))
    assert max(slices) <= TOLD_AT_ONCE
    ends = await asyncio.gather(*finishing, return_exceptions=True)
    assert {type(end) for end in ends} == {NotProposed}
    assert len(stage.outcomes) == 0


async def test_an_outcome_that_was_not_told_yet_is_told_before_the_redirection(stage):
    stage.put(b"1")
    wait = stage.outcomes.begin(OutcomeQuery("t", [1]))
    finishing = asyncio.ensure_future(stage.finish(wait))
    await asyncio.sleep(0)
    stage.do(Delete("t", ByIds([1])))
    stage.outcomes.redirect_all()
    assert await finishing == [TaskOutcome.DELETED]


async def test_the_tasks_of_a_put_in_flight_are_counted(stage):
    with stage.outcomes.expecting("t", 3, "mailer"):
        assert stage.outcomes.tasks.count_with(2, "mailer") == (5, 5)
        assert stage.outcomes.tasks.count_with(2, "other") == (5, 2)
    assert stage.outcomes.tasks.count_with(2, "mailer") == (2, 2)
