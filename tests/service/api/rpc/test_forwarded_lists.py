"""The leader begins the calls of one message without tasks, and answers them together."""

import asyncio

import grpc
import pytest

from taskraft.v1 import error_pb2
from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.call_load import CallCounts
from taskraft_service.api.rpc.forwarded_lists import FORWARDED_MESSAGE_BYTES_MAX, forward_calls
from taskraft_service.api.rpc.list_maxima import FORWARDED_CALLS_MAX
from taskraft_service.api.rpc.methods import ProposedCall
from taskraft_service.api.rpc.prompt_calls import NodeCalls, PromptMethod
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.leader.command_submitter import (
    CommandOutcome,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2 as pb
from tests.service.api.rpc.call_loads import call_load
from tests.service.api.rpc.test_prompt_calls import PATH, Leadership

DETAILS = b"details"


class Context:
    def invocation_metadata(self):
        return (("x-taskraft-hops", "1"),)

    def auth_context(self):
        return {}

    def peer(self):
        return "ipv4:127.0.0.1:1"


class Bench:
    def __init__(self, **limits):
        self.load, self.counts = call_load(**limits), CallCounts({})
        self.leadership = Leadership()
        self.outcomes, self.deadlines = {}, []
        self.methods = {
            PATH: PromptMethod(
                *(PATH, self, None, self.refuse, OPEN_AUTHENTICATOR),
                NodeCalls(self.leadership, self.load, self.counts),
            )
        }

    kind = pb.ForwardCallsRequest

    def begin(self, raw, deadline, caller, _arrived_at):
        assert caller is ANONYMOUS
        if raw == b"waits":
            return None
        self.deadlines.append(deadline)
        outcome = self.outcomes[raw] = CommandOutcome()
        return ProposedCall(outcome, lambda result: b"answer " + result)

    async def refuse(self, _path, context, error):
        metadata = (("grpc-status-details-bin", DETAILS), ("grpc-retry-pushback-ms", "7"))
        await context.abort(grpc.StatusCode.ABORTED, str(error), metadata)

    def known(self, raw, result):
        outcome = self.outcomes[raw]
        if isinstance(result, Exception):
            outcome.fail(result)
        else:
            outcome.set_result(result)
            outcome.tell()

    async def begun(self, *requests, method=PATH, **fields):
        calls = [pb.ForwardedCall(method=method, request=raw, **fields) for raw in requests]
        raw = pb.ForwardCallsRequest(calls=calls).SerializeToString()
        serving = asyncio.ensure_future(forward_calls(raw, Context(), self.methods))
        await asyncio.sleep(0)
        return serving

    @property
    def held(self):
        return self.load.calls, self.load.held_bytes


async def results_of(serving):
    return pb.ForwardCallsResponse.FromString(await serving).outcomes


def kinds_of(outcomes):
    return [one.WhichOneof("result") for one in outcomes]


@pytest.fixture
async def bench():
    return Bench()


async def test_all_calls_begin_at_once_and_count_one_by_one(bench):
    serving = await bench.begun(b"a", b"bc")
    assert bench.held == (2, 3)
    bench.known(b"bc", b"2")
    await asyncio.sleep(0)
    assert bench.held == (1, 1)
    assert not serving.done()
    bench.known(b"a", b"1")
    assert [one.answer for one in await results_of(serving)] == [b"answer 1", b"answer 2"]
    assert bench.counts.by_outcome == {(PATH, "OK"): 2}
    assert bench.held == (0, 0)


async def test_calls_that_cannot_begin_are_named(bench):
    serving = await bench.begun(b"waits", b"a")
    bench.known(b"a", b"1")
    assert kinds_of(await results_of(serving)) == ["not_begun", "answer"]
    serving = await bench.begun(b"a", method="/taskraft.v1.TaskService/TakeTasks")
    assert kinds_of(await results_of(serving)) == ["not_begun"]


@pytest.mark.parametrize("hindrance", ["calls", "draining", "follower"])
async def test_limits_of_the_leader_hold_for_each_call(hindrance):
    bench = Bench(calls_max=1)
    bench.load.is_draining = hindrance == "draining"
    bench.leadership.serves = hindrance != "follower"
    serving = await bench.begun(b"a", b"b")
    if hindrance == "calls":
        bench.known(b"a", b"1")
    first = "answer" if hindrance == "calls" else "not_begun"
    assert kinds_of(await results_of(serving)) == [first, "not_begun"]


async def test_each_call_has_its_own_error(bench):
    serving = await bench.begun(b"a", b"b", b"c")
    bench.known(b"a", OutcomeUnknown("lost leadership"))
    bench.known(b"b", NotProposed("lost leadership"))
    bench.known(b"c", b"3")
    outcomes = await results_of(serving)
    assert kinds_of(outcomes) == ["status", "not_begun", "answer"]
    status = outcomes[0].status
    assert status.code == grpc.StatusCode.ABORTED.value[0]
    assert (status.message, status.details, status.pushback) == ("lost leadership", DETAILS, "7")
    assert bench.held == (0, 0)


async def test_each_call_keeps_its_deadline(bench):
    serving = await bench.begun(b"a", remaining_ms=60_000)
    (deadline,) = bench.deadlines
    assert 59 < deadline - asyncio.get_running_loop().time() <= 60
    bench.known(b"a", b"1")
    await serving
    serving = await bench.begun(b"b", remaining_ms=0)
    assert kinds_of(await results_of(serving)) == ["not_begun"]
    assert b"b" not in bench.outcomes


async def test_the_end_of_the_message_cancels_the_calls_without_an_outcome(bench):
    serving = await bench.begun(b"a", b"b")
    bench.known(b"a", b"1")
    serving.cancel()
    await asyncio.wait([serving])
    assert serving.cancelled()
    assert bench.outcomes[b"b"].cancelled()
    assert bench.held == (0, 0)


async def test_a_message_with_too_many_calls_or_bytes_begins_nothing(bench):
    serving = await bench.begun(*[b"a"] * (FORWARDED_CALLS_MAX + 1))
    with pytest.raises(CallRefused) as raised:
        await serving
    assert raised.value.reason == error_pb2.Error.INVALID_FIELD
    serving = await bench.begun(b"a" * FORWARDED_MESSAGE_BYTES_MAX)
    with pytest.raises(CallRefused) as raised:
        await serving
    assert raised.value.reason == error_pb2.Error.PAYLOAD_TOO_LARGE
    assert not bench.outcomes
