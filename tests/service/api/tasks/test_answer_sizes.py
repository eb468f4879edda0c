"""Answers fit into gRPC's default limit of 4 MiB, with tasks of any content."""

import pytest

from taskraft.v1 import session_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import put, take

pytestmark = pytest.mark.real_time

Options = tube_service_pb2.TubeOptions
GRPC_BYTES_MAX = 4 * 1024 * 1024
EACH_SORT = pytest.mark.parametrize("durability", [Options.REPLICATED, Options.TEMPORARY])


async def create(node, **options):
    tube = tube_service_pb2.Tube(
        name="emails", kind=tube_service_pb2.Tube.FIFOTTL, options=Options(**options)
    )
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))


@EACH_SORT
async def test_a_take_releases_tasks_whose_headers_do_not_fit(node, durability):
    await create(node, durability=durability)
    ids = []
    for _ in range(3):
        ids += (await put(node, *[b""] * 200, headers={"h": b"x" * 8000})).task_ids
    answer = await take(node, tasks_max=1000)
    assert len(answer.SerializeToString()) < GRPC_BYTES_MAX
    shown = [task.id for task in answer.tasks]
    assert 450 < len(shown) < 600
    assert shown == ids[: len(shown)]
    rest = await take(node, tasks_max=1000, wait_ms=5_000)
    assert [(task.id, task.attempt) for task in rest.tasks] == [
        (task_id, 1) for task_id in ids[len(shown) :]
    ]


async def test_results_and_failures_count_towards_the_size_of_a_page(node):
    await create(node, on_ack=Options.KEEP)
    await put(node, *[b""] * 6)
    tokens = [task.token for task in (await take(node)).tasks]
    settlement = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack(result=b"r" * 1024 * 1024))
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    request, shown = pb.ListTasksRequest(tube="emails"), []
    while True:
        answer = await node.tasks.ListTasks(request)
        assert len(answer.SerializeToString()) < GRPC_BYTES_MAX
        shown += [task.id for task in answer.tasks]
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert shown == [1, 2, 3, 4, 5, 6]
    await node.tubes.TruncateTube(tube_service_pb2.TruncateTubeRequest(name="emails"))
    failed = task_pb2.Failure(message="\N{SNOWMAN}" * 1_300)
    for _ in range(2):
        await put(node, *[b""] * 500)
        tokens = [task.token for task in (await take(node, tasks_max=500)).tasks]
        bury = pb.Settlement(tokens=tokens, bury=pb.Settlement.Bury(failure=failed))
        await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[bury]))
    answer = await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails", page_size=1000))
    assert 0 < len(answer.tasks) < 1000


async def test_a_session_shows_its_leases_in_memory_when_it_is_kept(node):
    await create(node, durability=Options.TEMPORARY)
    await put(node, b"1", b"2")
    opened = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest())
    session_id = opened.session.session_id
    await take(node, session_id=session_id)
    kept = await node.sessions.KeepSessions(
        session_service_pb2.KeepSessionsRequest(session_ids=[session_id])
    )
    assert [one.taken for one in kept.sessions] == [2]
