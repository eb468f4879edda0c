"""Invalid input to every method gets a typed error and changes nothing."""

import grpc
import pytest
from google.protobuf import field_mask_pb2
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import (
    cluster_service_pb2,
    error_pb2,
    feed_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.limits import HEADERS_BYTES_MAX, PUT_TASKS_MAX
from tests.service.api import bad_input_dependencies as dependencies
from tests.service.api import bad_input_feed as feed
from tests.service.api import bad_input_selection as selection
from tests.service.api import bad_input_sweeps as sweeps
from tests.service.api import bad_input_watching as watching
from tests.service.api import bad_input_workflows as workflows
from tests.service.conftest import ack, config_in, create, put, reason_of, running, take

pytestmark = pytest.mark.real_time

UNKNOWN_SESSION = "00000000-0000-4000-8000-000000000000"
SERVICES = [
    module.DESCRIPTOR.services_by_name[name]
    for module, name in (
        (pb, "TaskService"),
        (tube_service_pb2, "TubeService"),
        (session_service_pb2, "SessionService"),
        (feed_service_pb2, "FeedService"),
        (cluster_service_pb2, "ClusterService"),
    )
] + [*workflows.SERVICES]
IMPLEMENTED = (
    workflows.IMPLEMENTED
    | selection.IMPLEMENTED
    | sweeps.IMPLEMENTED
    | feed.IMPLEMENTED
    | {
        *("PutTasks", "TakeTasks", "SettleTasks", "Subscribe"),
        *("CreateTube", "UpdateTube", "DropTube", "TruncateTube", "ReleaseAll", "ListTubes"),
        *("GetStatistics", "GetHistory", "ListFailures", "ListConsumers"),
        *("OpenSession", "KeepSessions", "CloseSession", "ListSessions", "ListLeases"),
        *("GetServerInfo", "GetClusterState", "TransferLeadership", "Configure"),
        *("GetCaller", "ListAudit"),
        *("UpgradeCluster", "AddMember", "PromoteMember", "RemoveMember", "SaveSnapshot"),
    }
)
METHODS = {
    method.name: (f"/{service.full_name}/{method.name}", method.server_streaming)
    for service in SERVICES
    for method in service.methods
}


def consumers(**fields):
    return tube_service_pb2.ListConsumersRequest(tube="emails", **fields)


def source(tube="emails", **fields):
    return [pb.TakeSource(tube=tube, **fields)]


def ids(*numbers):
    return task_pb2.TaskSelector(ids=numbers)


def put_one(**fields):
    return pb.PutTasksRequest(tube="emails", tasks=[task_pb2.TaskSpec(**fields)])


def tube(name="other", kind=tube_service_pb2.Tube.FIFOTTL, **options):
    shown = tube_service_pb2.Tube(
        name=name, kind=kind, options=tube_service_pb2.TubeOptions(**options)
    )
    return tube_service_pb2.CreateTubeRequest(tube=shown)


def settle(*tokens, **action):
    return pb.SettleTasksRequest(settlements=[pb.Settlement(tokens=tokens, **action)])


Settlement = pb.Settlement
INVALID = "INVALID_FIELD"
NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
TUBE_NOT_FOUND = "TUBE_NOT_FOUND"
SESSION_NOT_FOUND = "SESSION_NOT_FOUND"

PAUSE = {
    "options": tube_service_pb2.TubeOptions(put_paused=True),
    "update_mask": field_mask_pb2.FieldMask(paths=["put_paused"]),
}


def settings(**wishes):
    wish = cluster_service_pb2.ClusterSettings(**wishes)
    return cluster_service_pb2.ConfigureRequest(settings=wish)


CASES = [
    *workflows.CASES,
    *selection.CASES,
    *feed.CASES,
    *sweeps.CASES,
    *watching.CASES,
    *dependencies.CASES,
    ("PutTasks", pb.PutTasksRequest(tube="nowhere", tasks=[task_pb2.TaskSpec()]), TUBE_NOT_FOUND),
    ("PutTasks", pb.PutTasksRequest(tube="a b", tasks=[task_pb2.TaskSpec()]), INVALID),
    ("PutTasks", pb.PutTasksRequest(tube="", tasks=[task_pb2.TaskSpec()]), INVALID),
    ("PutTasks", pb.PutTasksRequest(tube="x" * 129, tasks=[task_pb2.TaskSpec()]), INVALID),
    ("PutTasks", pb.PutTasksRequest(tube="emails"), INVALID),
    ("PutTasks", pb.PutTasksRequest(request_id="x" * 65, tube="emails"), INVALID),
    (
        "PutTasks",
        pb.PutTasksRequest(tube="emails", tasks=[task_pb2.TaskSpec()] * (PUT_TASKS_MAX + 1)),
        INVALID,
    ),
    ("PutTasks", put_one(ttl_ms=-1), INVALID),
    ("PutTasks", put_one(ttr_ms=-1), INVALID),
    ("PutTasks", put_one(visible_at_ms=-1), INVALID),
    ("PutTasks", put_one(content_type="x" * 256), INVALID),
    ("PutTasks", put_one(type="x" * 129), INVALID),
    ("PutTasks", put_one(subqueue="x" * 129), INVALID),
    ("PutTasks", put_one(position=9), INVALID),
    ("PutTasks", put_one(headers={"": b"x"}), INVALID),
    ("PutTasks", put_one(payload=b"x" * 1025), "PAYLOAD_TOO_LARGE"),
    ("PutTasks", put_one(payload=b"x" * 1025, priority=1), "PAYLOAD_TOO_LARGE"),
    ("PutTasks", put_one(headers={"x": b"y" * HEADERS_BYTES_MAX}), "PAYLOAD_TOO_LARGE"),
    ("PutTasks", put_one(unique_key=["k", ""]), INVALID),
    ("PutTasks", put_one(unique_key=["k"] * 9), INVALID),
    ("PutTasks", put_one(unique_key=["k" * 257]), INVALID),
    ("PutTasks", put_one(unique_key=["k"], on_conflict=9), INVALID),
    ("PutTasks", put_one(unique_key=["k"], unique_states=[0]), INVALID),
    ("PutTasks", put_one(unique_key=["k"], unique_states=[1, 8]), INVALID),
    ("PutTasks", put_one(unique_key=["k"], unique_states=[1] * 9), INVALID),
    ("PutTasks", put_one(unique_key=["k"], unique_ms=0), INVALID),
    ("PutTasks", put_one(unique_states=[1]), INVALID),
    ("PutTasks", put_one(unique_ms=1), INVALID),
    ("PutTasks", put_one(retry=task_pb2.RetryPolicy(attempts_max=-3)), INVALID),
    ("PutTasks", put_one(retry=task_pb2.RetryPolicy(exhausted=99)), INVALID),
    ("PutTasks", put_one(on_conflict=task_pb2.TaskSpec.RETURN_EXISTING), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source("nowhere")), TUBE_NOT_FOUND),
    ("TakeTasks", pb.TakeTasksRequest(sources=source("a b")), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source() * 65), INVALID),
    (
        "TakeTasks",
        pb.TakeTasksRequest(
            sources=[pb.TakeSource(tube=f"{'*a' * 40}*{number}*") for number in range(64)],
            wait_ms=4_000,
        ),
        "TOO_MANY_STEPS",
    ),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), tasks_max=-1), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), tasks_max=1001), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), bytes_max=-1), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), wait_ms=-1), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), ttr_ms=-1), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), types=["x" * 129]), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), types=["x"] * 65), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source("*"), task_id=1), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), task_id=0), INVALID),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), session_id="mine"), INVALID),
    (
        "TakeTasks",
        pb.TakeTasksRequest(sources=source(), session_id=UNKNOWN_SESSION),
        SESSION_NOT_FOUND,
    ),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(), task_id=99), "TASK_NOT_FOUND"),
    ("TakeTasks", pb.TakeTasksRequest(sources=source(weight=-1)), INVALID),
    ("SettleTasks", pb.SettleTasksRequest(), INVALID),
    ("SettleTasks", settle(ack=Settlement.Ack()), INVALID),
    ("SettleTasks", settle(0, ack=Settlement.Ack()), INVALID),
    ("SettleTasks", settle(-5, ack=Settlement.Ack()), INVALID),
    ("SettleTasks", settle(1), INVALID),
    ("SettleTasks", settle(1, release=Settlement.Release(ttl_policy=9)), INVALID),
    ("SettleTasks", settle(1, release=Settlement.Release(position=9)), INVALID),
    ("SettleTasks", settle(1, touch=Settlement.Touch(increment_ms=-1)), INVALID),
    ("SettleTasks", settle(1, ack=Settlement.Ack(keep=9)), INVALID),
    (
        "SettleTasks",
        settle(1, bury=Settlement.Bury(failure=task_pb2.Failure(message="x" * 4097))),
        INVALID,
    ),
    (
        "SettleTasks",
        settle(1, reject=Settlement.Reject(failure=task_pb2.Failure(type="x" * 256))),
        INVALID,
    ),
    ("SettleTasks", settle(1, ack=Settlement.Ack(keep=99)), INVALID),
    ("SettleTasks", settle(1, ack=Settlement.Ack(retain_ms=-1)), INVALID),
    (
        "SettleTasks",
        settle(1, ack=Settlement.Ack(keep=Settlement.Ack.REMOVE, retain_ms=1)),
        INVALID,
    ),
    ("SettleTasks", settle(1, release=Settlement.Release(move_to="a b")), INVALID),
    ("SettleTasks", settle(1, release=Settlement.Release(ttl_ms=5)), INVALID),
    (
        "SettleTasks",
        settle(1, release=Settlement.Release(update=task_pb2.TaskUpdate(delay_ms=1))),
        INVALID,
    ),
    (
        "SettleTasks",
        settle(1, bury=Settlement.Bury(update=task_pb2.TaskUpdate(ttr_ms=-1))),
        INVALID,
    ),
    (
        "SettleTasks",
        settle(
            1,
            release=Settlement.Release(uncounted=True, failure=task_pb2.Failure(fatal=True)),
        ),
        INVALID,
    ),
    (
        "SettleTasks",
        settle(1, touch=Settlement.Touch(progress=task_pb2.Progress(basis_points=10_001))),
        INVALID,
    ),
    (
        "SettleTasks",
        pb.SettleTasksRequest(
            settlements=[Settlement(tokens=[77], ack=Settlement.Ack())], atomic=True
        ),
        "LEASE_STALE",
    ),
    ("GetTasks", pb.GetTasksRequest(tube="nowhere", selector=ids(1)), TUBE_NOT_FOUND),
    ("GetTasks", pb.GetTasksRequest(tube="a b", selector=ids(1)), INVALID),
    ("GetTasks", pb.GetTasksRequest(tube="emails"), INVALID),
    ("GetTasks", pb.GetTasksRequest(tube="emails", selector=ids(0)), INVALID),
    ("GetTasks", pb.GetTasksRequest(tube="emails", selector=ids(*range(1, 1002))), INVALID),
    ("CountTasks", pb.CountTasksRequest(tube="nowhere"), TUBE_NOT_FOUND),
    ("CountTasks", pb.CountTasksRequest(tube="a b"), INVALID),
    ("CountTasks", pb.CountTasksRequest(tube="emails", page_token="eHl6"), INVALID),
    ("CountTasks", pb.CountTasksRequest(tube="emails", filter="state = LOST"), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="nowhere"), TUBE_NOT_FOUND),
    ("ListTasks", pb.ListTasksRequest(tube="a b"), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="emails", page_size=-1), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="emails", page_size=1001), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="emails", page_token="???"), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="emails", page_token="eHl6"), INVALID),
    ("ListTasks", pb.ListTasksRequest(tube="emails", filter="state = LOST"), INVALID),
    ("KickTasks", pb.KickTasksRequest(tube="nowhere"), TUBE_NOT_FOUND),
    ("KickTasks", pb.KickTasksRequest(tube="a b"), INVALID),
    ("KickTasks", pb.KickTasksRequest(tube="emails", count=-1), INVALID),
    ("KickTasks", pb.KickTasksRequest(tube="emails", delay_ms=-1), INVALID),
    ("KickTasks", pb.KickTasksRequest(tube="emails", count=1, selector=ids(1)), INVALID),
    (
        "KickTasks",
        pb.KickTasksRequest(tube="emails", update=task_pb2.TaskUpdate(delay_ms=1)),
        INVALID,
    ),
    ("BuryTasks", pb.BuryTasksRequest(tube="nowhere", selector=ids(1)), TUBE_NOT_FOUND),
    ("BuryTasks", pb.BuryTasksRequest(tube="emails"), INVALID),
    ("BuryTasks", pb.BuryTasksRequest(tube="emails", selector=ids(-1)), INVALID),
    ("DeleteTasks", pb.DeleteTasksRequest(tube="nowhere", selector=ids(1)), TUBE_NOT_FOUND),
    ("DeleteTasks", pb.DeleteTasksRequest(tube="emails"), INVALID),
    ("DeleteTasks", pb.DeleteTasksRequest(tube="emails", selector=ids(-1)), INVALID),
    ("CreateTube", tube("emails"), "TUBE_EXISTS"),
    ("CreateTube", tube("a b"), INVALID),
    ("CreateTube", tube(kind=0), INVALID),
    ("CreateTube", tube(kind=99), INVALID),
    ("CreateTube", tube(delay_ms=-1), INVALID),
    ("CreateTube", tube(ttl_ms=-1), INVALID),
    ("CreateTube", tube(capacity_tasks=-1), INVALID),
    ("CreateTube", tube(ttl_scope=99), INVALID),
    ("CreateTube", tube(kind=tube_service_pb2.Tube.UTUBE, ttl_ms=5), INVALID),
    ("CreateTube", tube(kind=tube_service_pb2.Tube.UTUBE, subqueue_concurrency=-1), INVALID),
    ("CreateTube", tube(kind=tube_service_pb2.Tube.UTUBE, subqueue_weights={"a": 0}), INVALID),
    (
        "CreateTube",
        tube(kind=tube_service_pb2.Tube.UTUBE, subqueue_weights={"a" * 129: 1}),
        INVALID,
    ),
    ("CreateTube", tube(kind=tube_service_pb2.Tube.CUSTOM), INVALID),
    ("CreateTube", tube(on_ack=99), INVALID),
    ("CreateTube", tube(on_ack=tube_service_pb2.TubeOptions.RETAIN), INVALID),
    ("CreateTube", tube(rate_burst=5), INVALID),
    ("CreateTube", tube(dead_letter_tube="other"), INVALID),
    ("CreateTube", tube(retry=task_pb2.RetryPolicy(attempts_max=-1)), INVALID),
    ("CreateTube", tube(retry=task_pb2.RetryPolicy(jitter_percent=101)), INVALID),
    ("CreateTube", tube(retry=task_pb2.RetryPolicy(exhausted=99)), INVALID),
    (
        "CreateTube",
        tube(retry=task_pb2.RetryPolicy(exhausted=task_pb2.RetryPolicy.DEAD_LETTER)),
        INVALID,
    ),
    ("CreateTube", tube(priority_min=3), INVALID),
    ("CreateTube", tube(kind=tube_service_pb2.Tube.FIFO, ttr_ms=5), INVALID),
    ("CreateTube", tube(durability=99), INVALID),
    ("CreateTube", tube(concurrency=-5), INVALID),
    ("CreateTube", tube(rate_per_second=-5), INVALID),
    ("CreateTube", tube(subqueue_weights={"a": 2}), INVALID),
    (
        "CreateTube",
        tube_service_pb2.CreateTubeRequest(tube=tube().tube, profile="kafka"),
        INVALID,
    ),
    ("DropTube", tube_service_pb2.DropTubeRequest(name="nowhere"), TUBE_NOT_FOUND),
    ("DropTube", tube_service_pb2.DropTubeRequest(name="a b"), INVALID),
    ("DropTube", tube_service_pb2.DropTubeRequest(name="emails"), "TUBE_BUSY"),
    ("TruncateTube", tube_service_pb2.TruncateTubeRequest(name="nowhere"), TUBE_NOT_FOUND),
    ("TruncateTube", tube_service_pb2.TruncateTubeRequest(name=""), INVALID),
    ("ReleaseAll", tube_service_pb2.ReleaseAllRequest(name="nowhere"), TUBE_NOT_FOUND),
    ("ReleaseAll", tube_service_pb2.ReleaseAllRequest(name=""), INVALID),
    ("ListTubes", tube_service_pb2.ListTubesRequest(page_size=-1), INVALID),
    ("ListTubes", tube_service_pb2.ListTubesRequest(page_token="?"), INVALID),
    ("ListTubes", tube_service_pb2.ListTubesRequest(page_token="eHl6"), INVALID),
    ("ListTubes", tube_service_pb2.ListTubesRequest(names=["a b"]), INVALID),
    ("ListAudit", cluster_service_pb2.ListAuditRequest(page_size=-1), INVALID),
    ("ListAudit", cluster_service_pb2.ListAuditRequest(page_token="?"), INVALID),
    ("OpenSession", session_service_pb2.OpenSessionRequest(ttr_ms=999), INVALID),
    ("OpenSession", session_service_pb2.OpenSessionRequest(ttr_ms=-1), INVALID),
    ("OpenSession", session_service_pb2.OpenSessionRequest(name="x" * 129), INVALID),
    ("OpenSession", session_service_pb2.OpenSessionRequest(labels={"": "x"}), INVALID),
    ("KeepSessions", session_service_pb2.KeepSessionsRequest(), INVALID),
    ("KeepSessions", session_service_pb2.KeepSessionsRequest(session_ids=["x"]), INVALID),
    ("CloseSession", session_service_pb2.CloseSessionRequest(session_id="x"), INVALID),
    (
        "CloseSession",
        session_service_pb2.CloseSessionRequest(session_id=UNKNOWN_SESSION),
        SESSION_NOT_FOUND,
    ),
    ("ListSessions", session_service_pb2.ListSessionsRequest(page_size=-1), INVALID),
    ("ListLeases", session_service_pb2.ListLeasesRequest(session_id="x"), INVALID),
    ("ListLeases", session_service_pb2.ListLeasesRequest(session_id="0" * 8), SESSION_NOT_FOUND),
    (
        "ListLeases",
        session_service_pb2.ListLeasesRequest(session_id=UNKNOWN_SESSION, page_token="?"),
        INVALID,
    ),
    ("SaveSnapshot", cluster_service_pb2.SaveSnapshotRequest(offset=1), INVALID),
    (
        "SaveSnapshot",
        cluster_service_pb2.SaveSnapshotRequest(snapshot_id="unknown"),
        "SNAPSHOT_NOT_FOUND",
    ),
    ("UpdateTube", tube_service_pb2.UpdateTubeRequest(name="emails"), INVALID),
    ("UpdateTube", tube_service_pb2.UpdateTubeRequest(name="nowhere", **PAUSE), TUBE_NOT_FOUND),
    ("UpdateTube", tube_service_pb2.UpdateTubeRequest(name="a b", **PAUSE), INVALID),
    ("Configure", settings(failover_grace_ms=-1), INVALID),
    ("Configure", settings(failover_grace_ms=86_400_001), INVALID),
    ("Configure", settings(session_ttr_ms=-1), INVALID),
    ("Configure", settings(feed_retention_ms=999), INVALID),
    ("Configure", settings(feed_bytes_max=1), INVALID),
    ("Configure", settings(auto_create_kind=3), INVALID),
    ("Configure", settings(auto_create_kind=99), INVALID),
    ("Configure", settings(auto_create_profile="kafka"), INVALID),
    (
        "TransferLeadership",
        cluster_service_pb2.TransferLeadershipRequest(name="nobody"),
        "MEMBER_NOT_FOUND",
    ),
    ("UpgradeCluster", cluster_service_pb2.UpgradeClusterRequest(request_id="x" * 129), INVALID),
    ("AddMember", cluster_service_pb2.AddMemberRequest(), INVALID),
    (
        "PromoteMember",
        cluster_service_pb2.PromoteMemberRequest(name="nobody"),
        "MEMBER_NOT_FOUND",
    ),
    ("RemoveMember", cluster_service_pb2.RemoveMemberRequest(name="nobody"), "MEMBER_NOT_FOUND"),
]


