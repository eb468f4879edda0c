"""Forwarding of calls, with a leader that fails or misbehaves."""

import asyncio

import grpc
import grpc.aio
import pytest

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import NO_MEMBER, MemberId, RaftRole
from taskraft_service.access.authenticator import PEER_KEY, PRINCIPAL_KEY
from taskraft_service.access.caller import (
    ANONYMOUS,
    AuthenticatedCaller,
    Credential,
    NodeCaller,
)
from taskraft_service.api.rpc.call_ends import CALL_KEY, CallEnds
from taskraft_service.api.rpc.calls_at_leader import (
    ANSWER_GRACE_SECONDS,
    CallAttempts,
    EndsAtLeader,
    ThisNodeLeads,
)
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.forwarding_metadata import (
    HOPS_KEY,
    WAITED_KEY,
    CallOrigin,
    hop_count,
    trace_context,
    waited_seconds,
)
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.status import CallRefused
from tests.service.api.rpc.leader_bench import LEADER, ME, METHOD, NEXT_LEADER
from tests.turns import SECONDS_MAX, turns_until

pytestmark = pytest.mark.real_time


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


async def test_only_the_trace_of_the_callers_metadata_reaches_the_leader(bench):
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
    bench.forwarder.route._leader_wait_seconds = 3_600
    async with asyncio.timeout(SECONDS_MAX):
        with pytest.raises(CallRefused):
            await bench.call(deadline=loop.time() + 0.02)


async def test_a_node_that_becomes_the_leader_executes_the_call(bench):
    calling = asyncio.ensure_future(bench.call())
    await asyncio.sleep(0)
    bench.leads(ME, RaftRole.LEADER)
    with pytest.raises(ThisNodeLeads):
        await calling


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_an_unknown_outcome_is_reported(bench, code):
    bench.leads(LEADER)
    bench.upstream.answers = [code]
    with pytest.raises(CallRefused) as caught:
        await bench.call(repeatable=False)
    assert caught.value.reason == error_pb2.Error.COMMIT_UNKNOWN
    assert len(bench.upstream.calls) == 1


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


@pytest.mark.parametrize(
    ("answer", "is_lost"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.CANCELLED, True),
        (CallRefused(error_pb2.Error.COMMIT_UNKNOWN, "leadership was lost"), True),
        (CallRefused(error_pb2.Error.NOT_LEADER, "not I"), False),
    ],
)
async def test_an_idempotent_call_is_repeated_and_a_lost_attempt_noted(bench, answer, is_lost):
    bench.leads(LEADER)
    bench.upstream.answers = [answer]
    attempts = CallAttempts()
    assert await bench.call(repeatable=True, attempts=attempts) == b"raw"
    assert len(bench.upstream.calls) == 2
    assert attempts.is_lost is is_lost


