"""Invalid requests about groups, schedules, waits and batches: method, request, reason."""

from taskraft.v1 import group_service_pb2, schedule_service_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb

INVALID = "INVALID_FIELD"
SERVICES = (
    group_service_pb2.DESCRIPTOR.services_by_name["GroupService"],
    schedule_service_pb2.DESCRIPTOR.services_by_name["ScheduleService"],
)
IMPLEMENTED = {
    "CreateSchedule",
    "UpdateSchedule",
    "DeleteSchedule",
    "GetSchedule",
    "ListSchedules",
    "WaitTasks",
    "ExecuteBatch",
    "CreateGroup",
    "StartGroup",
    "CancelGroup",
    "SetEndTask",
    "GetGroup",
    "ListGroups",
}


def schedule(**fields):
    good = {"name": "s", "cron": "* * * * *", "tube": "emails"}
    return schedule_service_pb2.Schedule(**(good | fields))


def create(**fields):
    return schedule_service_pb2.CreateScheduleRequest(schedule=schedule(**fields))


def wait(*ids, tube="emails", **fields):
    return pb.WaitTasksRequest(tube=tube, selector=task_pb2.TaskSelector(ids=ids), **fields)


def put(tasks=1, **fields):
    return pb.PutTasksRequest(tube="emails", tasks=[task_pb2.TaskSpec()] * tasks, **fields)


def group(**fields):
    named = group_service_pb2.Group(**({"name": "g"} | fields))
    return group_service_pb2.CreateGroupRequest(group=named)


def set_end_task(**fields):
    return group_service_pb2.SetEndTaskRequest(**({"name": "g"} | fields))


def change(*paths, etag="", **fields):
    fields = {"name": "s"} | fields
    return schedule_service_pb2.UpdateScheduleRequest(
        schedule=fields, update_mask={"paths": paths}, etag=etag
    )


def follower(tube="emails", **spec):
    return group_service_pb2.GroupTask(tube=tube, spec=task_pb2.TaskSpec(**spec))


def batch(*operations, **fields):
    named = [pb.BatchOperation(**operation) for operation in operations]
    return pb.ExecuteBatchRequest(operations=named, **fields)


def one_put(**spec):
    return {"put": pb.PutTasksRequest(tube="emails", tasks=[task_pb2.TaskSpec(**spec)])}


def remove(*ids):
    selector = task_pb2.TaskSelector(ids=ids)
    return {"delete": pb.DeleteTasksRequest(tube="emails", selector=selector)}


