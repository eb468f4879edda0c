"""Probes, metrics, health and reflection of a running node."""

import asyncio
import contextlib
import re
import threading
from types import SimpleNamespace

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

import taskraft_service.process.metrics.tubes
from taskraft.v1 import feed_service_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.principals import digest_of
from taskraft_service.leader.node_phases import PhaseEvent
from taskraft_service.process import node_opener
from taskraft_service.process.node_server import NodeServer
from tests.service.conftest import ack, config_in, create, put, reason_of, running, take
from tests.turns import turns_until
from tools.local_cluster import free_addresses

pytestmark = pytest.mark.real_time


async def get(node, path, method="GET", authorization=""):
    reader, writer = await asyncio.open_connection("127.0.0.1", node.server.http_port)
    more = f"Authorization: {authorization}\r\n" if authorization else ""
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, content = answer.partition("\r\n\r\n")
    return int(head.split()[1]), content


async def test_a_serving_node_is_alive_started_and_ready(node):
    for path in ("/livez", "/startupz", "/readyz"):
        assert (await get(node, path))[0] == 200, path
    assert await get(node, "/livez", "HEAD") == (200, "")


async def test_a_node_without_a_majority_has_started_and_is_not_ready(tmp_path):
    """A kubelet must not kill nodes that only wait for other nodes."""
    peers = free_addresses(2)
    listen = f"n0=1@127.0.0.1:7402,n1=2@{peers[0]},n2=3@{peers[1]}"
    server = await NodeServer.open(config_in(tmp_path, peers=listen))
    await server.start()
    node = SimpleNamespace(server=server)
    for path, expected in (("/livez", 200), ("/startupz", 200), ("/readyz", 503)):
        assert (await get(node, path))[0] == expected, path
    await server.stop()


@pytest.fixture
def slow_opening(monkeypatch):
    """Let nodes wait for ``may_end`` while they open their state."""
    waits = SimpleNamespace(begun=threading.Event(), may_end=threading.Event())
    open_machine = node_opener.open_machine

    def open_slowly(*arguments):
        waits.begun.set()
        waits.may_end.wait()
        return open_machine(*arguments)

    monkeypatch.setattr(node_opener, "open_machine", open_slowly)
    return waits


async def test_a_node_that_opens_slowly_is_alive_and_not_ready(tmp_path, slow_opening):
    (address,) = free_addresses(1)
    config = config_in(tmp_path, http_listen=address)
    opening = asyncio.ensure_future(NodeServer.open(config))
    await turns_until(slow_opening.begun.is_set)
    port = int(address.rpartition(":")[2])
    node = SimpleNamespace(server=SimpleNamespace(http_port=port))
    try:
        for path, status in (("/livez", 200), ("/startupz", 503), ("/readyz", 503)):
            assert (await get(node, path))[0] == status, path
    finally:
        slow_opening.may_end.set()
    server = await opening
    await server.start()
    assert (await get(node, "/livez"))[1] == "alive\n"
    await server.stop()


async def test_a_node_that_is_stopped_while_it_opens_releases_its_files(tmp_path, slow_opening):
    config = config_in(tmp_path)
    opening = asyncio.ensure_future(NodeServer.open(config))
    await turns_until(slow_opening.begun.is_set)
    opening.cancel()
    slow_opening.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with running(config) as node:
        assert (await get(node, "/livez"))[0] == 200


async def test_other_pages_do_not_exist(node):
    assert (await get(node, "/secrets"))[0] == 404
    assert (await get(node, "/livez", "POST"))[0] == 405


async def test_a_stopping_node_is_alive_and_not_ready(node):
    node.server.components.endpoint.load.is_draining = True
    assert (await get(node, "/readyz"))[0] == 503
    assert (await get(node, "/livez"))[0] == 200
    node.server.components.endpoint.load.is_draining = False


def sample(node):
    """Take a sample of the tubes; a running node takes one every 10 s."""
    for _ in node.server.components.sampler.sample():
        pass


