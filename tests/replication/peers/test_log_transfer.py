"""A member reads the log of another one without a leader, and checks what it receives."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest
from grpc import aio

from taskraft_replication.core.types import Entry, LogIndex, MemberId, MemberInfo, Roster, Term
from taskraft_replication.errors import MessageMalformed
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.peers import log_transfer
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.log_transfer import OfferedLog, describe_log, fetch_entries
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_replication.storage.log_parts import LogKnowledge, LogRange, TermRun
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub
from tests.replication.held_log import HeldLog
from tests.replication.log_on_disk import entry

pytestmark = pytest.mark.real_time

RUNS = (
    TermRun(LogIndex(5), LogIndex(30), Term(1)),
    TermRun(LogIndex(40), LogIndex(60), Term(1)),
    TermRun(LogIndex(61), LogIndex(90), Term(3)),
)
OWN = Membership("test", 0, MemberId(1), 0)
THEIRS = Membership("test", 0, MemberId(2), 7)


class Offering:
    """A peer that offers its log."""

    def __init__(self) -> None:
        self.transport = GrpcTransport()
        self.log = HeldLog(RUNS)
        self.info = MemberInfo(MemberId(2))
        self.roster = Roster()

    async def start(self) -> None:
        port = await self.transport.start("127.0.0.1:0")
        self.info = MemberInfo(MemberId(2), "n2", f"127.0.0.1:{port}")
        self.roster = roster_of([MemberInfo(MemberId(1), "n1"), self.info])

    def offer(self, leader: int = 0) -> None:
        self.transport.offer_log(OfferedLog(THEIRS, self.roster, self.log, MemberId(leader)))

    async def fetched(self, first: int, last: int, own: Membership = OWN) -> list[Entry]:
        wanted = LogRange(LogIndex(first), LogIndex(last))
        return [
            each async for piece in fetch_entries(self.info, own, None, wanted) for each in piece
        ]


@pytest.fixture
async def peer():
    peer = Offering()
    await peer.start()
    peer.offer()
    yield peer
    await peer.transport.stop()


async def test_a_peer_describes_its_log(peer):
    described = await describe_log(peer.info, OWN, None)
    assert (described.knowledge, described.leader) == (LogKnowledge(RUNS, LogIndex(4)), 0)
    peer.offer(leader=3)
    assert (await describe_log(peer.info, OWN, None)).leader == 3


async def test_entries_arrive_in_order_and_in_several_pieces(peer, monkeypatch):
    monkeypatch.setattr(log_transfer, "PIECE_BYTES", 4000)
    assert await peer.fetched(41, 90) == [
        entry(index, 1 if index < 61 else 3, bytes(1000)) for index in range(41, 91)
    ]


async def test_entries_that_the_peer_lacks_end_the_transfer(peer):
    with pytest.raises(aio.AioRpcError) as raised:
        await peer.fetched(31, 39)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(MessageMalformed, match="are out of place"):
        await peer.fetched(29, 45)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda each: replace(each, data=b"x" + each.data[1:]), "fail their checksum"),
        (lambda each: replace(each, term=Term(2)), "fail their checksum"),
        (lambda each: replace(each, index=LogIndex(each.index + 1)), "are out of place"),
    ],
    ids=["data", "term", "index"],
)
async def test_damaged_pieces_are_refused(peer, monkeypatch, harm, reason):
    decode = log_transfer.decode_entry
    monkeypatch.setattr(log_transfer, "decode_entry", lambda encoded: harm(decode(encoded)))
    with pytest.raises(MessageMalformed, match=reason):
        await peer.fetched(41, 42)


@pytest.mark.parametrize(
    "runs",
    [
        [(5, 30, 2), (40, 60, 1)],
        [(5, 30, 1), (30, 60, 1)],
        [(30, 5, 1)],
        [(0, 5, 1)],
        [(5, 30, 0)],
    ],
)
async def test_a_malformed_description_is_refused(peer, monkeypatch, runs):
    wrong = LogKnowledge(tuple(TermRun(*run) for run in runs), LogIndex(0))
    peer.log.knowledge = lambda: wrong
    with pytest.raises(MessageMalformed, match="is out of place"):
        await describe_log(peer.info, OWN, None)


@pytest.mark.parametrize(("first", "last"), [(0, 5), (6, 5), (-3, 4)])
async def test_a_range_without_entries_is_refused(peer, first, last):
    async with aio.insecure_channel(peer.info.peer_address) as channel:
        hello = pb.Hello(protocol_version=2, cluster_id="test", sender=1, receiver=2)
        request = pb.FetchEntriesRequest(hello=hello, first=first, last=last)
        call = PeerServiceStub(channel).FetchEntries(request)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("own", "status", "reason"),
    [
        (replace(OWN, cluster_id="other"), grpc.StatusCode.FAILED_PRECONDITION, "is not 'test'"),
        (replace(OWN, member_id=MemberId(9)), grpc.StatusCode.UNAVAILABLE, "is not known here"),
        (replace(OWN, group_id=5), grpc.StatusCode.UNAVAILABLE, "has not opened the log of group"),
    ],
)
async def test_only_members_of_the_group_read_the_log(peer, own, status, reason):
    for call in (describe_log(peer.info, own, None), peer.fetched(41, 42, own)):
        with pytest.raises(aio.AioRpcError, match=reason) as raised:
            await call
        assert raised.value.code() is status


async def test_the_status_shows_that_a_member_was_replaced(peer):
    """Other refusals may end: for example, an older release is upgraded."""
    with pytest.raises(aio.AioRpcError, match="this is member 2, not 5") as raised:
        await describe_log(replace(peer.info, member=MemberId(5)), OWN, None)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    known = MemberInfo(MemberId(1), "n1", directory_id="d1")
    peer.roster = roster_of([known, peer.info])
    peer.offer()
    with pytest.raises(aio.AioRpcError, match="wiped or replaced") as raised:
        await describe_log(peer.info, OWN, None)
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
    peer.roster = replace(roster_of([peer.info]), last_member=MemberId(2))
    peer.offer()
    with pytest.raises(aio.AioRpcError, match="was removed from the group") as raised:
        await describe_log(peer.info, OWN, None)
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_member_that_takes_part_answers_from_its_log(pair):
    """The request is no start of its sender: another process of the sender may be connected."""
    one, two = pair
    two.log, two.leader = HeldLog(RUNS), MemberId(2)
    info = MemberInfo(MemberId(2), "", f"127.0.0.1:{two.port}")
    described = await describe_log(info, replace(one.membership, incarnation=0), None)
    assert (described.knowledge.readable, described.leader) == (RUNS, 2)
    assert 0 not in {start.incarnation for start in two.transport._incarnations._current.values()}
