"""A waiting TakeTasks call loses no task between a claim and its caller."""

import asyncio
from types import SimpleNamespace

import grpc
import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.tasks.consumer_sources import ConsumerSources
from taskraft_service.api.tasks.takes import TakeHandler
from taskraft_service.api.tasks.waiting_take import WaitingTake
from taskraft_service.command_codecs.request_key import NO_KEY
from taskraft_service.leader.command_submitter import AppliedCommand, NotProposed, OutcomeUnknown
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import ConsumerProfile
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.take import TakeResult
from tests.service.conftest import create, put, put_many, reason_of, take
from tests.service.leader.test_waiters import Board
from tests.turns import turns_until

TASK = SimpleNamespace(token=3)
Options = tube_service_pb2.TubeOptions


class Proposer:
    def __init__(self):
        self.taken = asyncio.get_running_loop().create_future()

    def submit(self, encoded, deadline):
        return self.taken

    def wake(self):
        pass


class Mutations:
    def __init__(self):
        self.submitter = Proposer()


class Returns:
    """Collects the leases that are released."""

    def __init__(self, given_back):
        self.given_back = given_back

    def release(self, tokens, caller):
        assert caller is ANONYMOUS
        self.given_back.extend(tokens)


class Reading:
    applied = SimpleNamespace(applied_index=5, wall_offset_ms=2, tube_number=lambda _: 1)

    @staticmethod
    def now_ms():
        return 7


class Bench:
    def __init__(self, **fields):
        self.given_back = []
        self.may_wait = True
        self.mutations = Mutations()
        self.waiters = Waiters(Board(a=3))
        self.api = TakeHandler(
            self.mutations,
            Reading(),
            None,
            Returns(self.given_back),
            self.waiters,
            UnloggedCalls(lambda: False),
            lambda: self.may_wait,
        )
        request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="a")], **fields)
        self.taker = WaitingTake(
            request,
            ConsumerSources(request.sources),
            NO_KEY,
            self.given_back.extend,
            ConsumerProfile(),
        )

    def wait(self, seconds):
        async def outcome():
            taken, _ = await self.api._wait(self.taker, seconds)
            return taken

        return asyncio.ensure_future(outcome())

    async def claim(self):
        await turns_until(lambda: len(self.waiters) == 1)
        (claim,) = self.waiters.claims()
        return claim

    def answer(self, claim, *tasks):
        claim.consumer.answered(claim, AppliedCommand(9, 9, 0, TakeResult(tasks)))
        self.waiters.claim_answered(claim, len(tasks))


async def test_no_second_claim_is_made_before_the_first_is_answered():
    bench = Bench()
    waiting = bench.wait(10)
    claim = await bench.claim()
    bench.waiters.expect_ready("a", 5)
    assert bench.waiters.claims() == []
    bench.answer(claim, TASK)
    assert (await waiting).result.tasks == (TASK,)
    assert len(bench.waiters) == 0


async def test_an_empty_claim_leaves_the_call_waiting():
    bench = Bench()
    waiting = bench.wait(10)
    bench.answer(await bench.claim())
    bench.waiters.expect_ready("a", 1)
    (again,) = bench.waiters.claims()
    bench.answer(again, TASK)
    assert (await waiting).result.tasks == (TASK,)


async def test_a_pending_claim_decides_at_the_end_of_the_wait():
    bench = Bench()
    waiting = bench.wait(0.01)
    claim = await bench.claim()
    await turns_until(lambda: len(bench.waiters) == 0)
    bench.answer(claim, TASK)
    assert (await waiting).result.tasks == (TASK,)


async def test_nothing_is_claimed_after_the_end_of_the_wait():
    bench = Bench()
    waiting = bench.wait(0.01)
    claim = await bench.claim()
    await turns_until(lambda: len(bench.waiters) == 0)
    bench.answer(claim)
    bench.waiters.expect_ready("a", 1)
    assert bench.waiters.claims() == []
    outcome = await waiting
    assert (outcome.index, outcome.result) == (5, TakeResult(()))


