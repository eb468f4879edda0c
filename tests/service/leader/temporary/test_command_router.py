"""The router sends each command to the log or to the temporary tubes, and handles failures."""

import asyncio

import pytest

from taskraft.v1 import session_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.put import PUT, new_task
from taskraft_service.command_codecs.sessions import CLOSE_SESSION, NOTE_CALLS
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.command_codecs.tubes import DROP_TUBE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.temporary.command_router import CommandRouter
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.id_layout import TEMPORARY_TASKS
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS
from taskraft_service.queue.entities.tube_options import Durability, TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore
from taskraft_service.stubs.log.v1 import log_pb2

TEMPORARY = TubeOptions(durability=Durability.TEMPORARY)


class Log:
    """Applies commands when the test asks for it."""

    def __init__(self):
        self.queue = Queue(MemoryStore(), Limits(), new_task)
        self.listeners = []
        self.refusal = None
        self.proposed = []
        self.woken = 0
        create = CreateTube("kept", TubeKind.FIFOTTL, TubeOptions())
        self.do(Startup(1, 0, "feed", 1), create)

    def do(self, *commands):
        results = self.queue.apply(self.queue.applied_index + 1, 5, commands)
        for listener in self.listeners:
            listener(5)
        return results

    def submit(self, encoded, deadline=None):
        assert deadline == 99
        if self.refusal is not None:
            raise self.refusal
        future = asyncio.get_running_loop().create_future()
        self.proposed.append((encoded.command, future))
        return future

    def wake(self):
        self.woken += 1

    async def apply(self):
        command, future = self.proposed.pop(0)
        (result,) = self.do(command)
        future.set_result(AppliedCommand(self.queue.applied_index, 5, 0, result))
        await asyncio.sleep(0)

    async def fail(self, error):
        self.proposed.pop(0)[1].set_exception(error)
        await asyncio.sleep(0)


class Clock:
    def now_ms(self):
        return 5


class Board:
    def __init__(self, queues):
        self.queues = queues

    def ready_count(self, tube):
        return self.queues.queue_of(tube).ready_count(tube)

    def is_logged(self, tube):
        return self.queues.is_logged(tube)


class Bench:
    def __init__(self, *tubes):
        self.log = Log()
        self.queues = QueueLocator(lambda: self.log.queue)
        self.waiters = Waiters(Board(self.queues))
        self.temporary = TemporaryTubes(
            self.queues, Clock(), self.waiters, 1 << 20, NO_DRIVERS, lambda _error: None
        )
        self.log.listeners.append(self.temporary.applied)
        self.router = CommandRouter(self.log, self.temporary)
        self.temporary.begin(1)
        self.log.do(*(CreateTube(tube, TubeKind.FIFOTTL, TEMPORARY) for tube in tubes))

    def submit(self, codec, message):
        return self.router.submit(encode_leader_command(codec, message), 99)

    async def put(self, tube):
        tasks = [task_pb2.TaskSpec(payload=b"x")]
        putting = self.submit(PUT, pb.PutTasksRequest(tube=tube, tasks=tasks))
        while self.log.proposed:
            await self.log.apply()
        return await putting

    def take(self, **fields):
        sources = [pb.TakeSource(tube=tube) for tube in ("kept", "scratch")]
        return self.submit(TAKE, pb.TakeTasksRequest(sources=sources, **fields))

    def note(self):
        told = log_pb2.NoteCalls()
        for tube in ("kept", "scratch"):
            told.tubes.add(tube=tube, peeks=2)
        return self.submit(NOTE_CALLS, told)

    def peeks(self):
        return [
            counts.calls.noted[CountedOperation.PEEK]
            for counts in self.queues.statistics(["kept", "scratch"])
        ]

    def drop(self):
        request = tube_service_pb2.DropTubeRequest(name="scratch", force=True)
        return self.submit(DROP_TUBE, request)


@pytest.fixture
async def bench():
    one = Bench("scratch")
    yield one
    one.temporary.end()


async def test_without_temporary_tubes_all_commands_go_to_the_log():
    bench = Bench()
    bench.note()
    bench.take()
    bench.drop()
    assert len(bench.log.proposed) == 3


async def test_calls_are_counted_on_the_side_of_their_tube(bench):
    noting = bench.note()
    await bench.log.apply()
    await noting
    assert bench.peeks() == [2, 2]


@pytest.mark.parametrize("error", [NotProposed("x"), LeaderOverloaded("x")])
async def test_calls_that_the_log_fails_to_count_are_not_counted_in_memory(bench, error):
    noting = bench.note()
    await bench.log.fail(error)
    with pytest.raises(type(error)):
        await noting
    bench.log.refusal = error
    with pytest.raises(type(error)):
        bench.note()
    assert bench.peeks() == [0, 0]


