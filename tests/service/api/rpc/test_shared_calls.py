"""Calls of one turn share a message to the leader, and each call has its own outcome."""

import asyncio

import grpc
import pytest

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import NO_MEMBER
from taskraft_service.access.caller import NodeCaller
from taskraft_service.api.rpc.calls_at_leader import CallAttempts
from taskraft_service.api.rpc.forwarding_metadata import CallOrigin
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.list_maxima import FORWARDED_CALLS_MAX, SHORT_REQUEST_BYTES
from taskraft_service.api.rpc.shared_calls import FORWARDED_BYTES_MAX
from taskraft_service.api.rpc.status import CallRefused, rpc_status
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2 as pb
from tests.service.api.rpc.leader_bench import LEADER, METHOD, NEXT_LEADER
from tests.turns import turns_until

pytestmark = pytest.mark.real_time


def echoed(calls):
    return [pb.ForwardedOutcome(answer=call.request) for call in calls]


def refused(reason, text="no"):
    details = rpc_status(CallRefused(reason, text)).SerializeToString()
    code = grpc.StatusCode.UNAVAILABLE.value[0]
    status = pb.ForwardedStatus(code=code, message=text, details=details, pushback="7")
    return pb.ForwardedOutcome(status=status)


@pytest.fixture
async def connected(bench):
    """The bench with an open channel, so that all calls of a turn are sent in one turn."""
    bench.leads(LEADER)
    await bench.call()
    bench.upstream.calls.clear()
    bench.upstream.outcomes = echoed
    return bench


def started(bench, raw=b"raw", *, repeatable=False, deadline=None, **options):
    options.setdefault("attempts", CallAttempts(may_share=True))
    return asyncio.ensure_future(
        bench.forwarder.forward(METHOD, raw, deadline, is_idempotent=lambda: repeatable, **options)
    )


async def outcomes_of(calls):
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_the_calls_of_a_turn_share_one_message_and_get_their_own_answers(connected):
    requests = [b"%d" % number for number in range(50)]
    assert await outcomes_of([started(connected, raw) for raw in requests]) == requests
    (message,) = connected.upstream.messages
    assert [(call.method, call.request) for call in message] == [(METHOD, raw) for raw in requests]
    assert not connected.upstream.calls
    assert connected.forwarder.calls == 51


@pytest.mark.parametrize("size", [1, SHORT_REQUEST_BYTES])
async def test_a_message_is_bounded_in_number_and_bytes(connected, size):
    count = 2 * FORWARDED_CALLS_MAX
    answers = await outcomes_of([started(connected, b"x" * size) for _ in range(count)])
    assert answers == [b"x" * size] * count
    most = min(FORWARDED_CALLS_MAX, FORWARDED_BYTES_MAX // size)
    assert [len(one) for one in connected.upstream.messages] == [most] * (count // most)


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": CallAttempts()},
        {"raw": b"x" * (SHORT_REQUEST_BYTES + 1)},
        {"origin": CallOrigin(NodeCaller("p", "ipv4:10.0.0.7:50122"))},
        {"origin": CallOrigin(trace=(("traceparent", "00-aa-bb-01"),))},
    ],
)
async def test_a_call_with_needs_of_its_own_is_sent_alone(connected, options):
    await outcomes_of([started(connected, **options) for _ in range(3)])
    assert not connected.upstream.messages
    assert len(connected.upstream.calls) == 3


async def test_a_call_without_company_is_sent_alone(connected):
    assert await started(connected) == b"raw"
    assert not connected.upstream.messages
    assert len(connected.upstream.calls) == 1


async def test_calls_to_an_older_leader_are_sent_alone(connected):
    connected.upstream.outcomes = None
    for _ in range(2):
        assert await outcomes_of([started(connected) for _ in range(3)]) == [b"raw"] * 3
    assert len(connected.upstream.messages) == 1
    assert len(connected.upstream.calls) == 6


