"""Streams between peers on loopback: order, handshake, refusals, limits, reconnection."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest
from grpc import aio

from taskraft_replication.core.types import (
    Entry,
    EntryKind,
    LogIndex,
    MemberId,
    MemberInfo,
    Message,
    MessageKind,
    Snapshot,
    Term,
)
from taskraft_replication.errors import MemberInUse
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.peers import grpc_peers
from taskraft_replication.peers.frame_connection import FrameSender, connect
from taskraft_replication.peers.grpc_peers import GrpcPeers
from taskraft_replication.peers.handshake import EXPELLED_KEY
from taskraft_replication.peers.send_queue import QUEUE_MESSAGES_MAX
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub
from tests.far_port import FarPort
from tests.replication.remembering_member import META, Member, beat, hello

pytestmark = pytest.mark.real_time


async def connection_of(answer: pb.ExchangeResponse, port: int) -> FrameSender:
    return await connect(f"127.0.0.1:{port}", answer.connection_ticket, None, lambda: None)


async def test_messages_arrive_complete_and_in_order(pair):
    one, two = pair
    entries = (
        Entry(Term(2), LogIndex(5), b"data"),
        Entry(Term(3), LogIndex(6), b"", EntryKind.CONF_CHANGE_V2),
    )
    messages = [
        Message(
            MessageKind.APPEND,
            MemberId(2),
            MemberId(1),
            Term(3),
            log_term=Term(2),
            index=LogIndex(4),
            entries=entries,
            commit=LogIndex(3),
        ),
        Message(
            MessageKind.APPEND_REPLY,
            MemberId(2),
            MemberId(1),
            Term(3),
            reject=True,
            reject_hint=LogIndex(7),
            log_term=Term(1),
            context=b"why",
        ),
        *(beat(number) for number in range(500)),
    ]
    one.peers.send(messages[:2])
    one.peers.send(messages[2:])
    await two.until(lambda: len(two.received) == len(messages))
    # The append may be overtaken; all other messages stay in order.
    assert sorted(two.received, key=lambda each: each.kind is not MessageKind.APPEND) == messages


async def test_a_commit_index_is_sent_although_no_message_follows(pair):
    one, two = pair
    news = Message(MessageKind.APPEND, MemberId(2), MemberId(1), Term(1), commit=LogIndex(4))
    one.peers.send([news])
    await two.until(lambda: two.received)
    assert two.received == [news]


async def test_a_delayed_member_still_gets_its_entries(pair):
    one, two = pair
    one.peers.set_preferred(frozenset())
    entries = (Entry(Term(1), LogIndex(1), b"data"),)
    append = Message(MessageKind.APPEND, MemberId(2), MemberId(1), Term(1), entries=entries)
    one.peers.send([append])
    assert two.received == []
    await two.until(lambda: two.received == [append])


@pytest.fixture
async def far():
    async with FarPort(0.25) as one:
        yield one


async def test_a_distant_peer_is_reached_at_the_first_attempt(far, pair):
    one, two = pair
    far.target = two.port
    one.peers.set_roster(roster_of([MemberInfo(MemberId(2), peer_address=f"127.0.0.1:{far.port}")]))
    one.peers.send([beat(1)])
    await two.until(lambda: two.received)
    assert two.received == [beat(1)]
    assert one.lost == []
    assert far.arrivals == 2, "one connection for gRPC, and one for frames"


async def test_a_link_recovers_when_the_peer_comes_back(pair, tmp_path):
    one, two = pair
    one.peers.send([beat(1)])
    await two.until(lambda: two.received)
    await two.stop()
    await one.until(lambda: MemberId(2) in one.lost)
    again = Member(tmp_path, 2, incarnation=2)
    await again.start(two.port)
    again.join(one)
    async with asyncio.timeout(20):
        while not again.received:
            one.peers.send([beat(2)])
            await asyncio.sleep(0)
    assert set(again.received) == {beat(2)}, "earlier messages are lost"
    await again.peers.close()
    await again.transport.stop()
    two.transport, two.peers = again.transport, again.peers


async def test_a_flipped_bit_ends_the_stream_which_then_reconnects(far, pair, caplog):
    one, two = pair
    far.target, far.delay_seconds = two.port, 0
    one.peers.set_roster(roster_of([MemberInfo(MemberId(2), peer_address=f"127.0.0.1:{far.port}")]))
    one.peers.send([beat(1)])
    await two.until(lambda: two.received)
    far.damage = lambda data: data.replace(b"sent", b"senu")
    one.peers.send([replace(beat(2), context=b"sent")])
    await one.until(lambda: one.lost)
    assert two.gone == [MemberId(1)]
    assert "closing the stream from member 1" in caplog.text
    assert "fails its checksum" in caplog.text
    async with asyncio.timeout(20):
        while len(two.received) == 1:
            one.peers.send([beat(3)])
            await asyncio.sleep(0)
    assert {*two.received[1:]} == {beat(3)}, "the damaged message is lost"


async def test_messages_beyond_the_queue_of_a_slow_peer_are_reported_as_lost(pair):
    one, _ = pair
    one.peers.send([beat(number) for number in range(QUEUE_MESSAGES_MAX)])
    assert one.lost == []
    one.peers.send([beat(0)])
    assert one.lost == [MemberId(2)]


async def test_the_end_of_a_peers_stream_is_reported_once(pair):
    one, two = pair
    one.peers.send([beat(1)])
    await two.until(lambda: two.received)
    assert two.gone == []
    await one.stop()
    await two.until(lambda: two.gone)
    assert two.gone == [MemberId(1)]


async def test_messages_to_an_unreachable_peer_do_not_accumulate(tmp_path):
    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    await one.start()
    await two.start()
    await two.transport.stop()
    one.join(two)
    link = one.peers._links[MemberId(2)]
    await one.until(lambda: one.lost)
    for number in range(3 * QUEUE_MESSAGES_MAX):
        one.peers.send([beat(number)])
    assert len(link.batcher) <= QUEUE_MESSAGES_MAX
    await one.stop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cluster_id": "other"}, "cluster 'other' is not 'test'"),
        (
            {"protocol_version": 1},
            "member 7 speaks version 1 of the protocol between members, member 2 speaks version 2",
        ),
        ({"receiver": 3}, "this is member 2, not 3"),
        ({"sender": 2}, "member 2 cannot be a peer of 2"),
        (
            {"incarnation": 1},
            "incarnation 1 of member 7 is outdated: a later one has connected as incarnation 5",
        ),
    ],
)
async def test_a_hello_of_or_to_a_wrong_member_is_refused_with_the_reason(pair, change, reason):
    _, two = pair
    introduction = {"sender": 7, "incarnation": 5}
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        calls = []
        for each in (introduction, introduction | change):
            calls.append(PeerServiceStub(channel).Exchange())
            await calls[-1].write(pb.ExchangeRequest(hello=hello(**each)))
            if each is introduction:
                assert (await calls[-1].read()).incarnation == 1
        with pytest.raises(aio.AioRpcError, match=reason) as refusal:
            await calls[-1].read()
    assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_second_process_is_accepted_when_the_first_has_ended(pair):
    _, two = pair
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        first, second = PeerServiceStub(channel).Exchange(), PeerServiceStub(channel).Exchange()
        await first.write(pb.ExchangeRequest(hello=hello(sender=9, start_id=11)))
        assert (await first.read()).incarnation == 1
        later = pb.ExchangeRequest(hello=hello(sender=9, incarnation=2, start_id=12))
        await second.write(later)
        with pytest.raises(aio.AioRpcError, match="another process of member 9") as refusal:
            await second.read()
        assert (EXPELLED_KEY, "second") in tuple(refusal.value.trailing_metadata())
        assert two.gone == []
        first.cancel()
        await two.until(lambda: two.gone == [MemberId(9)])
        third = PeerServiceStub(channel).Exchange()
        await third.write(later)
        assert (await third.read()).incarnation == 1


async def test_a_refusal_tells_whether_a_peer_has_accepted_the_process(pair):
    one, _ = pair
    for is_accepted in (False, True):
        one.peers.refused(MemberInUse("another process"))
        assert one.refusals[-1].was_accepted is is_accepted
        await one.until(lambda: one.peers.is_accepted)


async def test_a_member_whose_group_is_not_here_yet_is_retried(pair):
    _, two = pair
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        call = PeerServiceStub(channel).Exchange()
        await call.write(pb.ExchangeRequest(hello=hello(group_id=8)))
        with pytest.raises(aio.AioRpcError) as refusal:
            await call.read()
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_messages_of_an_earlier_incarnation_are_refused(pair):
    _, two = pair
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        old, new = PeerServiceStub(channel).Exchange(), PeerServiceStub(channel).Exchange()
        connections = []
        for call, incarnation in ((old, 1), (new, 2)):
            await call.write(pb.ExchangeRequest(hello=hello(sender=9, incarnation=incarnation)))
            connections.append(await connection_of(await call.read(), two.port))
        message = pb.RaftMessage(kind=pb.HEARTBEAT, sender=9, to=2, term=1)
        with pytest.raises(aio.AioRpcError, match="member 9 has opened another stream"):
            await old.read()
        for connection in connections:
            connection.write([pb.Frame(messages=[message]).SerializeToString()])
        await two.until(lambda: [each.sender for each in two.received] == [9])
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        {"kind": 99, "sender": 9, "to": 2, "term": 1},
        {"kind": pb.HEARTBEAT, "sender": 9, "to": 2, "term": -1},
        {"kind": pb.HEARTBEAT, "sender": 8, "to": 2, "term": 1},
        {"kind": pb.HEARTBEAT, "sender": 9, "to": 1, "term": 1},
        {
            "kind": pb.APPEND,
            "sender": 9,
            "to": 2,
            "term": 1,
            "entries": [pb.RaftEntry(term=1, index=7, kind=pb.NORMAL)],
        },
    ],
)
async def test_a_malformed_frame_ends_the_stream(pair, nonsense):
    _, two = pair
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        call = PeerServiceStub(channel).Exchange()
        await call.write(pb.ExchangeRequest(hello=hello(sender=9)))
        connection = await connection_of(await call.read(), two.port)
        connection.write([pb.Frame(messages=[pb.RaftMessage(**nonsense)]).SerializeToString()])
        with pytest.raises(aio.AioRpcError) as refusal:
            await call.read()
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert two.received == []


class Content:
    """A snapshot of a given size."""

    index = LogIndex(9)

    def __init__(self, size: int) -> None:
        self.content = bytes(number % 251 for number in range(1000)) * (size // 1000)
        self.reads: list[int] = []

    def read(self, offset: int, size: int) -> bytes:
        self.reads.append(offset)
        return self.content[offset : offset + size]

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


def announcement() -> Message:
    return Message(MessageKind.SNAPSHOT, MemberId(2), MemberId(1), Term(3), snapshot=Snapshot(META))


@pytest.mark.parametrize("size", [0, 1000, 3 << 20])
async def test_a_snapshot_arrives_complete(pair, size, caplog):
    caplog.set_level("INFO")
    one, two = pair
    content = Content(size)
    one.peers.send_snapshot(announcement(), META, content)
    await one.until(lambda: one.sent == [True])
    assert two.snapshot == content.content
    assert [text for text in caplog.messages if "the snapshot of entry" in text] == [
        "sending the snapshot of entry 9 to member 2",
        "member 2 has received the snapshot of entry 9",
    ]


async def test_an_interrupted_snapshot_continues_where_it_ended(pair):
    one, two = pair
    two.breaks_at = 2 << 20
    content = Content(4 << 20)
    one.peers.send_snapshot(announcement(), META, content)
    await one.until(lambda: one.sent == [True])
    assert two.snapshot == content.content
    assert two.begun == [0, 2 << 20]
    assert content.reads.count(0) == 1, "the receiver keeps the pieces that have arrived"


async def test_a_snapshot_is_sent_to_several_peers_at_once(pair, tmp_path):
    one, two = pair
    three = Member(tmp_path, 3)
    await three.start()
    three.join(one)
    one.peers.set_roster(
        roster_of(
            MemberInfo(MemberId(number), peer_address=f"127.0.0.1:{each.port}")
            for number, each in ((1, one), (2, two), (3, three))
        )
    )
    content = Content(2 << 20)
    one.peers.send_snapshot(announcement(), META, content)
    one.peers.send_snapshot(replace(announcement(), to=MemberId(3)), META, content)
    await one.until(lambda: one.sent == [True, True])
    assert two.snapshot == three.snapshot == content.content
    await three.stop()


async def test_a_snapshot_waits_for_one_that_is_being_received(pair, caplog):
    caplog.set_level("INFO")
    one, two = pair
    busy = two.inbox.begin("busy")
    turn = busy.attach()
    content = Content(3000)
    one.peers.send_snapshot(announcement(), META, content)
    await two.until(lambda: two.has_refused_snapshot)
    assert one.sent == []
    busy.detach(turn)
    await one.until(lambda: one.sent == [True])
    assert two.snapshot == content.content
    assert any("UNAVAILABLE: busy" in text for text in caplog.messages)
    assert not any("DATA_LOSS" in text for text in caplog.messages)


async def test_a_snapshot_to_a_peer_that_refuses_this_member_is_reported(pair):
    one, two = pair
    await two.peers.close()
    two.transport._groups.clear()
    two.transport._groups[0] = GrpcPeers(replace(two.membership, cluster_id="another"), two, None)
    one.peers.send_snapshot(announcement(), META, Content(3000))
    await one.until(lambda: one.sent)
    assert (one.sent, two.snapshot) == ([False], b"")


@pytest.mark.parametrize(
    ("offset", "crc", "reason"), [(0, 1, "fails its checksum"), (5, 0, "does not follow")]
)
async def test_a_damaged_snapshot_is_dropped(pair, offset, crc, reason):
    _, two = pair
    header = pb.SnapshotHeader(
        hello=hello(),
        term=3,
        index=9,
        index_term=2,
        conf_state=pb.ConfState(voters=[1, 2]),
        transfer_id="abc",
    )
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        call = PeerServiceStub(channel).SendSnapshot(timeout=20)
        await call.write(pb.SendSnapshotRequest(header=header))
        assert (await call.read()).content_bytes == 0
        await call.write(pb.SendSnapshotRequest(offset=offset, data=b"x", crc32c=crc))
        with pytest.raises(aio.AioRpcError, match=reason) as refusal:
            await call.read()
    assert refusal.value.code() is grpc.StatusCode.DATA_LOSS
    assert two.abandoned == 1
    assert two.inbox.begin("next").name == "next"


async def test_a_busy_receiver_is_no_loss_of_data(pair):
    _, two = pair
    header = pb.SnapshotHeader(
        hello=hello(),
        term=3,
        index=9,
        index_term=2,
        conf_state=pb.ConfState(voters=[1, 2]),
        transfer_id="abc",
    )
    two.inbox.begin("other").attach()
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        call = PeerServiceStub(channel).SendSnapshot(timeout=20)
        await call.write(pb.SendSnapshotRequest(header=header))
        with pytest.raises(aio.AioRpcError, match="busy: another snapshot is being") as refusal:
            await call.read()
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_snapshot_that_cannot_be_read_is_reported(pair):
    one, two = pair

    class Unreadable(Content):
        def read(self, offset, size):
            raise OSError("the disk is broken")

    one.peers.send_snapshot(announcement(), META, Unreadable(3000))
    await one.until(lambda: one.sent)
    assert (one.sent, two.snapshot) == ([False], b"")


async def test_a_peer_without_disk_space_for_a_snapshot_is_left_alone_for_a_while(
    pair, monkeypatch, caplog
):
    one, two = pair
    two.has_no_room = True
    pauses = []

    async def note(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(grpc_peers, "pause", note)
    one.peers.send_snapshot(announcement(), META, Content(3000))
    await one.until(lambda: one.sent == [False])
    assert pauses == [grpc_peers.NO_USE_PAUSE_SECONDS]
    assert "there is no room for it" in caplog.text
    # The next transfer starts from the beginning, and succeeds if there is disk space.
    two.has_no_room = False
    one.peers.send_snapshot(announcement(), META, Content(3000))
    await one.until(lambda: one.sent == [False, True])
    assert pauses == [grpc_peers.NO_USE_PAUSE_SECONDS]
