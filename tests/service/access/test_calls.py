"""Permissions of callers on a real node: nothing without credentials, otherwise their grants."""

import asyncio
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bench.worst.calls import methods_of_the_contract
from taskraft.v1 import (
    cluster_service_pb2,
    group_service_pb2,
    schedule_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.tls.files import TlsUnusable
from taskraft_service.access import audit
from taskraft_service.process.node_server import NodeServer
from taskraft_service.record_budget import RecordBudget
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2
from tests.authority import DAY, Authority
from tests.service.access.secured import (
    GRANTS,
    INVOICES,
    MAIL,
    Bearing,
    Stubs,
    ended,
    refusal,
    refused,
    token_of,
    write_principals,
)
from tests.service.conftest import ack, config_in, create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time


def path_of(method):
    return f"/{method.containing_service.full_name}/{method.name}"


async def answer_to(channel, method, raw, **options):
    """Call a method with bytes; return the reason of the refusal.

    For a stream the bytes are its only message, sent with the call. grpc.aio reports a separate
    write to a refused stream as INTERNAL, for any status that the server has sent.
    """
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    call = kind(path_of(method))(raw, **options)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if method.server_streaming else call)
    return caught.value.code(), reason_of(caught.value)


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic cm9vdDpyb290", "Bearer "])
async def test_a_call_without_credentials_is_refused_before_the_request_is_parsed(
    node, authorization
):
    channel = await node.channel()
    metadata = (("authorization", authorization),) if authorization else ()
    of_nodes = forwarding_pb2.DESCRIPTOR.services_by_name["ForwardingService"].methods
    for method in (*methods_of_the_contract(), *of_nodes):
        answer = await answer_to(channel, method, b"\xff nonsense", metadata=metadata, timeout=10)
        is_absent = method.name == "ForwardCalls"  # it serves anonymous callers only
        expected = (
            (grpc.StatusCode.UNIMPLEMENTED, "")
            if is_absent
            else (grpc.StatusCode.UNAUTHENTICATED, "NO_CREDENTIALS")
        )
        assert answer == expected, method.full_name


@pytest.mark.parametrize("authorization", [None, "Bearer wrong"])
async def test_a_call_without_credentials_is_refused_before_its_message_arrives(
    node, authorization
):
    channel = await node.channel()
    metadata = (("authorization", authorization),) if authorization else ()
    for method in methods_of_the_contract():
        # A streaming call can call a unary method, because both have the same frames.
        call = channel.stream_stream(path_of(method))(metadata=metadata, timeout=10)
        assert await refused(call.read()) == "NO_CREDENTIALS", method.full_name


async def test_a_call_with_two_tokens_is_refused(node):
    tokens = tuple(("authorization", f"Bearer {token_of(one)}") for one in ("root", "root"))
    tubes = (await node.known("root")).tubes
    channel = await node.channel()
    call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
    assert await refused(call(b"", metadata=tokens)) == "NO_CREDENTIALS"
    assert await tubes.ListTubes(tube_service_pb2.ListTubesRequest())


async def test_a_principal_without_grants_is_refused_everywhere(node):
    channel = await node.channel()
    metadata = (("authorization", f"Bearer {token_of('nobody')}"),)
    # An empty batch needs no permission; it is refused as invalid.
    open_to_all = {"GetServerInfo", "GetClusterState", "GetCaller", "ListAudit", "ExecuteBatch"}
    for method in methods_of_the_contract():
        if method.name not in open_to_all:
            answer = await answer_to(channel, method, b"", metadata=metadata, timeout=10)
            assert answer[0] in (
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.UNIMPLEMENTED,
            ), method.full_name


async def test_forwarding_metadata_is_ignored_on_the_client_port(node):
    channel = await node.channel()
    call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
    claim = (("x-taskraft-principal", "root"), ("x-taskraft-hops", "1"))
    assert await refused(call(b"", metadata=claim)) == "NO_CREDENTIALS"
    nobody = (*claim, ("authorization", f"Bearer {token_of('nobody')}"))
    assert await refused(call(b"", metadata=nobody)) == "NOT_ALLOWED"