async def test_a_call_that_was_not_begun_is_sent_alone(connected):
    connected.upstream.outcomes = lambda calls: [
        pb.ForwardedOutcome(not_begun=pb.NotBegun()),
        *echoed(calls[1:]),
    ]
    assert await outcomes_of([started(connected, b"a"), started(connected, b"b")]) == [b"a", b"b"]
    assert [raw for raw, _ in connected.upstream.calls] == [b"a"]


async def test_each_call_has_its_own_error(connected):
    connected.upstream.outcomes = lambda calls: [
        refused(error_pb2.Error.DISK_LOW, "full"),
        *echoed(calls[1:]),
    ]
    error, answer = await outcomes_of([started(connected), started(connected)])
    assert isinstance(error, LeaderAnsweredError)
    assert (error.code, error.message) == (grpc.StatusCode.UNAVAILABLE, "full")
    assert dict(error.metadata)["grpc-retry-pushback-ms"] == "7"
    assert answer == b"raw"


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_after_a_broken_message_only_repeatable_calls_are_repeated(connected, code):
    connected.upstream.outcomes = lambda calls: code if len(calls) == 3 else echoed(calls)
    error, *answers = await outcomes_of(
        [started(connected), *[started(connected, repeatable=True) for _ in range(2)]]
    )
    assert isinstance(error, CallRefused)
    assert error.reason == error_pb2.Error.COMMIT_UNKNOWN
    assert answers == [b"raw"] * 2


async def test_calls_of_a_lost_leader_end_or_go_to_the_next_one(connected):
    connected.upstream.outcomes = lambda calls: (
        asyncio.get_running_loop().create_future() if len(calls) == 3 else echoed(calls)
    )
    calls = [started(connected), *[started(connected, repeatable=True) for _ in range(2)]]
    await turns_until(lambda: connected.upstream.messages)
    connected.leads(NO_MEMBER)
    connected.leads(NEXT_LEADER)
    error, *answers = await outcomes_of(calls)
    assert error.reason == error_pb2.Error.COMMIT_UNKNOWN
    assert answers == [b"raw"] * 2


async def test_a_cancelled_call_ends_alone_and_the_last_one_ends_the_message(connected):
    waiting = asyncio.get_running_loop().create_future()
    connected.upstream.outcomes = lambda _calls: waiting
    first, second = started(connected), started(connected)
    await turns_until(lambda: connected.upstream.messages)
    first.cancel()
    assert isinstance((await outcomes_of([first]))[0], asyncio.CancelledError)
    assert not second.done()
    assert not waiting.done()
    second.cancel()
    await turns_until(waiting.cancelled)


async def test_a_call_ends_at_its_own_deadline(connected):
    waiting = asyncio.get_running_loop().create_future()
    connected.upstream.outcomes = lambda _calls: waiting
    deadline = asyncio.get_running_loop().time() + 0.05
    first, second = started(connected, deadline=deadline), started(connected)
    (error,) = await outcomes_of([first])
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    await turns_until(lambda: connected.upstream.messages)
    ((one, other),) = connected.upstream.messages
    assert 0 < one.remaining_ms <= 50
    assert not other.HasField("remaining_ms")
    waiting.set_result(echoed([one, other]))
    assert await second == b"raw"


async def test_a_leader_that_answers_too_few_calls_is_an_error_of_each_call(connected):
    connected.upstream.outcomes = lambda calls: echoed(calls[1:])
    for error in await outcomes_of([started(connected), started(connected)]):
        assert error.code is grpc.StatusCode.INTERNAL


async def test_closing_cancels_the_calls_without_an_answer(connected):
    connected.upstream.outcomes = lambda _calls: asyncio.get_running_loop().create_future()
    calls = [started(connected), started(connected)]
    await turns_until(lambda: connected.upstream.messages)
    late = [started(connected), started(connected)]
    await asyncio.sleep(0)
    await connected.forwarder.close()
    for error in await outcomes_of([*calls, *late]):
        assert isinstance(error, asyncio.CancelledError)
