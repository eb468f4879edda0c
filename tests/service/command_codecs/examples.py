"""Messages, and the values that they are decoded to."""

from taskraft.v1 import group_service_pb2, schedule_service_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.entities.new_task import NewTask, OnConflict, UniqueAmong
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Settle
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduleSpec
from taskraft_service.queue.transitions.updating import TaskUpdate

HASH = 77
IDS = task_pb2.TaskSelector(ids=[3, 1])
BY_IDS = ByIds([3, 1])
KEYS = task_pb2.TaskSelector(keys=[{"parts": ["a", "b"]}])
FILTER = task_pb2.TaskSelector(filter="id > 5", tasks_max=7, after_id=9)
FAILURE = task_pb2.Failure(type="T", message="m", fatal=True)
WHY = Failure("T", "m", fatal=True)
SAID_UPDATE = task_pb2.TaskUpdate(
    payload=b"p", content_type="c", headers_set={"h": b"1", "b": b"2", "a": b"3"},
    headers_remove=["g"], priority=2, ttl_ms=4, ttr_ms=5,
)  # fmt: skip
CONTENT = task_pb2.TaskUpdate(
    payload=b"p",
    content_type="c",
    headers_set={"h": b"1", "b": b"2", "a": b"3"},
    headers_remove=["g"],
).SerializeToString(deterministic=True)
CHANGES = TaskUpdate(content=CONTENT, priority=2, ttl_ms=4, ttr_ms=5)
FULL_SPEC = task_pb2.TaskSpec(
    payload=b"12345", priority=-1, delay_ms=2, ttl_ms=3, ttr_ms=4, visible_at_ms=5, type="t",
    headers={"b": b"1"}, subqueue="s", position=2, retry={"attempts_max": 6},
    unique_key=["k", "l"], group="g", on_conflict=4, unique_states=[1, 5], unique_ms=8,
)  # fmt: skip
FULL_TASK = NewTask(
    FULL_SPEC.SerializeToString(), 5, -1, 2, 3, 4, 5, "t", "s", Position.BACK,
    retry_policy(task_pb2.RetryPolicy(attempts_max=6)), ("k", "l"), "g",
    OnConflict.REPLACE_IF_WAITING,
    UniqueAmong((State.READY, State.DONE), 8),
)  # fmt: skip
KEYED_SPEC = task_pb2.TaskSpec(unique_key=["k"])
KEYED_TASK = NewTask(KEYED_SPEC.SerializeToString(), 0, unique_key=("k",))


def plain(payload):
    return NewTask(task_pb2.TaskSpec(payload=payload).SerializeToString(), len(payload))


def settle(*tokens, **action):
    return pb.SettleTasksRequest(settlements=[pb.Settlement(tokens=tokens, **action)])


def settled(*settlements):
    return Settle(list(settlements), request_hash=HASH)


GROUP_TASK = group_service_pb2.GroupTask(tube="ends", spec=FULL_SPEC)
FOLLOWER = GroupTask("ends", FULL_SPEC.SerializeToString(deterministic=True))
SAID = schedule_service_pb2.Schedule(
    name="s", cron="* * * * *", time_zone="Europe/Vienna", jitter_ms=3, catch_up=2, overlap=2,
    tube="t", paused=True,
)  # fmt: skip
SCHEDULE = schedule_service_pb2.Schedule(
    spec=FULL_SPEC, next_ms=1, last_ms=2, last_task_id=3, left_out=4, last_error={"reason": 5}
)
SCHEDULE.MergeFrom(SAID)
OPTIONS = ScheduleSpec(
    "t",
    "* * * * *\nEurope/Vienna",
    Overlap.SKIP,
    paused=True,
    spec=FULL_SPEC.SerializeToString(deterministic=True),
    body=SAID.SerializeToString(deterministic=True),
)
