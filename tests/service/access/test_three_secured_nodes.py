"""Three nodes with certificates and access control: a follower names the caller to the leader."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import grpc.aio
import pytest
import structlog

from taskraft.v1 import cluster_service_pb2, session_service_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.access.principals import Principals
from taskraft_service.cluster.member_identity import JoinRefused, resolve_member_identity
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.process.node_server import NodeServer
from tests.authority import Authority
from tests.service.access.secured import (
    MAIL,
    Secured,
    ended,
    refused,
    subscribed,
    tasks_of,
    write_principals,
)
from tests.service.conftest import ack, config_in, create, put, take, until_phase
from tests.turns import turns_until
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time


class Three:
    """A cluster of three nodes, with its CAs."""

    def __init__(self, tmp_path, stack):
        self.path = tmp_path
        self.stack = stack
        self.clients = Authority(tmp_path, "clients")
        self.peers = Authority(tmp_path, "peers")
        self.nodes = []

    def config(self, name, **settings):
        peer = settings.pop("peer", None) or self.peers.node(name)
        server = self.clients.server(f"server-{name}")
        return config_in(
            self.path / name,
            node_name=name,
            tls_cert=server.certificate,
            tls_key=server.key,
            peer_tls_cert=peer.certificate,
            peer_tls_key=peer.key,
            peer_tls_ca=peer.authority,
            access_file=self.path / "access.toml",
            **settings,
        )

    async def start(self, config):
        server = await NodeServer.open(config)
        self.stack.push_async_callback(server.stop)
        await server.start()
        return Secured(server, self.clients, self.stack)

    @property
    def leader(self):
        return next(
            one for one in self.nodes if one.server.components.phases.phase is NodePhase.RUNNING
        )

    @property
    def follower(self):
        return next(
            one for one in self.nodes if one.server.components.phases.phase is NodePhase.WAITING
        )


@asynccontextmanager
async def three_nodes(tmp_path):
    peers, clients = free_addresses(3), free_addresses(3)
    members = ",".join(
        f"n{place}={peer}/{client}"
        for place, (peer, client) in enumerate(zip(peers, clients, strict=True))
    )
    write_principals(tmp_path / "access.toml")
    async with AsyncExitStack() as stack:
        three = Three(tmp_path, stack)
        for place in range(3):
            config = three.config(
                f"n{place}", peers=members, listen=clients[place], peer_listen=peers[place]
            )
            three.nodes.append(await three.start(config))
        wanted = sorted([NodePhase.RUNNING, NodePhase.WAITING, NodePhase.WAITING])
        await turns_until(
            lambda: sorted(one.server.components.phases.phase for one in three.nodes) == wanted
        )
        yield three


@pytest.fixture
async def three(tmp_path):
    async with three_nodes(tmp_path) as one:
        yield one


async def test_a_forwarded_call_has_the_permissions_of_its_caller(three):
    root, billing, mailer, rival = [
        await three.follower.known(one) for one in ("root", "billing", "mailer", "rival")
    ]
    await create(root, MAIL)
    await create(root, "secret")
    await put(billing, b"x", tube=MAIL)
    assert await refused(put(billing, b"x", tube="secret")) == "NOT_ALLOWED"
    assert await refused(take(billing, tube=MAIL)) == "NOT_ALLOWED"
    opened = await mailer.sessions.OpenSession(session_service_pb2.OpenSessionRequest())
    session_id = opened.session.session_id
    assert opened.session.owner == "mailer"
    at_leader = await three.leader.known("rival")
    for other in (rival, at_leader):
        strange = take(other, tube=MAIL, session_id=session_id)
        assert await refused(strange) == "SESSION_NOT_FOUND"
    taken = await take(mailer, tube=MAIL, session_id=session_id)
    assert [one.error.reason for one in (await ack(rival, taken.tasks)).errors] == [20]
    assert not (await ack(mailer, taken.tasks)).errors
    assert await refused(put(await three.follower.known("billing", "wrong"), b"x", tube=MAIL)) == (
        "NO_CREDENTIALS"
    )


async def test_a_forwarded_act_names_the_person(three):
    root = await three.follower.known("root", x_taskraft_person="anna%40example.com")
    await create(root, MAIL)
    answer = await root.cluster.ListAudit(cluster_service_pb2.ListAuditRequest(call="CreateTube"))
    assert [one.principal for one in answer.records] == ["root"]
    assert answer.records[0].detail.startswith("person='anna@example.com' ")


async def test_a_forwarded_request_keeps_the_scope_of_its_principal(three):
    """A retry through another node is the same request; a request of another principal is not."""
    await create(await three.follower.known("root"), MAIL)
    request = pb.PutTasksRequest(tube=MAIL, tasks=[{"payload": b"x"}], request_id="100")
    ids = [
        list((await (await node.known(name)).tasks.PutTasks(request)).task_ids)
        for name in ("billing", "root")
        for node in (three.follower, three.leader, three.follower)
    ]
    assert ids == [[1]] * 3 + [[2]] * 3


async def test_the_leader_logs_the_address_of_the_client_not_of_the_follower(three):
    channel = three.follower
    billing, wrong = await channel.known("billing"), await channel.known("billing", "wrong")
    with structlog.testing.capture_logs() as written:
        # the follower refuses the call
        assert await refused(put(wrong, b"x", tube=MAIL)) == "NO_CREDENTIALS"
        # the leader refuses the call
        assert await refused(put(billing, b"x", tube="secret")) == "NOT_ALLOWED"
        stream = await subscribed(billing, MAIL)
        assert await ended(stream) is grpc.StatusCode.PERMISSION_DENIED
    said = [line for line in written if line["event"] in {"unauthenticated", "denied"}]
    assert [line["event"] for line in said] == ["unauthenticated", "denied", "denied"]
    assert len({line["peer"] for line in said}) == 1


async def test_a_relayed_stream_has_the_permissions_of_its_caller(three):
    root, mailer = await three.leader.known("root"), await three.follower.known("mailer")
    await create(root, MAIL)
    await create(root, "secret")
    await put(root, b"x", tube="secret")
    await put(root, b"y", tube=MAIL)
    stream = await subscribed(mailer, "*")
    assert [task.spec.payload for task in await tasks_of(stream)] == [b"y"]
    stream.cancel()


async def test_a_waiting_put_asks_the_next_leader_with_the_permissions_of_its_caller(three):
    """Without a request_id, the old leader asks for the outcome in the name of the caller."""
    old, heir = three.leader, three.follower
    root, successor = await old.known("root"), await heir.known("root")
    await create(root, MAIL)
    request = pb.PutTasksRequest(
        tube=MAIL, tasks=[task_pb2.TaskSpec(payload=b"x")], outcome_wait_ms=15_000
    )
    putting = asyncio.ensure_future(root.tasks.PutTasks(request, timeout=20))
    await turns_until(lambda: len(old.server.components.outcomes) == 1)
    await root.cluster.TransferLeadership(
        cluster_service_pb2.TransferLeadershipRequest(name=heir.server.config.node_name), timeout=10
    )
    await turns_until(lambda: len(heir.server.components.outcomes) == 1)
    await ack(successor, (await take(successor, tube=MAIL)).tasks)
    assert [task.outcome for task in (await putting).outcomes] == [task_pb2.Task.PROCESSED]


async def test_a_follower_ends_a_relayed_stream_whose_credentials_are_revoked(three):
    root, mailer = await three.leader.known("root"), await three.follower.known("mailer")
    await create(root, MAIL)
    stream = await subscribed(mailer, MAIL)
    assert (await stream.read()).opened.session_id
    three.follower.server.security.principals.principals = Principals({})
    await stream.write(pb.SubscribeRequest(heartbeat=True))
    assert await ended(stream) is grpc.StatusCode.UNAUTHENTICATED


async def test_the_peer_port_accepts_forwarded_principals_from_members_only(three):
    root = await three.leader.known("root")
    await create(root, MAIL)
    server = three.leader.server
    claim = (("x-taskraft-principal", "root"), ("x-taskraft-hops", "1"))
    request = pb.PutTasksRequest(tube=MAIL).SerializeToString()

    async def call(security, metadata=claim):
        address = server.config.peer_listen
        name = server.config.node_name
        async with security.channel(address, name, ()) as channel:
            put_tasks = channel.unary_unary("/taskraft.v1.TaskService/PutTasks")
            return await refused(put_tasks(request, metadata=metadata, timeout=10))

    member = three.follower.server.security.peer
    stranger = PeerSecurity(three.peers.node("n9"), "taskraft", "n9")
    unknown = (("x-taskraft-principal", "ghost"), claim[1])
    nobody = (("x-taskraft-principal", "nobody"), claim[1])
    assert await call(member) == "INVALID_FIELD"
    assert await call(member, claim[1:]) == "NOT_ALLOWED"
    assert await call(member, nobody) == "NOT_ALLOWED"
    assert await call(member, unknown) == "NO_CREDENTIALS"
    assert await call(stranger) == "NOT_ALLOWED"


async def test_a_client_certificate_is_refused_on_the_peer_port(three):
    server = three.leader.server
    files = three.clients.sign("n0", "n0.taskraft.taskraft", "taskraft.taskraft")
    credentials = grpc.ssl_channel_credentials(
        three.peers.path.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
    )
    options = (("grpc.ssl_target_name_override", "taskraft.taskraft"),)
    async with grpc.aio.secure_channel(
        server.config.peer_listen, credentials, options=options
    ) as channel:
        call = channel.unary_unary("/taskraft.v1.TubeService/ListTubes")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_joining_node_must_use_the_name_in_its_certificate(three):
    join = three.follower.server.config.peer_listen
    peer_listen, listen = free_addresses(2)
    config = three.config("n7", join=join, peer_listen=peer_listen, listen=listen)
    node = await three.start(config)
    await until_phase(node.server, NodePhase.WAITING)
    root = await node.known("root")
    state = await root.cluster.GetClusterState(cluster_service_pb2.GetClusterStateRequest())
    assert [member.name for member in state.members if member.joined] == ["n0", "n1", "n2", "n7"]
    other = config.model_copy(update={"node_name": "n6", "data_dir": three.path / "n6"})
    with pytest.raises(JoinRefused, match="lacks the permission to manage on all tubes"):
        await resolve_member_identity(other, node.server.security.peer)
