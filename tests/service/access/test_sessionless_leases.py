"""A lease without a session belongs to the principal that has taken the task."""

import grpc.aio
import pytest

from taskraft.v1 import cluster_service_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.leader.node_phases import NodePhase
from tests.service.access.secured import MAIL, refusal, secured
from tests.service.access.test_three_secured_nodes import three_nodes
from tests.service.conftest import ack, create, put, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

KINDS = {
    "ack": pb.Settlement.Ack(),
    "release": pb.Settlement.Release(),
    "bury": pb.Settlement.Bury(),
    "reject": pb.Settlement.Reject(),
    "touch": pb.Settlement.Touch(),
}
NEVER_ISSUED = 1 << 40


def settlement_of(kind, *tokens):
    return pb.Settlement(tokens=tokens, **{kind: KINDS[kind]})


def as_for(errors, token, other):
    """Return the errors, as they are for another token."""
    return [repr(error).replace(str(token), str(other)) for error in errors]


async def by_call(caller, kind, token):
    request = pb.SettleTasksRequest(settlements=[settlement_of(kind, token)])
    return (await caller.tasks.SettleTasks(request)).errors


async def by_batch(caller, kind, token):
    """Return the refusal of a batch; a batch is atomic."""
    settle = pb.SettleTasksRequest(settlements=[settlement_of(kind, token)])
    batch = pb.ExecuteBatchRequest(operations=[pb.BatchOperation(settle=settle)])
    try:
        await caller.tasks.ExecuteBatch(batch)
    except grpc.aio.AioRpcError as error:
        return [error.details()]
    return []


async def by_stream(caller, kind, token):
    stream = caller.tasks.Subscribe(timeout=30)
    opening = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube=MAIL)])
    await stream.write(pb.SubscribeRequest(open=opening))
    await stream.write(pb.SubscribeRequest(settlements=[settlement_of(kind, token)]))
    while not (message := await stream.read()).settled:
        pass
    stream.cancel()
    (settled,) = message.settled
    return settled.errors


WAYS = {"call": by_call, "batch": by_batch, "stream": by_stream}


def test_each_kind_of_settlement_is_tried():
    (kinds,) = pb.Settlement.DESCRIPTOR.oneofs
    assert {field.name for field in kinds.fields} == set(KINDS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["leader", "follower"])
async def test_another_principal_gets_the_answer_of_an_unknown_token(tmp_path, where, way):
    settle = WAYS[way]
    async with three_nodes(tmp_path) as three:
        node = getattr(three, where)
        root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
        await create(root, MAIL)
        for kind in KINDS:
            await put(root, kind.encode(), tube=MAIL)
            (task,) = (await take(mailer, tube=MAIL)).tasks
            for stranger in (rival, root):
                unknown = await settle(stranger, kind, NEVER_ISSUED)
                errors = await settle(stranger, kind, task.token)
                assert errors, (kind, stranger)
                assert as_for(errors, task.token, 0) == as_for(unknown, NEVER_ISSUED, 0), kind
            await put(root, b"next", tube=MAIL)
            (next_task,) = (await take(mailer, tube=MAIL)).tasks
            assert next_task.spec.payload == b"next", "the foreign settlement released the task"
            assert not (await by_call(mailer, kind, task.token)), kind
            await ack(mailer, [next_task])
            await root.tubes.TruncateTube(tube_service_pb2.TruncateTubeRequest(name=MAIL))


@pytest.mark.parametrize("way", WAYS)
async def test_a_refused_field_tells_nothing_of_the_leases_of_others(tmp_path, monkeypatch, way):
    release = pb.Settlement.Release(ttl_ms=0, ttl_policy=pb.Settlement.Release.RESET)
    monkeypatch.setitem(KINDS, "release", release)
    async with secured(tmp_path) as node:
        root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
        await create(root, MAIL)
        await put(root, b"1", tube=MAIL)
        (task,) = (await take(mailer, tube=MAIL)).tasks
        unknown = await WAYS[way](rival, "release", NEVER_ISSUED)
        errors = await WAYS[way](rival, "release", task.token)
        assert errors
        assert as_for(errors, task.token, 0) == as_for(unknown, NEVER_ISSUED, 0)