async def call(node, method, raw):
    path, streams = METHODS[method]
    if streams:
        async for _ in node.channel.unary_stream(path)(raw, timeout=5):
            pass
        return None
    return await node.channel.unary_unary(path)(raw, timeout=5)


async def refusal(node, method, raw) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(node, method, raw)
    return caught.value


async def test_invalid_input_gets_a_typed_error_and_changes_nothing(tmp_path):
    async with running(config_in(tmp_path, payload_bytes_max=1024)) as node:
        await create(node)
        await put(node, b"1", b"2")
        await take(node, tasks_max=1)
        for method, request, reason in CASES:
            before = parts(node)
            error = await refusal(node, method, request.SerializeToString())
            assert reason_of(error) == reason, (method, request, error.details())
            assert parts(node) == before, (method, request)
        # The existing task is still there and can be taken.
        assert len((await take(node)).tasks) == 1


def parts(node):
    """Return the state that a refused call must not change: all except index and clock."""
    queue = node.queue
    return (
        [tube.name for tube in queue.tubes()],
        queue.list_tasks("emails", (), 0, 100),
        queue.sessions(),
        queue.schedules(),
        queue.groups(),
        [(view.low_seq, view.high_seq) for view in queue.feed.views()],
        queue.statistics(["emails"]),
    )


