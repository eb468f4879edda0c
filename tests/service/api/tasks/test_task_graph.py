"""GetTaskGraph: the tasks around a task, by distance, within limits and rights."""

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.tasks import task_graph
from tests.service.conftest import ack, create, take

pytestmark = pytest.mark.real_time


def reference(tube, task_id):
    return task_pb2.Dependency(task=task_pb2.TaskReference(tube=tube, id=task_id))


async def put(node, tube, *waits_for):
    """Put a task that waits for others, each named by tube and id."""
    spec = task_pb2.TaskSpec(depends_on=[reference(*place) for place in waits_for])
    await node.tasks.PutTasks(pb.PutTasksRequest(tube=tube, tasks=[spec]))


async def graph(node, tube, task_id, **fields):
    return await node.tasks.GetTaskGraph(pb.GetTaskGraphRequest(tube=tube, id=task_id, **fields))


def places(answer):
    return [(task.tube, task.id) for task in answer.tasks]


def edges(answer):
    return [
        ((edge.dependency.tube, edge.dependency.id), (edge.dependent.tube, edge.dependent.id))
        for edge in answer.edges
    ]


async def diamond(node):
    """Put 1 <- 2, 1 <- 3, (2, 3) <- 4, and a task of another tube that waits for 4."""
    await create(node, "a")
    await create(node, "b")
    await put(node, "a")
    await put(node, "a", ("a", 1))
    await put(node, "a", ("a", 1))
    await put(node, "a", ("a", 2), ("a", 3))
    await put(node, "b", ("a", 4))


async def test_the_graph_has_both_directions_and_comes_by_distance(node):
    await diamond(node)
    answer = await graph(node, "a", 2)
    assert places(answer) == [("a", 2), ("a", 1), ("a", 4), ("a", 3), ("b", 1)]
    assert set(edges(answer)) == {
        (("a", 1), ("a", 2)),
        (("a", 1), ("a", 3)),
        (("a", 2), ("a", 4)),
        (("a", 3), ("a", 4)),
        (("a", 4), ("b", 1)),
    }
    assert len(edges(answer)) == 5, "no edge twice"
    assert not answer.truncated
    assert answer.revision
    assert answer.now_ms


async def test_the_depth_and_the_number_of_tasks_have_limits(node):
    await diamond(node)
    near = await graph(node, "a", 1, depth_max=1)
    assert places(near) == [("a", 1), ("a", 2), ("a", 3)]
    assert edges(near) == [(("a", 1), ("a", 2)), (("a", 1), ("a", 3))]
    assert near.truncated
    few = await graph(node, "a", 1, tasks_max=2)
    assert (places(few), few.truncated) == ([("a", 1), ("a", 2)], True)
    assert not (await graph(node, "a", 1, depth_max=3)).truncated


async def test_an_edge_ends_with_its_dependency(node):
    await diamond(node)
    taken = await take(node, "a")
    await ack(node, taken.tasks)
    answer = await graph(node, "a", 2)
    assert places(answer) == [("a", 2), ("a", 4), ("a", 3), ("b", 1)]
    assert (("a", 1), ("a", 2)) not in edges(answer)


async def test_many_dependents_are_read_in_slices(node, monkeypatch):
    monkeypatch.setattr(task_graph, "SLICE_NEIGHBOURS", 3)
    await create(node, "a")
    await put(node, "a")
    for _ in range(7):
        await put(node, "a", ("a", 1))
    answer = await graph(node, "a", 1)
    assert [place for _, place in edges(answer)] == [("a", number) for number in range(2, 9)]
    assert not answer.truncated
    monkeypatch.setattr(task_graph, "NEIGHBOURS_MAX", 4)
    answer = await graph(node, "a", 1)
    assert (len(answer.edges), answer.truncated) == (4, True)
