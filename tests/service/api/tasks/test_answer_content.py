"""The content that one request reads from the store and sends is bounded."""

import grpc
import pytest

from taskraft.v1 import (
    group_service_pb2,
    group_service_pb2_grpc,
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc import request_steps
from taskraft_service.api.tasks import outcomes
from taskraft_service.leader import waited_tasks
from taskraft_service.limits import LIST_BYTES_MAX, STORED_PAYLOAD_BYTES_MAX
from taskraft_service.queue.state.working_set import SMALL_PAYLOAD_BYTES_MAX
from tests.service.conftest import create, put, reason_of, take

pytestmark = pytest.mark.real_time

FOURTH_PART = b"x" * (200 * 1024)
IDS = task_pb2.TaskSelector(ids=range(1, 6))


@pytest.fixture
def _few_steps(monkeypatch):
    """Let a request read 4 payloads of 200 KiB."""
    most = 4 * len(FOURTH_PART)
    monkeypatch.setattr(request_steps, "BYTES_PER_STEP", 1)
    monkeypatch.setattr(request_steps, "REQUEST_STEPS_MAX", most)
    monkeypatch.setattr(outcomes, "CONTENT_BYTES_MAX", most)
    monkeypatch.setattr(waited_tasks, "CONTENT_BYTES_MAX", most)


async def refused(answer):
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await answer
    assert reason_of(refusal.value) == "TOO_MANY_STEPS"


@pytest.mark.parametrize("payload_omit", [False, True])
@pytest.mark.usefixtures("_few_steps")
async def test_a_read_of_too_much_content_is_refused(node, payload_omit):
    await create(node)
    for _ in range(5):
        await put(node, FOURTH_PART)
    request = pb.GetTasksRequest(tube="emails", selector=IDS, payload_omit=payload_omit)
    await refused(node.tasks.GetTasks(request))
    del request.selector.ids[4:]
    assert len((await node.tasks.GetTasks(request)).tasks) == 4


@pytest.mark.usefixtures("_few_steps")
async def test_a_settlement_that_returns_too_much_content_settles_nothing(node):
    await create(node)
    for _ in range(5):
        await put(node, FOURTH_PART)
    tokens = [task.token for task in (await take(node)).tasks]
    settlement = pb.Settlement(tokens=tokens, release=pb.Settlement.Release())
    request = pb.SettleTasksRequest(settlements=[settlement], return_tasks=True)
    await refused(node.tasks.SettleTasks(request))
    request.return_tasks = False
    assert not (await node.tasks.SettleTasks(request)).errors


@pytest.mark.usefixtures("_few_steps")
async def test_a_result_counts_with_each_task_that_is_returned(node):
    await create(node)
    await put(node, *[b""] * 5)
    tokens = [task.token for task in (await take(node)).tasks]
    settlement = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack(result=FOURTH_PART))
    request = pb.SettleTasksRequest(settlements=[settlement], return_tasks=True)
    await refused(node.tasks.SettleTasks(request))
    del request.settlements[0].tokens[4:]
    returned = (await node.tasks.SettleTasks(request)).tasks
    assert [one.result for one in returned] == [FOURTH_PART] * 4