async def test_a_refusal_names_principal_verb_and_tube(node):
    billing = await node.known("billing")
    await put(billing, b"x", tube=MAIL)
    assert await refusal(put(billing, b"x", tube="secret")) == (
        "NOT_ALLOWED",
        {"principal": "billing", "verb": "put", "tube": "secret"},
    )
    assert await refused(put(billing, b"x", tube="nowhere")) == "NOT_ALLOWED"
    root = await node.known("root")
    request = tube_service_pb2.GetStatisticsRequest(tubes=["secret"])
    assert (await root.tubes.GetStatistics(request)).total.tasks.total == 0


async def test_each_role_allows_its_own_calls_only(node):
    billing, mailer, auditor = [await node.known(one) for one in ("billing", "mailer", "auditor")]
    listing = pb.ListTasksRequest(tube=MAIL)
    deletion = pb.DeleteTasksRequest(tube=MAIL, selector=task_pb2.TaskSelector(ids=[1]))
    await put(billing, b"x", tube=MAIL)
    assert [len((await one.tasks.ListTasks(listing)).tasks) for one in (mailer, auditor)] == [1, 1]
    taken = await take(mailer, tube=MAIL)
    assert not (await ack(mailer, taken.tasks)).errors
    for call in (
        take(billing, tube=MAIL),
        billing.tasks.ListTasks(listing),
        billing.tasks.DeleteTasks(deletion),
        put(mailer, b"x", tube=MAIL),
        mailer.tasks.DeleteTasks(deletion),
        take(auditor, tube=MAIL),
        put(auditor, b"x", tube=MAIL),
        auditor.tubes.DropTube(tube_service_pb2.DropTubeRequest(name=MAIL)),
        mailer.cluster.Configure(cluster_service_pb2.ConfigureRequest()),
    ):
        assert await refused(call) == "NOT_ALLOWED"


async def test_a_take_checks_every_tube_and_takes_nothing_if_one_is_refused(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"x", tube=MAIL)
    both = pb.TakeTasksRequest(
        sources=[pb.TakeSource(tube=MAIL), pb.TakeSource(tube=INVOICES)], wait_ms=0
    )
    assert await refusal(mailer.tasks.TakeTasks(both)) == (
        "NOT_ALLOWED",
        {"principal": "mailer", "verb": "take", "tube": INVOICES},
    )
    assert [task.attempt for task in node.server.machine.queue.get_tasks(MAIL, [1])] == [0]


@pytest.mark.parametrize("wait_ms", [0, 5_000])
async def test_a_pattern_matches_only_tubes_that_the_caller_may_take_from(node, wait_ms):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"hidden", tube=INVOICES)
    await put(root, b"hidden", tube="secret")
    await put(root, b"seen", tube=MAIL)
    taken = await take(mailer, tube="*", wait_ms=wait_ms)
    assert [task.spec.payload for task in taken.tasks] == [b"seen"]


