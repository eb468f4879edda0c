"""A refused call reports all of its faults at once: field, value and limit."""

import pytest
from google.protobuf import field_mask_pb2
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import (
    feed_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.limits import MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX
from taskraft_service.queue.entities.instants import FOREVER_MS
from tests.service.api.test_bad_input import SERVICES, bad_request, parts, refusal
from tests.service.api.unsupported_options import IDS, UNSUITABLE_CASES
from tests.service.conftest import create, put, reason_of, take

pytestmark = pytest.mark.real_time

Options = tube_service_pb2.TubeOptions
Tube = tube_service_pb2.Tube
Settlement = pb.Settlement
LONG = "x" * 300


def creation(kind, **options):
    shown = Tube(name="t", kind=kind, options=Options(**options))
    return tube_service_pb2.CreateTubeRequest(tube=shown)


def puts(*specs, tube="plain", **fields):
    tasks = [task_pb2.TaskSpec(**spec) for spec in specs]
    return pb.PutTasksRequest(tube=tube, tasks=tasks, **fields)


def settle(**action):
    return pb.SettleTasksRequest(settlements=[Settlement(tokens=[1], **action)])


def listed(**consistency):
    return pb.ListTasksRequest(tube="plain", consistency=task_pb2.Consistency(**consistency))


CASES = {
    **UNSUITABLE_CASES,
    "an unknown choice hides nothing else": (
        "CreateTube",
        creation(
            Tube.LIMFIFOTTL,
            on_ack=9,
            ttl_ms=-3,
            dead_letter_tube="a b",
            retry=task_pb2.RetryPolicy(
                position=9, exhausted=8, attempts_max=-1, jitter_percent=101
            ),
        ),
        {
            "tube.options.on_ack": "9 is unknown",
            "tube.options.dead_letter_tube": "not 1 to 128 characters",
            "tube.options.retry.exhausted": "8 is unknown",
            "tube.options.retry.position": "9 is unknown",
            "tube.options.ttl_ms": "-3 is less than 0",
            "tube.options.capacity_tasks": "LIMFIFOTTL needs",
            "tube.options.retry.attempts_max": "-1 is not from 0 to 1000000",
            "tube.options.retry.jitter_percent": "101 is not from 0 to 100",
        },
    ),
    "options that the kind does not know": (
        "CreateTube",
        creation(Tube.FIFO, priority_order=2, ttl_ms=5, ttl_scope=3, subqueue_weights={"a": 2}),
        {
            "tube.options.priority_order": "HIGHER_FIRST is not supported in a tube of kind FIFO",
            "tube.options.ttl_ms": "5 is not supported in a tube of kind FIFO",
            "tube.options.ttl_scope": "ALL is not supported in a tube of kind FIFO",
            "tube.options.subqueue_weights": "'a': 2 is not supported in a tube of kind FIFO",
        },
    ),
    "options that contradict each other": (
        "CreateTube",
        creation(
            Tube.FIFOTTL,
            priority=7,
            priority_max=4,
            rate_burst=3,
            concurrency=-2,
            on_ack=3,
            dead_letter_tube="t",
        ),
        {
            "tube.options.concurrency": "-2 is not from 0 to",
            "tube.options.priority": "7 is not from -9223372036854775808 to 4",
            "tube.options.retain_ms": "RETAIN needs a period",
            "tube.options.rate_burst": "needs rate_per_second",
            "tube.options.dead_letter_tube": "the tube itself",
        },
    ),
    "tasks of an atomic put in a tube that does not know their wishes": (
        "PutTasks",
        puts({}, {"priority": 1, "subqueue": "s"}, {"delay_ms": 2, "ttr_ms": 3}, atomic=True),
        {
            "tasks[1].subqueue": "s is not supported in a tube of kind FIFO",
            "tasks[1].priority": "1 is not supported in a tube of kind FIFO",
            "tasks[2].delay_ms": "2 is not supported in a tube of kind FIFO",
            "tasks[2].ttr_ms": "3 is not supported in a tube of kind FIFO",
        },
    ),
    "tasks of a batch": (
        "ExecuteBatch",
        pb.ExecuteBatchRequest(
            operations=[
                {"put": puts({}, {"priority": 1, "ttl_ms": 2}, {"ttr_ms": 3})},
                {"delete": pb.DeleteTasksRequest(tube="plain", selector={"ids": [2]})},
                {"bury": pb.BuryTasksRequest(tube="plain", selector={"ids": [2]})},
                {"put": puts({"delay_ms": 4})},
            ]
        ),
        {
            "operations[0].put.tasks[1].priority": "1 is not supported",
            "operations[0].put.tasks[1].ttl_ms": "2 is not supported",
            "operations[0].put.tasks[2].ttr_ms": "3 is not supported",
            "operations[2]": "task 2 of 'plain' is named twice",
            "operations[3].put.tasks[0].delay_ms": "4 is not supported",
        },
    ),
    "what is too large in a batch, and what is wrong in its other operations": (
        "ExecuteBatch",
        pb.ExecuteBatchRequest(
            operations=[
                {"put": puts({"payload": b"x" * (PAYLOAD_BYTES_MAX + 1)})},
                {"kick": pb.KickTasksRequest(tube="plain", selector=IDS, delay_ms=-1)},
            ]
        ),
        {
            "operations[0].put.tasks[0].payload": f"more than {PAYLOAD_BYTES_MAX}",
            "operations[1].kick.delay_ms": "-1 is less than 0",
        },
    ),
    "what is too large is reported beside what is wrong": (
        "PutTasks",
        puts({"type": LONG, "headers": {"h": b"x" * 9000}}, {"headers": {"h": b"x" * 9000}}),
        {
            "tasks[0].type": "300 bytes, more than 128",
            "tasks[0].headers": "9001 bytes, more than 8192",
            "tasks[1].headers": "9001 bytes, more than 8192",
        },
    ),
    "some of many tasks, which are checked in parts": (
        "PutTasks",
        puts(
            *(
                {"type": LONG} if place in {0, 199, 200, 999} else {"type": "short"}
                for place in range(1000)
            )
        ),
        {f"tasks[{place}].type": "300 bytes, more than 128" for place in (0, 199, 200, 999)},
    ),
    "two ways to prolong a lease": (
        "SettleTasks",
        settle(touch=Settlement.Touch(increment_ms=1, restart=True)),
        {"settlements[0].touch.increment_ms": "not allowed together with restart"},
    ),
    "filters beside a chosen task": (
        "TakeTasks",
        pb.TakeTasksRequest(
            sources=[pb.TakeSource(tube="plain")], task_id=1, types=["a"], priority_bound=1
        ),
        {"types": "task_id", "priority_bound": "task_id"},
    ),
    "a move to everywhere and nowhere": (
        "MoveTasks",
        pb.MoveTasksRequest(
            tube="plain",
            selector=task_pb2.TaskSelector(ids=[0]),
            move_to="plain",
            to_origin=True,
            delay_ms=-1,
            position=9,
            update=task_pb2.TaskUpdate(delay_ms=1),
        ),
        {
            "move_to": "is the tube that already holds the tasks",
            "to_origin": "not allowed together with move_to",
            "delay_ms": "-1 is less than 0",
            "position": "9 is unknown",
            "update.delay_ms": "the transition sets the delay",
            "selector.ids[0]": "0 is less than 1",
        },
    ),
    "a move that names no tube": (
        "MoveTasks",
        pb.MoveTasksRequest(tube="plain", selector=task_pb2.TaskSelector(ids=[1])),
        {"move_to": "either move_to or to_origin is required"},
    ),
    "all operations of a batch": (
        "ExecuteBatch",
        pb.ExecuteBatchRequest(
            operations=[
                {"move": pb.MoveTasksRequest(tube="plain", selector={"filter": "id >"})},
                {"delete": pb.DeleteTasksRequest(tube="a b", selector={"ids": [0]})},
                {},
            ]
        ),
        {
            "operations[0].move.move_to": "either move_to or to_origin is required",
            "operations[0].move.selector.filter": "character 4",
            "operations[0].move.selector": "must select tasks by ids or keys",
            "operations[1].delete.tube": "' ' at character 1",
            "operations[1].delete.selector.ids[0]": "0 is less than 1",
            "operations[2]": "missing",
        },
    ),
    "a move of a batch to where the tasks are never delayed": (
        "ExecuteBatch",
        pb.ExecuteBatchRequest(
            operations=[
                {
                    "move": pb.MoveTasksRequest(
                        tube="emails",
                        selector=task_pb2.TaskSelector(ids=[1]),
                        move_to="plain",
                        delay_ms=7,
                    )
                }
            ]
        ),
        {"operations[0].move.delay_ms": "7 is not supported in a tube of kind FIFO"},
    ),
    "a position in partitions that there are not": (
        "WatchFeed",
        feed_service_pb2.WatchFeedRequest(
            cursor=feed_service_pb2.FeedCursor(next_seq={-1: 0, 0: -5, 99: 0}), wait_ms=-1
        ),
        {
            "wait_ms": "-1 is less than 0",
            "cursor.next_seq[-1]": "-1 is not from 0 to",
            "cursor.next_seq[0]": "-5 is less than 0",
            "cursor.next_seq[99]": "99 is not from 0 to",
        },
    ),
    "a position of a consumer in partitions that there are not": (
        "CommitCursor",
        feed_service_pb2.CommitCursorRequest(
            cursor=feed_service_pb2.FeedCursor(next_seq={0: -5, 99: 0})
        ),
        {
            "consumer": "missing",
            "cursor.next_seq[0]": "-5 is less than 0",
            "cursor.next_seq[99]": "99 is not from 0 to",
        },
    ),
    "a period without end": (
        "SwitchTasks",
        pb.SwitchTasksRequest(
            tube="plain",
            selector=task_pb2.TaskSelector(ids=[1]),
            state=task_pb2.Task.ZOMBIE,
            duration_ms=FOREVER_MS,
        ),
        {"duration_ms": f"{FOREVER_MS} is infinite"},
    ),
    "a read of no known freshness": (
        "ListTasks",
        listed(level=9, staleness_ms_max=-1),
        {"consistency.level": "9 is unknown", "consistency.staleness_ms_max": "-1 is less than 0"},
    ),
    "a bound on the staleness of a read that is not stale": (
        "ListTasks",
        listed(staleness_ms_max=5),
        {"consistency.staleness_ms_max": "allowed only with the level LOCAL"},
    ),
    "a list of sessions of no known freshness": (
        "ListSessions",
        session_service_pb2.ListSessionsRequest(consistency=task_pb2.Consistency(level=9)),
        {"consistency.level": "9 is unknown"},
    ),
    "a list of leases": (
        "ListLeases",
        session_service_pb2.ListLeasesRequest(
            session_id="x", page_size=-1, consistency=task_pb2.Consistency(level=9)
        ),
        {
            "session_id": "neither a UUID nor the first 8",
            "page_size": "-1 is not from 0 to 1000",
            "consistency.level": "9 is unknown",
        },
    ),
    "a page of a list, by names": (
        "GetStatistics",
        tube_service_pb2.GetStatisticsRequest(
            tubes=["a b"],
            page_size=-1,
            page_token="?",
            consistency=task_pb2.Consistency(level=9),
        ),
        {
            "tubes[0]": "not 1 to 128 characters",
            "page_size": "-1 is not from 0 to 1000",
            "page_token": "not a token from an earlier answer",
            "consistency.level": "9 is unknown",
        },
    ),
    "options of a tube, what the kind forbids beside what nobody knows": (
        "UpdateTube",
        tube_service_pb2.UpdateTubeRequest(
            name="plain",
            options=Options(ttr_ms=5, capacity_tasks=-1, on_ack=9, dead_letter_tube="a b"),
            update_mask=field_mask_pb2.FieldMask(
                paths=["ttr_ms", "capacity_tasks", "on_ack", "dead_letter_tube", "colour"]
            ),
        ),
        {
            "update_mask.paths[4]": "there is no option 'colour'",
            "options.on_ack": "9 is unknown",
            "options.dead_letter_tube": "not 1 to 128 characters",
            "options.ttr_ms": "5 is not supported in a tube of kind FIFO",
            "options.capacity_tasks": "-1 is less than 0",
        },
    ),
    "a schedule": (
        "CreateSchedule",
        schedule_service_pb2.CreateScheduleRequest(
            schedule=schedule_service_pb2.Schedule(
                cron="0 61 * * *",
                time_zone="Nowhere",
                jitter_ms=-1,
                overlap=9,
                spec=task_pb2.TaskSpec(ttl_ms=-1),
            )
        ),
        {
            "schedule.name": "missing",
            "schedule.tube": "not 1 to 128 characters",
            "schedule.jitter_ms": "-1 is not from 0 to 86400000",
            "schedule.overlap": "9 is unknown",
            "schedule.cron": "hour '61' is not a pattern of 0 to 23",
            "schedule.time_zone": "'Nowhere' is not a known time zone",
            "schedule.spec.ttl_ms": "-1 is less than 0",
        },
    ),
}


async def test_all_faults_of_a_request_are_reported_at_once_and_nothing_changes(node):
    await create(node, "plain", Tube.FIFO)
    await create(node)
    await put(node, b"1")
    await put(node, b"1", b"2", b"3", tube="plain")
    await take(node, "plain", tasks_max=2)
    for name, (method, request, expected) in CASES.items():
        before = parts(node)
        error = await refusal(node, method, request.SerializeToString())
        assert reason_of(error) == "INVALID_FIELD", name
        reported = {one.field: one.description for one in bad_request(error).field_violations}
        assert reported.keys() == expected.keys(), name
        for field, words in expected.items():
            assert words in reported[field], (name, field, reported[field])
        assert parts(node) == before, name


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("consistency", {"consistency": task_pb2.Consistency(level=9)}),
        ("request_id", {"request_id": "x" * 65}),
    ],
)
async def test_a_common_field_is_checked_together_with_all_others(node, field, wrong):
    having = [
        method
        for service in SERVICES
        for method in service.methods
        if field in method.input_type.fields_by_name and not method.client_streaming
    ]
    assert len(having) >= 8
    for method in having:
        request = GetMessageClass(method.input_type)(**wrong)
        error = await refusal(node, method.name, request.SerializeToString())
        reported = {one.field.partition(".")[0] for one in bad_request(error).field_violations}
        assert field in reported, method.name


