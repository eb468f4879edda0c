"""Sessions and leases belong to one principal; for other principals they do not exist.

Tasks with unique keys, groups and schedules belong to one principal too. Others do not change
them.
"""

import asyncio

import pytest
import structlog

from taskraft.v1 import (
    error_pb2,
    group_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from tests.service.access.secured import MAIL, refusal, refused, session_of
from tests.service.conftest import ack, put, take

pytestmark = pytest.mark.real_time


async def test_a_session_does_not_exist_for_other_principals(node):
    mailer, rival, root = [await node.known(one) for one in ("mailer", "rival", "root")]
    own = await session_of(mailer)
    assert own.owner == "mailer"
    for caller in (rival, root):
        for call in (
            take(caller, tube=MAIL, session_id=own.session_id),
            caller.sessions.CloseSession(
                session_service_pb2.CloseSessionRequest(session_id=own.session_id)
            ),
        ):
            assert await refused(call) == "SESSION_NOT_FOUND"
    keep = session_service_pb2.KeepSessionsRequest(session_ids=[own.session_id])
    kept = await rival.sessions.KeepSessions(keep)
    assert (len(kept.sessions), [error.item for error in kept.errors]) == (0, [0])
    assert len((await mailer.sessions.KeepSessions(keep)).sessions) == 1
    closing = session_service_pb2.CloseSessionRequest(session_id=own.session_id, request_id="close")
    for _ in range(2):
        assert (await mailer.sessions.CloseSession(closing)).released == 0


async def test_principals_list_their_own_sessions_and_operators_all(node):
    mailer, rival, root = [await node.known(one) for one in ("mailer", "rival", "root")]
    await session_of(mailer)
    await session_of(rival)

    async def owners(caller):
        request = session_service_pb2.ListSessionsRequest()
        listed = await caller.sessions.ListSessions(request)
        return sorted(one.owner for one in listed.sessions)

    assert await owners(mailer) == ["mailer"]
    assert await owners(rival) == ["rival"]
    assert await owners(root) == ["mailer", "rival"]


async def test_principals_list_the_leases_of_their_own_sessions_and_operators_all(node):
    mailer, rival, root = [await node.known(one) for one in ("mailer", "rival", "root")]
    await put(root, b"a", tube=MAIL)
    session_id = (await session_of(mailer)).session_id
    await take(mailer, tube=MAIL, session_id=session_id)
    request = session_service_pb2.ListLeasesRequest(session_id=session_id[:8])
    for caller in (mailer, root):
        assert len((await caller.sessions.ListLeases(request)).tasks) == 1
    assert await refused(rival.sessions.ListLeases(request)) == "SESSION_NOT_FOUND"


async def test_principals_list_the_consumers_of_their_own_sessions_and_operators_all(node):
    mailer, rival, root = [await node.known(one) for one in ("mailer", "rival", "root")]
    session_id = (await session_of(mailer)).session_id
    request = tube_service_pb2.ListConsumersRequest(session_id=session_id[:8])
    for caller in (mailer, root):
        assert not (await caller.tubes.ListConsumers(request)).consumers
    assert await refused(rival.tubes.ListConsumers(request)) == "SESSION_NOT_FOUND"


async def leases_of(node, first, second):
    """Return a task taken by ``first`` in a session, and a task taken by ``second``."""
    await put(await node.known("root"), b"a", b"b", tube=MAIL)
    session = await session_of(first)
    theirs = await take(first, tube=MAIL, tasks_max=1, session_id=session.session_id)
    return theirs.tasks, (await take(second, tube=MAIL, tasks_max=1)).tasks


async def test_a_lease_of_another_principals_session_is_stale(node):
    mailer, rival = await node.known("mailer"), await node.known("rival")
    theirs, mine = await leases_of(node, mailer, rival)
    answer = await ack(rival, [*theirs, *mine])
    assert [(one.item, one.error.reason) for one in answer.errors] == [(0, 20)]
    assert answer.errors[0].error.metadata["token"] == str(theirs[0].token)
    disguised = [task_pb2.Task(token=-task.token) for task in theirs]
    assert await refused(ack(rival, disguised)) == "INVALID_FIELD"
    assert not (await ack(mailer, theirs)).errors


@pytest.mark.parametrize("is_batch", [False, True])
async def test_an_atomic_settlement_with_a_foreign_lease_settles_nothing(node, is_batch):
    mailer, rival = await node.known("mailer"), await node.known("rival")
    theirs, mine = await leases_of(node, mailer, rival)
    tokens = [task.token for task in (*mine, *theirs)]
    settle = pb.SettleTasksRequest(
        settlements=[pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())], atomic=True
    )
    call = (
        rival.tasks.ExecuteBatch(
            pb.ExecuteBatchRequest(operations=[pb.BatchOperation(settle=settle)])
        )
        if is_batch
        else rival.tasks.SettleTasks(settle)
    )
    reason, told = await refusal(call)
    assert (reason, told["token"]) == ("LEASE_STALE", str(theirs[0].token))
    assert not (await ack(rival, mine)).errors
    assert not (await ack(mailer, theirs)).errors


