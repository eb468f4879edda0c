"""Installed tube drivers, and nodes that lack one."""

from importlib.metadata import EntryPoint

import grpc
import pytest

from taskraft import AsyncClient
from taskraft.v1 import task_service_pb2, tube_service_pb2
from taskraft_service.drivers import DriverUnusable, installed_drivers
from taskraft_service.process import startup
from taskraft_service.queue.entities.tube_driver import TubeDriverMissing
from tests.service.conftest import config_in, put, reason_of, running, take
from tests.service.queue.entities.test_tube_driver import Newest

pytestmark = pytest.mark.real_time

DRIVER = Newest()
NOTHING = object()


def offered(name):
    return EntryPoint(name.lower(), f"tests.service.test_drivers:{name}", "taskraft.drivers")


def custom(**fields):
    tube = tube_service_pb2.Tube(name="emails", kind=tube_service_pb2.Tube.CUSTOM, **fields)
    return tube_service_pb2.CreateTubeRequest(tube=tube)


def test_an_entry_point_provides_a_driver():
    assert installed_drivers([offered("DRIVER")]) == {"newest": DRIVER}
    assert installed_drivers([]) == {}


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["MISSING"], "cannot be loaded"),
        (["NOTHING"], "no name"),
        (["DRIVER", "DRIVER"], "two installed drivers are named 'newest'"),
    ],
)
def test_an_object_that_is_no_driver_is_refused_at_the_start(names, text):
    with pytest.raises(DriverUnusable, match=text):
        installed_drivers([offered(name) for name in names])


async def test_a_tube_shows_its_driver_and_the_version_at_its_creation(tmp_path, monkeypatch):
    monkeypatch.setattr(startup, "installed_drivers", lambda: {"newest": DRIVER})
    config = config_in(tmp_path)
    async with running(config) as node:
        made = (await node.tubes.CreateTube(custom(driver="newest"))).tube
        assert (made.driver, made.driver_version) == ("newest", 3)
        await put(node, b"1", b"2", b"3")
        assert [task.spec.payload for task in (await take(node, tasks_max=2)).tasks] == [b"3", b"2"]
    monkeypatch.setattr(startup, "installed_drivers", dict)
    with pytest.raises(TubeDriverMissing, match="needs the driver 'newest' in version 3"):
        async with running(config):
            pass


async def test_an_unknown_driver_is_refused_and_changes_nothing(node):
    for request in (custom(driver="unheard-of"), custom(driver="unheard-of", driver_version=2)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.tubes.CreateTube(request)
        assert reason_of(caught.value) == "DRIVER_MISSING"
    assert node.queue.tubes() == []


async def test_the_client_creates_a_tube_with_a_named_driver(tmp_path, monkeypatch):
    monkeypatch.setattr(startup, "installed_drivers", lambda: {"newest": DRIVER})
    async with (
        running(config_in(tmp_path)) as node,
        AsyncClient(f"127.0.0.1:{node.server.client_port}") as client,
    ):
        made = await client.create_tube("stack", "custom", driver="newest")
        assert (made.driver, made.driver_version) == ("newest", 3)
        stack = client.tube("stack")
        await stack.put_many(["1", "2", "3"])
        assert [task.text() for task in await stack.take_many(3, wait=0)] == ["3", "2", "1"]


class FailsOnRetry(Newest):
    """Fails for each task that was taken before, and for each payload of 9 bytes."""

    def place(self, arrival, memory):
        if arrival.attempt or arrival.payload_bytes == 9:
            raise ValueError("no rank")
        return super().place(arrival, memory)


async def test_a_put_for_which_the_driver_fails_is_refused_and_nothing_is_proposed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(startup, "installed_drivers", lambda: {"newest": FailsOnRetry()})
    async with running(config_in(tmp_path)) as node:
        await node.tubes.CreateTube(custom(driver="newest"))
        before = node.queue.applied_index
        with pytest.raises(
            grpc.aio.AioRpcError, match="place raised ValueError: no rank"
        ) as caught:
            await put(node, b"1", b"9" * 9)
        assert reason_of(caught.value) == "DRIVER_FAILED"
        assert node.queue.applied_index == before
        await put(node, b"1")


@pytest.mark.parametrize("durability", ["REPLICATED", "TEMPORARY"])
async def test_a_driver_that_fails_while_an_entry_is_applied_quarantines_its_tube(
    tmp_path, monkeypatch, durability
):
    monkeypatch.setattr(startup, "installed_drivers", lambda: {"newest": FailsOnRetry()})
    config = config_in(tmp_path)
    options = tube_service_pb2.TubeOptions(durability=durability)
    async with running(config) as node:
        await node.tubes.CreateTube(custom(driver="newest", options=options))
        other = tube_service_pb2.Tube(name="other", kind=tube_service_pb2.Tube.FIFO)
        await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=other))
        await put(node, b"1", b"2")
        (taken,) = (await take(node, tasks_max=1)).tasks
        release = task_service_pb2.Settlement(
            tokens=[taken.token], release=task_service_pb2.Settlement.Release()
        )
        await node.tasks.SettleTasks(task_service_pb2.SettleTasksRequest(settlements=[release]))
        for call in (put(node, b"3"), take(node)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert reason_of(caught.value) == "TUBE_QUARANTINED"
        await put(node, b"1", tube="other")
        assert node.server.components.queues.quarantined_tubes() == ["emails"]
    async with running(config) as node:
        tubes = (await node.tubes.ListTubes(tube_service_pb2.ListTubesRequest())).tubes
        is_replicated = durability == "REPLICATED"
        assert [bool(tube.quarantined_at) for tube in tubes] == [is_replicated, False]
        truncate = tube_service_pb2.TruncateTubeRequest(name="emails")
        await node.tubes.TruncateTube(truncate)
        await put(node, b"3")
