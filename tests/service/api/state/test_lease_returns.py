"""Leases that no client will settle are released, also across changes of leader."""

import asyncio

import grpc
import grpc.aio
import pytest
import structlog

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.calls_at_leader import ThisNodeLeads
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.state.lease_returns import LeaseReturns
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.limits import PUT_TASKS_MAX
from taskraft_service.queue.operations.settlements import SettleResult
from tests.turns import turns_until

HERE, THERE = (1, 5), (2, 6)


class Leadership:
    """The leadership as this node sees it: ``HERE``, at another node, or in a transfer."""

    def __init__(self):
        self.serves = self.is_leader = True
        self.leader_and_term = HERE
        self.changed = asyncio.Event()

    def change(self, leader_and_term, *, serves):
        self.leader_and_term, self.serves = leader_and_term, serves
        self.is_leader = leader_and_term[0] == 1
        self.changed.set()

    async def wait_for_change_until(self, until):
        await self.changed.wait()
        self.changed.clear()


class Cluster:
    """Replaces the proposer and the forwarder; each gives the prepared outcomes in order."""

    def __init__(self):
        self.leadership = Leadership()
        self.here, self.there = [], []
        self.submitted, self.forwarded = [], []

    def submit(self, encoded, deadline=None):
        assert encoded.is_owed
        self.submitted.append(encoded.command)
        outcome = self.here.pop(0) if self.here else None
        if isinstance(outcome, NotProposed):
            raise outcome
        future = asyncio.get_running_loop().create_future()
        if outcome is None:
            future.set_result(AppliedCommand(1, 1, 0, SettleResult()))
        else:
            future.set_exception(outcome)
        return future

    async def forward(self, method, raw, deadline, *, is_idempotent, origin):
        assert (method, deadline, origin.caller) == (
            "/taskraft.v1.TaskService/SettleTasks",
            None,
            ANONYMOUS,
        )
        assert is_idempotent()
        assert origin.outlives_stop
        request = pb.SettleTasksRequest.FromString(raw)
        self.forwarded.append([token for one in request.settlements for token in one.tokens])
        assert all(one.release.uncounted for one in request.settlements)
        outcome = self.there.pop(0) if self.there else None
        if outcome is not None:
            raise outcome
        return b""


@pytest.fixture
async def cluster():
    return Cluster()


@pytest.fixture
async def returns(cluster):
    return LeaseReturns(cluster, cluster)


def tokens_of(commands):
    return [[token for one in each.settlements for token in one.tokens] for each in commands]


async def done(returns):
    async with asyncio.timeout(20):
        await returns.finish(20)


async def test_a_leader_releases_leases_at_once(cluster, returns):
    returns.release([1, 2], ANONYMOUS)
    assert tokens_of(cluster.submitted) == [[1, 2]]
    await done(returns)
    assert returns._worker is None


async def test_many_leases_are_released_in_commands_of_bounded_size(cluster, returns):
    returns.release(range(2 * PUT_TASKS_MAX + 1), ANONYMOUS)
    assert [len(tokens) for tokens in tokens_of(cluster.submitted)] == [
        PUT_TASKS_MAX,
        PUT_TASKS_MAX,
        1,
    ]


@pytest.mark.parametrize("failure", [NotProposed("x"), LeaderOverloaded("x"), OutcomeUnknown("x")])
async def test_a_failed_release_is_retried_while_the_same_node_leads(cluster, returns, failure):
    cluster.here = [failure, failure]
    returns.release([1], ANONYMOUS)
    returns.detach(HERE, "s")
    for attempts in (2, 3, 4):
        await turns_until(lambda attempts=attempts: len(cluster.submitted) >= attempts)
        await turns_until(lambda: not returns._open)
        cluster.leadership.changed.set()
    await done(returns)
    assert not cluster.forwarded


async def test_after_a_failed_transfer_leases_are_released_and_sessions_are_detached(
    cluster, returns
):
    cluster.here = [NotProposed("a transfer is under way")] * 2
    cluster.leadership.change(HERE, serves=False)
    returns.release_of_stream(HERE, [1])
    returns.detach(HERE, "s")
    cluster.leadership.change(HERE, serves=False)
    await turns_until(lambda: not cluster.leadership.changed.is_set())
    assert len(cluster.submitted) == 2
    cluster.leadership.change(HERE, serves=True)
    await done(returns)
    assert len(cluster.submitted) == 4
    assert not cluster.submitted[3].attached


async def test_leases_of_a_call_are_released_through_the_next_leader(cluster, returns):
    cluster.here = [OutcomeUnknown("leadership was lost")]
    retry = grpc.aio.Metadata(("grpc-retry-pushback-ms", "5"))
    overloaded = grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, retry, retry)
    cluster.there = [
        CallRefused(error_pb2.Error.NO_LEADER, "x"),
        LeaderAnsweredError(overloaded),
        ThisNodeLeads(),
    ]
    returns.release([1, 2], ANONYMOUS)
    cluster.leadership.change(THERE, serves=False)
    for attempts in (1, 2, 3, 4):
        await turns_until(lambda attempts=attempts: len(cluster.forwarded) >= attempts)
        cluster.leadership.changed.set()
    await done(returns)
    assert cluster.forwarded == [[1, 2]] * 4


async def test_a_final_refusal_is_logged_and_not_retried(cluster, returns):
    empty = grpc.aio.Metadata()
    refused = grpc.aio.AioRpcError(grpc.StatusCode.PERMISSION_DENIED, empty, empty, "no")
    cluster.here = [NotProposed("x")]
    cluster.there = [LeaderAnsweredError(refused)]
    with structlog.testing.capture_logs() as written:
        returns.release([1], ANONYMOUS)
        cluster.leadership.change(THERE, serves=False)
        await done(returns)
    assert [line["reason"] for line in written] == ["no"]


async def test_under_another_leader_the_leases_of_a_stream_stay_in_their_session(cluster, returns):
    """The client of the stream may have resumed the session at the new leader."""
    cluster.here = [NotProposed("x")]
    returns.release_of_stream(HERE, [1])
    cluster.leadership.change(THERE, serves=False)
    await done(returns)
    returns.release_of_stream(HERE, [2])
    returns.detach(HERE, "s")
    cluster.leadership.change((1, 7), serves=True)
    returns.release_of_stream(HERE, [3])
    await done(returns)
    assert tokens_of(cluster.submitted) == [[1]]
    assert not cluster.forwarded


async def test_a_stopping_node_waits_for_a_limited_time(cluster, returns):
    cluster.here = [NotProposed("x")]
    returns.release([1], ANONYMOUS)
    cluster.leadership.change(HERE, serves=False)
    with structlog.testing.capture_logs() as written:
        await returns.finish(0)
    assert written[0]["count"] == 1
    with pytest.raises(asyncio.CancelledError):
        await returns._worker


async def test_an_exception_of_the_proposer_is_reported_as_a_bug(cluster, returns):
    met = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: met.append(context["exception"]))
    cluster.here = [KeyError("bug")]
    returns.release([1], ANONYMOUS)
    await turns_until(lambda: met)
    assert isinstance(met[0], KeyError)
