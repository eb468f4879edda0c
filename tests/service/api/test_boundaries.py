"""A value at a limit is accepted; a value beyond it is refused with the field's name."""

from copy import deepcopy

import pytest

from taskraft.v1 import session_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.api import sessions
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import check_page_request
from taskraft_service.api.streams.subscription_state import check_stream_message
from taskraft_service.api.tasks import selection_checks
from taskraft_service.api.tasks.put_checks import check_put
from taskraft_service.api.tasks.settle_checks import check_settle
from taskraft_service.api.tasks.takes import check_take
from taskraft_service.queue.entities.instants import FOREVER_MS

PAYLOAD_BYTES_MAX = 100
Task = task_pb2.Task
Switch = pb.SwitchTasksRequest
IDS = {"ids": [1]}
SESSION = "00000000-0000-4000-8000-000000000000"


def put(**fields):
    request = pb.PutTasksRequest(**{"tube": "t", "tasks": [{}], **fields})
    raw = request.SerializeToString()
    return lambda: check_put(request, raw, PAYLOAD_BYTES_MAX).raise_if_any()


def spec(**fields):
    return put(tasks=[fields])


def take(**fields):
    request = pb.TakeTasksRequest(**{"sources": [{"tube": "t"}], **fields})
    return lambda: check_take(request).raise_if_any()


def opened(**fields):
    message = pb.SubscribeRequest(open={"sources": [{"tube": "t"}], **fields})
    return lambda: check_stream_message(message, 0, is_first=True).raise_if_any()


def credit(tasks, tasks_open=0, byte_count=0):
    message = pb.SubscribeRequest(credit={"tasks": tasks, "bytes": byte_count})
    return lambda: check_stream_message(message, tasks_open, is_first=False).raise_if_any()


def settle(*tokens, **action):
    settlement = pb.Settlement(tokens=tokens or [1], **(action or {"ack": {}}))
    request = pb.SettleTasksRequest(settlements=[settlement])
    return lambda: check_settle(request, PAYLOAD_BYTES_MAX).raise_if_any()


def chosen(kind, violations, *arguments, **fields):
    request = kind(**{"tube": "t", "selector": deepcopy(IDS), **fields})
    return lambda: violations(request, *arguments).raise_if_any()


def delete(**fields):
    return chosen(pb.DeleteTasksRequest, selection_checks.check_delete, **fields)


def get(**fields):
    request = pb.GetTasksRequest(**{"tube": "t", "selector": deepcopy(IDS), **fields})
    return lambda: selection_checks.check_get(request)


def update(**fields):
    violations = selection_checks.check_update
    return chosen(pb.UpdateTasksRequest, violations, PAYLOAD_BYTES_MAX, update=fields)


def kick(**fields):
    violations = selection_checks.check_kick
    return chosen(pb.KickTasksRequest, violations, PAYLOAD_BYTES_MAX, **{"selector": {}, **fields})


def move(**fields):
    violations = selection_checks.check_move
    return chosen(pb.MoveTasksRequest, violations, PAYLOAD_BYTES_MAX, **{"move_to": "u", **fields})


def switch(state, duration_ms=0):
    violations = selection_checks.check_switch
    return chosen(Switch, violations, state=state, duration_ms=duration_ms)


def session(**fields):
    request = session_service_pb2.OpenSessionRequest(**fields)
    return lambda: sessions._check_open(request)


def keep(count):
    request = session_service_pb2.KeepSessionsRequest(session_ids=[SESSION] * count)
    return lambda: sessions._check_keep(request)


def statistics(names=(), **fields):
    request = tube_service_pb2.GetStatisticsRequest(**fields)
    return lambda: check_page_request(request, "tubes", names)


def headers(size):
    return {"name": b"x" * (size - len("name"))}


