"""Forwarding of calls and streams, with a leader that fails or misbehaves."""

import asyncio

import grpc
import grpc.aio
import pytest

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import NO_MEMBER, MemberId, RaftRole, SoftState, Term
from taskraft_service.access.authenticator import PEER_KEY, PRINCIPAL_KEY
from taskraft_service.access.caller import (
    ANONYMOUS,
    AnonymousCaller,
    NodeCaller,
    Unauthenticated,
)
from taskraft_service.api.rpc.calls_at_leader import ANSWER_GRACE_SECONDS, LeaderLost
from taskraft_service.api.rpc.forwarding import (
    CallOrigin,
    Forwarder,
    LeaderAnsweredError,
    ThisNodeLeads,
)
from taskraft_service.api.rpc.forwarding_metadata import (
    HOPS_KEY,
    WAITED_KEY,
    hop_count,
    trace_context,
    waited_seconds,
)
from taskraft_service.api.rpc.status import STATUS_KEY, CallRefused, rpc_status
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.node_phases import PhaseMachine
from tests.turns import turns_until

METHOD = "/taskraft.v1.TaskService/PutTasks"
ME, LEADER, NEXT_LEADER = MemberId(1), MemberId(2), MemberId(3)


class Lead:
    async def begin(self, term):
        pass

    async def before_transfer(self):
        pass

    def end(self):
        pass


class Upstream:
    """A server that answers each call as told, and then echoes."""

    def __init__(self):
        self.answers = []
        self.calls = []
        self.arrived = asyncio.Event()

    async def serve(self, raw, context):
        self.calls.append((raw, dict(context.invocation_metadata())))
        self.arrived.set()
        if not self.answers:
            return raw
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Future):
            return await answer
        if isinstance(answer, CallRefused):
            packed = rpc_status(answer).SerializeToString()
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, answer.message, ((STATUS_KEY, packed),)
            )
        return await context.abort(answer, "broken")


class Bench:
    def __init__(self, upstream, leadership, forwarder):
        self.upstream, self.leadership, self.forwarder = upstream, leadership, forwarder

    def leads(self, leader, role=RaftRole.FOLLOWER, term=1):
        self.leadership.role_changed(SoftState(leader, role), Term(term))

    async def call(self, *, repeatable=False, deadline=None):
        return await self.forwarder.forward(
            METHOD, b"raw", deadline, is_idempotent=lambda: repeatable
        )