async def test_a_call_refused_by_a_node_that_does_not_lead_is_sent_again(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [CallRefused(error_pb2.Error.NOT_LEADER, "not I")]
    assert await bench.call(repeatable=False) == b"raw"
    assert len(bench.upstream.calls) == 2


async def test_a_node_without_a_leader_for_a_long_time_refuses_soon(bench, monkeypatch):
    """The network may have cut the node off; other nodes may have a leader."""
    election_ms = 60_000
    bench.forwarder = Forwarder(bench.leadership, election_ms)
    monkeypatch.setattr(bench.leadership, "silence_ms", lambda: 2 * election_ms)
    async with asyncio.timeout(20):
        with pytest.raises(CallRefused) as caught:
            await bench.call()
    assert caught.value.reason == error_pb2.Error.NO_LEADER


@pytest.mark.parametrize(
    ("token", "needs_proof", "is_admitted", "may"),
    [
        ("t", True, False, True),
        ("", False, True, True),
        ("", True, True, False),
        ("", False, False, False),
    ],
    ids=["a token proves", "an admitted node", "settings need a proof", "a node that added itself"],
)
def test_a_call_is_forwarded_if_the_leader_believes_who_calls(
    bench, token, needs_proof, is_admitted, may
):
    forwarder = Forwarder(bench.leadership, 100, has_added_itself=lambda: not is_admitted)
    caller = AuthenticatedCaller("p", Credential("c", token), None)
    assert forwarder.may_forward(caller, needs_proof=needs_proof) is may
    assert forwarder.may_forward(ANONYMOUS, needs_proof=needs_proof)
    assert not forwarder.may_forward(NodeCaller("n7"), needs_proof=needs_proof)


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
    attempts = CallAttempts()
    calling = asyncio.ensure_future(bench.call(repeatable=True, attempts=attempts))
    await bench.upstream.arrived.wait()
    bench.leads(NEXT_LEADER, term=2)
    assert await calling == b"raw"
    assert (len(bench.upstream.calls), attempts.is_lost) == (2, True)


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


async def test_a_stopping_node_gives_up_calls_that_another_node_can_repeat(bench):
    bench.leads(LEADER)
    answers = [asyncio.get_running_loop().create_future() for _ in range(3)]
    bench.upstream.answers += answers
    attempts, waiting = CallAttempts(), CallAttempts()
    calls = [
        asyncio.ensure_future(bench.call()),
        asyncio.ensure_future(bench.call(repeatable=True, attempts=attempts)),
        asyncio.ensure_future(bench.call(is_wait=True, attempts=waiting)),
    ]
    await turns_until(lambda: len(bench.upstream.calls) == 3)
    bench.forwarder.stop_waiting()
    for call in (*calls[1:], bench.call(repeatable=True)):
        with pytest.raises(CallRefused) as refused:
            async with asyncio.timeout(20):
                await call
        assert refused.value.reason == error_pb2.Error.DRAINING
    assert attempts.is_lost
    assert waiting.is_lost
    assert not calls[0].done()
    for answer in answers:
        if not answer.cancelled():
            answer.set_result(b"done")
    assert await calls[0] == b"done"


async def test_a_stopping_node_forwards_no_call_that_has_waited_for_a_leader(bench):
    """``stop_waiting`` would not give the call up, and the node would stop only after its grace."""
    waiting = asyncio.ensure_future(bench.call(is_wait=True))
    await asyncio.sleep(0)
    bench.forwarder.stop_waiting()
    bench.leads(LEADER)
    with pytest.raises(CallRefused) as refused:
        await waiting
    assert refused.value.reason == error_pb2.Error.DRAINING
    assert bench.upstream.calls == []


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


async def test_an_answer_that_arrives_with_the_cancellation_is_undelivered(bench, monkeypatch):
    bench.leads(LEADER)
    undelivered = []
    tracked = bench.forwarder._at_leader.tracked

    def cancelled_when_answered(call, *rest):
        call.add_done_callback(lambda _: calling.cancel())
        return tracked(call, *rest)

    monkeypatch.setattr(bench.forwarder._at_leader, "tracked", cancelled_when_answered)
    calling = asyncio.ensure_future(
        bench.forwarder.forward(
            METHOD,
            b"raw",
            None,
            is_idempotent=lambda: False,
            attempts=CallAttempts(undelivered=undelivered.append),
        )
    )
    await asyncio.wait((calling,))
    assert calling.cancelled()
    assert undelivered == [b"raw"]


# ------------------------------------------------------------------------------ calls to end


class Take:
    """A forwarded call that waits at the leader until the leader is asked to end the call."""

    def __init__(self, bench):
        self.undelivered = []
        self.attempts = CallAttempts(undelivered=self.undelivered.append)
        self.answer = asyncio.get_running_loop().create_future()
        self.key = ""
        self._bench = bench
        bench.upstream.answers.append(self.answer)

    async def waits(self):
        bench = self._bench
        calling = asyncio.ensure_future(bench.call(is_wait=True, attempts=self.attempts))
        await bench.upstream.arrived.wait()
        self.key = bench.upstream.calls[-1][1][CALL_KEY]
        return calling


async def test_a_stopping_node_returns_the_tasks_that_the_leader_had_leased(bench):
    bench.leads(LEADER)
    take = Take(bench)
    calling = await take.waits()

    def end(keys):
        assert keys == [take.key]
        take.answer.set_result(b"leased")

    bench.upstream.ends = end
    bench.forwarder.stop_waiting()
    assert await calling == b"leased"
    assert not take.attempts.is_lost


async def test_a_stopping_node_knows_the_outcome_of_a_call_that_the_leader_ended(bench):
    bench.leads(LEADER)
    take = Take(bench)
    calling = await take.waits()
    draining = CallRefused(error_pb2.Error.DRAINING, "given up")
    bench.upstream.ends = lambda _keys: take.answer.set_result(draining)
    bench.forwarder.stop_waiting()
    with pytest.raises(CallRefused) as refused:
        await calling
    assert refused.value.reason == error_pb2.Error.DRAINING
    assert not take.attempts.is_lost


async def test_a_stopping_node_does_not_know_the_outcome_that_the_leader_keeps_to_itself(bench):
    bench.leads(LEADER)
    take = Take(bench)
    calling = await take.waits()
    bench.forwarder.stop_waiting()
    with pytest.raises(CallRefused) as refused:
        await calling
    assert refused.value.reason == error_pb2.Error.DRAINING
    assert take.attempts.is_lost


async def test_a_cancelled_call_is_ended_at_the_leader_and_its_tasks_are_undelivered(bench):
    bench.leads(LEADER)
    take = Take(bench)
    calling = await take.waits()
    bench.upstream.ends = lambda _keys: take.answer.set_result(b"leased")
    calling.cancel()
    await asyncio.wait((calling,))
    assert calling.cancelled()
    await bench.forwarder.finish_ends()
    assert take.undelivered == [b"leased"]


async def test_a_cancelled_call_at_a_leader_that_does_not_answer_is_cancelled_there(bench):
    bench.leads(LEADER)
    take = Take(bench)
    calling = await take.waits()
    calling.cancel()
    await bench.forwarder.finish_ends()
    await turns_until(take.answer.cancelled)
    assert take.undelivered == []


async def test_calls_that_are_cancelled_together_are_ended_by_one_request(bench):
    bench.leads(LEADER)
    takes = [Take(bench) for _ in range(3)]
    calls = []
    for number, take in enumerate(takes, start=1):
        calls.append(await take.waits())
        await turns_until(lambda number=number: len(bench.upstream.calls) == number)
    requests = []

    def end(keys):
        requests.append(keys)
        for take in takes:
            take.answer.set_result(b"leased")

    bench.upstream.ends = end
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await bench.forwarder.finish_ends()
    assert [len(keys) for keys in requests] == [3]
    assert [take.undelivered for take in takes] == [[b"leased"]] * 3


async def test_a_call_on_a_closed_channel_cannot_be_ended_and_breaks_nothing():
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    await channel.close()
    ends = CallEnds()
    ends.end([EndsAtLeader(channel, ANONYMOUS, "k")])
    await ends.finish()
    assert errors == []
