"""Every field of every request out of its range is refused by name and changes nothing."""

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from taskraft.v1 import (
    cluster_service_pb2,
    feed_service_pb2,
    group_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from tests.service.api.field_rules import (
    MAPS,
    MESSAGES_MAX,
    OUT_OF_PLACE,
    forbidden,
    is_list_of_messages,
    is_map,
    list_of_too_many,
    paths_of,
    paths_to,
    spelled,
)
from tests.service.api.test_bad_input import SERVICES, bad_request, parts, refusal
from tests.service.conftest import config_in, create, put, reason_of, running

pytestmark = pytest.mark.real_time

SESSION = "00000000-0000-4000-8000-000000000000"
IDS = task_pb2.TaskSelector(ids=[1])
BASES = {
    "AddMember": cluster_service_pb2.AddMemberRequest(
        name="n9", address="127.0.0.1:1", peer_address="127.0.0.1:2"
    ),
    "UpdateTube": tube_service_pb2.UpdateTubeRequest(
        name="emails", update_mask={"paths": ["put_paused"]}
    ),
    "CreateTube": tube_service_pb2.CreateTubeRequest(
        tube={"name": "other", "kind": tube_service_pb2.Tube.UTUBETTL}
    ),
    "PutTasks": pb.PutTasksRequest(tube="emails", tasks=[{"unique_key": ["k"]}]),
    "TakeTasks": pb.TakeTasksRequest(sources=[{"tube": "emails"}]),
    "SettleTasks": pb.SettleTasksRequest(settlements=[{"tokens": [9], "ack": {}}]),
    "CreateGroup": group_service_pb2.CreateGroupRequest(group={"name": "g"}),
    "CreateSchedule": schedule_service_pb2.CreateScheduleRequest(
        schedule={"name": "s", "tube": "emails", "cron": "* * * * *"}
    ),
    "UpdateSchedule": schedule_service_pb2.UpdateScheduleRequest(
        schedule={"name": "s", "tube": "emails", "cron": "* * * * *"}
    ),
    "KeepSessions": session_service_pb2.KeepSessionsRequest(session_ids=[SESSION]),
    "CloseSession": session_service_pb2.CloseSessionRequest(session_id=SESSION),
    "CommitCursor": feed_service_pb2.CommitCursorRequest(consumer="c"),
    "ListTasks": pb.ListTasksRequest(tube="emails"),
    "SwitchTasks": pb.SwitchTasksRequest(tube="emails", selector=IDS, state=task_pb2.Task.READY),
    "KickTasks": pb.KickTasksRequest(tube="emails"),
    "MoveTasks": pb.MoveTasksRequest(tube="emails", selector=IDS, move_to="other"),
    "UpdateTasks": pb.UpdateTasksRequest(tube="emails", selector=IDS, update={"priority": 1}),
    "Subscribe": pb.SubscribeRequest(open={"sources": [{"tube": "emails"}]}),
    "ExecuteBatch": pb.ExecuteBatchRequest(),
}
"""Valid fields of each request besides the tested one; other requests name a tube and a task."""
METHODS = {method.name: method for service in SERVICES for method in service.methods}
NOT_CALLED = {"Subscribe", "ExecuteBatch"}
"""Methods tested elsewhere: a stream, and the batch of other requests."""
CASES = [
    (method, path)
    for method in METHODS.values()
    if method.name not in NOT_CALLED
    for path in paths_of(method.input_type)
]
OF_STREAMS = [
    path
    for path in paths_of(METHODS["Subscribe"].input_type)
    if path[0].name not in ("settlements", "request_id", "idempotency_key")
]
OPERATIONS = METHODS["ExecuteBatch"].input_type.fields_by_name["operations"]
BATCHED = [
    (operation, method)
    for operation in OPERATIONS.message_type.fields
    for method in METHODS.values()
    if method.input_type is operation.message_type
]
"""The operations of a batch, each with the method that does the same as the operation."""


def base_of(method):
    if method.name in BASES:
        return BASES[method.name]
    base = GetMessageClass(method.input_type)()
    for name in ("tube", "name"):
        if name in method.input_type.fields_by_name:
            setattr(base, name, "emails")
    if "selector" in method.input_type.fields_by_name:
        base.selector.CopyFrom(IDS)
    return base


def request_with(method, path, *values):
    """Return a valid request of a method with a value at a path."""
    request = GetMessageClass(method.input_type)()
    request.CopyFrom(base_of(method))
    at = request
    for field in path[:-1]:
        inner = getattr(at, field.name)
        if field.is_repeated:
            at = inner[0] if inner else inner.add()
        else:
            inner.SetInParent()
            at = inner
        if field.name == "selector":
            at.Clear()
    last = path[-1]
    if last.name in {"tasks_max", "after_id"} and last.containing_type.name == "TaskSelector":
        at.ids.append(1)
    if last.name == "unique_ms":
        at.unique_key[:] = ["k"]
    if isinstance(request, tube_service_pb2.UpdateTubeRequest) and path[0].name == "options":
        request.update_mask.paths[:] = [path[1].name]
    set_field(at, last, values)
    return request


def set_field(message, field, values):
    """Set a field of a message to a value, a list or a map."""
    if is_map(field):
        getattr(message, field.name).update(*values)
    elif is_list_of_messages(field):
        message.ClearField(field.name)
        for value in values:
            getattr(message, field.name).add(**value)
    elif field.is_repeated:
        getattr(message, field.name)[:] = values
    else:
        setattr(message, field.name, *values)


def own_name(field):
    """Return the name of a field in the rules."""
    return f"{field.containing_type.name}.{field.name}"


def reported_name(reported, path):
    """Return the name under which a refusal reports a path: that of the field or of a parent."""
    whole = spelled(path)
    return max((name for name in reported if whole.startswith(name)), key=len, default=None)


def test_each_field_of_the_contract_has_a_rule():
    without = set()
    for path in [path for _, path in CASES] + OF_STREAMS:
        try:
            forbidden(path[-1])
        except KeyError:
            without.add(path[-1].full_name)
    for rules, is_wanted in ((MAPS, is_map), (MESSAGES_MAX, is_list_of_messages)):
        for method in METHODS.values():
            for path in paths_to(method.input_type, is_wanted):
                if own_name(path[-1]) not in rules:
                    without.add(path[-1].full_name)
    assert without == set()


def test_no_field_of_the_contract_is_a_floating_point_number():
    fractions = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}
    fields = [path[-1] for _, path in CASES] + [path[-1] for path in OF_STREAMS]
    assert not [field.full_name for field in fields if field.type in fractions]


