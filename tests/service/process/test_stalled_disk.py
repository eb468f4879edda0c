"""Health, probes and metrics of a node with a hung disk, and the stop of the node."""

import asyncio

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from taskraft_replication.errors import StorageFailed
from tests.hung_disk import hung_disk
from tests.service.conftest import config_in, create, put, running
from tests.service.process.test_probes import get, scraped
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

SHORT = {"tick_ms": 10, "heartbeat_ms": 30, "election_timeout_ms": 70, "disk_stall_ms": 20}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def node(tmp_path):
    async with running(config_in(tmp_path, **SHORT)) as one:
        await create(one)
        yield one


async def readiness(node):
    stub = health_pb2_grpc.HealthStub(node.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service="taskraft.ready"))
    return answer.status


async def test_probes_health_and_metrics_show_a_stalled_disk(node, monkeypatch):
    raft = node.server.node
    assert await readiness(node) == SERVING
    with hung_disk(monkeypatch):
        putting = asyncio.ensure_future(put(node, b"x"))
        await turns_until(lambda: raft.is_disk_stalled)
        status, text = await get(node, "/readyz")
        assert status == 503
        assert "RUNNING; the disk has not answered for " in text
        status, text = await get(node, "/livez")
        assert status == 200, "a restart would not help yet"
        assert "alive; the disk has not answered for " in text
        assert await readiness(node) == NOT_SERVING
        _, found = await scraped(node)
        assert found["taskraft_disk_stalled", "0"] == 1
        assert found["taskraft_disk_wait_seconds", "0"] >= 0.02
        assert found["taskraft_disk_stalls_total", "0"] >= 1
        assert found["taskraft_disk_handovers_total", "0"] == 0, "the only voter stays leader"
        assert not putting.done()
    await putting
    await turns_until(lambda: not raft.is_disk_stalled)
    assert (await get(node, "/readyz")) == (200, "RUNNING\n")
    assert await readiness(node) == SERVING


async def test_a_node_whose_disk_hangs_stops_with_the_reason(node, monkeypatch):
    raft = node.server.node
    with hung_disk(monkeypatch):
        putting = asyncio.ensure_future(put(node, b"x"))
        await turns_until(lambda: raft.is_disk_stalled)
        for _ in range(raft.config.disk_hang_ticks):
            assert not raft.failed.done() or raft.disk_waited_ms >= 30_000
            raft._tick()
        reason = raft.failed.result()
        assert isinstance(reason, StorageFailed)
        assert str(node.server.config.data_dir) in str(reason)
        assert "has not answered for 30000 ms, the maximum is 30000 ms" in str(reason)
        status, text = await get(node, "/livez")
        assert status == 503
        assert text.startswith("broken: the disk of ")
    with pytest.raises(Exception, match="stopped"):
        await putting
