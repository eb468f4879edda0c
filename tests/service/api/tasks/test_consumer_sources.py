"""Takes from several tubes: patterns for existing and later tubes, total order, weights."""

import asyncio

import grpc
import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1 import tube_service_pb2
from taskraft_service.api.tasks.consumer_sources import ConsumerSources
from tests.service.conftest import create, put, reason_of

pytestmark = pytest.mark.real_time

Source = pb.TakeSource


async def take(node, *sources, tasks_max=20, wait_ms=0):
    request = pb.TakeTasksRequest(sources=sources, tasks_max=tasks_max, wait_ms=wait_ms)
    answer = await node.tasks.TakeTasks(request, timeout=30)
    return [(task.tube, task.spec.payload.decode()) for task in answer.tasks]


def test_the_weight_of_a_tubes_name_precedes_that_of_a_pattern():
    sources = ConsumerSources([Source(tube="mail.*", weight=2), Source(tube="mail.a", weight=7)])
    assert sources.weight_of("mail.a") == 7
    assert sources.weight_of("mail.b") == 2
    assert sources.weight_of("fax") == 0
    assert [one.weight for one in sources.narrowed(["mail.b", "mail.a"])] == [2, 7]


def test_a_source_without_yielding_precedes_a_pattern_that_yields():
    general = ConsumerSources([Source(tube="*", yielding=True), Source(tube="fax")])
    assert [general.yields(tube) for tube in ("mail", "fax")] == [True, False]
    mixed = ConsumerSources([Source(tube="*", yielding=True), Source(tube="mail.*")])
    assert [mixed.yields(tube) for tube in ("mail.a", "fax")] == [False, True]
    assert not ConsumerSources([Source(tube="*")]).yields("mail")


async def test_a_general_consumer_gets_a_task_after_the_consumer_of_the_tube(node):
    await create(node, "fax")
    general = asyncio.ensure_future(
        take(node, Source(tube="*", yielding=True), tasks_max=1, wait_ms=20_000)
    )
    await node.waiting_anywhere(1)
    own = asyncio.ensure_future(take(node, Source(tube="fax"), tasks_max=1, wait_ms=20_000))
    await node.waiting_anywhere(2)
    await put(node, b"1", tube="fax")
    assert await own == [("fax", "1")]
    assert not general.done()
    await put(node, b"2", tube="fax")
    assert await general == [("fax", "2")]


async def test_tasks_of_all_tubes_are_taken_by_priority(node):
    for name in ("mail.a", "mail.b", "fax"):
        await create(node, name)
    await put(node, b"1", tube="mail.a", priority=5)
    await put(node, b"2", tube="mail.b", priority=3)
    await put(node, b"3", tube="mail.a", priority=4)
    await put(node, b"4", tube="fax", priority=0)
    expected = [("mail.b", "2"), ("mail.a", "3"), ("mail.a", "1")]
    assert await take(node, Source(tube="mail.*")) == expected


async def test_weights_divide_the_ready_tasks(node):
    for name in ("mail.a", "mail.b"):
        await create(node, name)
        await put(node, *[b"%d" % number for number in range(30)], tube=name)
    sources = (Source(tube="mail.a", weight=3), Source(tube="mail.*", weight=1))
    taken = await take(node, *sources, tasks_max=16)
    assert [name for name, _ in taken].count("mail.a") == 12
    one_by_one = [await take(node, *sources, tasks_max=1, wait_ms=1_000) for _ in range(16)]
    assert [name for ((name, _),) in one_by_one].count("mail.a") == 12


async def test_a_waiting_call_is_woken_by_a_new_tube(node):
    waiting = asyncio.ensure_future(take(node, Source(tube="mail.*"), wait_ms=20_000))
    await node.waiting_anywhere(1)
    await create(node, "fax")
    await put(node, b"no", tube="fax")
    await create(node, "mail.late")
    await put(node, b"yes", tube="mail.late")
    assert await waiting == [("mail.late", "yes")]


async def test_a_waiting_call_gets_the_most_urgent_task_of_all_its_tubes(node):
    for name in ("mail.a", "mail.b"):
        await create(node, name)
    await put(node, b"later", tube="mail.a", priority=9)
    await put(node, b"first", tube="mail.b", priority=1)
    assert await take(node, Source(tube="mail.*"), tasks_max=1, wait_ms=20_000) == [
        ("mail.b", "first")
    ]


async def test_a_pattern_remains_after_its_tubes_are_dropped(node):
    await create(node, "mail.a")
    waiting = asyncio.ensure_future(take(node, Source(tube="mail.*"), wait_ms=20_000))
    await node.waiting(1, tube="mail.a")
    drop = tube_service_pb2.DropTubeRequest(name="mail.a", force=True)
    await node.tubes.DropTube(drop)
    await create(node, "mail.b")
    await put(node, b"1", tube="mail.b")
    assert await waiting == [("mail.b", "1")]


@pytest.mark.parametrize(
    "sources",
    [
        (Source(tube="emails", weight=-1),),
        (Source(tube="emails", weight=1_000_001),),
        (Source(tube="emails", weight=1), Source(tube="others")),
    ],
)
async def test_invalid_weights_are_refused(node, sources):
    await create(node)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await take(node, *sources)
    assert reason_of(caught.value) == "INVALID_FIELD"
