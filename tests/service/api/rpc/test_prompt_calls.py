"""Calls that only wait for the outcome of one command need no task of their own."""

import asyncio
import math
from importlib.util import find_spec

import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR
from taskraft_service.access.caller import Unauthenticated
from taskraft_service.api.rpc.call_load import CallCounts
from taskraft_service.api.rpc.list_maxima import SHORT_REQUEST_BYTES
from taskraft_service.api.rpc.live_calls import PrincipalShares
from taskraft_service.api.rpc.methods import ProposedCall
from taskraft_service.api.rpc.prompt_calls import LEADER_KEY, NodeCalls, PromptMethod
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.leader.command_submitter import NotProposed, OutcomeUnknown
from tests.service.api.rpc.call_loads import call_load
from tests.service.conftest import create, put, take
from tests.turns import turns_until

PATH = "/taskraft.v1.TaskService/PutTasks"


class Leadership:
    address = "n1:1"
    serves = True


class Context:
    trailing = ()

    def peer(self):
        return "ipv4:127.0.0.1:1"

    def set_trailing_metadata(self, metadata):
        self.trailing = metadata


class Method:
    """Proposes one command for each request, or fails as told."""

    def __init__(self):
        self.outcome = asyncio.get_running_loop().create_future()
        self.begun = []
        self.error = None
        self.waits = False

    kind = pb.PutTasksRequest

    def begin(self, raw, deadline, caller, arrived_at):
        self.caller = caller
        if self.error is not None:
            raise self.error
        if self.waits:
            return None
        self.begun.append((raw, deadline, arrived_at))
        return ProposedCall(self.outcome, lambda result: b"answer " + result)


class Bench:
    def __init__(self, authenticator=OPEN_AUTHENTICATOR, **limits):
        self.authenticator = authenticator
        self.method, self.leadership = Method(), Leadership()
        self.load, self.counts = call_load(**limits), CallCounts({})
        self.context = Context()
        self.handled, self.refusals = [], []
        self.prompt = PromptMethod(
            *(PATH, self.method, self.handle, self.refuse, self.authenticator),
            NodeCalls(self.leadership, self.load, self.counts),
        )

    async def handle(self, raw, _context):
        self.handled.append(raw)
        return b"handled"

    async def refuse(self, path, _context, error):
        self.refusals.append((path, error))

    def begin(self, raw=b"put"):
        return self.prompt.begin(raw, 9.0, 5.0, self.context)

    @property
    def held(self):
        return self.load.calls, self.load.held_bytes


@pytest.fixture
async def bench():
    return Bench()


async def test_a_call_is_answered_when_its_outcome_is_there(bench):
    call = bench.begin()
    assert bench.method.begun == [(b"put", 9.0, 5.0)]
    assert bench.held == (1, 3)
    call.outcome.set_result(b"1")
    assert call.answer() == b"answer 1"
    assert bench.held == (0, 0)
    assert bench.counts.by_outcome == {(PATH, "OK"): 1}
    assert bench.context.trailing == ((LEADER_KEY, "n1:1"),)


@pytest.mark.parametrize("hindrance", ["long", "follower", "draining", "calls", "refused", "waits"])
async def test_a_call_that_cannot_be_begun_is_left_to_its_handler(hindrance):
    bench = Bench(calls_max=0 if hindrance == "calls" else 1)
    bench.leadership.serves = hindrance != "follower"
    bench.load.is_draining = hindrance == "draining"
    if hindrance == "refused":
        bench.method.error = CallRefused(error_pb2.Error.INVALID_FIELD, "tube: empty")
    bench.method.waits = hindrance == "waits"
    assert bench.begin(b"x" * (SHORT_REQUEST_BYTES + (hindrance == "long"))) is None
    assert bench.held == (0, 0)
    assert not bench.method.begun


async def test_a_call_whose_command_was_not_proposed_is_executed_again(bench):
    call = bench.begin()
    call.outcome.set_exception(NotProposed("lost leadership"))
    with pytest.raises(NotProposed) as raised:
        call.answer()
    assert await call.rest(raised.value) == b"handled"
    assert bench.handled == [b"put"]
    assert bench.held == (0, 0)


