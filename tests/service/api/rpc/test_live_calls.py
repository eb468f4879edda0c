"""The registry of calls in progress: shares of principals, checks after a change, expiry."""

import asyncio
import math

import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS, PermissionDenied, Unauthenticated
from taskraft_service.api.rpc.call_ends import end_calls
from taskraft_service.api.rpc.list_maxima import ENDED_CALLS_MAX
from taskraft_service.api.rpc.live_calls import LiveCall, LiveCalls, PrincipalShares, share_of
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2

FIRST = pb.WaitTasksRequest(tube="mail").SerializeToString()


class Caller:
    is_restricted = True

    def __init__(self, name, expires_at=math.inf):
        self.name, self.expires_at = name, expires_at
        self.version = 1
        self.is_known, self.tubes = True, {"mail"}

    def revalidate(self):
        if not self.is_known:
            raise Unauthenticated("withdrawn")

    def authorize(self, request):
        if request.tube not in self.tubes:
            raise PermissionDenied(self.name, "read", request.tube)


class Bench:
    def __init__(self, calls_max=10, streams_max=10, connections_max=10):
        self.live = LiveCalls(PrincipalShares(calls_max, streams_max, connections_max))
        self.tasks = []

    def open(self, caller, *, first=FIRST, is_stream=True, connection="a", key=""):
        """Start a call that waits until it is ended, and returns why it was ended."""

        async def serve():
            call = LiveCall(
                caller, connection, pb.WaitTasksRequest, is_stream=is_stream, first=first, key=key
            )
            self.live.add(call)
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError as error:
                return call.outcome(error)
            finally:
                self.live.remove(call)

        task = asyncio.ensure_future(serve())
        self.tasks.append(task)
        return task

    def change(self, *callers):
        for caller in callers:
            caller.version += 1
        self.live.principals_changed([caller.name for caller in callers])


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_calls_end_with_what_their_caller_has_lost():
    bench = Bench()
    gone, narrowed, kept = Caller("gone"), Caller("narrowed"), Caller("kept")
    tasks = [bench.open(one) for one in (gone, narrowed, kept)]
    await turns()
    gone.is_known, narrowed.tubes = False, set()
    bench.change(gone, narrowed, kept)
    await turns()
    assert isinstance(await tasks[0], Unauthenticated)
    assert isinstance(await tasks[1], PermissionDenied)
    assert not tasks[2].done()
    assert [len(bench.live.of(one)) for one in ("gone", "narrowed", "kept")] == [0, 0, 1]
    tasks[2].cancel()
    assert isinstance(await tasks[2], asyncio.CancelledError)  # the client has cancelled


async def test_a_call_without_its_first_message_needs_only_valid_credentials():
    bench = Bench()
    caller = Caller("mailer")
    caller.tubes = set()
    task = bench.open(caller, first=None)
    await turns()
    bench.change(caller)
    await turns()
    assert not task.done()
    caller.is_known = False
    bench.change(caller)
    assert isinstance(await task, Unauthenticated)


async def test_an_unchanged_version_is_not_checked_again():
    bench = Bench()
    caller = Caller("mailer")
    task = bench.open(caller)
    await turns()
    caller.is_known = False
    bench.live.principals_changed(["mailer"])
    await turns()
    assert not task.done()
    task.cancel()


def revoke(bench, caller):
    caller.is_known = False
    bench.change(caller)


def expire(bench, _caller):
    bench.live.end_expired(10.0)


@pytest.mark.parametrize("event", [revoke, expire])
async def test_many_calls_are_ended_in_steps(event):
    bench = Bench(streams_max=1_000)
    caller = Caller("mailer", expires_at=10.0)
    tasks = [bench.open(caller) for _ in range(350)]
    await turns()
    event(bench, caller)
    ended = []
    while not all(task.done() for task in tasks):
        before = sum(task.done() for task in tasks)
        await asyncio.sleep(0)
        ended.append(sum(task.done() for task in tasks) - before)
    assert max(ended) <= 100


