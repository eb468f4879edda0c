"""The scope of a request_id is the principal and the client_id, in each method that has one."""

import itertools

import grpc
import pytest

from taskraft.v1 import (
    bulk_sweep_pb2,
    cluster_service_pb2,
    feed_service_pb2,
    group_service_pb2,
    group_service_pb2_grpc,
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.state import command_executor
from taskraft_service.entries import encoded_command
from taskraft_service.queue.entities.id_layout import TEMPORARY_TASKS
from tests.service.api.test_bad_input import SERVICES
from tests.service.conftest import create, put, reason_of, take
from tests.turns import count_turns

pytestmark = pytest.mark.real_time

Options, Tube = tube_service_pb2.TubeOptions, tube_service_pb2.Tube
DURABILITIES = (Options.REPLICATED, Options.TEMPORARY)
UNKNOWN = task_pb2.TaskSelector(ids=[99])
HAVE_A_KEY = {
    method.name: method.input_type
    for service in SERVICES
    for method in service.methods
    if "request_id" in method.input_type.fields_by_name and method.name != "Subscribe"
}
"""Requests with a request_id, by the name of their method."""
BY_FORWARDING_ONLY = {"KeepSessions", "TransferLeadership", "UpgradeCluster"}
"""Methods whose repetition has no second effect anyway; the request_id allows forwarding."""
OF_MEMBERS = {"AddMember", "PromoteMember", "RemoveMember"}
"""Methods whose keys are in the roster; see tests/service/cluster/test_membership.py."""
ON_TASKS = {
    "PutTasks": pb.PutTasksRequest(tube="emails", tasks=[{"payload": b"x"}]),
    "TakeTasks": pb.TakeTasksRequest(sources=[{"tube": "emails"}], tasks_max=1, wait_ms=0),
    "SettleTasks": pb.SettleTasksRequest(settlements=[{"tokens": [99], "ack": {}}]),
    "KickTasks": pb.KickTasksRequest(tube="emails"),
    "BuryTasks": pb.BuryTasksRequest(tube="emails", selector=UNKNOWN),
    "DeleteTasks": pb.DeleteTasksRequest(tube="emails", selector=UNKNOWN),
    "UpdateTasks": pb.UpdateTasksRequest(
        tube="emails", selector=UNKNOWN, update={"payload": b"new"}
    ),
    "SnatchTasks": pb.SnatchTasksRequest(tube="emails", selector=UNKNOWN),
    "RestartTasks": pb.RestartTasksRequest(tube="emails", selector=UNKNOWN),
    "SwitchTasks": pb.SwitchTasksRequest(
        tube="emails", selector=UNKNOWN, state=task_pb2.Task.BURIED
    ),
    "MoveTasks": pb.MoveTasksRequest(tube="emails", selector=UNKNOWN, move_to="other"),
    "CancelTasks": pb.CancelTasksRequest(tube="emails", selector=UNKNOWN),
    "ExecuteBatch": pb.ExecuteBatchRequest(
        operations=[{"put": {"tube": "emails", "tasks": [{"payload": b"x"}]}}]
    ),
    "TruncateTube": tube_service_pb2.TruncateTubeRequest(name="emails"),
    "ReleaseAll": tube_service_pb2.ReleaseAllRequest(name="emails"),
}
CALLS = ON_TASKS | {
    "StartBulkSweep": bulk_sweep_pb2.StartBulkSweepRequest(tube="emails", action="KICK"),
    "StopBulkSweep": bulk_sweep_pb2.StopBulkSweepRequest(number=1),
    "CreateTube": tube_service_pb2.CreateTubeRequest(
        tube={"name": "new", "kind": Tube.FIFO}, if_not_exists=True
    ),
    "UpdateTube": tube_service_pb2.UpdateTubeRequest(
        name="emails", update_mask={"paths": ["put_paused"]}
    ),
    "DropTube": tube_service_pb2.DropTubeRequest(name="dropped"),
    "OpenSession": session_service_pb2.OpenSessionRequest(),
    "CloseSession": session_service_pb2.CloseSessionRequest(),
    "CreateGroup": group_service_pb2.CreateGroupRequest(group={"name": "g"}),
    "StartGroup": group_service_pb2.StartGroupRequest(name="g"),
    "SetEndTask": group_service_pb2.SetEndTaskRequest(name="cancelled"),
    "CancelGroup": group_service_pb2.CancelGroupRequest(name="cancelled"),
    "CreateSchedule": schedule_service_pb2.CreateScheduleRequest(
        schedule={"name": "s", "tube": "emails", "cron": "0 0 1 1 *"}
    ),
    "UpdateSchedule": schedule_service_pb2.UpdateScheduleRequest(
        schedule={"name": "s", "tube": "emails", "cron": "0 0 2 1 *"}
    ),
    "DeleteSchedule": schedule_service_pb2.DeleteScheduleRequest(name="s"),
    "CommitCursor": feed_service_pb2.CommitCursorRequest(consumer="c"),
    "Configure": cluster_service_pb2.ConfigureRequest(settings={"session_ttr_ms": 60_000}),
}
"""One valid request of each method, executed in this order."""


class Caller:
    """Calls methods by their names."""

    def __init__(self, node):
        stubs = (
            *(node.tasks, node.tubes, node.sessions, node.feed, node.cluster),
            group_service_pb2_grpc.GroupServiceStub(node.channel),
            schedule_service_pb2_grpc.ScheduleServiceStub(node.channel),
        )
        self._methods = {
            name: getattr(stub, name)
            for name in HAVE_A_KEY
            for stub in stubs
            if hasattr(stub, name)
        }

    async def __call__(self, name, request, **key):
        keyed = type(request)()
        keyed.CopyFrom(request)
        keyed.MergeFrom(type(request)(**key))
        return await self._methods[name](keyed)

    async def outcome(self, name, request, **key):
        """Return the revision of the answer, or the reason why a request is refused."""
        try:
            return (await self(name, request, **key)).revision
        except grpc.aio.AioRpcError as error:
            return reason_of(error)

    async def refusal(self, name, request, **key):
        """Return the reason why a request is refused; empty if it is executed."""
        outcome = await self.outcome(name, request, **key)
        return outcome if isinstance(outcome, str) else ""


@pytest.fixture
async def call(node):
    return Caller(node)


async def create_tubes(node, durability):
    for name in ("emails", "other"):
        tube = Tube(name=name, kind=Tube.FIFOTTL, options=Options(durability=durability))
        await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))