@pytest.fixture
async def furnished(tmp_path):
    async with running(config_in(tmp_path, payload_bytes_max=60_000)) as node:
        await create(node, "emails", tube_service_pb2.Tube.UTUBETTL)
        await put(node, b"1", tube="emails")
        before = parts(node)
        yield node
        assert parts(node) == before


async def violations_of(node, method, request):
    index, digest = node.queue.applied_index, node.queue.digest()
    error = await refusal(node, method.name, request.SerializeToString())
    # Refusals of the queue itself are in the log.
    assert node.queue.applied_index > index or node.queue.digest() == digest, request
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (request, error.details())
    return {one.field: one.description for one in bad_request(error).field_violations}


async def test_each_field_out_of_range_is_named_with_its_value(furnished):
    for method, path in CASES:
        field = path[-1]
        for value in forbidden(field):
            reported = await violations_of(furnished, method, request_with(method, path, value))
            name = reported_name(reported, path)
            assert name is not None, (method.name, spelled(path), value, reported)
            own = own_name(field)
            if name == spelled(path) and isinstance(value, int) and own not in OUT_OF_PLACE:
                assert str(value) in reported[name], (method.name, name, value, reported)


async def test_each_scalar_list_that_is_too_long_is_named_with_its_length(furnished):
    for method, path in CASES:
        items = list_of_too_many(path[-1])
        if items is not None:
            reported = await violations_of(furnished, method, request_with(method, path, *items))
            name = reported_name(reported, path)
            assert name is not None, (method.name, spelled(path), reported)
            assert "more than" in reported[name] or "not 1 to" in reported[name], (
                method.name,
                reported,
            )


async def test_each_message_list_that_is_too_long_is_named_with_its_length(furnished):
    for method in METHODS.values():
        for path in paths_to(method.input_type, is_list_of_messages):
            is_of_others = method.name in NOT_CALLED and path[-1] is not OPERATIONS
            if is_of_others or (path[-1].name == "depends_on" and method.name != "PutTasks"):
                continue
            most, item = MESSAGES_MAX[own_name(path[-1])]
            reported = await violations_of(
                furnished, method, request_with(method, path, *[item] * (most + 1))
            )
            name = reported_name(reported, path)
            assert name is not None, (method.name, spelled(path), reported)
            assert str(most + 1) in reported[name], (method.name, reported)


async def test_each_map_with_an_invalid_entry_is_named(furnished):
    for method in METHODS.values():
        for path in paths_to(method.input_type, is_map):
            if method.name in NOT_CALLED:
                continue
            for value in MAPS[own_name(path[-1])]:
                reported = await violations_of(furnished, method, request_with(method, path, value))
                whole = f"{spelled(path[:-1])}.{path[-1].name}".lstrip(".")
                assert any(name.startswith(whole) for name in reported), (
                    method.name,
                    whole,
                    reported,
                )


async def test_each_invalid_field_in_a_batch_is_named_with_its_operation(furnished):
    batch = METHODS["ExecuteBatch"]
    for operation, method in BATCHED:
        for path in paths_of(method.input_type):
            for value in forbidden(path[-1]):
                one = {operation.name: request_with(method, path, value)}
                reported = await violations_of(
                    furnished, batch, pb.ExecuteBatchRequest(operations=[one])
                )
                whole = (OPERATIONS, operation, *path)
                assert reported_name(reported, whole) is not None, (spelled(whole), value, reported)


async def test_each_invalid_field_of_a_stream_message_is_named(furnished):
    subscribe = METHODS["Subscribe"]
    for path in OF_STREAMS:
        for value in forbidden(path[-1]):
            reported = await violations_of(
                furnished, subscribe, request_with(subscribe, path, value)
            )
            assert reported_name(reported, path) is not None, (spelled(path), value, reported)


async def test_each_text_that_is_not_utf_8_is_refused(furnished):
    before = furnished.queue.digest()
    for method, path in CASES:
        if path[-1].type == FieldDescriptor.TYPE_STRING:
            raw = request_with(method, path, "\x01\x02").SerializeToString()
            assert b"\x01\x02" in raw
            error = await refusal(furnished, method.name, raw.replace(b"\x01\x02", b"\xff\xff"))
            assert reason_of(error) == "INVALID_FIELD", (method.name, spelled(path))
    assert furnished.queue.digest() == before