async def test_a_lease_in_a_tube_without_permission_cannot_be_settled(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"x", tube="secret")
    taken = await take(root, tube="secret")
    assert [one.error.reason for one in (await ack(mailer, taken.tasks)).errors] == [20]
    assert not (await ack(root, taken.tasks)).errors


async def test_a_guessed_token_of_a_concurrent_take_is_refused(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"a", b"b", tube="secret")
    token = (await take(root, tube="secret", tasks_max=1)).tasks[0].token
    guess = pb.SettleTasksRequest(
        settlements=[pb.Settlement(tokens=[token + 1], ack=pb.Settlement.Ack())]
    )
    # Both commands share one entry: the take is applied first.
    taking = asyncio.ensure_future(take(root, tube="secret", tasks_max=1))
    settling = asyncio.ensure_future(mailer.tasks.SettleTasks(guess))
    (task,) = (await taking).tasks
    assert task.token == token + 1
    assert [one.error.reason for one in (await settling).errors] == [20]
    assert not (await ack(root, [task])).errors


async def test_a_repeated_settlement_gets_its_first_answer(node):
    mailer, rival = await node.known("mailer"), await node.known("rival")
    theirs, mine = await leases_of(node, rival, mailer)
    tokens = [task.token for task in (*theirs, *mine)]
    request = pb.SettleTasksRequest(
        request_id="once",
        settlements=[pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())],
    )
    first = await mailer.tasks.SettleTasks(request)
    assert [one.item for one in first.errors] == [0]
    assert (await mailer.tasks.SettleTasks(request)).errors == first.errors


async def test_a_kept_answer_is_returned_only_to_its_principal(node):
    root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
    await put(root, b"x", b"y", tube=MAIL)
    first = await take(mailer, tube=MAIL, tasks_max=1, request_id="once")
    other = await take(rival, tube=MAIL, tasks_max=1, request_id="once")
    assert [task.spec.payload for answer in (first, other) for task in answer.tasks] == [b"x", b"y"]
    for caller, answer in ((mailer, first), (rival, other)):
        again = await take(caller, tube=MAIL, tasks_max=1, request_id="once")
        assert again.tasks == answer.tasks


async def keyed_put(caller, payload, **key):
    request = pb.PutTasksRequest(tube=MAIL, tasks=[task_pb2.TaskSpec(payload=payload)], **key)
    return await caller.tasks.PutTasks(request)


async def test_two_principals_have_two_effects_with_one_request_id(node):
    for name in ("root", "billing", "root"):
        await keyed_put(await node.known(name), b"same", request_id="100")
    listed = await (await node.known("root")).tasks.ListTasks(pb.ListTasksRequest(tube=MAIL))
    assert [task.spec.payload for task in listed.tasks] == [b"same", b"same"]