async def test_the_wait_does_not_end_before_ready_tasks_can_be_claimed():
    bench = Bench()
    waiting = bench.wait(0)
    await turns_until(lambda: len(bench.waiters) == 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    bench.answer(await bench.claim(), TASK)
    assert (await waiting).result.tasks == (TASK,)


async def test_a_wait_that_times_out_reports_whether_its_last_scan_was_complete():
    for looks in ([False], [True], [False, True], [True, False]):
        bench = Bench(priority_bound=1)
        waiting = bench.wait(0.01)
        claim = await bench.claim()
        await turns_until(lambda bench=bench: len(bench.waiters) == 0)
        for cut_short in looks:
            outcome = AppliedCommand(9, 9, 0, TakeResult((), cut_short))
            claim.consumer.answered(claim, outcome)
        assert (await waiting).result == TakeResult((), looks[-1])


@pytest.mark.parametrize("request_id", ["", "r"])
async def test_tasks_of_a_cancelled_call_are_released(request_id):
    bench = Bench(request_id=request_id)
    waiting = bench.wait(10)
    claim = await bench.claim()
    waiting.cancel()
    await asyncio.wait((waiting,))
    bench.answer(claim, TASK)
    # With a request_id the caller may ask again and gets the same leases.
    assert bench.given_back == ([] if request_id else [TASK.token])
    assert len(bench.waiters) == 0


async def test_tasks_that_arrive_during_the_cancellation_are_released():
    bench = Bench()
    waiting = bench.wait(10)
    claim = await bench.claim()
    bench.answer(claim, TASK)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert bench.given_back == [TASK.token]


@pytest.mark.parametrize("error", [NotProposed("lost"), OutcomeUnknown("lost")])
async def test_a_failed_claim_ends_the_wait(error):
    bench = Bench()
    waiting = bench.wait(10)
    claim = await bench.claim()
    claim.consumer.answered(claim, error)
    bench.waiters.claim_answered(claim, 0)
    with pytest.raises(type(error)):
        await waiting


async def test_a_call_does_not_begin_to_wait_after_the_others_were_redirected():
    """A call with a request_id begins to wait after its first take was applied."""
    bench = Bench()
    bench.may_wait = False
    with pytest.raises(NotProposed):
        await bench.wait(0)
    assert len(bench.waiters) == 0


async def test_a_lost_leadership_ends_a_wait_without_a_claim_at_once():
    bench = Bench()
    waiting = bench.wait(10)
    await turns_until(lambda: len(bench.waiters) == 1)
    bench.taker.redirect()
    with pytest.raises(NotProposed):
        await waiting


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (AppliedCommand(9, 9, 0, TakeResult((TASK,))), None),
        (AppliedCommand(9, 9, 0, TakeResult(())), NotProposed),
        (OutcomeUnknown("?"), OutcomeUnknown),
        (NotProposed("lost"), NotProposed),
    ],
    ids=["leased", "empty", "unknown", "not proposed"],
)
async def test_a_lost_leadership_leaves_the_end_of_a_wait_to_its_claim(answer, error):
    bench = Bench()
    waiting = bench.wait(10)
    claim = await bench.claim()
    bench.taker.redirect()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    claim.consumer.answered(claim, answer)
    if error is None:
        assert (await waiting).result.tasks == (TASK,)
    else:
        with pytest.raises(error):
            await waiting
    assert bench.taker.wanted_tasks() == 0


async def test_a_refused_take_ends_the_wait():
    bench = Bench()
    waiting = bench.wait(10)
    claim = await bench.claim()
    refusal = Refusal(Reason.SESSION_NOT_FOUND, "gone")
    claim.consumer.answered(claim, AppliedCommand(9, 9, 0, refusal))
    bench.waiters.claim_answered(claim, 0)
    with pytest.raises(Exception, match="gone"):
        await waiting


@pytest.mark.real_time
async def test_a_take_ends_when_the_last_of_its_tubes_is_dropped(node):
    await create(node, "a")
    await create(node, "b")
    sources = [pb.TakeSource(tube="a"), pb.TakeSource(tube="b")]
    request = pb.TakeTasksRequest(sources=sources, wait_ms=60_000)
    taking = asyncio.ensure_future(node.tasks.TakeTasks(request, timeout=30))
    await node.waiting_anywhere(1)
    await drop(node, "a")
    assert not taking.done()
    await drop(node, "b")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await taking
    assert reason_of(caught.value) == "TUBE_NOT_FOUND"
    assert len(node.server.components.waiters) == 0


