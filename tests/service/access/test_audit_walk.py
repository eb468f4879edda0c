"""Both audits have a record of each call that needs the role admin, and of no other call."""

import grpc
import grpc.aio
import pytest
import structlog
from google.protobuf.message_factory import GetMessageClass

from bench.worst.calls import methods_of_the_contract
from taskraft.v1 import cluster_service_pb2 as cluster
from taskraft.v1 import feed_service_pb2, group_service_pb2, session_service_pb2
from taskraft_service.access.permission_rules import managed_names
from taskraft_service.stubs.externalscaler import external_scaler_pb2 as scaler
from tests.service.access.secured import secured
from tests.service.api.test_request_keys import CALLS
from tests.service.conftest import create, put

pytestmark = pytest.mark.real_time

MEMBER = {"name": "n9", "peer_address": "127.0.0.1:1", "address": "127.0.0.1:2"}
REQUESTS = CALLS | {
    "AddMember": cluster.AddMemberRequest(**MEMBER),
    "PromoteMember": cluster.PromoteMemberRequest(name="n9"),
    "RemoveMember": cluster.RemoveMemberRequest(name="n9"),
    "TransferLeadership": cluster.TransferLeadershipRequest(name="n0"),
    "ReadChanges": feed_service_pb2.ReadChangesRequest(from_seq=1, to_seq=1),
    "StreamIsActive": scaler.ScaledObjectRef(scalerMetadata={"tube": "emails", "target": "1"}),
}
"""Requests of the methods for which an empty request is not enough."""
FIRST = ("CreateTube", "StartBulkSweep", "AddMember", "CreateGroup", "CreateSchedule")
"""Methods whose effect the calls of other methods need."""
LAST = ("DeleteSchedule", "RemoveMember")
BY_STATE = {"StopBulkSweep"}
"""Methods whose handler finds out the tube that the caller must manage."""
WITHOUT_EFFECT = {"TransferLeadership"}
"""Not in the replicated audit: the named node leads already."""
REFUSED = {"PromoteMember"}
"""The added member never joins, so the promotion is refused and nothing is managed."""


def ordered():
    methods = {method.name: method for method in methods_of_the_contract()}
    between = [name for name in methods if name not in FIRST and name not in LAST]
    return [methods[name] for name in (*FIRST, *between, *LAST)]


async def outcome(channel, method, request):
    """Make one call; return the status, and end a stream after its first message."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    coding = (type(request).SerializeToString, GetMessageClass(method.output_type).FromString)
    try:
        if method.client_streaming:
            call = channel.stream_stream(path, *coding)(timeout=10)
            await call.write(request)
            await call.read()
            call.cancel()
        elif method.server_streaming:
            call = channel.unary_stream(path, *coding)(request, timeout=10)
            await call.read()
            call.cancel()
        else:
            await channel.unary_unary(path, *coding)(request, timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_the_audits_have_the_calls_that_the_role_table_names(tmp_path):
    expected, refused = set(), set()
    async with secured(tmp_path) as node:
        root = await node.known("root")
        for tube in ("emails", "other", "dropped"):
            await create(root, tube)
        await put(root, b"first")
        group = group_service_pb2.CreateGroupRequest(group={"name": "cancelled"})
        await root.groups.CreateGroup(group)
        opened = await root.sessions.OpenSession(session_service_pb2.OpenSessionRequest())
        close = session_service_pb2.CloseSessionRequest(session_id=opened.session.session_id)
        before = (await root.cluster.ListAudit(cluster.ListAuditRequest())).records
        with structlog.testing.capture_logs() as written:
            for method in ordered():
                request = {"CloseSession": close}.get(method.name) or REQUESTS.get(
                    method.name, GetMessageClass(method.input_type)()
                )
                code = await outcome(root.channel, method, request)
                if managed_names(request) or method.name in BY_STATE:
                    expected.add(method.name)
                    if code is not grpc.StatusCode.OK:
                        refused.add(method.name)
        records = (await root.cluster.ListAudit(cluster.ListAuditRequest(page_size=1_000))).records
    logged = [line["call"] for line in written if line["event"] == "managed"]
    replicated = [record.call for record in records[: len(records) - len(before)]]
    assert refused == REFUSED
    assert "SaveSnapshot" in expected
    assert sorted(logged) == sorted(expected - REFUSED)
    assert sorted(replicated) == sorted(expected - REFUSED - WITHOUT_EFFECT)


async def test_a_continued_transfer_is_recorded_too(node):
    root = await node.known("root")
    request = cluster.SaveSnapshotRequest()
    stream = root.cluster.SaveSnapshot(request)
    header = (await stream.read()).header
    stream.cancel()
    request.snapshot_id = header.snapshot_id
    again = root.cluster.SaveSnapshot(request)
    assert (await again.read()).header == header
    again.cancel()
    listed = cluster.ListAuditRequest(call="SaveSnapshot")
    records = (await root.cluster.ListAudit(listed)).records
    assert [(one.principal, list(one.names)) for one in records] == [("root", ["*"])] * 2