async def scraped(node):
    """Return the metrics page, and the values by name and labels."""
    _, text = await get(node, "/metrics")
    return text, {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_metrics_count_calls_and_tasks(node):
    await create(node)
    sample(node)
    await put(node, b"x", b"y")
    await ack(node, (await take(node, tasks_max=1)).tasks)
    sample(node)
    text, found = await scraped(node)
    assert found["taskraft_is_leader", "0"] == 1
    assert found["taskraft_call_seconds_count", "PutTasks"] == 1
    assert found["taskraft_call_seconds_bucket", "+Inf", "TakeTasks"] == 1
    assert found["taskraft_task_wait_seconds_count", "emails"] == 1
    assert found["taskraft_task_run_seconds_count", "emails"] == 1
    assert found["taskraft_task_attempts_bucket", "1", "emails"] == 1
    assert found["taskraft_task_attempts_count", "(other)"] == 0
    assert found["taskraft_tasks", "emails", "ready"] == 1
    assert found["taskraft_operations_total", "ack", "emails"] == 1
    assert found["taskraft_calls_total", "OK", "PutTasks"] == 1
    assert found["taskraft_phase", "running"] == 1
    assert found["taskraft_log_syncs_total", "0"] >= 3
    assert found["taskraft_entry_seconds_count", "0"] >= 3
    assert found["taskraft_log_sync_seconds_count", "0"] >= 3
    names = {family.name for family in text_string_to_metric_families(text)}
    assert all(re.fullmatch(r"(taskraft|process)_[a-z_]+", name) for name in names)


async def test_metrics_with_a_token_are_shown_only_with_the_token(tmp_path):
    digest = digest_of("s3cret")
    async with running(config_in(tmp_path, metrics_token=digest)) as node:
        with structlog.testing.capture_logs() as written:
            for header in ("", "Bearer wrong", "Basic s3cret", "s3cret", f"Bearer {digest}"):
                assert (await get(node, "/metrics", authorization=header))[0] == 401, header
        said = [line["call"] for line in written if line["event"] == "unauthenticated"]
        assert said == ["/metrics"] * 5
        for header in ("Bearer s3cret", "bearer  s3cret"):
            assert (await get(node, "/metrics", authorization=header))[0] == 200, header
        assert (await get(node, "/readyz"))[0] == 200


async def test_a_malformed_request_affects_no_other_request(node):
    for raw in (b"\r\n\r\n", b"GET\r\n\r\n", b"x" * (1 << 17)):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.server.http_port)
        writer.write(raw)
        writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            assert b" 200 " not in await reader.read()
        writer.close()
    assert (await get(node, "/livez"))[0] == 200


async def test_the_metrics_name_only_the_largest_tubes(node, monkeypatch):
    monkeypatch.setattr(taskraft_service.process.metrics.tubes, "TUBES_MAX", 2)
    monkeypatch.setattr(taskraft_service.process.metrics.tubes, "WORST_MAX", 0)
    for tasks in (1, 4, 2, 3):
        await create(node, f"tube{tasks}")
        await put(node, *[b"x"] * tasks, tube=f"tube{tasks}")
    asked = []
    queues = node.server.components.queues
    statistics = queues.statistics
    monkeypatch.setattr(
        queues, "statistics", lambda names: asked.append(names) or statistics(names)
    )
    _, found = await scraped(node)
    assert asked == [("tube4",), ("tube3",)]
    assert found["taskraft_tasks", "ready", "tube4"] == 4
    assert found["taskraft_tasks", "ready", "tube3"] == 3
    assert found["taskraft_tasks", "(other)", "ready"] == 3
    assert ("taskraft_tasks", "ready", "tube2") not in found
    assert (found["taskraft_all_tasks", "ready"], found["taskraft_tubes",]) == (10, 4)


async def test_a_small_tube_with_the_worst_tasks_has_its_own_series(node, monkeypatch):
    """205 tubes with three tasks each once hid a tube with an old task and a buried one."""
    await create(node, "old")
    await put(node, b"old", tube="old")
    await create(node, "buried")
    (failing,) = (await put(node, b"buried", tube="buried")).task_ids
    selector = task_pb2.TaskSelector(ids=[failing])
    await node.tasks.BuryTasks(pb.BuryTasksRequest(tube="buried", selector=selector))
    for number in range(205):
        await create(node, f"tube{number}")
        await put(node, b"1", b"2", b"3", tube=f"tube{number}")
    _, found = await scraped(node)
    assert found["taskraft_tasks", "buried", "buried"] == 1
    age = found["taskraft_oldest_ready_age_seconds", "old"]
    assert min(age, found["taskraft_all_oldest_ready_age_seconds",]) > 0
    named = {key[1] for key in found if key[0] == "taskraft_payload_bytes"}
    assert len(named) <= 202 + 20


async def test_health_follows_the_phase(node):
    stub = health_pb2_grpc.HealthStub(node.channel)

    async def says(name):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    assert await says("taskraft.leader") == "SERVING"
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="taskraft.leader"))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    node.server.components.phases.apply(PhaseEvent.HAND_OVER)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await says("taskraft.v1.TaskService") == "SERVING"
    node.server.components.phases.apply(PhaseEvent.KEPT)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


async def test_reflection_lists_the_contract(node):
    stub = reflection_pb2_grpc.ServerReflectionStub(node.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    names = {service.name for service in answer.list_services_response.service}
    assert {f"taskraft.v1.{name}Service" for name in ("Task", "Tube", "Session", "Feed")} <= names
    call.cancel()


async def test_endless_streams_do_not_delay_a_stop(tmp_path):
    async with running(config_in(tmp_path, stop_grace_ms=60_000)) as node:
        await create(node)
        watch = health_pb2_grpc.HealthStub(node.channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        reading = node.feed.ReadChanges(feed_service_pb2.ReadChangesRequest())
        cursor = feed_service_pb2.FeedCursor()
        watching = node.feed.WatchFeed(
            feed_service_pb2.WatchFeedRequest(cursor=cursor, wait_ms=60_000)
        )
        waiting = asyncio.ensure_future(take(node, wait_ms=9_000))
        await node.waiting(1)
        async with asyncio.timeout(10):
            await node.server.stop()
        node.server.stop = _nothing
        assert len((await watching).partitions) == 8
        for call in (waiting, reading.read()):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert reason_of(caught.value) == "DRAINING"


async def _nothing():
    """Replace the stop of a server that is stopped already."""
