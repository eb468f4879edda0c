"""Calls that tests of temporary tubes send to a node."""

from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import STATUS_KEY

Options = tube_service_pb2.TubeOptions
Settlement = pb.Settlement
Tube = tube_service_pb2.Tube


async def temporary(node, name="scratch", kind=Tube.FIFOTTL, **options):
    made = Tube(name=name, kind=kind, options=Options(durability=Options.TEMPORARY, **options))
    answer = await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=made))
    return answer.tube


async def settle(node, *settlements, **fields):
    return await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=settlements, **fields))


def release(*tokens, **fields):
    return Settlement(tokens=tokens, release=Settlement.Release(**fields))


def acked(*tokens, **fields):
    return Settlement(tokens=tokens, ack=Settlement.Ack(**fields))


async def take_from(node, *tubes, tasks_max=20, wait_ms=0, **fields):
    sources = [pb.TakeSource(tube=tube) for tube in tubes]
    request = pb.TakeTasksRequest(sources=sources, tasks_max=tasks_max, wait_ms=wait_ms, **fields)
    return list((await node.tasks.TakeTasks(request, timeout=10)).tasks)


async def listed(node, tube="scratch", **fields):
    answer = await node.tasks.ListTasks(pb.ListTasksRequest(tube=tube, **fields))
    return list(answer.tasks)


async def counts(node, tube="scratch", **fields):
    request = tube_service_pb2.GetStatisticsRequest(tubes=[tube], **fields)
    (shown,) = (await node.tubes.GetStatistics(request)).tubes
    return shown.tasks


def chosen(*ids):
    return task_pb2.TaskSelector(ids=ids)


def payloads(tasks):
    return [task.spec.payload for task in tasks]


def violations(error):
    """Return the invalid fields of a refused call."""
    for key, packed in error.trailing_metadata():
        if key == STATUS_KEY:
            for detail in status_pb2.Status.FromString(packed).details:
                bad = error_details_pb2.BadRequest()
                if detail.Unpack(bad):
                    return [violation.field for violation in bad.field_violations]
    return []
