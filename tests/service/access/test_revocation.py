"""The streams, waits, transfers, sessions and leases of a revoked principal end."""

import asyncio
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest
from cryptography import x509

from taskraft.v1 import (
    cluster_service_pb2,
    feed_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access import security
from taskraft_service.access.principals import digest_of
from taskraft_service.api.cluster import snapshots
from taskraft_service.stubs.externalscaler import external_scaler_pb2 as scaler
from tests.authority import Authority
from tests.service.access.secured import (
    GRANTS,
    MAIL,
    Stubs,
    ended,
    secured,
    session_of,
    subscribed,
    tasks_of,
    token_of,
    write_principals,
)
from tests.service.access.test_three_secured_nodes import three_nodes
from tests.service.conftest import create, put, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

WAIT_MS = 60_000
FULL = "full"
BEFORE = GRANTS | {"victim": [("admin", "*")], "worker": [("consumer", "billing.*")]}
NARROWED = [("consumer", "other")]
CHANGES = {
    "principal removed": {name: BEFORE[name] for name in BEFORE if name != "victim"},
    "grant removed": BEFORE | {"victim": NARROWED},
}
CODES = {
    "principal removed": grpc.StatusCode.UNAUTHENTICATED,
    "token replaced": grpc.StatusCode.UNAUTHENTICATED,
    "grant removed": grpc.StatusCode.PERMISSION_DENIED,
}


def change(path, kind):
    """Write the access file; the node finds the change itself."""
    if kind == "token replaced":
        path.write_text(path.read_text().replace(digest_of(token_of("victim")), digest_of("new")))
    else:
        write_principals(path, CHANGES[kind])


async def unary(call):
    """Return the status code with which a unary call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def prepared(root):
    """Create the tubes; ``FULL`` accepts no second task."""
    await create(root, MAIL)
    options = tube_service_pb2.TubeOptions(capacity_tasks=1)
    tube = tube_service_pb2.Tube(name=FULL, kind=tube_service_pb2.Tube.LIMFIFOTTL, options=options)
    await root.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    return (await put(root, b"x", tube=FULL)).task_ids


def waits(caller, ids):
    """Return calls that wait, by name, and their number of calls at the leader."""
    return {
        "TakeTasks": take(caller, tube=MAIL, wait_ms=WAIT_MS),
        "WaitTasks": caller.tasks.WaitTasks(
            pb.WaitTasksRequest(tube=FULL, selector={"ids": ids}, wait_ms=WAIT_MS)
        ),
        "WatchFeed": caller.feed.WatchFeed(
            feed_service_pb2.WatchFeedRequest(
                cursor={"next_seq": dict.fromkeys(range(8), 1 << 40)},
                wait_ms=WAIT_MS,
            )
        ),
    }


def writes(caller):
    """Return calls that wait and may have had an effect."""
    return {
        "PutTasks, capacity": caller.tasks.PutTasks(
            pb.PutTasksRequest(
                tube=FULL, tasks=[task_pb2.TaskSpec(payload=b"y")], room_wait_ms=WAIT_MS
            )
        ),
        "PutTasks, outcome": caller.tasks.PutTasks(
            pb.PutTasksRequest(
                tube="done", tasks=[task_pb2.TaskSpec(payload=b"z")], outcome_wait_ms=WAIT_MS
            )
        ),
    }


async def streams(caller, channel):
    """Open streams, and read their first messages."""
    scaled = scaler.ScaledObjectRef(scalerMetadata={"tube": MAIL, "target": "1"})
    opened = {
        "Subscribe": await subscribed(caller, MAIL),
        "ReadChanges": caller.feed.ReadChanges(
            feed_service_pb2.ReadChangesRequest(partition=0, from_seq=1, wait_ms=WAIT_MS)
        ),
        "StreamIsActive": channel.unary_stream(
            "/externalscaler.ExternalScaler/StreamIsActive",
            scaler.ScaledObjectRef.SerializeToString,
            scaler.IsActiveResponse.FromString,
        )(scaled),
        "SaveSnapshot": caller.cluster.SaveSnapshot(cluster_service_pb2.SaveSnapshotRequest()),
    }
    for name in ("Subscribe", "StreamIsActive", "SaveSnapshot"):
        assert await opened[name].read() is not grpc.aio.EOF
    return opened


async def ends_of_everything(at, path, kind, root, monkeypatch):
    """Open streams, waits and transfers as ``victim``, revoke, and return their ends."""
    monkeypatch.setattr(snapshots, "RATE_BYTES_PER_SECOND", 1)
    ids = await prepared(root)
    await create(root, "done")
    victim, mailer = await at.known("victim"), await at.known("mailer")
    kept = await subscribed(mailer, MAIL)
    assert (await kept.read()).opened.session_id
    opened = await streams(victim, victim.channel)
    calls = {
        name: asyncio.ensure_future(unary(call))
        for name, call in (waits(victim, ids) | writes(victim)).items()
    }
    live = at.server.components.load.live
    await turns_until(lambda: len(live.of("victim")) == len(opened) + len(calls))
    # A put that has not reached the leader yet has no effect, and so a certain outcome.
    await turns_until(lambda: at.server.machine.queue.last_id("done") == 1)
    change(path, kind)
    codes = {name: await ended(stream) for name, stream in opened.items()}
    codes |= {name: await call for name, call in calls.items()}
    await turns_until(lambda: not live.of("victim"))
    await put(root, b"still", tube=MAIL)
    assert [task.spec.payload for task in await tasks_of(kept)] == [b"still"]
    kept.cancel()
    return codes


def expected(kind):
    """Return the ends; a call that may have had an effect has an uncertain outcome."""
    certain = ("Subscribe", "ReadChanges", "StreamIsActive", "SaveSnapshot")
    certain += ("TakeTasks", "WaitTasks", "WatchFeed")
    uncertain = ("PutTasks, capacity", "PutTasks, outcome")
    return dict.fromkeys(certain, CODES[kind]) | dict.fromkeys(
        uncertain, grpc.StatusCode.UNAVAILABLE
    )


def test_the_files_are_read_often_enough_for_an_end_within_2_s():
    assert security.RELOAD_CHECK_SECONDS <= 1


@pytest.mark.parametrize("edge", ["grpc", "auto"])
@pytest.mark.parametrize("kind", CODES)
async def test_everything_of_a_revoked_caller_ends(tmp_path, monkeypatch, kind, edge):
    path = write_principals(tmp_path / "access.toml", BEFORE)
    async with secured(tmp_path, access_file=path, edge=edge) as node:
        root = await node.known("root")
        found = await ends_of_everything(node, path, kind, root, monkeypatch)
        assert found == expected(kind)


@pytest.mark.parametrize("kind", CODES)
async def test_the_node_that_relays_ends_everything_of_a_revoked_caller(
    tmp_path, monkeypatch, kind
):
    """Only the follower knows the token of the client."""
    async with three_nodes(tmp_path) as three:
        path = write_principals(tmp_path / "access.toml", BEFORE)
        for node in three.nodes:
            node.server.reload()
        root = await three.leader.known("root")
        found = await ends_of_everything(three.follower, path, kind, root, monkeypatch)
        assert found == expected(kind)
        leader = three.leader.server.components.load.live
        await turns_until(lambda: not leader.of("victim"))


@pytest.mark.parametrize("kind", ["principal removed", "grant removed"])
async def test_sessions_of_a_revoked_principal_end_in_the_state(tmp_path, kind):
    path = write_principals(tmp_path / "access.toml", BEFORE | {"victim": [("consumer", MAIL)]})
    async with secured(tmp_path, access_file=path) as node:
        root, victim, mailer = [await node.known(one) for one in ("root", "victim", "mailer")]
        await create(root, MAIL)
        await put(root, b"x", tube=MAIL)
        session, other = await session_of(victim), await session_of(mailer)
        (task,) = (await take(victim, tube=MAIL, session_id=session.session_id)).tasks
        grants = {name: BEFORE[name] for name in BEFORE if name != "victim"}
        write_principals(path, grants | ({"victim": [("reader", "*")]} if "gr" in kind else {}))
        await turns_until(lambda: node.server.machine.queue.session(session.session_id) is None)
        (again,) = (await take(root, tube=MAIL, wait_ms=WAIT_MS)).tasks
        assert (again.id, again.attempt) == (task.id, 1)
        assert node.server.machine.queue.session(other.session_id) is not None


async def test_a_principal_that_lost_a_tube_loses_the_leases_of_the_tube(tmp_path):
    path = write_principals(tmp_path / "access.toml", BEFORE)
    async with secured(tmp_path, access_file=path) as node:
        root, worker = await node.known("root"), await node.known("worker")
        for tube in (MAIL, "billing.invoices"):
            await create(root, tube)
            await put(root, b"x", tube=tube)
        stream = await subscribed(worker, "billing.*")
        session_id = (await stream.read()).opened.session_id
        received = []
        while len(received) < 2:
            received += await tasks_of(stream)
        assert len(node.server.machine.queue.lease_tokens(session_id)) == 2
        write_principals(path, BEFORE | {"worker": [("consumer", MAIL)]})
        (again,) = (await take(root, tube="billing.invoices", wait_ms=WAIT_MS)).tasks
        assert again.attempt == 1
        await put(root, b"y", tube="billing.invoices")
        await put(root, b"y", tube=MAIL)
        assert [(task.tube, task.spec.payload) for task in await tasks_of(stream)] == [(MAIL, b"y")]
        stream.cancel()


async def test_sessions_of_unknown_principals_end_when_a_leader_begins(tmp_path):
    path = write_principals(tmp_path / "access.toml", BEFORE)
    async with secured(tmp_path, access_file=path) as node:
        await session_of(await node.known("victim"))
        await session_of(await node.known("mailer"))
    write_principals(path, CHANGES["principal removed"])
    async with secured(tmp_path, access_file=path) as node:
        queue = node.server.machine.queue
        await turns_until(lambda: len(queue.sessions()) == 1)
        assert queue.sessions()[0].owner == "mailer"


@pytest.mark.parametrize("edge", ["grpc", "auto"])
async def test_a_stream_ends_with_the_certificate_of_its_caller(tmp_path, monkeypatch, edge):
    users = Authority(tmp_path, "users")
    path = write_principals(tmp_path / "access.toml", GRANTS, mailer=["mailer.example"])
    async with secured(tmp_path, tls_client_ca=users.path, access_file=path, edge=edge) as node:
        own = users.sign("own", "mailer.example")
        credentials = grpc.ssl_channel_credentials(
            node.authority.path.read_bytes(), own.key.read_bytes(), own.certificate.read_bytes()
        )
        mailer = Stubs(node.server, await node.channel(credentials))
        stream = await subscribed(mailer, "*")
        assert (await stream.read()).opened.session_id
        (call,) = node.server.components.load.live.of("mailer")
        certificate = x509.load_pem_x509_certificate(own.certificate.read_bytes())
        expires_at = certificate.not_valid_after_utc.timestamp()
        assert call.caller.expires_at == expires_at
        monkeypatch.setattr(security, "time", SimpleNamespace(time=lambda: expires_at))
        assert await ended(stream) is grpc.StatusCode.UNAUTHENTICATED
