"""GetTaskGraph with access control: tasks of tubes that the caller may not read are left out."""

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.access.secured import INVOICES, MAIL, refused

pytestmark = pytest.mark.real_time


async def test_a_graph_leaves_out_the_tasks_of_tubes_that_the_caller_may_not_read(node):
    root, mailer = await node.known("root"), await node.known("mailer")

    async def put_after(tube, *waits_for):
        on = [
            task_pb2.Dependency(task=task_pb2.TaskReference(tube=name, id=task_id))
            for name, task_id in waits_for
        ]
        await root.tasks.PutTasks(
            pb.PutTasksRequest(tube=tube, tasks=[task_pb2.TaskSpec(depends_on=on)])
        )

    await put_after(INVOICES)
    await put_after(MAIL, (INVOICES, 1))
    await put_after(INVOICES, (MAIL, 1))
    request = pb.GetTaskGraphRequest(tube=MAIL, id=1)
    whole = await root.tasks.GetTaskGraph(request)
    assert (len(whole.tasks), len(whole.edges)) == (3, 2)
    seen = await mailer.tasks.GetTaskGraph(request)
    assert [(task.tube, task.id) for task in seen.tasks] == [(MAIL, 1)]
    (edge,) = seen.edges
    assert (edge.dependency.tube, edge.dependent.tube) == (INVOICES, MAIL)
    assert not seen.truncated
    hidden = pb.GetTaskGraphRequest(tube=INVOICES, id=1)
    assert await refused(mailer.tasks.GetTaskGraph(hidden)) == "NOT_ALLOWED"
