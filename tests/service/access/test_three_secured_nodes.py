"""Three nodes with certificates and access control: a follower names the caller to the leader."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import grpc
import grpc.aio
import pytest
import structlog
from structlog.testing import capture_logs

from taskraft.v1 import cluster_service_pb2, session_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.access.permission_rules import OF_OPERATORS
from taskraft_service.access.principals import Principals
from taskraft_service.access.security import NodeSecurity
from taskraft_service.cluster.departure import Departure
from taskraft_service.cluster.member_identity import JoinRefused, resolve_member_identity
from taskraft_service.cluster.member_requests import send_add_member, send_remove_member
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.process.member_replacement import begin_replacement
from taskraft_service.process.node_server import NodeServer
from tests.authority import Authority
from tests.service.access.secured import (
    MAIL,
    Secured,
    ended,
    refused,
    subscribed,
    tasks_of,
    token_of,
    write_principals,
)
from tests.service.conftest import ack, config_in, create, put, reason_of, take, until_phase
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
        f"n-{place}={peer}/{client}"
        for place, (peer, client) in enumerate(zip(peers, clients, strict=True))
    )
    write_principals(tmp_path / "access.toml")
    async with AsyncExitStack() as stack:
        three = Three(tmp_path, stack)
        for place in range(3):
            config = three.config(
                f"n-{place}", peers=members, listen=clients[place], peer_listen=peers[place]
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


async def test_a_snapshot_from_a_follower_is_in_the_audit_log_of_this_node_only(three):
    root = await three.follower.known("root")
    with structlog.testing.capture_logs() as written:
        stream = root.cluster.SaveSnapshot(cluster_service_pb2.SaveSnapshotRequest())
        header = (await stream.read()).header
        stream.cancel()
    (record,) = [line for line in written if line["event"] == "managed"]
    assert (record["call"], record["principal"]) == ("SaveSnapshot", "root")
    assert header.node == three.follower.server.config.node_name
    listed = cluster_service_pb2.ListAuditRequest(call="SaveSnapshot")
    assert not (await root.cluster.ListAudit(listed)).records


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


HOPS = ("x-taskraft-hops", "1")
ADD = "/taskraft.v1.ClusterService/AddMember"
HISTORY = "/taskraft.v1.TubeService/GetHistory"


def named(principal):
    """Return the metadata by which a node names the principal of a call."""
    return (("x-taskraft-principal", principal), HOPS)


def peer_of(three, name):
    """Return the certificates of a node of some name."""
    return PeerSecurity(three.peers.node(name), "taskraft", name)


async def called_by(node, security, request, metadata=(), method=None):
    """Call a node at its peer port with the certificates of another node."""
    config = node.server.config
    path = method or "/taskraft.v1.TaskService/PutTasks"
    async with security.channel(config.peer_listen, config.node_name, ()) as channel:
        call = channel.unary_unary(path)
        return await call(request.SerializeToString(), metadata=metadata, timeout=10)


def addition(name, **fields):
    """Return the request by which a node asks to become a member."""
    peer, client = free_addresses(2)
    return cluster_service_pb2.AddMemberRequest(
        name=name, peer_address=peer, address=client, directory_id="ab" * 16, **fields
    )


async def test_the_peer_port_accepts_forwarded_principals_from_members_only(three):
    await create(await three.leader.known("root"), MAIL)
    leader, member = three.leader, three.follower.server.security.peer
    request = pb.PutTasksRequest(tube=MAIL)

    async def reason(security, metadata):
        return await refused(called_by(leader, security, request, metadata))

    assert await reason(member, named("root")) == "INVALID_FIELD"
    assert await reason(member, (HOPS,)) == "NOT_ALLOWED"
    assert await reason(member, named("nobody")) == "NOT_ALLOWED"
    assert await reason(member, named("ghost")) == "NO_CREDENTIALS"
    assert await reason(member, named("node/n0")) == "NO_CREDENTIALS"
    assert await reason(member, (("authorization", "Bearer wrong"), HOPS)) == "NO_CREDENTIALS"
    assert await reason(peer_of(three, "n9"), named("root")) == "NOT_ALLOWED"


async def test_the_word_of_a_node_does_not_change_members_or_settings(three):
    """The leader authenticates the principal of such a call itself, by the token of the call."""
    member = three.follower.server.security.peer
    assert {kind.DESCRIPTOR.name for kind in OF_OPERATORS} >= {
        "AddMemberRequest",
        "RemoveMemberRequest",
        "ConfigureRequest",
    }
    for kind in OF_OPERATORS - {cluster_service_pb2.SaveSnapshotRequest}:
        method = f"/taskraft.v1.ClusterService/{kind.DESCRIPTOR.name.removesuffix('Request')}"
        call = called_by(three.leader, member, kind(), named("root"), method)
        assert await refused(call) == "NOT_ALLOWED", method
    config = three.leader.server.config
    async with member.channel(config.peer_listen, config.node_name, ()) as channel:
        save = channel.unary_stream("/taskraft.v1.ClusterService/SaveSnapshot")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await save(b"", metadata=named("root"), timeout=10).read()
    assert reason_of(caught.value) == "NOT_ALLOWED"


async def test_an_operator_with_a_token_may_call_any_node(three):
    root = await three.follower.known("root")
    request = cluster_service_pb2.ConfigureRequest(settings={"auto_create_tubes": True})
    await root.cluster.Configure(request)
    audit = cluster_service_pb2.ListAuditRequest(call="Configure")
    (record,) = (await root.cluster.ListAudit(audit)).records
    assert record.principal == "root"
    assert record.detail.startswith(f"via={three.follower.server.config.node_name} ")
    assert record.peer.startswith("ipv4:127.0.0.1:")


async def test_a_token_that_only_the_follower_knows_is_refused_by_the_leader(three):
    root = await three.leader.known("root")
    await create(root, MAIL)
    billing = await three.follower.known("billing")
    await put(billing, b"x", tube=MAIL)
    three.leader.server.security.principals.principals = Principals({})
    assert await refused(put(billing, b"x", tube=MAIL)) == "NO_CREDENTIALS"


async def test_a_removed_node_can_do_nothing_until_an_operator_adds_it_again(three):
    root = await three.leader.known("root")
    await create(root, MAIL)
    gone = three.follower
    name, security = gone.server.config.node_name, gone.server.security.peer
    await root.cluster.RemoveMember(cluster_service_pb2.RemoveMemberRequest(name=name))
    for node in (one for one in three.nodes if one is not gone):
        await turns_until(lambda node=node: name not in names_in(node))
    leader = three.leader
    for claim in ((), named("root"), named(f"node/{name}"), named("node/n9")):
        again = called_by(leader, security, addition(name), claim, ADD)
        assert await refused(again) == "NOT_ALLOWED"
        other = called_by(leader, security, addition("n9"), claim, ADD)
        assert await refused(other) == "NOT_ALLOWED"
    call = called_by(leader, security, pb.PutTasksRequest(tube=MAIL), named("root"))
    assert await refused(call) == "NOT_ALLOWED"
    samples = tube_service_pb2.GetHistoryRequest(tubes=[MAIL])
    assert await refused(called_by(leader, security, samples, (), HISTORY)) == "NOT_ALLOWED"
    added = addition(name)
    added.directory_id = ""
    await root.cluster.AddMember(added)
    await called_by(leader, security, addition(name), (), ADD)


def names_in(node):
    return [info.name for info in node.server.components.node.membership.roster.members]


async def test_a_node_that_adds_itself_by_the_setting_forwards_only_calls_with_tokens(three):
    for node in three.nodes:
        node.server.components.membership._admits = PatternSet(["n*"])
    root = await three.leader.known("root")
    await create(root, MAIL)
    joined, leader = peer_of(three, "n9"), three.leader
    await called_by(leader, joined, addition("n9"), (), ADD)
    request = pb.PutTasksRequest(tube=MAIL)
    assert await refused(called_by(leader, joined, request, named("root"))) == "NO_CREDENTIALS"
    token = (("authorization", f"Bearer {token_of('root')}"), HOPS)
    assert await refused(called_by(leader, joined, request, token)) == "INVALID_FIELD"
    admitted = cluster_service_pb2.AddMemberRequest(name="n9", peer_address="a:1", address="a:2")
    await root.cluster.AddMember(admitted)
    assert await refused(called_by(leader, joined, request, named("root"))) == "INVALID_FIELD"


async def test_a_node_passes_no_request_of_another_node_on(three):
    stranger = peer_of(three, "n9")
    root = await three.leader.known("root")
    added = addition("n9")
    added.directory_id = ""
    await root.cluster.AddMember(added)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await called_by(three.follower, stranger, addition("n9"), (), ADD)
    assert reason_of(caught.value) == "NOT_LEADER"
    assert await send_add_member(three.follower.server.config.peer_listen, addition("n9"), stranger)


async def test_a_node_removes_its_own_member_and_no_other_one(three):
    other, leaving = (one.server for one in three.nodes if one is not three.leader)
    wanted = three.path / "replicas"
    wanted.write_text("1")
    name = other.identity.member.name
    request = cluster_service_pb2.RemoveMemberRequest(name=name)
    at_leader = three.leader.server.config.peer_listen
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send_remove_member(at_leader, request, leaving.security.peer)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED

    async def does_not_lead(_to):
        assert not leaving.components.leadership.is_leader

    membership = three.leader.server.node.status

    async def leave(directory_id):
        await Departure(
            wanted,
            replace(leaving.identity, directory_id=directory_id),
            lambda: membership().conf_state,
            does_not_lead,
            leaving.security.peer,
        ).run()
        return membership().conf_state.voters

    # The node was replaced, and its earlier process stops with the earlier directory.
    assert len(await leave("0" * 32)) == 3
    assert leaving.identity.member.member_id not in await leave(leaving.identity.directory_id)
    assert len(membership().conf_state.voters) == 2
    with capture_logs() as logs:  # a repeated departure, after the certificate has lost its rights
        await leave(leaving.identity.directory_id)
    assert logs[-1]["event"] == "the node has left its cluster"


async def test_a_removed_founder_with_an_empty_volume_joins_after_an_operator_has_added_it(three):
    root = await three.leader.known("root")
    gone = three.follower.server.config
    name, peers = gone.node_name, gone.peers
    await root.cluster.RemoveMember(cluster_service_pb2.RemoveMemberRequest(name=name))
    empty = three.path / "empty"
    config = three.config(
        name, peers=peers, peer_listen=gone.peer_listen, listen=gone.listen, data_dir=empty
    )
    security = NodeSecurity(config).peer
    empty.mkdir(mode=0o700)
    begin_replacement(config, "the data directory is empty", is_founding=True)
    with pytest.raises(JoinRefused, match="was removed; an operator must add it first"):
        await resolve_member_identity(config, security)
    added = addition(name)
    added.directory_id = ""
    await root.cluster.AddMember(added)
    identity = await resolve_member_identity(config, security)
    assert identity.member.member_id > 3
    (info,) = (
        each for each in three.leader.server.node.membership.roster.members if each.name == name
    )
    assert (info.directory_id, info.added_itself) == (identity.directory_id, False)


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


async def test_a_joining_node_must_be_admitted_and_use_the_name_in_its_certificate(three):
    join = three.follower.server.config.peer_listen
    peer_listen, listen = free_addresses(2)
    config = three.config("n7", join=join, peer_listen=peer_listen, listen=listen)
    with pytest.raises(JoinRefused, match=r"never admitted.*taskraft cluster add n7"):
        await three.start(config)
    root = await three.follower.known("root")
    added = cluster_service_pb2.AddMemberRequest(
        name="n7", peer_address=peer_listen, address=listen
    )
    await root.cluster.AddMember(added)
    node = await three.start(config)
    await until_phase(node.server, NodePhase.WAITING)
    root = await node.known("root")
    state = await root.cluster.GetClusterState(cluster_service_pb2.GetClusterStateRequest())
    assert [member.name for member in state.members if member.joined] == ["n-0", "n-1", "n-2", "n7"]
    other = config.model_copy(update={"node_name": "n6", "data_dir": three.path / "n6"})
    with pytest.raises(JoinRefused, match="lacks the permission to manage on all tubes"):
        await resolve_member_identity(other, node.server.security.peer)


async def test_a_node_reads_the_samples_before_its_start_from_another_node(three):
    def sample(node):
        for _ in node.server.components.sampler.sample():
            pass

    def fine(node):
        return node.server.components.sampler.rings[10_000]

    root = await three.leader.known("root")
    await create(root, MAIL)
    for tasks in (1, 2, 3):
        await put(root, *[b"x"] * tasks, tube=MAIL)
        sample(three.leader)
    follower = three.follower
    await create(root, "later")
    await put(root, b"x", tube="later")
    applied = three.leader.server.machine.queue.applied_index
    await turns_until(lambda: follower.server.machine.queue.applied_index >= applied)
    sample(follower)
    ring = fine(follower)
    await turns_until(lambda: dict(ring.columns(MAIL, ring.newest(9)))["ready"] == [1, 3, 6, 6])
    asked = await follower.known("root")
    request = tube_service_pb2.GetHistoryRequest(tubes=[MAIL, "later"], total=True)
    total, mail, later = (await asked.tubes.GetHistory(request)).histories
    assert list(mail.put) == [-1, 2, 3, -1], "counts since the sample before"
    assert list(total.ready) == [1, 3, 6, 7]
    # A tube that is not written to disk yet has samples before its first task too.
    assert list(later.ready) in ([-1, -1, -1, 1], [-1, 0, 0, 1])
