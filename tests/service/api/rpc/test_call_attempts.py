"""A refusal after a lost attempt leaves the outcome of the call open."""

import grpc
import grpc.aio
import pytest

from taskraft.v1 import error_pb2
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.calls_at_leader import CallAttempts, ThisNodeLeads
from taskraft_service.api.rpc.endpoint import GrpcEndpoint
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.leader.command_submitter import LeaderOverloaded
from tests.service.api.rpc.call_loads import call_load

Error = error_pb2.Error
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class Leadership:
    """This node leads when the test says so."""

    address = "n2:1"
    serves = False


class Forwarder:
    """A forwarder whose first attempt may be lost, and whose last attempt fails."""

    def __init__(self, error, *, is_lost):
        self.leadership = Leadership()
        self._error, self._is_lost = error, is_lost

    def may_forward(self, _caller, *, needs_proof):
        return not needs_proof

    async def forward(self, *_arguments, attempts, **_more):
        attempts.is_lost |= self._is_lost
        raise self._error


class Method:
    name = "PutTasks"
    is_wait = False
    is_for_operators = False
    can_undo = can_begin = False

    def __init__(self, *, changes_state=True, forwarder=None):
        self.changes_state, self._forwarder = changes_state, forwarder

    def runs_on_any_node(self, _raw):
        # The forwarder has reported that this node leads now.
        return self._forwarder is not None and self._forwarder.leadership.serves

    def is_idempotent(self, _raw):
        return True

    async def execute(self, *_arguments):
        raise LeaderOverloaded("too many calls")


class Context:
    def peer(self):
        return "ipv4:127.0.0.1:1"

    def time_remaining(self):
        return None

    def invocation_metadata(self):
        return ()


def answered(code):
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "busy")
    return LeaderAnsweredError(error)


async def error_of_call(forwarder, method):
    endpoint = GrpcEndpoint(forwarder, call_load(), [].append)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the error is what the tests compare
        await endpoint._execute(
            "/taskraft.v1.TaskService/PutTasks", method, b"", Context(), ANONYMOUS
        )
    return raised.value


@pytest.mark.parametrize(
    "error",
    [
        CallRefused(Error.NO_LEADER, "none"),
        CallRefused(Error.DRAINING, "stops"),
        answered(UNAVAILABLE),
        answered(grpc.StatusCode.RESOURCE_EXHAUSTED),
        answered(grpc.StatusCode.PERMISSION_DENIED),
        answered(grpc.StatusCode.UNAUTHENTICATED),
    ],
    ids=[
        "no leader",
        "draining",
        "leader unavailable",
        "leader overloaded",
        "right withdrawn",
        "principal unknown",
    ],
)
async def test_a_mutation_that_may_have_had_an_effect_is_not_refused(error):
    forwarder = Forwarder(error, is_lost=True)
    found = await error_of_call(forwarder, Method())
    assert isinstance(found, CallRefused)
    assert found.reason == Error.COMMIT_UNKNOWN
    assert await error_of_call(forwarder, Method(changes_state=False)) is error


@pytest.mark.parametrize("error", [CallRefused(Error.NO_LEADER, "none"), answered(UNAVAILABLE)])
async def test_a_refusal_stands_if_no_attempt_was_lost(error):
    assert await error_of_call(Forwarder(error, is_lost=False), Method()) is error


@pytest.mark.parametrize(
    "error", [CallRefused(Error.TUBE_NOT_FOUND, "gone"), answered(grpc.StatusCode.NOT_FOUND)]
)
async def test_an_answer_about_the_state_stands_after_a_lost_attempt(error):
    assert await error_of_call(Forwarder(error, is_lost=True), Method()) is error


async def test_a_bug_is_reported_after_a_lost_attempt():
    bug = KeyError("x")
    assert await error_of_call(Forwarder(bug, is_lost=True), Method()) is bug


async def test_a_lost_attempt_counts_when_this_node_leads_next():
    class NextLeader(Forwarder):
        async def forward(self, *_arguments, attempts, **_more):
            attempts.is_lost = True
            self.leadership.serves = True
            raise ThisNodeLeads

    forwarder = NextLeader(None, is_lost=True)
    found = await error_of_call(forwarder, Method(forwarder=forwarder))
    assert found.reason == Error.COMMIT_UNKNOWN


def test_attempts_that_change_nothing_have_no_unknown_outcome():
    refused = CallRefused(Error.NO_LEADER, "none")
    assert CallAttempts(changes_state=False, is_lost=True).outcome(refused) is refused