CASES = [
    ("ExecuteBatch", batch(), INVALID),
    ("ExecuteBatch", batch({}), INVALID),
    ("ExecuteBatch", batch(*[one_put()] * 101), INVALID),
    ("ExecuteBatch", batch(one_put(), request_id="x" * 65), INVALID),
    ("ExecuteBatch", batch(*[remove(*range(1, 5_002))] * 2), INVALID),
    ("ExecuteBatch", batch(one_put(ttl_ms=-1)), INVALID),
    ("ExecuteBatch", batch({"update": pb.UpdateTasksRequest(tube="emails")}), INVALID),
    ("ExecuteBatch", batch(one_put(payload=b"x" * 1025)), "PAYLOAD_TOO_LARGE"),
    ("ExecuteBatch", batch({"put": put(room_wait_ms=1)}), INVALID),
    ("ExecuteBatch", batch({"kick": pb.KickTasksRequest(tube="emails", count=1)}), INVALID),
    ("ExecuteBatch", batch(one_put(), {"settle": pb.SettleTasksRequest()}), INVALID),
    ("ExecuteBatch", batch(one_put(), remove(999)), "TASK_NOT_FOUND"),
    ("ExecuteBatch", batch(one_put(), remove(1), remove(1)), INVALID),
    ("ExecuteBatch", batch(one_put(), {"put": pb.PutTasksRequest(tube="a b")}), INVALID),
    ("CreateGroup", group(name=""), INVALID),
    ("CreateGroup", group(name="x" * 129), INVALID),
    ("CreateGroup", group(end_task=follower(tube="a b")), INVALID),
    ("CreateGroup", group(abort_task=follower(ttl_ms=-1)), INVALID),
    ("CreateGroup", group(abort_task=follower(group="g")), INVALID),
    ("CreateGroup", group(end_task=follower(subqueue="x")), INVALID),
    ("CreateGroup", group(end_task=follower(payload=b"x" * 65_537)), "PAYLOAD_TOO_LARGE"),
    ("CreateGroup", group(only_if_processed=True), INVALID),
    ("SetEndTask", set_end_task(name="nobody"), "GROUP_NOT_FOUND"),
    ("SetEndTask", set_end_task(name=""), INVALID),
    ("SetEndTask", set_end_task(end_task=follower(tube="a b")), INVALID),
    ("SetEndTask", set_end_task(abort_task=follower(group="g")), INVALID),
    ("SetEndTask", set_end_task(only_if_processed=True), INVALID),
    ("ListGroups", group_service_pb2.ListGroupsRequest(states=[0]), INVALID),
    ("ListGroups", group_service_pb2.ListGroupsRequest(states=[9]), INVALID),
    ("ListGroups", group_service_pb2.ListGroupsRequest(names=[""]), INVALID),
    ("ListGroups", group_service_pb2.ListGroupsRequest(page_token="%"), INVALID),
    ("StartGroup", group_service_pb2.StartGroupRequest(name="nobody"), "GROUP_NOT_FOUND"),
    ("StartGroup", group_service_pb2.StartGroupRequest(), INVALID),
    ("CancelGroup", group_service_pb2.CancelGroupRequest(name="nobody"), "GROUP_NOT_FOUND"),
    ("CancelGroup", group_service_pb2.CancelGroupRequest(name="x" * 129), INVALID),
    ("GetGroup", group_service_pb2.GetGroupRequest(name="nobody"), "GROUP_NOT_FOUND"),
    ("GetGroup", group_service_pb2.GetGroupRequest(), INVALID),
    ("WaitTasks", wait(1, tube="a b"), INVALID),
    ("WaitTasks", wait(1, tube="nowhere"), "TUBE_NOT_FOUND"),
    ("WaitTasks", wait(), INVALID),
    ("WaitTasks", wait(0), INVALID),
    ("WaitTasks", wait(*range(1, 1_002)), INVALID),
    ("WaitTasks", wait(1, wait_ms=-1), INVALID),
    ("WaitTasks", wait(1, until=9), INVALID),
    ("PutTasks", put(outcome_wait_ms=-1), INVALID),
    ("PutTasks", put(room_wait_ms=-1), INVALID),
    ("PutTasks", put(1_001, outcome_wait_ms=1), INVALID),
    ("CreateSchedule", create(name=""), INVALID),
    ("CreateSchedule", create(name="x" * 129), INVALID),
    ("CreateSchedule", create(tube="a b"), INVALID),
    ("CreateSchedule", create(spec=task_pb2.TaskSpec(subqueue="x")), INVALID),
    ("CreateSchedule", create(cron=""), INVALID),
    ("CreateSchedule", create(cron="* * * * * *"), INVALID),
    ("CreateSchedule", create(cron="0 0 31 2 *"), INVALID),
    ("CreateSchedule", create(cron="* * * * *" + " " * 300), INVALID),
    ("CreateSchedule", create(time_zone="Europe/Nowhere"), INVALID),
    ("CreateSchedule", create(time_zone="../../etc/passwd"), INVALID),
    ("CreateSchedule", create(jitter_ms=-1), INVALID),
    ("CreateSchedule", create(jitter_ms=86_400_001), INVALID),
    ("CreateSchedule", create(catch_up=9), INVALID),
    ("CreateSchedule", create(overlap=9), INVALID),
    ("CreateSchedule", create(spec=task_pb2.TaskSpec(ttl_ms=-1)), INVALID),
    ("CreateSchedule", create(spec=task_pb2.TaskSpec(payload=b"x" * 65_537)), "PAYLOAD_TOO_LARGE"),
    (
        "CreateSchedule",
        schedule_service_pb2.CreateScheduleRequest(schedule=schedule(), request_id="x" * 65),
        INVALID,
    ),
    (
        "UpdateSchedule",
        schedule_service_pb2.UpdateScheduleRequest(schedule=schedule(name="nobody")),
        "SCHEDULE_NOT_FOUND",
    ),
    ("UpdateSchedule", schedule_service_pb2.UpdateScheduleRequest(), INVALID),
    ("UpdateSchedule", change("paused", name="nobody"), "SCHEDULE_NOT_FOUND"),
    ("UpdateSchedule", change("paused", name=""), INVALID),
    ("UpdateSchedule", change("name"), INVALID),
    ("UpdateSchedule", change("spec.payload"), INVALID),
    ("UpdateSchedule", change("paused", cron="* * * * *"), INVALID),
    ("GetSchedule", schedule_service_pb2.GetScheduleRequest(name="nobody"), "SCHEDULE_NOT_FOUND"),
    ("GetSchedule", schedule_service_pb2.GetScheduleRequest(), INVALID),
    (
        "DeleteSchedule",
        schedule_service_pb2.DeleteScheduleRequest(name="nobody"),
        "SCHEDULE_NOT_FOUND",
    ),
    ("DeleteSchedule", schedule_service_pb2.DeleteScheduleRequest(), INVALID),
    ("ListSchedules", schedule_service_pb2.ListSchedulesRequest(page_size=1_001), INVALID),
    ("ListSchedules", schedule_service_pb2.ListSchedulesRequest(page_token="%"), INVALID),
]