async def test_counting_succeeds_although_the_temporary_tubes_are_gone(bench):
    noting = bench.note()
    bench.temporary.end()
    await bench.log.apply()
    assert (await noting).index == bench.log.queue.applied_index
    bench.temporary.begin(2)
    assert bench.peeks() == [2, 0]


async def test_takes_from_both_sides_alternate_the_first_side(bench):
    for tube in ("kept", "scratch", "kept", "scratch"):
        await bench.put(tube)
    sides = []
    for _ in range(4):
        taking = bench.take(tasks_max=1)
        while bench.log.proposed:
            await bench.log.apply()
        (task,) = (await taking).result.tasks
        sides.append(task.tube)
    assert sides == ["scratch", "kept", "scratch", "kept"]


async def test_a_take_that_finds_nothing_on_one_side_goes_to_the_other(bench):
    await bench.put("kept")
    for tube in ("kept", "scratch"):
        await bench.put(tube)
    taking = bench.take(tasks_max=5, request_id="r")
    await bench.log.apply()
    assert [task.tube for task in (await taking).result.tasks] == ["kept", "kept"]
    taking = bench.take(tasks_max=5, request_id="s")
    await bench.log.apply()
    assert [task.tube for task in (await taking).result.tasks] == ["scratch"]
    assert (await bench.take(tasks_max=5, request_id="s")).result.tasks
    assert not bench.log.proposed


async def test_a_take_whose_other_side_is_gone_fails(bench):
    taking = bench.take(request_id="r")
    bench.temporary.end()
    await bench.log.apply()
    with pytest.raises(NotProposed):
        await taking


async def test_a_settlement_that_the_log_refuses_is_not_applied_in_memory(bench):
    await bench.put("scratch")
    (task,) = (await bench.take()).result.tasks
    settlement = pb.Settlement(tokens=[1, task.token], ack=pb.Settlement.Ack())
    request = pb.SettleTasksRequest(settlements=[settlement])
    bench.log.refusal = LeaderOverloaded("x")
    with pytest.raises(LeaderOverloaded):
        bench.submit(SETTLE, request)
    bench.log.refusal = None
    settling = bench.submit(SETTLE, request)
    await bench.log.apply()
    assert [one.item for one in (await settling).result.refused] == [0]


@pytest.mark.parametrize("error", [NotProposed("x"), OutcomeUnknown("x")])
async def test_a_failure_of_the_logged_part_is_reported(bench, error):
    settlement = pb.Settlement(tokens=[1, TEMPORARY_TASKS + 1], ack=pb.Settlement.Ack())
    settling = bench.submit(SETTLE, pb.SettleTasksRequest(settlements=[settlement]))
    await bench.log.fail(error)
    with pytest.raises(type(error)):
        await settling


async def test_cancelling_the_call_cancels_the_proposal_and_vice_versa(bench):
    taking = bench.take(request_id="r")
    taking.cancel()
    await asyncio.sleep(0)
    assert bench.log.proposed.pop()[1].cancelled()
    taking = bench.take(request_id="s")
    bench.log.proposed.pop()[1].cancel()
    await asyncio.sleep(0)
    assert taking.cancelled()


async def test_a_drop_counts_the_temporary_tasks_once(bench):
    await bench.put("scratch")
    await bench.put("scratch")
    bench.log.refusal = NotProposed("x")
    with pytest.raises(NotProposed):
        bench.drop()
    assert not bench.router._counts
    bench.log.refusal = None
    dropping = bench.drop()
    await bench.log.apply()
    assert (await dropping).result.count == 2
    await asyncio.sleep(0)
    assert not bench.router._counts


async def test_closing_an_unknown_session_is_refused_by_the_log(bench):
    await bench.put("scratch")
    bench.log.do()
    request = session_service_pb2.CloseSessionRequest(session_id="nobody")
    closing = bench.submit(CLOSE_SESSION, request)
    await bench.log.apply()
    assert (await closing).result.reason.name == "SESSION_NOT_FOUND"


async def test_both_sides_are_woken(bench):
    bench.router.wake()
    assert bench.log.woken == 1
    assert bench.temporary._serving is not None


async def test_a_leadership_that_ends_before_serving_does_not_affect_the_next(
    bench,
):
    bench.temporary.wake()
    bench.temporary.end()
    assert len(bench.temporary.definitions) == bench.temporary.memory_bytes == 0
    bench.temporary.begin(2)
    bench.temporary.wake()
    await asyncio.sleep(0)
    assert bench.temporary._serving is None
    assert bench.temporary.holds("scratch")