async def test_a_principal_cannot_reach_another_scope_through_its_client_id(node):
    root, billing = [await node.known(one) for one in ("root", "billing")]
    await keyed_put(root, b"x", request_id="100")
    for client_id, request_id in (("root", "100"), ("", "root\0\0100"), ("root\0", "100")):
        call = keyed_put(billing, b"x", client_id=client_id, request_id=request_id)
        if "\0" in client_id + request_id:
            assert await refused(call) == "INVALID_FIELD"
        else:
            assert list((await call).task_ids) == [2]


async def test_a_principal_that_reuses_its_own_request_id_is_refused(node):
    billing = await node.known("billing")
    await keyed_put(billing, b"x", request_id="100")
    reason, told = await refusal(keyed_put(billing, b"y", request_id="100"))
    assert (reason, told["request_id"]) == ("REQUEST_ID_REUSED", "100")


async def test_leases_of_temporary_tubes_belong_to_their_sessions_too(node):
    root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
    await root.tubes.DropTube(tube_service_pb2.DropTubeRequest(name=MAIL))
    options = tube_service_pb2.TubeOptions(durability=tube_service_pb2.TubeOptions.TEMPORARY)
    tube = tube_service_pb2.Tube(name=MAIL, kind=tube_service_pb2.Tube.FIFOTTL, options=options)
    await root.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    await put(root, b"a", b"b", tube=MAIL)
    session = await session_of(mailer)
    taken = (await take(mailer, tube=MAIL, tasks_max=1, session_id=session.session_id)).tasks
    assert [one.error.reason for one in (await ack(rival, taken)).errors] == [20]
    assert not (await ack(mailer, taken)).errors
    free = (await take(rival, tube=MAIL, tasks_max=1)).tasks
    assert not (await ack(rival, free)).errors


MINE, THEIRS = "billing", "biller"
"""Two principals with the same grants; see ``node``."""


def keyed(payload, policy, key="k"):
    return task_pb2.TaskSpec(payload=payload, unique_key=[key], delay_ms=60_000, on_conflict=policy)


async def put_spec(caller, spec, **fields):
    return await caller.tasks.PutTasks(pb.PutTasksRequest(tube=MAIL, tasks=[spec], **fields))


async def payload_of(node, task_id):
    root = await node.known("root")
    request = pb.GetTasksRequest(tube=MAIL, selector={"ids": [task_id]})
    return (await root.tasks.GetTasks(request)).tasks[0].spec.payload


async def test_a_put_changes_no_task_of_another_principal(node):
    mine, theirs, root = [await node.known(one) for one in (MINE, THEIRS, "root")]
    (task_id,) = (await put_spec(mine, keyed(b"1", task_pb2.TaskSpec.FAIL))).task_ids
    replacing = task_pb2.TaskSpec.REPLACE_IF_WAITING
    answer = await put_spec(theirs, keyed(b"2", replacing))
    assert [one.error.reason for one in answer.errors] == [error_pb2.Error.NOT_ALLOWED]
    assert await refused(put_spec(theirs, keyed(b"2", replacing), atomic=True)) == "NOT_ALLOWED"
    batch = pb.ExecuteBatchRequest(
        operations=[{"put": {"tube": MAIL, "tasks": [keyed(b"2", replacing)]}}]
    )
    assert await refused(theirs.tasks.ExecuteBatch(batch)) == "NOT_ALLOWED"
    assert await payload_of(node, task_id) == b"1"
    assert list((await put_spec(mine, keyed(b"3", replacing))).task_ids) == [task_id]
    assert await payload_of(node, task_id) == b"3"
    assert list((await put_spec(root, keyed(b"4", replacing))).task_ids) == [task_id]
    assert list((await put_spec(mine, keyed(b"5", replacing))).task_ids) == [task_id]
    assert await payload_of(node, task_id) == b"5"


async def test_a_put_restarts_no_task_of_another_principal(node):
    mine, theirs, root = [await node.known(one) for one in (MINE, THEIRS, "root")]
    spec = keyed(b"1", task_pb2.TaskSpec.FAIL)
    spec.ClearField("delay_ms")
    await put_spec(mine, spec)
    taken = await take(root, tube=MAIL)
    keep = pb.Settlement.Ack(keep=pb.Settlement.Ack.DONE)
    settlement = pb.Settlement(tokens=[taken.tasks[0].token], ack=keep)
    await root.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    restarting = keyed(b"2", task_pb2.TaskSpec.RESTART_IF_FINISHED)
    answer = await put_spec(theirs, restarting)
    assert [one.error.reason for one in answer.errors] == [error_pb2.Error.NOT_ALLOWED]
    assert not (await put_spec(mine, restarting)).errors