async def test_calls_end_when_their_certificate_expires():
    bench = Bench()
    early, late, token = Caller("a", expires_at=10.0), Caller("b", expires_at=20.0), Caller("c")
    tasks = [bench.open(one) for one in (early, late, token)]
    await turns()
    bench.live.end_expired(9.9)
    await turns()
    assert not any(task.done() for task in tasks)
    bench.live.end_expired(10.0)
    assert isinstance(await tasks[0], Unauthenticated)
    assert not tasks[1].done()
    bench.live.end_expired(20.0)
    assert isinstance(await tasks[1], Unauthenticated)
    assert not tasks[2].done()
    tasks[2].cancel()


@pytest.mark.parametrize(
    ("is_stream", "limit"), [(True, "streams_share_max"), (False, "calls_share_max")]
)
async def test_a_principal_gets_its_share_and_no_more(is_stream, limit):
    bench = Bench(2, 2)
    nobody, mailer = Caller("nobody"), Caller("mailer")
    first = [bench.open(nobody, is_stream=is_stream) for _ in range(2)]
    await turns()
    with pytest.raises(CallRefused) as caught:
        bench.live.add(LiveCall(nobody, "a", pb.WaitTasksRequest, is_stream=is_stream))
    assert caught.value.metadata == {"limit": limit, "value": "2", "principal": "nobody"}
    others = [bench.open(nobody, is_stream=not is_stream), bench.open(mailer, is_stream=is_stream)]
    await turns()
    assert not any(task.done() for task in others)
    first[0].cancel()
    await turns()
    again = bench.open(nobody, is_stream=is_stream)
    await turns()
    assert not again.done()
    for task in (*first, *others, again):
        task.cancel()


async def test_a_principal_has_calls_on_its_share_of_the_connections():
    bench = Bench(connections_max=2)
    mailer = Caller("mailer")
    tasks = [bench.open(mailer, connection=one) for one in ("a", "b", "b")]
    await turns()
    with pytest.raises(CallRefused) as caught:
        bench.live.add(LiveCall(mailer, "c", pb.WaitTasksRequest, is_stream=False))
    assert caught.value.metadata["limit"] == "connections_share_max"
    tasks[0].cancel()
    await turns()
    tasks.append(bench.open(mailer, connection="c"))
    await turns()
    assert not tasks[-1].done()
    for task in tasks:
        task.cancel()


async def test_calls_without_a_principal_have_no_share():
    live = LiveCalls(PrincipalShares(1, 1, 1))
    calls = [LiveCall(ANONYMOUS, "a", pb.WaitTasksRequest, is_stream=True) for _ in range(3)]
    assert [live.add(call) for call in calls] == calls
    for call in calls:
        live.remove(call)


def test_a_share_leaves_slots_for_other_principals():
    assert share_of(10_000, 7_500) == 7_500
    assert share_of(200, 15_000) == 150
    assert share_of(1, 7_500) == 1
    assert share_of(10_000, 5) == 5


@pytest.mark.parametrize("caller", [Caller("a"), ANONYMOUS], ids=["principal", "anonymous"])
async def test_the_node_that_forwarded_a_call_ends_it_by_its_key(caller):
    bench = Bench()
    ended, other = (bench.open(caller, is_stream=False, key=key) for key in ("k-1", "k-2"))
    await asyncio.sleep(0)
    keys = [*(f"x-{number}" for number in range(ENDED_CALLS_MAX - 1)), "k-1"]
    end_calls(forwarding_pb2.EndCallsRequest(keys=keys).SerializeToString(), bench.live, caller)
    assert (await ended).reason == error_pb2.Error.DRAINING
    assert not other.done()
    bench.live.end_forwarded("k-1", caller.name)  # has ended already
    bench.live.end_forwarded("", caller.name)


async def test_a_key_ends_no_call_of_another_principal():
    bench = Bench()
    call = bench.open(Caller("a"), is_stream=False, key="k-1")
    await asyncio.sleep(0)
    for other in (Caller("b"), ANONYMOUS):
        bench.live.end_forwarded("k-1", other.name)
    await asyncio.sleep(0)
    assert not call.done()


def test_a_request_ends_a_bounded_number_of_calls():
    keys = ["k"] * (ENDED_CALLS_MAX + 1)
    request = forwarding_pb2.EndCallsRequest(keys=keys).SerializeToString()
    with pytest.raises(CallRefused) as refused:
        end_calls(request, Bench().live, ANONYMOUS)
    assert refused.value.reason == error_pb2.Error.INVALID_FIELD
