"""Replicated settings and tube options change through the API, all or none."""

import grpc
import pytest
from google.protobuf import field_mask_pb2

from taskraft.v1 import cluster_service_pb2, session_service_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.config.relations import FEED_PARTITION_BYTES_MIN
from tests.service.conftest import config_in, create, put, reason_of, running, take

pytestmark = pytest.mark.real_time

Options = tube_service_pb2.TubeOptions
Settings = cluster_service_pb2.ClusterSettings
Tube = tube_service_pb2.Tube


async def configure(node, **settings):
    request = cluster_service_pb2.ConfigureRequest(settings=Settings(**settings))
    return (await node.cluster.Configure(request)).settings


async def update(node, *paths, name="emails", **options):
    request = tube_service_pb2.UpdateTubeRequest(
        name=name, options=Options(**options), update_mask=field_mask_pb2.FieldMask(paths=paths)
    )
    return (await node.tubes.UpdateTube(request)).tube


async def make(node, name, kind, profile, **options):
    request = tube_service_pb2.CreateTubeRequest(
        tube=Tube(name=name, kind=kind, options=Options(**options)), profile=profile
    )
    return (await node.tubes.CreateTube(request)).tube


async def test_settings_have_the_nodes_values_until_they_are_set(node):
    shown = await configure(node)
    assert shown.failover_grace_ms == 15_000
    assert shown.auto_create_tubes is False
    assert shown.auto_create_kind == Tube.FIFOTTL
    assert not shown.HasField("session_ttr_ms")
    assert (
        await configure(node, failover_grace_ms=0, session_ttr_ms=9_000)
    ).session_ttr_ms == 9_000
    assert (await configure(node, session_ttr_ms=8_000)).failover_grace_ms == 0


async def test_settings_survive_a_restart(tmp_path):
    async with running(config_in(tmp_path)) as node:
        await configure(node, auto_create_tubes=True, auto_create_profile="t15")
    async with running(config_in(tmp_path)) as node:
        shown = await configure(node)
        assert (shown.auto_create_tubes, shown.auto_create_profile) == (True, "t15")


async def test_one_invalid_setting_refuses_all(node):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await configure(node, failover_grace_ms=1, session_ttr_ms=-1, auto_create_kind=Tube.CUSTOM)
    assert reason_of(caught.value) == "INVALID_FIELD"
    assert (await configure(node)).failover_grace_ms == 15_000


async def test_a_feed_limit_below_the_minimum_of_its_partitions_is_refused(tmp_path):
    async with running(config_in(tmp_path, feed_partitions=100)) as node:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await configure(node, feed_bytes_max=100 * FEED_PARTITION_BYTES_MIN - 1)
        assert reason_of(caught.value) == "INVALID_FIELD"
        await configure(node, feed_bytes_max=100 * FEED_PARTITION_BYTES_MIN)


async def test_the_first_put_creates_its_tube_according_to_the_settings(node):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await put(node, b"1", tube="fresh")
    assert reason_of(caught.value) == "TUBE_NOT_FOUND"
    await configure(node, auto_create_tubes=True, auto_create_profile="t15")
    await put(node, b"low", tube="fresh", priority=5)
    await put(node, b"plain", tube="fresh")
    (tube,) = (await node.tubes.ListTubes(tube_service_pb2.ListTubesRequest())).tubes
    assert (tube.kind, tube.profile, tube.options.priority) == (Tube.FIFOTTL, "t15", 127)
    taken = (await take(node, tube="fresh")).tasks
    assert [task.spec.payload for task in taken] == [b"plain", b"low"]


async def test_sessions_without_a_ttr_get_the_configured_one(node):
    await configure(node, session_ttr_ms=9_000)
    opened = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest())
    named = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest(ttr_ms=2_000))
    assert (opened.session.ttr_ms, named.session.ttr_ms) == (9_000, 2_000)
    for wish, ttr_ms in ((None, 9_000), (0, 0)):
        sources = [pb.TakeSource(tube="*")]
        open_ = pb.SubscribeRequest.Open(sources=sources, session_ttr_ms=wish)
        stream = node.tasks.Subscribe()
        await stream.write(pb.SubscribeRequest(open=open_))
        session_id = (await stream.read()).opened.session_id
        (session,) = [view for view in node.queue.sessions() if view.session_id == session_id]
        assert session.ttr_ms == ttr_ms
        stream.cancel()


async def test_the_mask_sets_and_resets_options(node):
    await create(node)
    tube = await update(node, "ttr_ms", "take_paused", ttr_ms=5_000, take_paused=True)
    assert (tube.options.ttr_ms, tube.options.take_paused) == (5_000, True)
    await put(node, b"1")
    assert not (await take(node)).tasks
    tube = await update(node, "ttr_ms", "take_paused")
    assert not tube.options.HasField("ttr_ms")
    assert len((await take(node)).tasks) == 1


async def test_resuming_a_tube_wakes_its_consumers(node):
    await create(node)
    await put(node, b"1")
    await update(node, "take_paused", take_paused=True)
    waiting = node.tasks.TakeTasks(
        pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")], wait_ms=30_000), timeout=30
    )
    await node.waiting(1)
    await update(node, "take_paused", take_paused=False)
    assert len((await waiting).tasks) == 1


@pytest.mark.parametrize(
    ("paths", "options", "reason"),
    [
        ((), {}, "INVALID_FIELD"),
        (("colour",), {}, "INVALID_FIELD"),
        (("ttr_ms",), {"ttl_ms": 5}, "INVALID_FIELD"),
        (("ttr_ms",), {"ttr_ms": -5}, "INVALID_FIELD"),
        (("priority_order",), {"priority_order": Options.HIGHER_FIRST}, "INVALID_FIELD"),
        (("ttl_scope",), {"ttl_scope": 9}, "INVALID_FIELD"),
    ],
)
async def test_an_invalid_update_is_refused(node, paths, options, reason):
    await create(node)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await update(node, *paths, **options)
    assert reason_of(caught.value) == reason


async def test_a_profile_is_shown_and_sets_its_defaults(node):
    tube = await make(node, "work", Tube.FIFOTTL, "t15")
    assert tube.profile == "t15"
    assert tube.options.priority_order == Options.HIGHER_FIRST
    assert (tube.options.priority_min, tube.options.priority_max) == (0, 255)
    own = await make(node, "own", Tube.FIFOTTL, "t15", priority=9, ttr_ms=1)
    assert (own.options.priority, own.options.ttr_ms) == (9, 1)
    life = await make(node, "life", Tube.FIFOTTL, "tarantool", ttl_ms=70_000)
    assert life.options.ttr_ms == 70_000
    plain = await make(node, "plain", Tube.FIFO, "tarantool", ttl_ms=70_000, priority=3)
    assert not plain.options.HasField("ttl_ms")


async def test_an_unknown_profile_is_refused_with_the_known_ones(node):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await make(node, "work", Tube.FIFOTTL, "kafka")
    assert reason_of(caught.value) == "INVALID_FIELD"
    assert "tarantool, xqueue, t15, rsqueue" in caught.value.details()