async def test_a_refused_item_reports_all_of_its_faults(node):
    await create(node, "plain", Tube.FIFO)
    answer = await node.tasks.PutTasks(puts({}, {"priority": 5, "ttl_ms": 7}))
    (error,) = answer.errors
    assert error.item == 1
    assert error.error.message == (
        "priority: 5 is not supported in a tube of kind FIFO;"
        " ttl_ms: 7 is not supported in a tube of kind FIFO"
    )
    assert dict(error.error.metadata) == {"field": "priority", "value": "5", "kind": "FIFO"}


async def test_a_message_above_the_limit_gets_a_typed_error(node):
    await create(node)
    whole = b"x" * (MESSAGE_BYTES_MAX // 32)
    request = puts(*[{"payload": whole}] * 33, tube="emails").SerializeToString()
    error = await refusal(node, "PutTasks", request)
    assert reason_of(error) == "PAYLOAD_TOO_LARGE"
    assert f"more than {MESSAGE_BYTES_MAX}" in error.details()
    assert (await take(node)).tasks == []


async def test_an_oversized_payload_in_a_batch_is_named_with_its_operation(node):
    await create(node)
    large = {"payload": b"x" * (PAYLOAD_BYTES_MAX + 1)}
    operations = [{"put": puts({}, tube="emails")}, {"put": puts(large, tube="emails")}]
    request = pb.ExecuteBatchRequest(operations=operations)
    error = await refusal(node, "ExecuteBatch", request.SerializeToString())
    assert reason_of(error) == "PAYLOAD_TOO_LARGE"
    assert error_info(error).metadata["field"] == "operations[1].put.tasks[0].payload"
    assert (await take(node)).tasks == []


async def test_thousands_of_violations_reach_the_caller(node):
    await create(node, "plain", Tube.FIFO)
    request = puts(*[{"priority": 5, "ttl_ms": 7}] * 1_000, atomic=True)
    error = await refusal(node, "PutTasks", request.SerializeToString())
    assert reason_of(error) == "INVALID_FIELD"
    assert error_info(error).metadata["violations"] == "2000"


def error_info(error):
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    assert any(one.Unpack(info) for one in status_pb2.Status.FromString(details).details)
    return info


async def test_a_parse_error_is_reported_with_its_position(node):
    await create(node)
    schedule = {"name": "s", "tube": "emails", "cron": "0  61 * * *"}
    for method, request, position, words in (
        ("ListTasks", pb.ListTasksRequest(tube="emails", filter="id >  x"), "6", "character 6"),
        (
            "CreateSchedule",
            schedule_service_pb2.CreateScheduleRequest(schedule=schedule),
            "3",
            "0 to 23, at character 3",
        ),
        ("TakeTasks", pb.TakeTasksRequest(sources=[{"tube": "em ails*"}]), "2", "' ' at"),
        ("PutTasks", puts({}, tube="emails*"), "6", "'*' at character 6"),
        ("PutTasks", puts({}, tube=""), "0", "the end at character 0"),
        ("PutTasks", puts({}, tube="x" * 129), "128", "'x' at character 128"),
    ):
        error = await refusal(node, method, request.SerializeToString())
        assert words in error.details(), error.details()
        assert error_info(error).metadata["position"] == position
