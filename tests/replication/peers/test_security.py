"""Nodes authenticate each other by certificates."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import replace

import grpc
import pytest
from grpc import aio

from taskraft_replication.core.types import (
    MemberId,
    MemberInfo,
    Message,
    MessageKind,
    Roster,
    Term,
)
from taskraft_replication.errors import PeerRefused
from taskraft_replication.membership.roster import find, roster_of
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub
from taskraft_replication.tls.files import CurrentTls, TlsUnusable, read_tls, utc_now
from tests.authority import DAY, Authority
from tests.replication.remembering_member import Member, beat, hello


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "nodes")


class Node(Member):
    """A member with a name and a certificate for it."""

    def __init__(self, tmp_path, authority, number, cluster="test"):
        super().__init__(tmp_path / f"n{number}", number, cluster)
        (tmp_path / f"n{number}").mkdir(exist_ok=True)
        self.name = f"n{number}"
        self.files = authority.node(self.name, cluster)
        self.security = PeerSecurity(self.files, cluster, self.name)
        self.transport = GrpcTransport(self.security)

    def meet(self, *others):
        roster = roster_of(
            MemberInfo(one.membership.member_id, one.name, f"127.0.0.1:{one.port}")
            for one in (self, *others)
        )
        self.peers = self.transport.join(self.membership, roster, self)


@pytest.fixture
async def strangers(tmp_path, authority):
    nodes = [Node(tmp_path, authority, 1), Node(tmp_path, authority, 2)]
    for node in nodes:
        await node.start()
    yield nodes
    for node in nodes:
        await node.stop()


@pytest.fixture
async def pair(strangers):
    for node, other in zip(strangers, reversed(strangers), strict=True):
        node.meet(other)
    return strangers


async def refusal(channel, **other):
    """Return the answer of a node to a hello."""
    async with channel:
        call = PeerServiceStub(channel).Exchange(timeout=10)
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(pb.ExchangeRequest(hello=hello(**other)))
            assert not isinstance(await call.read(), pb.ExchangeResponse), "accepted"
        return await call.code(), await call.details()


@pytest.mark.real_time
async def test_nodes_with_certificates_exchange_messages(pair):
    one, two = pair
    one.peers.send([beat()])
    await two.until(lambda: two.received)
    assert two.received == [beat()]


@pytest.mark.real_time
async def test_nodes_keep_exchanging_messages_after_a_certificate_renewal(pair, authority):
    one, two = pair
    one.peers.send([beat()])
    await two.until(lambda: two.received)
    authority.node("n1", "test", valid=2 * DAY)
    assert one.security.current.refresh()
    assert one.security.current.tls.expires_at > two.security.current.tls.expires_at
    one.transport.renew()
    async with asyncio.timeout(20):
        while beat(2) not in two.received:
            one.peers.send([beat(2)])
            await asyncio.sleep(0)


@pytest.mark.real_time
async def test_a_plain_connection_is_refused(pair):
    _, two = pair
    channel = aio.insecure_channel(f"127.0.0.1:{two.port}")
    code, _ = await refusal(channel)
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.real_time
async def test_a_connection_without_a_certificate_is_refused(pair, authority):
    _, two = pair
    credentials = grpc.ssl_channel_credentials(authority.path.read_bytes())
    options = (("grpc.ssl_target_name_override", "test.taskraft"),)
    code, _ = await refusal(
        aio.secure_channel(f"127.0.0.1:{two.port}", credentials, options=options)
    )
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.real_time
async def test_certificates_of_another_ca_are_refused(pair, tmp_path, authority):
    _, two = pair
    stranger = Authority(tmp_path, "strangers").node("n1", "test", authority=authority.path)
    security = PeerSecurity(stranger, "test", "n1")
    code, _ = await refusal(security.channel(f"127.0.0.1:{two.port}", "n2", ()))
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.real_time
async def test_an_expired_certificate_is_refused(pair, authority):
    _, two = pair
    files = authority.node("n1", "test", valid=-DAY)
    credentials = grpc.ssl_channel_credentials(
        authority.path.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
    )
    options = (("grpc.ssl_target_name_override", "test.taskraft"),)
    code, _ = await refusal(
        aio.secure_channel(f"127.0.0.1:{two.port}", credentials, options=options)
    )
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.real_time
async def test_a_node_of_another_cluster_of_the_same_ca_is_refused(pair, authority):
    _, two = pair
    files = authority.sign("x", "n1.other.taskraft", "test.taskraft")
    credentials = CurrentTls(files).channel_credentials()
    options = (("grpc.ssl_target_name_override", "test.taskraft"),)
    code, details = await refusal(
        aio.secure_channel(f"127.0.0.1:{two.port}", credentials, options=options)
    )
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "names no node of cluster 'test'" in details


@pytest.mark.real_time
async def test_a_node_cannot_act_as_another_member(pair, authority):
    _, two = pair
    security = PeerSecurity(authority.node("n3", "test"), "test", "n3")
    code, details = await refusal(security.channel(f"127.0.0.1:{two.port}", "n2", ()))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert details == "the certificate names node 'n3', but member 1 is node 'n1'"


@pytest.mark.real_time
async def test_a_snapshot_from_a_node_with_anothers_member_id_is_refused(pair, authority):
    _, two = pair
    security = PeerSecurity(authority.node("n3", "test"), "test", "n3")
    async with security.channel(f"127.0.0.1:{two.port}", "n2", ()) as channel:
        call = PeerServiceStub(channel).SendSnapshot(timeout=10)
        header = pb.SnapshotHeader(hello=hello())
        await call.write(pb.SendSnapshotRequest(header=header))
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.real_time
async def test_the_answering_node_must_be_the_called_node(pair):
    one, two = pair
    channel = one.security.channel(f"127.0.0.1:{two.port}", "n3", ())
    code, _ = await refusal(channel)
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.real_time
async def test_a_member_without_a_known_name_is_called_by_the_name_in_its_certificate(strangers):
    old, new = strangers
    new.membership = replace(new.membership, peer_address=f"127.0.0.1:{new.port}")
    old.peers = old.transport.join(old.membership, Roster(), old)  # a node that joins
    new.meet(old)
    question = Message(MessageKind.HEARTBEAT, MemberId(1), MemberId(2), Term(1))
    new.peers.send([question])
    await old.until(lambda: old.received == [question])
    async with asyncio.timeout(20):
        while beat() not in new.received:
            old.peers.send([beat()])
            await asyncio.sleep(0)
    assert old.peers._nodes == {MemberId(2): "n2"}


@pytest.fixture
async def three(tmp_path, authority):
    """Return a member that was down, another member, and a later member that the first lacks."""
    nodes = [Node(tmp_path, authority, number) for number in (1, 2, 3)]
    for node in nodes:
        await node.start()
    old, other, later = nodes
    old.meet(other)
    other.meet(old, later)
    yield nodes
    for node in nodes:
        await node.stop()


@pytest.mark.real_time
async def test_a_member_that_a_known_member_knows_is_accepted(three):
    old, other, later = three
    later.meet(old, other)
    question = Message(MessageKind.HEARTBEAT, MemberId(1), MemberId(3), Term(1))
    async with asyncio.timeout(20):
        while question not in old.received:
            later.peers.send([question])
            await asyncio.sleep(0)
    assert find(old.peers.roster, MemberId(3)) is None


@pytest.mark.real_time
async def test_a_node_for_which_no_known_member_vouches_is_refused(three, authority):
    old, other, later = three
    later.meet(old, other)
    other.peers.set_roster(old.peers.roster)
    for name, member in (("n3", 3), ("n9", 9)):
        security = PeerSecurity(authority.node(name, "test"), "test", name)
        address = f"127.0.0.1:{old.port}"
        channel = security.channel(address, "n1", ())
        code, details = await refusal(channel, sender=member, receiver=1)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "has vouched for that node" in details
        own = hello(sender=member, receiver=1)
        async with security.channel(address, "n1", ()) as channel:
            stub = PeerServiceStub(channel)
            with pytest.raises(aio.AioRpcError, match="is not known here"):
                await stub.FetchState(pb.FetchStateRequest(hello=own), timeout=10).read()
            with pytest.raises(aio.AioRpcError, match="is not known here"):
                await stub.DescribeLog(pb.DescribeLogRequest(hello=own), timeout=10)
            wanted = pb.FetchEntriesRequest(hello=own, first=1, last=2)
            with pytest.raises(aio.AioRpcError, match="is not known here"):
                await stub.FetchEntries(wanted, timeout=10).read()
            claimed = hello(sender=2, receiver=1)
            with pytest.raises(aio.AioRpcError, match="n2"):
                await stub.DescribeLog(pb.DescribeLogRequest(hello=claimed), timeout=10)
            sending = stub.SendSnapshot(timeout=10)
            header = pb.SnapshotHeader(hello=own)
            await sending.write(pb.SendSnapshotRequest(header=header))
            assert await sending.code() is grpc.StatusCode.UNAVAILABLE
            with pytest.raises(aio.AioRpcError, match="there is no such member here"):
                await stub.DescribeMember(pb.DescribeMemberRequest(member=1), timeout=10)


@pytest.mark.parametrize(
    ("names", "node"),
    [
        (["n1.test.taskraft", "test.taskraft"], "n1"),
        (["N1.Test.taskraft"], "N1"),
        (["a.b.test.taskraft", "host.example"], "a.b"),
    ],
)
def test_a_certificate_names_its_node(authority, names, node):
    security = PeerSecurity(authority.node("own", "test"), "test", "own")
    shown = {"x509_subject_alternative_name": [name.encode() for name in names]}
    assert security.node_of(shown) == node


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["test.taskraft"],
        [".test.taskraft"],
        ["*.test.taskraft"],
        ["n1.test.taskraft.evil"],
        ["n1.contest.taskraft"],
        ["n1.test.taskraft", "n2.test.taskraft"],
    ],
)
def test_a_certificate_without_exactly_one_node_name_is_refused(authority, names):
    security = PeerSecurity(authority.node("own", "test"), "test", "own")
    shown = {"x509_subject_alternative_name": [name.encode() for name in names]}
    with pytest.raises(PeerRefused, match="names no node of cluster 'test'"):
        security.node_of(shown)


# ------------------------------------------------------------------------------ files


def test_tls_files_that_do_not_match_are_refused(authority):
    one, two = authority.node("n1"), authority.node("n2")
    mixed = type(one)(one.certificate, two.key, one.authority)
    with pytest.raises(TlsUnusable, match=r"n2.key is not the key of .*n1.crt"):
        read_tls(mixed, utc_now())


def test_an_expired_certificate_stops_the_start(authority):
    with pytest.raises(TlsUnusable, match=r"n1.crt expired at"):
        read_tls(authority.node("n1", valid=-DAY), utc_now())


def test_a_certificate_of_another_node_stops_the_start(authority):
    with pytest.raises(TlsUnusable, match=r"n1.crt does not have the DNS name n2.test.taskraft"):
        PeerSecurity(authority.node("n1", "test"), "test", "n2")


@pytest.mark.parametrize("part", ["certificate", "key", "authority"])
def test_a_missing_or_malformed_file_is_named(authority, part):
    files = authority.node("n1")
    path = getattr(files, part)
    path.write_text("nonsense")
    with pytest.raises(TlsUnusable, match=rf"{path.name} is not a PEM"):
        read_tls(files, utc_now())
    path.unlink()
    with pytest.raises(TlsUnusable, match=rf"{path.name}: No such file"):
        read_tls(files, utc_now())


def test_an_unusable_renewal_keeps_the_old_certificate(authority):
    files = authority.node("n1")
    current = CurrentTls(files)
    before = current.tls
    authority.node("n1", valid=-DAY)
    assert not current.refresh()
    assert current.tls is before
    files.certificate.unlink()
    assert not current.refresh()
    assert current.tls is before


def test_a_server_loads_each_renewed_certificate_once(authority, monkeypatch):
    asked = []
    monkeypatch.setattr(
        grpc, "dynamic_ssl_server_credentials", lambda _, renewed, **__: asked.append(renewed)
    )
    current = CurrentTls(authority.node("n1"))
    current.server_credentials()
    (renewed,) = asked
    assert renewed() is None
    authority.node("n1")
    assert current.refresh()
    assert isinstance(renewed(), grpc.ServerCertificateConfiguration)
    assert renewed() is None


def test_old_tls_versions_are_refused(authority):
    current = CurrentTls(authority.node("n1"))
    for context in (current.client_context(), current.server_context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
