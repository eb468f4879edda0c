"""A follower relays streams to the leader, and says where to go when the leader is lost."""

import asyncio
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.core.types import MemberId
from taskraft_service import limits
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.calls_at_leader import LeaderLost, ThisNodeLeads
from taskraft_service.api.rpc.forwarding_metadata import HOPS_KEY
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.state.command_executor import CommandExecutor
from taskraft_service.api.state.lease_returns import LeaseReturns
from taskraft_service.api.streams.subscribe import SubscribeHandler, SubscriptionRegistry
from taskraft_service.leader.command_submitter import AppliedCommand, NotProposed
from taskraft_service.leader.waiters import Waiters
from taskraft_service.queue.operations.sessions import KeepResult
from tests.service.api.rpc.call_loads import call_load
from tests.service.api.streams.linked_stream import OPENING, Reading, Stream, Submitter
from tests.service.leader.test_waiters import Board
from tests.turns import turns_until


class Leadership:
    leader_and_term = (2, 5)
    serves = False
    address = "n2:1"


class Forwarder:
    """Relays each stream with the next outcome: an exception is raised, None ends the stream."""

    def __init__(self, *outcomes):
        self.leadership = Leadership()
        self.route = self
        self.waited = 0
        self.outcomes = [*outcomes]
        self.relayed = []
        self.successors = {}
        """Address of the leader that follows the lost leader."""
        self.believed = True
        """Whether the leader believes this node which principal has called."""

    def may_forward(self, _caller, *, needs_proof):
        return self.believed and not needs_proof

    async def wait_until_serving(self, deadline):
        assert deadline is None
        self.waited += 1
        return False

    async def next_leader(self, lost):
        return self.successors.get(lost, "")

    async def relay(self, method, first, stream, caller):
        self.relayed.append((method, first, stream, caller))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, ThisNodeLeads):
            self.leadership.serves = True
        if outcome is not None:
            raise outcome


def subscribe_api(forwarder):
    submitter = Submitter()
    api = SubscribeHandler(
        CommandExecutor(submitter),
        Reading(),
        Known(),
        LeaseReturns(submitter, forwarder),
        Waiters(Board(a=0)),
        SubscriptionRegistry(call_load()),
        forwarder,
        100,
    )
    return api, submitter


class Known:
    async def check_tubes(self, sources):
        pass

    async def check_session(self, session_id, caller):
        pass


def lost(code):
    metadata = grpc.aio.Metadata()
    return LeaderAnsweredError(grpc.aio.AioRpcError(code, metadata, metadata))


async def test_a_follower_relays_the_stream_to_the_leader():
    api, _ = subscribe_api(forwarder := Forwarder(None))
    stream = Stream(OPENING)
    await api.subscribe(stream, ANONYMOUS)
    assert forwarder.relayed == [
        ("/taskraft.v1.TaskService/Subscribe", OPENING.SerializeToString(), stream, ANONYMOUS)
    ]


async def test_a_follower_relays_no_stream_whose_caller_the_leader_would_not_believe():
    api, _ = subscribe_api(forwarder := Forwarder(None))
    forwarder.believed = False
    with pytest.raises(NotProposed):
        await api.subscribe(Stream(OPENING), ANONYMOUS)
    assert not forwarder.relayed


async def test_a_client_learns_the_next_leader_when_the_leader_is_lost():
    api, _ = subscribe_api(forwarder := Forwarder(LeaderLost(MemberId(2))))
    forwarder.successors[2] = "n3:1"
    stream = Stream(OPENING)
    with pytest.raises(CallRefused) as caught:
        await api.subscribe(stream, ANONYMOUS)
    assert caught.value.metadata == {"leader": "n3:1"}
    (message,) = stream.received
    assert message.go_away.error.reason == caught.value.reason == error_pb2.Error.NOT_LEADER
    assert (message.go_away.leader, message.go_away.retry_ms) == ("n3:1", 0)


async def test_a_client_is_told_to_reconnect_when_the_leader_is_lost():
    api, _ = subscribe_api(Forwarder(LeaderLost(MemberId(2))))
    stream = Stream(OPENING)
    with pytest.raises(CallRefused) as caught:
        await api.subscribe(stream, ANONYMOUS)
    (message,) = stream.received
    assert message.go_away.error.reason == caught.value.reason == error_pb2.Error.NO_LEADER
    assert message.go_away.retry_ms > 0


async def test_an_error_of_the_leader_is_relayed():
    api, _ = subscribe_api(Forwarder(lost(grpc.StatusCode.NOT_FOUND)))
    with pytest.raises(LeaderAnsweredError):
        await api.subscribe(Stream(OPENING), ANONYMOUS)


async def test_a_node_that_becomes_the_leader_serves_the_stream():
    api, submitter = subscribe_api(Forwarder(ThisNodeLeads()))
    stream = Stream(OPENING)
    serving = asyncio.ensure_future(api.subscribe(stream, ANONYMOUS))
    for number, result in enumerate((KeepResult([]), KeepResult([]))):
        await turns_until(lambda number=number: len(submitter.proposed) > number)
        submitter.proposed[number][1].set_result(AppliedCommand(1, 1, 0, result))
    await turns_until(lambda: stream.received)
    assert stream.received[0].opened.session_id
    assert len(api._waiters) == len(api._streams) == 1
    stream.send(None)
    await serving
    assert len(api._waiters) == len(api._streams) == 0
    attached = [command.attached for command, _ in submitter.proposed[1:]]
    assert attached == [True, False]


async def test_a_stream_that_is_being_opened_uses_its_places(monkeypatch):
    monkeypatch.setattr(limits, "WAITING_PLACES_MAX", 1)
    api, submitter = subscribe_api(forwarder := Forwarder())
    forwarder.leadership.serves = True
    api._reader.applied = SimpleNamespace(tube_names=lambda: ("a",))
    opening = pb.SubscribeRequest(open={"sources": [pb.TakeSource(tube="a*")]})
    streams = [asyncio.ensure_future(api.subscribe(Stream(opening), ANONYMOUS)) for _ in range(2)]
    await turns_until(lambda: submitter.proposed and (streams[1].done() or submitter.proposed[1:]))
    assert len(submitter.proposed) == 1, "the first stream opens its session"
    with pytest.raises(CallRefused) as caught:
        await streams[1]
    assert caught.value.metadata["limit"] == "waiting_places_max"
    streams[0].cancel()
    await asyncio.wait(streams)
    assert len(api._waiters) == len(api._waiters.places.counts) == 0


async def test_a_relayed_stream_is_not_relayed_again():
    forwarder = Forwarder()
    api, _ = subscribe_api(forwarder)
    stream = Stream(OPENING)
    stream.metadata = {HOPS_KEY: "1"}
    with pytest.raises(NotProposed):
        await api.subscribe(stream, ANONYMOUS)
    assert (forwarder.waited, forwarder.relayed) == (1, [])