ON_TASK = {"task": {"tube": "t", "id": 1}}
ON_ITEM = {"item": 0}
CASES = [
    (
        spec(depends_on=[ON_TASK]),
        spec(depends_on=[{"task": {"tube": "t", "id": 0}}]),
        "tasks[0].depends_on[0].task.id",
    ),
    (spec(depends_on=[ON_TASK]), spec(depends_on=[{}]), "tasks[0].depends_on[0]"),
    (spec(depends_on=[ON_TASK]), spec(depends_on=[ON_TASK] * 2), "tasks[0].depends_on[1]"),
    (
        put(tasks=[{}, {"depends_on": [ON_ITEM]}]),
        put(tasks=[{"depends_on": [ON_ITEM]}]),
        "tasks[0].depends_on[0].item",
    ),
    (
        put(tasks=[{}, {"depends_on": [ON_ITEM]}]),
        put(tasks=[{}, {"depends_on": [{"item": -1}]}]),
        "tasks[1].depends_on[0].item",
    ),
    (
        spec(depends_on=[ON_TASK], on_dependency_failure=1),
        spec(on_dependency_failure=1),
        "tasks[0].on_dependency_failure",
    ),
    (put(tasks=[{}] * limits.PUT_TASKS_MAX), put(tasks=[{}] * (limits.PUT_TASKS_MAX + 1)), "tasks"),
    (put(), put(tasks=[]), "tasks"),
    (put(room_wait_ms=0), put(room_wait_ms=-1), "room_wait_ms"),
    (put(outcome_wait_ms=0), put(outcome_wait_ms=-1), "outcome_wait_ms"),
    (spec(payload=b"x" * 100), spec(payload=b"x" * 101), "tasks[0].payload"),
    (spec(payload=b"x" * 100, type="a"), spec(payload=b"x" * 101, type="a"), "tasks[0].payload"),
    (
        spec(headers=headers(limits.HEADERS_BYTES_MAX)),
        spec(headers=headers(limits.HEADERS_BYTES_MAX + 1)),
        "tasks[0].headers",
    ),
    (spec(headers={"a": b""}), spec(headers={"": b""}), "tasks[0].headers"),
    (
        spec(headers={str(number): b"" for number in range(limits.HEADERS_MAX)}),
        spec(headers={str(number): b"" for number in range(limits.HEADERS_MAX + 1)}),
        "tasks[0].headers",
    ),
    (
        spec(headers={"x" * limits.HEADER_NAME_BYTES_MAX: b""}),
        spec(headers={"x" * (limits.HEADER_NAME_BYTES_MAX + 1): b""}),
        f"tasks[0].headers[{'x' * 32}]",
    ),
    (spec(ttl_ms=1, type="a"), spec(ttl_ms=0, type="a"), "tasks[0].ttl_ms"),
    (
        spec(unique_key=["k"], unique_ms=1),
        spec(unique_key=["k"], unique_ms=0),
        "tasks[0].unique_ms",
    ),
    (spec(unique_key=["k"], unique_ms=1), spec(unique_ms=1), "tasks[0].unique_ms"),
    (
        spec(unique_key=["k"], unique_states=[1]),
        spec(unique_states=[1]),
        "tasks[0].unique_states",
    ),
    (
        spec(unique_key=["k"], unique_states=[1] * len(Task.State.keys())),
        spec(unique_key=["k"], unique_states=[1] * (len(Task.State.keys()) + 1)),
        "tasks[0].unique_states",
    ),
    (spec(unique_key=["k"], on_conflict=1), spec(on_conflict=1), "tasks[0].on_conflict"),
    (take(tasks_max=limits.TAKE_TASKS_MAX), take(tasks_max=limits.TAKE_TASKS_MAX + 1), "tasks_max"),
    (take(tasks_max=0), take(tasks_max=-1), "tasks_max"),
    (take(bytes_max=0), take(bytes_max=-1), "bytes_max"),
    (take(wait_ms=0), take(wait_ms=-1), "wait_ms"),
    (take(task_id=1), take(task_id=0), "task_id"),
    (take(task_id=1), take(task_id=1, types=["a"]), "types"),
    (take(task_id=1), take(task_id=1, priority_bound=1), "priority_bound"),
    (take(task_id=1), take(task_id=1, sources=[{"tube": "a"}, {"tube": "b"}]), "sources"),
    (take(task_id=1), take(task_id=1, sources=[{"tube": "a*"}]), "sources"),
    (take(types=["a"]), take(types=[""]), "types[0]"),
    (
        take(types=["a"] * limits.TAKE_TYPES_MAX),
        take(types=["a"] * (limits.TAKE_TYPES_MAX + 1)),
        "types",
    ),
    (
        take(sources=[{"tube": "t"}] * limits.TAKE_SOURCES_MAX),
        take(sources=[{"tube": "t"}] * (limits.TAKE_SOURCES_MAX + 1)),
        "sources",
    ),
    (
        take(sources=[{"tube": "a", "weight": 1}, {"tube": "b", "weight": 2}]),
        take(sources=[{"tube": "a", "weight": 1}, {"tube": "b"}]),
        "sources",
    ),
    (
        take(sources=[{"tube": "a", "weight": limits.SOURCE_WEIGHT_MAX}]),
        take(sources=[{"tube": "a", "weight": limits.SOURCE_WEIGHT_MAX + 1}]),
        "sources[0].weight",
    ),
    (
        opened(session_ttr_ms=limits.SESSION_TTR_MAX_MS),
        opened(session_ttr_ms=limits.SESSION_TTR_MAX_MS + 1),
        "open.session_ttr_ms",
    ),
    (opened(ttr_ms=1), opened(ttr_ms=0), "open.ttr_ms"),
    (credit(limits.CREDIT_TASKS_MAX), credit(limits.CREDIT_TASKS_MAX + 1), "credit.tasks"),
    (credit(1, limits.CREDIT_TASKS_MAX - 1), credit(1, limits.CREDIT_TASKS_MAX), "credit.tasks"),
    (credit(0), credit(-1), "credit.tasks"),
    (credit(1, byte_count=0), credit(1, byte_count=-1), "credit.bytes"),
    (settle(1), settle(0), "settlements[0].tokens"),
    (settle(1), settle(5, -1), "settlements[0].tokens"),
    (
        settle(*range(1, limits.PUT_TASKS_MAX + 1)),
        settle(*range(1, limits.PUT_TASKS_MAX + 2)),
        "settlements",
    ),
    (
        settle(ack={"result": b"x" * limits.RESULT_BYTES_MAX}),
        settle(ack={"result": b"x" * (limits.RESULT_BYTES_MAX + 1)}),
        "settlements[0].ack.result",
    ),
    (
        settle(ack={"payload": b"x" * 100}),
        settle(ack={"payload": b"x" * 101}),
        "settlements[0].ack.payload",
    ),
    (
        settle(ack={"keep": "DONE", "retain_ms": 1}),
        settle(ack={"keep": "REMOVE", "retain_ms": 1}),
        "settlements[0].ack.retain_ms",
    ),
    (
        settle(release={"ttl_policy": "RESET", "ttl_ms": 1}),
        settle(release={"ttl_ms": 1}),
        "settlements[0].release.ttl_ms",
    ),
    (
        settle(release={"uncounted": True}),
        settle(release={"uncounted": True, "failure": {"fatal": True}}),
        "settlements[0].release.failure.fatal",
    ),
    (
        settle(release={"failure": {"fatal": True}}),
        settle(release={"uncounted": True, "failure": {"fatal": True}}),
        "settlements[0].release.failure.fatal",
    ),
    (
        settle(touch={"increment_ms": 1}),
        settle(touch={"increment_ms": 1, "restart": True}),
        "settlements[0].touch.increment_ms",
    ),
    (
        settle(touch={"restart": True}),
        settle(touch={"increment_ms": -1, "restart": True}),
        "settlements[0].touch.increment_ms",
    ),
    (
        settle(touch={"progress": {"basis_points": 10_000}}),
        settle(touch={"progress": {"basis_points": 10_001}}),
        "settlements[0].touch.progress.basis_points",
    ),
    (
        delete(selector={"ids": [1] * limits.SELECTOR_IDS_MAX}),
        delete(selector={"ids": [1] * (limits.SELECTOR_IDS_MAX + 1)}),
        "selector.ids",
    ),
    (
        get(selector={"ids": [1] * limits.SELECTOR_IDS_MAX}),
        get(selector={"ids": [1] * (limits.SELECTOR_IDS_MAX + 1)}),
        "selector.ids",
    ),
    (get(), get(selector={"filter": "id > 0"}), "selector.filter"),
    (delete(selector={"ids": [1]}), delete(selector={"ids": [0]}), "selector.ids[0]"),
    (delete(), delete(selector={}), "selector"),
    (delete(), delete(selector={"ids": [1], "filter": "id > 0"}), "selector"),
    (
        delete(selector={"filter": "id > 0", "tasks_max": limits.SELECTOR_IDS_MAX}),
        delete(selector={"filter": "id > 0", "tasks_max": limits.SELECTOR_IDS_MAX + 1}),
        "selector.tasks_max",
    ),
    (
        delete(selector={"filter": "id > 0", "after_id": 1}),
        delete(selector={"ids": [1], "after_id": 1}),
        "selector.after_id",
    ),
    (update(priority=0), update(), "update"),
    (update(payload=b"x" * 100), update(payload=b"x" * 101), "update.payload"),
    (
        update(headers_set=headers(limits.HEADERS_BYTES_MAX)),
        update(headers_set=headers(limits.HEADERS_BYTES_MAX + 1)),
        "update.headers_set",
    ),
    (
        update(headers_set={str(number): b"" for number in range(limits.HEADERS_MAX)}),
        update(headers_set={str(number): b"" for number in range(limits.HEADERS_MAX + 1)}),
        "update.headers_set",
    ),
    (
        update(headers_remove=["a"] * limits.HEADERS_MAX),
        update(headers_remove=["a"] * (limits.HEADERS_MAX + 1)),
        "update.headers_remove",
    ),
    (
        update(headers_set={"a": b""}, headers_remove=["b"]),
        update(headers_set={"a": b""}, headers_remove=["a"]),
        "update.headers_remove",
    ),
    (kick(count=0), kick(count=-1), "count"),
    (kick(selector=IDS), kick(selector=IDS, count=1), "count"),
    (kick(update={"priority": 1}), kick(update={"delay_ms": 1}), "update.delay_ms"),
    (move(), move(move_to="t"), "move_to"),
    (move(), move(to_origin=True), "to_origin"),
    (move(move_to="", to_origin=True), move(move_to=""), "move_to"),
    (move(delay_ms=0), move(delay_ms=-1), "delay_ms"),
    (switch(Task.READY), switch(Task.READY, 1), "duration_ms"),
    (switch(Task.DELAYED, 1), switch(Task.DELAYED), "duration_ms"),
    (switch(Task.ZOMBIE, FOREVER_MS - 1), switch(Task.ZOMBIE), "duration_ms"),
    (switch(Task.DELAYED, FOREVER_MS), switch(Task.ZOMBIE, FOREVER_MS), "duration_ms"),
    (switch(Task.DONE), switch(Task.TAKEN), "state"),
    (session(ttr_ms=0), session(ttr_ms=limits.SESSION_TTR_MIN_MS - 1), "ttr_ms"),
    (session(ttr_ms=limits.SESSION_TTR_MIN_MS), session(ttr_ms=1), "ttr_ms"),
    (
        session(ttr_ms=limits.SESSION_TTR_MAX_MS),
        session(ttr_ms=limits.SESSION_TTR_MAX_MS + 1),
        "ttr_ms",
    ),
    (keep(limits.SESSIONS_PER_KEEP_MAX), keep(limits.SESSIONS_PER_KEEP_MAX + 1), "session_ids"),
    (
        statistics(["t"] * limits.NAMES_MAX),
        statistics(["t"] * (limits.NAMES_MAX + 1)),
        "tubes",
    ),
    (statistics(["t*"]), statistics(["t?"]), "tubes[0]"),
]


@pytest.mark.parametrize(
    ("accepted", "refused", "path"),
    CASES,
    ids=[f"{place} {path[:40]}" for place, (_, _, path) in enumerate(CASES)],
)
def test_a_limit_is_at_its_documented_value(accepted, refused, path):
    accepted()
    with pytest.raises(CallRefused) as caught:
        refused()
    assert [field for field, _ in caught.value.violations] == [path]