def test_each_method_with_a_request_id_has_a_client_id_and_an_example():
    assert len(HAVE_A_KEY) == 37
    assert not [name for name, one in HAVE_A_KEY.items() if "client_id" not in one.fields_by_name]
    assert set(HAVE_A_KEY) - set(CALLS) == BY_FORWARDING_ONLY | OF_MEMBERS


async def test_each_method_looks_up_a_request_id_in_the_scope_of_its_client_id(node, call):
    await create(node)
    await create(node, "other")
    await create(node, "dropped")
    session = (await node.sessions.OpenSession(CALLS["OpenSession"])).session.session_id
    await call("CreateGroup", group_service_pb2.CreateGroupRequest(group={"name": "cancelled"}))
    calls = CALLS | {"CloseSession": session_service_pb2.CloseSessionRequest(session_id=session)}
    await put(node, b"first")
    revisions = {}
    for name, request in calls.items():
        revisions[name] = await call.outcome(name, request, client_id=name, request_id="100")
        assert isinstance(revisions[name], int), (name, revisions[name])
    keyed = node.queue.total_statistics().total
    for name, request in calls.items():
        # A retry: no second effect, but the first answer with its revision.
        assert await call.outcome(name, request, client_id=name, request_id="100") in (
            revisions[name],
            *("SCHEDULE_NOT_FOUND", "TUBE_NOT_FOUND", "SESSION_NOT_FOUND"),
        ), name
    assert node.queue.total_statistics().total == keyed
    for one, other in itertools.pairwise(calls):
        reused = await call.refusal(other, calls[other], client_id=one, request_id="100")
        assert reused in ("REQUEST_ID_REUSED", "SCHEDULE_NOT_FOUND", "TUBE_NOT_FOUND"), (one, other)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_each_method_on_tasks_has_scopes_in_both_sorts_of_tubes(node, call, durability):
    await create_tubes(node, durability)
    calls = dict(ON_TASKS)
    if durability == Options.TEMPORARY:  # the token tells where the lease is
        settlement = pb.Settlement(tokens=[TEMPORARY_TASKS + 99], ack=pb.Settlement.Ack())
        calls["SettleTasks"] = pb.SettleTasksRequest(settlements=[settlement])
    for name, request in calls.items():
        assert await call.refusal(name, request, client_id=name, request_id="1") == "", name
    for one, other in itertools.pairwise(calls):
        reused = await call.refusal(other, calls[other], client_id=one, request_id="1")
        assert reused == "REQUEST_ID_REUSED", (one, other)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_put_has_one_effect_in_each_scope(node, call, durability):
    await create_tubes(node, durability)
    for client_id in ("", "a", "b", "a", "", "b"):
        for name in ("PutTasks", "ExecuteBatch"):
            await call(name, ON_TASKS[name], client_id=client_id, request_id=f"{name}-1")
    assert len((await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails"))).tasks) == 6


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_takes_of_two_clients_that_count_get_different_tasks(node, durability):
    await create_tubes(node, durability)
    await put(node, b"1", b"2")
    first = await take(node, tasks_max=1, client_id="a", request_id="1")
    other = await take(node, tasks_max=1, client_id="b", request_id="1")
    assert [task.spec.payload for one in (first, other) for task in one.tasks] == [b"1", b"2"]
    again = await take(node, tasks_max=1, client_id="a", request_id="1")
    assert [task.token for task in again.tasks] == [task.token for task in first.tasks]


async def test_other_work_runs_while_a_long_request_is_hashed(node, call, monkeypatch):
    await create(node)
    hashed = []

    async def hash_in_parts(request, raw):
        turns = count_turns()
        found = await encoded_command.request_hash_in_parts(request, raw)
        hashed.append((turns.count >= 3, found == encoded_command.request_hash(request, raw)))
        turns.is_over = True
        return found

    monkeypatch.setattr(command_executor, "request_hash_in_parts", hash_in_parts)
    half = bytes(encoded_command.HASHED_PART_BYTES // 2)
    parts = {"put": {"tube": "emails", "tasks": [{"payload": half}] * 4}}
    long = {
        "PutTasks": pb.PutTasksRequest(**parts["put"]),
        "ExecuteBatch": pb.ExecuteBatchRequest(operations=[parts]),
    }
    for name, request in long.items():
        for _ in range(2):
            assert await call.refusal(name, request, request_id=name) == ""
        assert await call.refusal(name, ON_TASKS[name], request_id=name) == "REQUEST_ID_REUSED"
    assert hashed == [(True, True)] * 4
    assert node.queue.total_statistics().total == 8


async def test_a_take_from_both_sorts_of_tubes_keeps_its_scope(node):
    await create(node, "logged")
    tube = Tube(name="fast", kind=Tube.FIFOTTL, options=Options(durability=Options.TEMPORARY))
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    await put(node, b"1", b"2", tube="fast")
    request = pb.TakeTasksRequest(
        sources=[{"tube": "logged"}, {"tube": "fast"}], wait_ms=0, request_id="1"
    )
    tokens = []
    for client_id in ("a", "b", "a", "b"):
        request.client_id = client_id
        tokens += [task.token for task in (await node.tasks.TakeTasks(request)).tasks]
    assert len(tokens) == 4
    assert tokens[:2] == tokens[2:]
    assert len(set(tokens)) == 2


async def test_a_reused_request_id_is_reported_as_the_caller_sent_it(node):
    await create(node)
    request = pb.PutTasksRequest(tube="emails", request_id="order-4711", client_id="shop")
    for payload in (b"1", b"2"):
        del request.tasks[:]
        request.tasks.add(payload=payload)
        if payload == b"1":
            await node.tasks.PutTasks(request)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.PutTasks(request)
    assert reason_of(caught.value) == "REQUEST_ID_REUSED"
    assert "client_id" in caught.value.details()


@pytest.mark.parametrize("ends", ["tube", "session"])
async def test_a_repeated_take_is_answered_after_its_tube_or_its_session_has_ended(node, ends):
    await create(node)
    await put(node, b"1")
    opened = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest(ttr_ms=60_000))
    session_id = opened.session.session_id
    fields = {"request_id": "take-1", "session_id": session_id}
    assert len((await take(node, **fields)).tasks) == 1
    if ends == "tube":
        await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails", force=True))
    else:
        ending = session_service_pb2.CloseSessionRequest(session_id=session_id)
        await node.sessions.CloseSession(ending)
    assert not (await take(node, **fields)).tasks, "the lease has ended, but the call is known"
    for refused in (fields | {"request_id": "take-2"}, fields | {"request_id": ""}):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await take(node, **refused)
        assert reason_of(caught.value) == f"{ends.upper()}_NOT_FOUND"


def has_map(descriptor, outer=()):
    """Return whether a message may contain a map, at any depth."""
    inner = [field.message_type for field in descriptor.fields if field.message_type is not None]
    return any(
        one.GetOptions().map_entry or (one not in outer and has_map(one, (*outer, descriptor)))
        for one in inner
    )


def test_each_request_with_a_map_is_hashed_with_sorted_keys():
    judged_by_content = {"PutTasks", "SettleTasks"}
    found = {name for name, request in HAVE_A_KEY.items() if has_map(request)}
    mapped = {one.DESCRIPTOR.name.removesuffix("Request") for one in encoded_command._MAPPED}
    assert found - judged_by_content == mapped


HEADERS = [{"spec": {"headers": {name: b"1"}}} for name in "ab"]


@pytest.mark.parametrize(
    "parts",
    [
        [session_service_pb2.OpenSessionRequest(labels={name: "1"}) for name in "ab"],
        [group_service_pb2.SetEndTaskRequest(end_task=task) for task in HEADERS],
        [
            tube_service_pb2.UpdateTubeRequest(options={"subqueue_weights": {name: 1}})
            for name in "ab"
        ],
    ],
    ids=lambda parts: parts[0].DESCRIPTOR.name,
)
def test_the_order_of_a_map_makes_no_other_request(parts):
    first, second = (part.SerializeToString() for part in parts)
    hashes = {
        encoded_command.request_hash(type(parts[0]).FromString(raw), raw)
        for raw in (first + second, second + first)
    }
    assert len(hashes) == 1
