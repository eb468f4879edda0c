"""Map the errors of the service's parts to refusals; other errors are bugs."""

import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import error_pb2, task_service_pb2
from taskraft_replication.core.types import MemberId
from taskraft_replication.errors import NotRaftLeader, ReadUnconfirmed, Stopped
from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR
from taskraft_service.access.caller import PermissionDenied, Unauthenticated
from taskraft_service.api.rpc.endpoint import GrpcEndpoint
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.prompt_calls import LEADER_KEY
from taskraft_service.api.rpc.server_context import CallEnded
from taskraft_service.api.rpc.status import PUSHBACK_KEY, STATUS_KEY, CallRefused, refused_for
from taskraft_service.leader.command_submitter import (
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.wire import WireMalformed
from tests.service.api.rpc.call_loads import call_load

Error = error_pb2.Error
PATH = "/taskraft.v1.TaskService/Subscribe"


class Leadership:
    address = "n2:1"


class Forwarder:
    leadership = Leadership()


class Context:
    def __init__(self):
        self.ended = None

    def peer(self):
        return "ipv4:127.0.0.1:1"

    def set_trailing_metadata(self, metadata):
        self.metadata = metadata

    async def abort(self, code, text, metadata):
        self.ended = (code, text, dict(metadata))
        raise CallEnded


class Bench:
    def __init__(self):
        self.defects = []
        self.endpoint = GrpcEndpoint(Forwarder(), call_load(), self.defects.append)
        self.context = Context()

    async def run(self, error=None):
        async def work(_call):
            if error is not None:
                raise error

        try:
            await self.stream(work)
        except CallEnded:
            return self.context.ended
        return None

    def stream(self, work):
        return self.endpoint._run_stream(
            PATH, self.context, OPEN_AUTHENTICATOR, task_service_pb2.SubscribeRequest, None, work
        )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CallRefused(Error.TUBE_FULL, "x"), Error.TUBE_FULL),
        (Unauthenticated("x"), Error.NO_CREDENTIALS),
        (LeaderOverloaded("x"), Error.OVERLOADED),
        (CommandTooLarge(2, 1), Error.PAYLOAD_TOO_LARGE),
        (OutcomeUnknown("x"), Error.COMMIT_UNKNOWN),
        (ReadUnconfirmed("x"), Error.NO_LEADER),
        (NotProposed("x"), Error.NOT_LEADER),
        (NotRaftLeader(MemberId(2)), Error.NOT_LEADER),
        (Stopped("x"), Error.DRAINING),
        (WireMalformed("x"), Error.INVALID_FIELD),
    ],
)
def test_an_error_of_the_service_has_its_reason(error, reason):
    refused = refused_for(error)
    assert refused is not None
    assert refused.reason == reason


def test_a_missing_permission_is_named():
    refused = refused_for(PermissionDenied("mailer", "take", "secret"))
    assert refused.reason == Error.NOT_ALLOWED
    assert refused.metadata == {"principal": "mailer", "verb": "take", "tube": "secret"}


def test_an_unknown_exception_is_not_a_refusal():
    assert refused_for(KeyError()) is None


async def test_a_bug_is_reported_to_the_node_and_hidden_from_the_caller():
    bench = Bench()
    defect = KeyError("secret")
    code, text, metadata = await bench.run(defect)
    assert (code, text) == (grpc.StatusCode.INTERNAL, "the server has a bug; see its log")
    assert metadata[LEADER_KEY] == "n2:1"
    assert PUSHBACK_KEY not in metadata
    assert bench.defects == [defect]
    assert bench.endpoint.counts.by_outcome == {(PATH, "INTERNAL_ERROR"): 1}


async def test_a_client_that_leaves_during_a_write_is_no_bug():
    bench = Bench()
    with pytest.raises(asyncio.CancelledError):
        await bench.run(grpc.aio.InternalError("Failed ExecuteBatch"))
    assert bench.defects == []
    assert bench.endpoint.load.streams == 0


async def test_a_refusal_contains_its_details_and_a_retry_delay():
    bench = Bench()
    _, text, metadata = await bench.run(CallRefused(Error.OVERLOADED, "much", {"limit": "5"}))
    assert text == "much"
    assert int(metadata[PUSHBACK_KEY]) > 0
    info = error_details_pb2.ErrorInfo()
    details = status_pb2.Status.FromString(metadata[STATUS_KEY]).details
    assert any(detail.Unpack(info) for detail in details)
    assert (info.reason, info.metadata["limit"]) == ("OVERLOADED", "5")
    assert not bench.defects


async def test_the_retry_delay_of_a_refusal_is_used():
    _, _, metadata = await Bench().run(CallRefused(Error.NO_LEADER, "none", retry_ms=77))
    assert metadata[PUSHBACK_KEY] == "77"


async def test_an_error_of_the_leader_is_returned_without_foreign_metadata():
    bench = Bench()
    trailing = grpc.aio.Metadata((STATUS_KEY, b"s"), (PUSHBACK_KEY, "5"), ("other", "x"))
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), trailing, details="gone"
    )
    code, text, metadata = await bench.run(LeaderAnsweredError(error))
    assert (code, text) == (grpc.StatusCode.NOT_FOUND, "gone")
    assert metadata == {STATUS_KEY: b"s", PUSHBACK_KEY: "5", LEADER_KEY: "n2:1"}
    assert bench.endpoint.counts.by_outcome == {(PATH, "NOT_FOUND"): 1}


@pytest.mark.real_time
async def test_calls_are_counted_and_pending_until_they_end():
    bench = Bench()
    going_on = asyncio.Event()
    running = asyncio.ensure_future(bench.stream(lambda _call: going_on.wait()))
    await asyncio.sleep(0)
    assert not await bench.endpoint.load.wait_idle(0.001)
    await bench.run()
    assert not await bench.endpoint.load.wait_idle(0.001)
    going_on.set()
    await running
    assert await bench.endpoint.load.wait_idle(0.001)
    assert bench.endpoint.counts.by_outcome == {(PATH, "OK"): 2}