async def test_a_waiting_pattern_ignores_a_new_tube_without_permission(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    waiting = asyncio.ensure_future(take(mailer, tube="*", wait_ms=30_000))
    await mailer.waiting(1, tube=MAIL)
    await create(root, "later")
    await put(root, b"hidden", tube="later")
    await put(root, b"seen", tube=MAIL)
    assert [task.spec.payload for task in (await waiting).tasks] == [b"seen"]


async def test_lists_and_counts_contain_only_readable_tubes(node):
    root, mailer, auditor = [await node.known(one) for one in ("root", "mailer", "auditor")]
    await put(root, b"x", tube="secret")
    await put(root, b"x", tube=MAIL)

    async def tubes_of(caller):
        listed = await caller.tubes.ListTubes(tube_service_pb2.ListTubesRequest())
        counted = await caller.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
        names = [tube.name for tube in listed.tubes]
        assert names == [tube.tube for tube in counted.tubes]
        return names, counted.total.tasks.total

    assert await tubes_of(root) == ([INVOICES, MAIL, "secret"], 2)
    assert await tubes_of(auditor) == ([INVOICES, MAIL], 1)
    assert await tubes_of(mailer) == ([MAIL], 1)


async def test_counted_failures_are_only_those_of_readable_tubes(node):
    root, auditor = await node.known("root"), await node.known("auditor")
    for tube in ("secret", MAIL):
        await put(root, b"x", tube=tube)
        tokens = [task.token for task in (await take(root, tube)).tasks]
        bury = pb.Settlement.Bury(failure=task_pb2.Failure(type="Timeout"))
        settlements = [pb.Settlement(tokens=tokens, bury=bury)]
        await root.tasks.SettleTasks(pb.SettleTasksRequest(settlements=settlements))

    async def failed_of(caller, *tubes):
        request = tube_service_pb2.ListFailuresRequest(tubes=tubes)
        return [row.tube for row in (await caller.tubes.ListFailures(request)).failures]

    assert await failed_of(root) == [MAIL, "secret"]
    assert await failed_of(auditor) == [MAIL]
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await failed_of(auditor, MAIL, "secret")
    assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED


# ------------------------------------------------------------------------------ the rest


@pytest.mark.parametrize("is_put", [False, True])
async def test_a_task_in_an_unreadable_tube_shows_only_its_outcome(node, tmp_path, is_put):
    """The caller may read the task's first tube, but not the tube that it moves to."""
    root, mailer = await node.known("root"), await node.known("mailer")
    (moved_id,) = (await put(root, b"elsewhere", tube="secret")).task_ids
    await take(root, tube="secret")
    if is_put:
        grants = GRANTS | {"mailer": [*GRANTS["mailer"], ("producer", MAIL)]}
        write_principals(tmp_path / "access.toml", grants)
        node.server.reload()
        spec = task_pb2.TaskSpec(payload=b"x", headers={"a": b"b"})
        request = pb.PutTasksRequest(tube=MAIL, tasks=[spec], outcome_wait_ms=10_000)
        waiting = asyncio.ensure_future(mailer.tasks.PutTasks(request, timeout=20))
    else:
        (task_id,) = (await put(root, b"x", tube=MAIL, headers={"a": b"b"})).task_ids
        chosen = task_pb2.TaskSelector(ids=[task_id])
        request = pb.WaitTasksRequest(tube=MAIL, selector=chosen, wait_ms=10_000)
        waiting = asyncio.ensure_future(mailer.tasks.WaitTasks(request, timeout=20))
    await turns_until(lambda: len(node.server.components.outcomes) == 1)
    (task,) = (await take(root, tube=MAIL)).tasks
    move = pb.Settlement.Release(
        move_to="secret", update=task_pb2.TaskUpdate(payload=b"confidential")
    )
    settlement = pb.Settlement(tokens=[task.token], release=move)
    await root.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    await ack(root, (await take(root, tube="secret")).tasks)
    answer = await waiting
    (seen,) = answer.outcomes if is_put else answer.tasks
    assert seen == task_pb2.Task(
        tube="secret", id=moved_id + 1, spec={}, outcome=task_pb2.Task.PROCESSED
    )


async def test_a_group_needs_put_permission_for_its_name(node):
    billing, mailer = await node.known("billing"), await node.known("mailer")

    def group(name):
        return group_service_pb2.CreateGroupRequest(group=group_service_pb2.Group(name=name))

    await billing.groups.CreateGroup(group("billing.run"))
    assert await refused(billing.groups.CreateGroup(group("other"))) == "NOT_ALLOWED"
    start = group_service_pb2.StartGroupRequest(name="billing.run")
    assert await refused(mailer.groups.StartGroup(start)) == "NOT_ALLOWED"
    await billing.groups.StartGroup(start)


async def test_a_principal_without_grants_sees_no_addresses(node):
    request = cluster_service_pb2.GetClusterStateRequest()
    assert await refused((await node.known("nobody")).cluster.GetClusterState(request)) == (
        "NOT_ALLOWED"
    )
    assert (await (await node.known("rival")).cluster.GetClusterState(request)).members


async def test_the_content_of_a_groups_tasks_needs_read_permission_for_their_tubes(node):
    root, billing, auditor = [await node.known(one) for one in ("root", "billing", "auditor")]
    secret, open_to_auditors = "salaries", "billing.mail"
    tasks = [
        group_service_pb2.GroupTask(tube=tube, spec=task_pb2.TaskSpec(payload=b"who gets what"))
        for tube in (secret, open_to_auditors)
    ]
    run = group_service_pb2.Group(name="billing.run", end_task=tasks[0], abort_task=tasks[1])
    made = await root.groups.CreateGroup(group_service_pb2.CreateGroupRequest(group=run))
    assert made.group.end_task == tasks[0]
    named = {"name": "billing.run"}
    seen = [
        (await billing.groups.StartGroup(group_service_pb2.StartGroupRequest(**named))).group,
        (await auditor.groups.GetGroup(group_service_pb2.GetGroupRequest(**named))).group,
        (await root.groups.GetGroup(group_service_pb2.GetGroupRequest(**named))).group,
    ]
    assert [one.end_task.tube for one in seen] == [secret] * 3
    assert [one.end_task.HasField("spec") for one in seen] == [False, False, True]
    assert [one.abort_task.HasField("spec") for one in seen] == [False, True, True]
    held = {**named, "name": "billing.other", "end_task": tasks[0]}
    request = group_service_pb2.CreateGroupRequest(group=group_service_pb2.Group(**held))
    await root.groups.CreateGroup(request)
    cancel = group_service_pb2.CancelGroupRequest(name="billing.other")
    assert await refused(billing.groups.CancelGroup(cancel)) == "NOT_ALLOWED"
    assert (await root.groups.CancelGroup(cancel)).group.end_task.HasField("spec")


async def test_the_content_of_a_schedules_task_needs_read_permission_for_its_tube(node):
    root, auditor = await node.known("root"), await node.known("auditor")
    for name, tube in (("billing.open", "billing.mail"), ("billing.secret", "salaries")):
        schedule = schedule_service_pb2.Schedule(
            name=name, tube=tube, cron="0 0 1 1 *", spec={"payload": b"who gets what"}
        )
        request = schedule_service_pb2.CreateScheduleRequest(schedule=schedule)
        assert (await root.schedules.CreateSchedule(request)).schedule.spec.payload
    listing = schedule_service_pb2.ListSchedulesRequest()
    seen = (await auditor.schedules.ListSchedules(listing)).schedules
    assert [one.tube for one in seen] == ["billing.mail", "salaries"]
    assert [one.HasField("spec") for one in seen] == [True, False]
    whole = (await root.schedules.ListSchedules(listing)).schedules
    assert all(one.HasField("spec") for one in whole)


async def test_health_needs_no_credentials_and_reflection_is_off(node):
    channel = await node.channel()
    health = health_pb2_grpc.HealthStub(channel)
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    # The request is sent with the call: a later write would fail after the refusal.
    requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = stub.ServerReflectionInfo(iter(requests), timeout=10)
    assert await ended(asked) is grpc.StatusCode.UNIMPLEMENTED


async def test_a_plain_connection_fails(node):
    address = f"127.0.0.1:{node.server.client_port}"
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


# ------------------------------------------------------------------------------ certificates


async def test_a_client_refuses_a_certificate_of_an_unknown_ca(node, tmp_path):
    stranger = Authority(tmp_path, "strangers")
    channel = await node.channel(grpc.ssl_channel_credentials(stranger.path.read_bytes()))
    call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_renewed_certificate_is_used_without_a_restart(node, tmp_path):
    old = node.authority
    before = await node.known("root")
    await put(before, b"x", tube=MAIL)
    node.authority = Authority(tmp_path, "clients")
    node.authority.server()
    node.server.reload()
    channel = await node.channel(grpc.ssl_channel_credentials(old.certificate))
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.unary_unary("/taskraft.v1.TubeService/ListTubes")(b"", timeout=5)
    after = Stubs(node.server, Bearing(await node.channel(), f"Bearer {token_of('root')}"))
    for caller in (before, after):
        await put(caller, b"x", tube=MAIL)


async def test_a_node_with_an_expired_certificate_does_not_start(tmp_path):
    files = Authority(tmp_path, "clients").server(valid=-DAY)
    config = config_in(tmp_path, tls_cert=files.certificate, tls_key=files.key)
    with pytest.raises(TlsUnusable, match=r"server.crt expired at"):
        await NodeServer.open(config)


async def test_the_metrics_show_when_a_certificate_expires(node):
    name = "taskraft_certificate_expires_timestamp_seconds"
    expires = node.server.security.client.tls.expires_at.timestamp()
    assert node.server.components.registry.get_sample_value(name, {"port": "client"}) == expires
    assert node.server.components.registry.get_sample_value(name, {"port": "peer"}) is None


async def test_refusals_and_administrative_calls_are_logged(node):
    root, billing = await node.known("root"), await node.known("billing")
    with structlog.testing.capture_logs() as written:
        await refused(put(billing, b"hidden", tube="secret"))
        await root.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="secret"))
        done = await root.tubes.DropTube(tube_service_pb2.DropTubeRequest(name=INVOICES))
        await put(billing, b"hidden", tube=MAIL)
    said = [line for line in written if line["event"] in {"denied", "managed"}]
    assert [
        (line["event"], line["principal"], line["call"], line.get("name") or line.get("names"))
        for line in said
    ] == [
        ("denied", "billing", "PutTasks", "secret"),
        ("managed", "root", "DropTube", ["secret"]),
        ("managed", "root", "DropTube", [INVOICES]),
    ]
    assert said[-1]["index"] == done.revision > 0
    assert all(line["peer"].startswith("ipv4:127.0.0.1:") for line in said)
    assert "hidden" not in str(written)


