"""Invalid dependencies of new tasks: method, request, reason."""

from taskraft.v1 import group_service_pb2, schedule_service_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.limits import DEPENDENCIES_MAX

INVALID = "INVALID_FIELD"
ONE = {"task": {"tube": "emails", "id": 1}}
TOO_MANY = [{"task": {"tube": "emails", "id": 1 + n}} for n in range(DEPENDENCIES_MAX + 1)]


def put(*specs):
    return pb.PutTasksRequest(tube="emails", tasks=[task_pb2.TaskSpec(**spec) for spec in specs])


def refused(**spec):
    return "PutTasks", put(spec), INVALID


def batch(*puts):
    return pb.ExecuteBatchRequest(operations=[pb.BatchOperation(put=one) for one in puts])


def group(**spec):
    end = group_service_pb2.GroupTask(tube="emails", spec=task_pb2.TaskSpec(**spec))
    return group_service_pb2.CreateGroupRequest(
        group=group_service_pb2.Group(name="g", end_task=end)
    )


def schedule(**spec):
    wanted = schedule_service_pb2.Schedule(
        name="s", cron="* * * * *", tube="emails", spec=task_pb2.TaskSpec(**spec)
    )
    return schedule_service_pb2.CreateScheduleRequest(schedule=wanted)


CASES = [
    refused(depends_on=[{}]),
    refused(depends_on=[{"item": 0}]),
    refused(depends_on=[{"item": -1}]),
    refused(depends_on=[{"task": {"tube": "a b", "id": 1}}]),
    refused(depends_on=[{"task": {"tube": "emails", "id": 0}}]),
    refused(depends_on=[ONE, ONE]),
    refused(depends_on=TOO_MANY),
    refused(depends_on=[ONE], on_dependency_failure=9),
    refused(on_dependency_failure=task_pb2.TaskSpec.RUN),
    refused(depends_on=[ONE], unique_key=["k"], on_conflict=task_pb2.TaskSpec.RESTART_IF_FINISHED),
    refused(depends_on=[ONE], unique_key=["k"], on_conflict=task_pb2.TaskSpec.REPLACE_IF_WAITING),
    ("PutTasks", put({}, {"depends_on": [{"item": 2}]}, {}), INVALID),
    ("ExecuteBatch", batch(put({}), put({"depends_on": [{"item": 1}]})), INVALID),
    (
        "ExecuteBatch",
        batch(put({"depends_on": [{"task": {"tube": "emails", "id": 99}}]})),
        "DEPENDENCY_NOT_FOUND",
    ),
    ("CreateGroup", group(depends_on=[{"item": 0}]), INVALID),
    ("CreateGroup", group(on_dependency_failure=1), INVALID),
    ("CreateSchedule", schedule(depends_on=[ONE]), INVALID),
]