async def test_every_method_refuses_bytes_that_are_not_a_message(node):
    await create(node)
    for method in sorted(IMPLEMENTED - {"Subscribe"}):
        before = node.queue.digest()
        error = await refusal(node, method, b"\xff\xff\xff")
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, method
        assert reason_of(error) == "INVALID_FIELD"
        assert "not a valid taskraft.v1." in error.details()
        assert node.queue.digest() == before


def test_every_method_of_the_contract_exists():
    assert set(METHODS) == IMPLEMENTED


def test_invalid_input_is_tested_on_every_method_that_has_any():
    cannot_be_wrong = {"GetServerInfo", "GetClusterState", "GetCaller"}
    cannot_be_wrong |= {"DescribeFeed", "Subscribe"}
    assert {method for method, _, _ in CASES} == IMPLEMENTED - cannot_be_wrong


async def test_a_settled_lease_is_refused_on_its_own(node):
    await create(node)
    await put(node, b"1", b"2")
    (task,) = (await take(node, tasks_max=1)).tasks
    await ack(node, [task])
    before = parts(node)
    again = await ack(node, [task])
    assert [error.error.reason for error in again.errors] == [error_pb2.Error.LEASE_STALE]
    assert parts(node) == before


async def test_a_task_in_the_wrong_state_is_refused_on_its_own(node):
    await create(node)
    await put(node, b"1")
    await take(node)
    buried = await node.tasks.BuryTasks(pb.BuryTasksRequest(tube="emails", selector=ids(1)))
    kicked = await node.tasks.KickTasks(pb.KickTasksRequest(tube="emails", selector=ids(1)))
    for answer in (buried, kicked):
        (error,) = answer.errors
        assert error.error.reason == error_pb2.Error.WRONG_STATE
        assert error.error.metadata["state"] == "TAKEN"


async def test_all_violations_are_reported_at_once(node):
    request = pb.PutTasksRequest(
        tube="a b", tasks=[task_pb2.TaskSpec(ttr_ms=-1), task_pb2.TaskSpec(ttl_ms=-2)]
    )
    error = await refusal(node, "PutTasks", request.SerializeToString())
    assert "tasks[1].ttl_ms" in error.details()
    fields = [violation.field for violation in bad_request(error).field_violations]
    assert fields == ["tube", "tasks[0].ttr_ms", "tasks[1].ttl_ms"]


def bad_request(error):
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    for detail in status_pb2.Status.FromString(details).details:
        found = error_details_pb2.BadRequest()
        if detail.Unpack(found):
            return found
    raise AssertionError("no BadRequest")