@pytest.mark.usefixtures("_few_steps")
async def test_outcomes_have_neither_large_payloads_nor_too_many_results(node):
    """A put that has waited is not refused: its other outcomes have no content."""
    await create(node)
    small, large = b"x" * SMALL_PAYLOAD_BYTES_MAX, b"x" * (SMALL_PAYLOAD_BYTES_MAX + 1)
    specs = [task_pb2.TaskSpec(payload=one) for one in (small, large, b"3", b"4", b"5")]
    request = pb.PutTasksRequest(tube="emails", tasks=specs, outcome_wait_ms=30_000)
    waiting = node.tasks.PutTasks(request)
    tasks = (await take(node, wait_ms=5_000)).tasks
    kept = pb.Settlement.Ack(result=FOURTH_PART, keep=pb.Settlement.Ack.DONE)
    for task in tasks:
        settlement = pb.Settlement(tokens=[task.token], ack=kept)
        await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    answer = await waiting
    assert [len(one.spec.payload) for one in answer.outcomes] == [len(small), 0, 1, 0, 0]
    assert [one.result == FOURTH_PART for one in answer.outcomes] == [True] * 3 + [False] * 2
    assert [one.outcome for one in answer.outcomes] == [task_pb2.Task.PROCESSED] * 5
    request = pb.WaitTasksRequest(tube="emails", selector=IDS)
    await refused(node.tasks.WaitTasks(request))
    del request.selector.ids[:3]
    shown = (await node.tasks.WaitTasks(request)).tasks
    assert [(one.id, len(one.result)) for one in shown] == [(4, 204_800), (5, 204_800)]


async def test_a_take_returns_at_most_its_maximum_whatever_it_asks_for(node, monkeypatch):
    monkeypatch.setattr("taskraft_service.command_codecs.take.TAKE_BYTES_MAX", 5)
    await create(node)
    await put(node, b"123", b"456", b"789")
    assert len((await take(node, bytes_max=1 << 40)).tasks) == 1


async def test_pages_of_groups_and_schedules_end_after_a_size(node):
    await create(node)
    spec = task_pb2.TaskSpec(payload=b"x" * STORED_PAYLOAD_BYTES_MAX)
    groups = group_service_pb2_grpc.GroupServiceStub(node.channel)
    schedules = schedule_service_pb2_grpc.ScheduleServiceStub(node.channel)
    count = LIST_BYTES_MAX // STORED_PAYLOAD_BYTES_MAX + 5
    for number in range(count):
        group = group_service_pb2.Group(name=f"{number:03}")
        group.end_task.CopyFrom(group_service_pb2.GroupTask(tube="emails", spec=spec))
        await groups.CreateGroup(group_service_pb2.CreateGroupRequest(group=group))
        schedule = schedule_service_pb2.Schedule(
            name=f"{number:03}", cron="0 0 1 1 *", tube="emails", spec=spec
        )
        await schedules.CreateSchedule(
            schedule_service_pb2.CreateScheduleRequest(schedule=schedule)
        )
    for call, request, field in (
        (groups.ListGroups, group_service_pb2.ListGroupsRequest(), "groups"),
        (schedules.ListSchedules, schedule_service_pb2.ListSchedulesRequest(), "schedules"),
    ):
        first = await call(request)
        request.page_token = first.next_page_token
        second = await call(request)
        names = [one.name for page in (first, second) for one in getattr(page, field)]
        assert names == [f"{number:03}" for number in range(count)]
        assert len(getattr(second, field)) >= 4


@pytest.mark.parametrize("is_small", [False, True])
async def test_a_graph_counts_the_content_that_it_reads(node, monkeypatch, is_small):
    """The graph is truncated if the neighbours have more content than the maximum."""
    if is_small:
        monkeypatch.setattr("taskraft_service.api.tasks.task_graph.NEIGHBOUR_BYTES", 100)
        monkeypatch.setattr("taskraft_service.api.tasks.task_graph.NEIGHBOURS_MAX", 20)
    await create(node, kind=tube_service_pb2.Tube.FIFOTTL)
    await put(node, b"first")
    awaited = task_pb2.TaskReference(tube="emails", id=1)
    await put(
        node,
        *[b"x" * 1_000] * 5,
        depends_on=[task_pb2.Dependency(task=awaited)],
        headers={"h": b"1"},
    )
    graph = await node.tasks.GetTaskGraph(pb.GetTaskGraphRequest(tube="emails", id=1))
    assert (len(graph.tasks), graph.truncated) == ((3, True) if is_small else (6, False))
    assert [one.spec.payload for one in graph.tasks] == [b""] * len(graph.tasks)
    assert graph.tasks[1].spec.headers["h"] == b"1"