async def test_a_call_of_unknown_outcome_is_refused_and_not_repeated(bench):
    call = bench.begin()
    call.outcome.set_exception(OutcomeUnknown("lost leadership"))
    with pytest.raises(OutcomeUnknown) as raised:
        call.answer()
    await call.rest(raised.value)
    assert bench.refusals == [(PATH, raised.value)]
    assert not bench.handled
    assert bench.counts.by_outcome == {}


async def test_a_cancelled_call_holds_nothing(bench):
    call = bench.begin()
    call.outcome.cancel()
    with pytest.raises(asyncio.CancelledError):
        call.answer()
    assert bench.held == (0, 0)


class Named:
    """A caller with a principal, who is also the authenticator of its calls."""

    name, is_restricted, version, expires_at = "billing", True, 1, math.inf

    def authenticate(self, _context):
        return self

    def revalidate(self):
        raise Unauthenticated("withdrawn")


@pytest.fixture
async def named():
    return Bench(Named())


def of_billing(bench):
    return len(bench.load.live.of("billing"))


async def test_a_call_of_a_named_caller_is_held_for_its_principal_until_the_answer(named):
    call = named.begin()
    assert named.method.caller is named.authenticator
    assert (of_billing(named), *named.held) == (1, 1, 3)
    call.outcome.set_result(b"1")
    assert call.answer() == b"answer 1"
    assert (of_billing(named), *named.held) == (0, 0, 0)


@pytest.mark.parametrize("hindrance", ["credentials", "share", "refused", "waits"])
async def test_a_named_call_that_cannot_be_begun_holds_nothing(named, hindrance):
    if hindrance == "credentials":
        authenticator = Named()
        authenticator.authenticate = lambda _context: authenticator.revalidate()
        named = Bench(authenticator)
    if hindrance == "share":
        named.load.live.shares = PrincipalShares(0, 9, 9)
    if hindrance == "refused":
        named.method.error = CallRefused(error_pb2.Error.INVALID_FIELD, "tube: empty")
    named.method.waits = hindrance == "waits"
    assert named.begin() is None
    assert (of_billing(named), *named.held) == (0, 0, 0)
    assert not named.method.begun


async def test_a_named_call_that_is_revoked_in_flight_ends_with_an_unknown_outcome(named):
    call, told = named.begin(), []
    call.when_known(lambda _: told.append(1))
    named.authenticator.version = 2
    named.load.live.principals_changed(["billing"])
    await turns_until(lambda: told)
    with pytest.raises(CallRefused) as raised:
        call.answer()
    assert raised.value.reason == error_pb2.Error.COMMIT_UNKNOWN
    assert (of_billing(named), *named.held) == (0, 0, 0)


async def test_a_named_call_whose_outcome_is_known_is_answered_although_it_was_revoked(named):
    call = named.begin()
    call.outcome.set_result(b"1")
    [live] = named.load.live.of("billing")
    live.end(Unauthenticated("withdrawn"))
    assert call.answer() == b"answer 1"


async def test_a_named_call_that_its_client_cancels_is_not_revoked(named):
    call = named.begin()
    call.outcome.cancel()
    with pytest.raises(asyncio.CancelledError):
        call.answer()
    assert (of_billing(named), *named.held) == (0, 0, 0)


class TestOnANode:
    pytestmark = pytest.mark.real_time

    @pytest.mark.skipif(not find_spec("taskraft_edge"), reason="grpc.aio makes a task for each")
    async def test_puts_and_settlements_make_no_task(self, node, monkeypatch):
        await create(node)
        await put(node, b"warm")
        loop = asyncio.get_running_loop()
        made, create_task = [], loop.create_task

        def recorded(coroutine, **options):
            made.append(coroutine.__qualname__)
            return create_task(coroutine, **options)

        token = (await take(node)).tasks[0].token
        monkeypatch.setattr(loop, "create_task", recorded)
        assert list((await put(node, b"x")).task_ids) == [2]
        settlement = pb.Settlement(tokens=[token], ack=pb.Settlement.Ack())
        settled = await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
        assert not settled.errors
        assert not [name for name in made if name.startswith("NativeServer")]

    async def test_a_refused_put_names_its_field(self, node):
        await create(node)
        with pytest.raises(Exception, match="tube: "):
            await put(node, b"x", tube="no tube?")