@pytest.fixture
async def bench():
    upstream = Upstream()
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(upstream.serve)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("taskraft.v1.TaskService", {"PutTasks": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    members = {
        1: PeerAddress(1, "n1", "p:1", "127.0.0.1:1"),
        2: PeerAddress(2, "n2", "p:1", f"127.0.0.1:{port}"),
        3: PeerAddress(3, "n3", "p:1", f"127.0.0.1:{port}"),
    }
    phases = PhaseMachine()
    leadership = LeadershipTracker(phases, ME, members, Lead())
    leadership.caught_up()
    forwarder = Forwarder(leadership, 100)
    yield Bench(upstream, leadership, forwarder)
    await forwarder.close()
    await server.stop(None)


async def test_the_request_bytes_reach_the_leader_unchanged(bench):
    bench.leads(LEADER)
    assert await bench.call() == b"raw"
    ((raw, metadata),) = bench.upstream.calls
    assert (raw, metadata[HOPS_KEY]) == (b"raw", "1")


async def test_a_request_is_not_parsed_while_the_leader_answers(bench):
    def never():
        raise AssertionError("reading a large request costs milliseconds of the event loop")

    bench.leads(LEADER)
    assert await bench.forwarder.forward(METHOD, b"raw", None, is_idempotent=never) == b"raw"


async def test_only_the_trace_of_the_callers_metadata_reaches_the_leader(
    bench,
):
    bench.leads(LEADER)
    sent = {"traceparent": "00-aa-bb-01", "tracestate": "x=1", "authorization": "Bearer secret"}
    trace = trace_context(sent)
    caller = NodeCaller("p", "ipv4:10.0.0.7:50122")
    await bench.forwarder.forward(
        METHOD, b"raw", None, is_idempotent=lambda: False, origin=CallOrigin(caller, trace)
    )
    ((_, metadata),) = bench.upstream.calls
    assert (metadata[PRINCIPAL_KEY], metadata[PEER_KEY]) == ("node/p", "ipv4:10.0.0.7:50122")
    assert {key: metadata[key] for key in ("traceparent", "tracestate")} == {
        "traceparent": "00-aa-bb-01",
        "tracestate": "x=1",
    }
    assert "authorization" not in metadata
    assert trace_context({"traceparent": b"bytes"}) == ()


async def test_a_call_waits_for_an_election(bench):
    calling = asyncio.ensure_future(bench.call())
    await asyncio.sleep(0)
    bench.leads(LEADER)
    assert await calling == b"raw"


async def test_without_a_leader_a_call_fails_with_a_retry_delay(bench):
    with pytest.raises(CallRefused) as caught:
        await bench.call()
    assert caught.value.reason == error_pb2.Error.NO_LEADER
    assert caught.value.retry_ms > 0


async def test_a_call_does_not_wait_beyond_its_deadline(bench):
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(CallRefused):
        await bench.call(deadline=began + 0.02)
    assert loop.time() - began < 0.15


async def test_a_node_that_becomes_the_leader_executes_the_call(bench):
    calling = asyncio.ensure_future(bench.call())
    await asyncio.sleep(0)
    bench.leads(ME, RaftRole.LEADER)
    with pytest.raises(ThisNodeLeads):
        await calling


async def test_an_unknown_outcome_is_reported(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [grpc.StatusCode.UNAVAILABLE]
    with pytest.raises(CallRefused) as caught:
        await bench.call(repeatable=False)
    assert caught.value.reason == error_pb2.Error.COMMIT_UNKNOWN
    assert len(bench.upstream.calls) == 1


async def test_an_idempotent_call_is_repeated(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [grpc.StatusCode.UNAVAILABLE]
    assert await bench.call(repeatable=True) == b"raw"
    assert len(bench.upstream.calls) == 2


@pytest.mark.parametrize("repeatable", [True, False])
async def test_only_an_idempotent_call_is_repeated_if_its_leader_does_not_know_the_outcome(
    bench, repeatable
):
    bench.leads(LEADER)
    bench.upstream.answers = [CallRefused(error_pb2.Error.COMMIT_UNKNOWN, "leadership was lost")]
    if repeatable:
        assert await bench.call(repeatable=True) == b"raw"
    else:
        with pytest.raises(LeaderAnsweredError, match="leadership was lost"):
            await bench.call(repeatable=False)
    assert len(bench.upstream.calls) == 1 + repeatable


async def test_a_call_refused_by_a_node_that_does_not_lead_is_sent_again(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [CallRefused(error_pb2.Error.NOT_LEADER, "not I")]
    assert await bench.call(repeatable=False) == b"raw"
    assert len(bench.upstream.calls) == 2


async def test_errors_of_the_leader_are_returned(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [CallRefused(error_pb2.Error.OVERLOADED, "too much")]
    with pytest.raises(LeaderAnsweredError) as caught:
        await bench.call(repeatable=True)
    assert caught.value.message == "too much"
    assert caught.value.metadata


async def test_an_unreachable_leader_counts_as_no_leader(bench):
    bench.leads(MemberId(7))
    with pytest.raises(CallRefused) as caught:
        await bench.call()
    assert caught.value.reason == error_pb2.Error.NO_LEADER
    bench.leads(NO_MEMBER, term=2)


async def test_an_idempotent_call_is_repeated_when_another_node_leads(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [asyncio.Future()]
    calling = asyncio.ensure_future(bench.call(repeatable=True))
    await bench.upstream.arrived.wait()
    bench.leads(NEXT_LEADER, term=2)
    assert await calling == b"raw"
    assert len(bench.upstream.calls) == 2


async def test_a_call_that_may_have_had_an_effect_ends_when_another_node_leads(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [asyncio.Future()]
    calling = asyncio.ensure_future(bench.call(repeatable=False))
    await bench.upstream.arrived.wait()
    bench.leads(NEXT_LEADER, term=2)
    with pytest.raises(CallRefused) as caught:
        await calling
    assert caught.value.reason == error_pb2.Error.COMMIT_UNKNOWN
    assert len(bench.upstream.calls) == 1


async def test_the_old_leader_may_still_answer_after_another_node_leads(bench):
    answer = asyncio.Future()
    bench.leads(LEADER)
    bench.upstream.answers = [answer]
    calling = asyncio.ensure_future(bench.call(repeatable=False))
    await bench.upstream.arrived.wait()
    bench.leads(NEXT_LEADER, term=2)
    answer.set_result(b"late")
    assert await calling == b"late"


async def test_calls_continue_when_the_leader_is_unknown_for_a_moment(bench):
    answer = asyncio.Future()
    bench.leads(LEADER)
    bench.upstream.answers = [answer]
    calling = asyncio.ensure_future(bench.call(repeatable=False))
    await bench.upstream.arrived.wait()
    bench.leads(NO_MEMBER)
    for _ in range(5):  # the call tracking notices that no leader is known
        await asyncio.sleep(0)
    bench.leads(LEADER)
    done, _ = await asyncio.wait({calling}, timeout=1.5 * ANSWER_GRACE_SECONDS)
    assert not done
    answer.set_result(b"late")
    assert await calling == b"late"


async def test_a_cancelled_call_is_not_treated_as_a_change_of_leader(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [asyncio.Future()]
    calling = asyncio.ensure_future(bench.call(repeatable=True))
    await bench.upstream.arrived.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert len(bench.upstream.calls) == 1


async def test_a_stopping_node_gives_up_what_another_node_can_repeat(bench):
    bench.leads(LEADER)
    answers = [asyncio.get_running_loop().create_future() for _ in range(3)]
    bench.upstream.answers += answers
    calls = [
        asyncio.ensure_future(bench.call()),
        asyncio.ensure_future(bench.call(repeatable=True)),
        asyncio.ensure_future(
            bench.forwarder.forward(METHOD, b"raw", None, is_idempotent=lambda: False, is_wait=True)
        ),
    ]
    await turns_until(lambda: len(bench.upstream.calls) == 3)
    bench.forwarder.stop_waiting()
    for call in (*calls[1:], bench.call(repeatable=True)):
        with pytest.raises(CallRefused) as refused:
            async with asyncio.timeout(20):
                await call
        assert refused.value.reason == error_pb2.Error.DRAINING
    assert not calls[0].done()
    for answer in answers:
        if not answer.cancelled():
            answer.set_result(b"done")
    assert await calls[0] == b"done"


async def test_an_answer_that_is_on_its_way_is_not_given_up(bench):
    bench.leads(LEADER)
    answer = asyncio.get_running_loop().create_future()
    bench.upstream.answers.append(answer)
    call = asyncio.ensure_future(bench.call(repeatable=True))
    await bench.upstream.arrived.wait()
    bench.forwarder.stop_waiting()
    answer.set_result(b"done")
    assert await call == b"done"


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "\u00b2", "9" * 400, "9" * 5_000, b"1"])
def test_malformed_forwarding_metadata_is_ignored(text):
    assert hop_count({HOPS_KEY: text}) == 0
    assert waited_seconds({WAITED_KEY: text}) == 0


def test_a_forwarded_call_carries_its_hops_and_its_waiting_time():
    assert (hop_count({}), waited_seconds({})) == (0, 0)
    assert hop_count({HOPS_KEY: "2"}) == 2
    assert waited_seconds({WAITED_KEY: "1500"}) == 1.5


# ------------------------------------------------------------------------------ streams


class LeaderStream:
    """The leader's end of a stream: some messages, then perhaps an error."""

    def __init__(self, *messages, error=None):
        self.messages, self.error = messages, error
        self.cancelled = False
        self.received = []

    def stream_stream(self, method):
        self.method = method
        return self._open

    def _open(self, requests, metadata):
        self.requests, self.metadata = requests, dict(metadata)
        return self

    async def __aiter__(self):
        async for raw in self.requests:
            self.received.append(raw)
        for message in self.messages:
            yield message
        if self.error is not None:
            raise self.error

    def cancel(self):
        self.cancelled = True


class ClientStream:
    """A client that sends some messages and then half-closes."""

    deadline = None

    def __init__(self, *messages, **metadata):
        self.metadata = metadata
        self.messages = [*messages, None]
        self.received = []

    async def read(self):
        return self.messages.pop(0)

    async def write(self, raw):
        self.received.append(raw)


class WithdrawnCaller(AnonymousCaller):
    name = "mailer"

    def revalidate(self):
        raise Unauthenticated("withdrawn")


def relaying(bench, upstream):
    async def leader_channel(_deadline):
        return upstream, LEADER

    bench.forwarder.leader_channel = leader_channel
    return bench.forwarder


async def test_a_relayed_stream_carries_messages_both_ways_and_the_trace(bench):
    upstream, stream = LeaderStream(b"b"), ClientStream(b"a2", traceparent="00-aa-bb-01")
    await relaying(bench, upstream).relay(METHOD, b"a1", stream, ANONYMOUS)
    assert (upstream.method, upstream.received) == (METHOD, [b"a1", b"a2"])
    assert upstream.metadata == {HOPS_KEY: "1", "traceparent": "00-aa-bb-01"}
    assert stream.received == [b"b"]
    assert upstream.cancelled


def rpc_error(code):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


async def test_an_error_of_the_leader_ends_a_relayed_stream(bench):
    upstream = LeaderStream(error=rpc_error(grpc.StatusCode.INVALID_ARGUMENT))
    with pytest.raises(LeaderAnsweredError) as caught:
        await relaying(bench, upstream).relay(METHOD, b"a", ClientStream(), ANONYMOUS)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert upstream.cancelled


async def test_a_relayed_stream_ends_when_the_leader_becomes_unreachable(bench):
    upstream = LeaderStream(error=rpc_error(grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(LeaderLost) as caught:
        await relaying(bench, upstream).relay(METHOD, b"a", ClientStream(), ANONYMOUS)
    assert caught.value.leader == LEADER


async def test_waiting_for_the_next_leader_ends_when_it_is_known(bench):
    bench.leads(LEADER)
    waiting = asyncio.ensure_future(bench.forwarder.next_leader(LEADER))
    await asyncio.sleep(0)
    bench.leads(NO_MEMBER)
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.leads(NEXT_LEADER, term=2)
    assert await waiting == bench.leadership.address != ""


async def test_waiting_for_the_next_leader_times_out_while_the_leader_stays(bench):
    bench.leads(LEADER)
    assert await bench.forwarder.next_leader(LEADER) == ""


async def test_revoked_credentials_end_a_relayed_stream(bench):
    upstream = LeaderStream()
    with pytest.raises(Unauthenticated):
        await relaying(bench, upstream).relay(METHOD, b"a", ClientStream(b"b"), WithdrawnCaller())
    assert upstream.received == [b"a"]
    assert upstream.metadata[PRINCIPAL_KEY] == "mailer"


async def test_a_relayed_stream_ends_when_another_node_leads(bench):
    opened = asyncio.Event()

    async def serve(requests, _context):
        async for raw in requests:
            opened.set()
            yield raw

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(serve)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("taskraft.v1.TaskService", {"PutTasks": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    bench.leads(LEADER)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream = ClientStream()
        stream.read = asyncio.Event().wait
        relay = relaying(bench, channel).relay(METHOD, b"a", stream, ANONYMOUS)
        relaying_task = asyncio.ensure_future(relay)
        await opened.wait()
        bench.leads(NEXT_LEADER, term=2)
        with pytest.raises(LeaderLost):
            await relaying_task
    await server.stop(None)
    assert stream.received == [b"a"]