@pytest.mark.real_time
@pytest.mark.parametrize("durability", [Options.REPLICATED, Options.TEMPORARY])
async def test_an_update_of_a_ready_task_serves_a_matching_waiting_consumer(node, durability):
    options = Options(durability=durability)
    tube = tube_service_pb2.Tube(name="emails", kind=tube_service_pb2.Tube.FIFOTTL, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    (hidden, later) = (await put(node, b"hidden", b"later", delay_ms=600_000)).task_ids
    taking = asyncio.ensure_future(take(node, wait_ms=8_000))
    await node.waiting(1)
    await update(node, hidden, delay_ms=0)
    assert [task.id for task in (await taking).tasks] == [hidden]
    await update(node, later, delay_ms=0, priority=5)
    taking = asyncio.ensure_future(take(node, wait_ms=8_000, priority_bound=3))
    await node.waiting(1)
    await update(node, later, priority=3)
    assert [task.id for task in (await taking).tasks] == [later]


@pytest.mark.real_time
@pytest.mark.parametrize("first", ["kept", "fleeting"])
async def test_a_take_that_stopped_its_scan_reports_it(node, first):
    """The tubes are in the log and in memory: one scan is cut short, the other finds nothing."""
    await create(node, "kept")
    options = Options(durability=Options.TEMPORARY)
    tube = tube_service_pb2.Tube(
        name="fleeting", kind=tube_service_pb2.Tube.FIFOTTL, options=options
    )
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    await put_many(
        node,
        Limits().passed_max + 1,
        tube=first,
        priority=9,
        position=task_pb2.TaskSpec.FRONT,
    )
    sources = [pb.TakeSource(tube=name) for name in ("kept", "fleeting")]
    for of in (sources[:1], sources[1:], sources, sources):
        request = pb.TakeTasksRequest(sources=of, wait_ms=0, priority_bound=3)
        answer = await node.tasks.TakeTasks(request, timeout=10)
        assert not answer.tasks
        assert answer.cut_short == (pb.TakeSource(tube=first) in of)


async def update(node, task_id, **changes):
    selector = task_pb2.TaskSelector(ids=[task_id])
    wish = task_pb2.TaskUpdate(**changes)
    request = pb.UpdateTasksRequest(tube="emails", selector=selector, update=wish)
    assert (await node.tasks.UpdateTasks(request)).count == 1


async def drop(node, name):
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name=name, force=True))


@pytest.mark.parametrize(("request_id", "given_back"), [("", [3]), ("r", [])])
async def test_a_take_whose_caller_has_stopped_waiting_is_released(request_id, given_back):
    bench = Bench()
    call = UnaryCall(pb.TakeTasksRequest(request_id=request_id), b"", None, ANONYMOUS, 0.0)
    taking = asyncio.ensure_future(bench.api._taken(call, None))
    await turns_until(lambda: bench.mutations.submitter.taken._callbacks)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    bench.mutations.submitter.taken.set_result(AppliedCommand(9, 9, 0, TakeResult([TASK])))
    await asyncio.sleep(0)
    assert bench.given_back == given_back


@pytest.mark.parametrize("outcome", [TakeResult([]), Refusal(Reason.TUBE_NOT_FOUND, "x")])
async def test_a_take_without_tasks_releases_nothing(outcome):
    bench = Bench()
    call = UnaryCall(pb.TakeTasksRequest(), b"", None, ANONYMOUS, 0.0)
    taking = asyncio.ensure_future(bench.api._taken(call, None))
    await turns_until(lambda: bench.mutations.submitter.taken._callbacks)
    taking.cancel()
    bench.mutations.submitter.taken.set_result(AppliedCommand(9, 9, 0, outcome))
    await asyncio.gather(taking, return_exceptions=True)
    assert bench.given_back == []