async def test_a_schedule_belongs_to_its_creator(node):
    mine, theirs, root = [await node.known(one) for one in (MINE, THEIRS, "root")]
    definition = {"name": "billing.nightly", "cron": "0 3 * * *", "tube": MAIL}
    create = schedule_service_pb2.CreateScheduleRequest(schedule=definition)
    assert (await mine.schedules.CreateSchedule(create)).schedule.owner == MINE
    paused = schedule_service_pb2.UpdateScheduleRequest(schedule={**definition, "paused": True})
    masked = schedule_service_pb2.UpdateScheduleRequest(
        schedule={"name": definition["name"], "paused": True}, update_mask={"paths": ["paused"]}
    )
    removal = schedule_service_pb2.DeleteScheduleRequest(name=definition["name"])
    for call in (
        theirs.schedules.UpdateSchedule(paused),
        theirs.schedules.UpdateSchedule(masked),
        theirs.schedules.DeleteSchedule(removal),
    ):
        assert await refused(call) == "NOT_ALLOWED"
    for caller in (mine, root):
        assert (await caller.schedules.UpdateSchedule(masked)).schedule.owner == MINE
    await root.schedules.DeleteSchedule(removal)


async def test_a_schedule_and_a_group_change_no_task_of_another_principal(node):
    mine, theirs = await node.known(MINE), await node.known(THEIRS)
    (task_id,) = (await put_spec(mine, keyed(b"1", task_pb2.TaskSpec.FAIL))).task_ids
    spec = keyed(b"2", task_pb2.TaskSpec.REPLACE_IF_WAITING)
    end = {"tube": MAIL, "spec": spec}
    create = group_service_pb2.CreateGroupRequest(group={"name": "billing.g", "end_task": end})
    await theirs.groups.CreateGroup(create)
    started = await theirs.groups.StartGroup(group_service_pb2.StartGroupRequest(name="billing.g"))
    assert started.group.last_error.reason == error_pb2.Error.NOT_ALLOWED
    assert await payload_of(node, task_id) == b"1"


async def test_a_group_belongs_to_its_creator(node):
    mine, theirs, root = [await node.known(one) for one in (MINE, THEIRS, "root")]
    other = group_service_pb2.CreateGroupRequest(group={"name": "billing.other"})
    await mine.groups.CreateGroup(other)
    create = group_service_pb2.CreateGroupRequest(group={"name": "billing.run"})
    assert (await mine.groups.CreateGroup(create)).group.owner == MINE
    end = group_service_pb2.SetEndTaskRequest(name="billing.run", end_task={"tube": MAIL})
    cancel = group_service_pb2.CancelGroupRequest(name="billing.run")
    for call in (theirs.groups.SetEndTask(end), theirs.groups.CancelGroup(cancel)):
        assert await refused(call) == "NOT_ALLOWED"
    await theirs.groups.StartGroup(group_service_pb2.StartGroupRequest(name="billing.other"))
    await mine.groups.SetEndTask(end)
    assert (await root.groups.CancelGroup(cancel)).group.owner == MINE


async def test_a_change_of_what_another_principal_owns_is_in_the_audit_log(node):
    mine, theirs = await node.known(MINE), await node.known(THEIRS)
    create = group_service_pb2.CreateGroupRequest(group={"name": "billing.run"})
    await mine.groups.CreateGroup(create)
    with structlog.testing.capture_logs() as written:
        cancel = group_service_pb2.CancelGroupRequest(name="billing.run")
        await refused(theirs.groups.CancelGroup(cancel))
    (record,) = [line for line in written if line["event"] == "denied"]
    assert (record["principal"], record["call"]) == (THEIRS, "CancelGroup")