async def taken_by_waiting(root, mailer):
    waiting = mailer.tasks.TakeTasks(
        pb.TakeTasksRequest(sources=[pb.TakeSource(tube=MAIL)], wait_ms=20_000)
    )
    await put(root, b"late", tube=MAIL)
    return (await waiting).tasks


async def taken_by_id(root, mailer):
    (task_id,) = (await put(root, b"chosen", tube=MAIL)).task_ids
    return (await take(mailer, tube=MAIL, tasks_max=1, task_id=task_id)).tasks


async def taken_twice(root, mailer):
    await put(root, b"again", tube=MAIL)
    for _ in range(2):
        tasks = (await take(mailer, tube=MAIL, tasks_max=1, request_id="once")).tasks
    return tasks


async def taken_by_pattern(root, mailer):
    await put(root, b"a", b"b", tube=MAIL)
    return (await take(mailer, tube="billing.*")).tasks


@pytest.mark.parametrize("is_temporary", [False, True])
@pytest.mark.parametrize("taken", [taken_by_waiting, taken_by_id, taken_twice, taken_by_pattern])
async def test_each_way_to_take_binds_the_lease(tmp_path, taken, is_temporary):
    async with secured(tmp_path) as node:
        root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
        options = tube_service_pb2.TubeOptions()
        if is_temporary:
            options.durability = tube_service_pb2.TubeOptions.TEMPORARY
        tube = tube_service_pb2.Tube(name=MAIL, kind=tube_service_pb2.Tube.FIFOTTL, options=options)
        await root.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
        tasks = await taken(root, mailer)
        assert tasks
        for stranger in (rival, root):
            errors = (await ack(stranger, tasks)).errors
            assert [one.error.reason for one in errors] == [20] * len(tasks)
        assert not (await ack(mailer, tasks)).errors


async def test_takes_of_two_principals_in_one_entry_keep_their_owners(tmp_path):
    async with secured(tmp_path) as node:
        root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
        await create(root, MAIL)
        await put(root, *(b"x" for _ in range(20)), tube=MAIL)
        calls = [
            (caller, take(caller, tube=MAIL, tasks_max=1))
            for _ in range(10)
            for caller in (mailer, rival)
        ]
        taken = [(caller, (await call).tasks) for caller, call in calls]
        for caller, tasks in taken:
            other = rival if caller is mailer else mailer
            assert len((await ack(other, tasks)).errors) == 1
        for caller, tasks in taken:
            assert not (await ack(caller, tasks)).errors


async def test_a_new_leader_knows_who_has_taken_a_task(tmp_path):
    async with three_nodes(tmp_path) as three:
        old = three.leader
        root, mailer = [await old.known(one) for one in ("root", "mailer")]
        await create(root, MAIL)
        await put(root, b"x", tube=MAIL)
        tasks = (await take(mailer, tube=MAIL)).tasks
        await root.cluster.TransferLeadership(cluster_service_pb2.TransferLeadershipRequest())
        await turns_until(
            lambda: any(
                one is not old and one.server.components.phases.phase is NodePhase.RUNNING
                for one in three.nodes
            )
        )
        for node in three.nodes:
            rival = await node.known("rival")
            assert [one.error.reason for one in (await ack(rival, tasks)).errors] == [20]
        assert not (await ack(await three.leader.known("mailer"), tasks)).errors


async def test_an_atomic_settlement_with_a_foreign_lease_names_the_lease_only(tmp_path):
    async with secured(tmp_path) as node:
        root, mailer, rival = [await node.known(one) for one in ("root", "mailer", "rival")]
        await create(root, MAIL)
        await put(root, b"a", b"b", tube=MAIL)
        theirs = (await take(mailer, tube=MAIL, tasks_max=1)).tasks
        mine = (await take(rival, tube=MAIL, tasks_max=1)).tasks
        tokens = [task.token for task in (*mine, *theirs)]
        settle = pb.SettleTasksRequest(settlements=[settlement_of("ack", *tokens)], atomic=True)
        reason, told = await refusal(rival.tasks.SettleTasks(settle))
        assert (reason, told["token"]) == ("LEASE_STALE", str(theirs[0].token))
        assert not (await ack(rival, mine)).errors
        assert not (await ack(mailer, theirs)).errors