async def test_the_audit_log_names_the_subject_of_a_call(node):
    root = await node.known("root")
    ids = [(await put(root, b"hidden", tube=MAIL)).task_ids[0] for _ in range(3)]
    selector = task_pb2.TaskSelector(ids=ids)
    with structlog.testing.capture_logs() as written:
        request = pb.DeleteTasksRequest(request_id="r-1", tube=MAIL, selector=selector)
        done = await root.tasks.DeleteTasks(request)
    (line,) = [line for line in written if line["event"] == "managed"]
    assert {key: line[key] for key in ("call", "request_id", "ids", "ids_count", "index")} == {
        "call": "DeleteTasks",
        "request_id": "r-1",
        "ids": ids,
        "ids_count": 3,
        "index": done.revision,
    }


async def test_failed_authentications_are_logged_up_to_a_rate(node, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    budget = RecordBudget(2, 1.0, lambda: clock.now)
    monkeypatch.setattr(audit, "failures", budget)
    channel = await node.channel()
    call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
    with structlog.testing.capture_logs() as written:
        for _ in range(5):
            assert await refused(call(b"", metadata=(("authorization", "Bearer x"),)))
        clock.now += 1
        stream = channel.stream_stream("/taskraft.v1.TaskService/Subscribe")()
        assert await ended(stream) is grpc.StatusCode.UNAUTHENTICATED
    said = [line for line in written if line["event"] == "unauthenticated"]
    assert [(line["call"], line.get("suppressed")) for line in said] == [
        ("ListTubes", None),
        ("ListTubes", None),
        ("Subscribe", 3),
    ]
    assert all(line["peer"].startswith("ipv4:127.0.0.1:") for line in said)
    assert "Bearer" not in str(written)


async def test_a_masked_update_needs_the_permissions_of_the_whole_schedule(node):
    root, billing, auditor = [await node.known(one) for one in ("root", "billing", "auditor")]
    schedule = schedule_service_pb2.Schedule(
        name="billing.run", cron="* * * * *", tube="salaries", spec={"payload": b"who gets what"}
    )
    own = schedule_service_pb2.Schedule(name="billing.run", cron="* * * * *", tube="billing.mail")
    await billing.schedules.CreateSchedule(schedule_service_pb2.CreateScheduleRequest(schedule=own))
    await root.schedules.UpdateSchedule(
        schedule_service_pb2.UpdateScheduleRequest(schedule=schedule)
    )

    def change(**fields):
        return schedule_service_pb2.UpdateScheduleRequest(
            schedule={"name": "billing.run", **fields}, update_mask={"paths": [*fields]}
        )

    assert await refused(billing.schedules.UpdateSchedule(change(paused=True))) == "NOT_ALLOWED"
    # A move of the task into a readable tube would show the task.
    moved = change(tube="billing.mail")
    assert await refused(billing.schedules.UpdateSchedule(moved)) == "NOT_ALLOWED"
    replaced = change(tube="billing.mail", spec={"payload": b"own"})
    await billing.schedules.UpdateSchedule(replaced)
    paused = (await billing.schedules.UpdateSchedule(change(paused=True))).schedule
    assert paused.paused
    named = schedule_service_pb2.GetScheduleRequest(name="billing.run")
    assert (await auditor.schedules.GetSchedule(named)).schedule.spec.payload == b"own"
    assert await refused((await node.known("mailer")).schedules.GetSchedule(named)) == "NOT_ALLOWED"


async def test_only_readable_groups_are_listed(node):
    root, auditor, mailer = [await node.known(one) for one in ("root", "auditor", "mailer")]
    for name in ("billing.run", "other"):
        group = group_service_pb2.Group(name=name)
        await root.groups.CreateGroup(group_service_pb2.CreateGroupRequest(group=group))
    listing = group_service_pb2.ListGroupsRequest()
    seen = [await caller.groups.ListGroups(listing) for caller in (root, auditor, mailer)]
    assert [[one.name for one in answer.groups] for answer in seen] == [
        ["billing.run", "other"],
        ["billing.run"],
        [],
    ]
