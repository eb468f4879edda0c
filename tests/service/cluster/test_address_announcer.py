"""A node with new addresses asks one member after the other, and stops after a refusal."""

from dataclasses import replace
from types import SimpleNamespace

import grpc
import pytest

from taskraft_replication.core.types import MemberInfo, Roster
from taskraft_service.cluster import address_announcer
from taskraft_service.cluster.address_announcer import AddressAnnouncer
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.config.addresses import PeerAddress

OWN = PeerAddress(2, "n2", "new:1", "new:2")
OTHERS = (
    MemberInfo(1, "n1", "one:1", "one:2", "d1"),
    MemberInfo(3, "n3", "three:1", "three:2", "d3"),
)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class EndOfTest(Exception):
    """Ends the test: the node's addresses do not change any more."""


class Failed(grpc.aio.AioRpcError):
    def __init__(self, code):
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "no")


class Cluster:
    """Answers with the given status codes, then with success; delays take no time."""

    def __init__(self, monkeypatch, *codes, own=("old:1", "old:2"), join=()):
        self.codes = list(codes)
        self.asked = []
        self.pauses = []
        directory = "d2" if own else ""
        self.own = MemberInfo(2, "n2", *(own or ("old:1", "old:2")), directory)
        self.changes = []
        """Next addresses of the node in the roster, in order; the last one stays."""
        monkeypatch.setattr(address_announcer, "send_add_member", self.answer)
        monkeypatch.setattr(address_announcer.asyncio, "sleep", self.pause)
        config = SimpleNamespace(cluster_id="c", join_addresses=join)
        self.move = AddressAnnouncer(
            config,
            MemberIdentity(OWN, (), "d2"),
            self.roster,
            None,
            self.changed,
            self.is_accepted,
        )
        self.refusals = 0
        """Number of further rounds in which no peer has accepted the process."""

    def roster(self):
        return Roster((OTHERS[0], self.own, OTHERS[1]))

    async def changed(self):
        if not self.changes:
            raise EndOfTest
        peer_address, client_address = self.changes.pop(0)
        self.own = replace(self.own, peer_address=peer_address, client_address=client_address)

    async def answer(self, address, request, security):
        assert (request.name, request.directory_id) == ("n2", "d2")
        assert (request.peer_address, request.address) == ("new:1", "new:2")
        self.asked.append(address)
        if self.codes:
            raise Failed(self.codes.pop(0))
        return 2

    async def pause(self, seconds):
        self.pauses.append(seconds)

    def is_accepted(self):
        self.refusals -= 1
        return self.refusals < 0


async def test_members_are_asked_in_turns_until_one_answers(monkeypatch):
    cluster = Cluster(monkeypatch, *[UNAVAILABLE] * 3)
    with pytest.raises(EndOfTest):
        await cluster.move.announce()
    assert cluster.asked == ["one:2", "three:2", "one:2", "three:2"]


async def test_a_process_that_no_peer_accepts_announces_nothing(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.refusals = 3
    with pytest.raises(EndOfTest):
        await cluster.move.announce()
    assert cluster.asked == ["one:2"]
    assert len(cluster.pauses) == 3


async def test_the_address_to_join_at_is_asked_first_and_pauses_grow_to_a_limit(monkeypatch):
    cluster = Cluster(monkeypatch, *[UNAVAILABLE] * 27, join=("seed:1",))
    with pytest.raises(EndOfTest):
        await cluster.move.announce()
    assert cluster.asked[:3] == ["seed:1", "one:2", "three:2"]
    assert cluster.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0]


async def test_a_refusal_stops_the_announcer(monkeypatch):
    cluster = Cluster(monkeypatch, grpc.StatusCode.PERMISSION_DENIED)
    await cluster.move.announce()
    assert cluster.asked == ["one:2"]


@pytest.mark.parametrize("own", [("new:1", "new:2"), None])
async def test_a_node_with_the_roster_s_addresses_announces_nothing(monkeypatch, own):
    cluster = Cluster(monkeypatch, own=own)
    with pytest.raises(EndOfTest):
        await cluster.move.announce()
    assert cluster.asked == []


async def test_a_node_announces_again_when_the_roster_changes(monkeypatch):
    """The node moved away and back; replayed entries contain the other addresses."""
    cluster = Cluster(monkeypatch, own=("new:1", "new:2"))
    cluster.changes = [("away:1", "away:2"), ("new:1", "new:2")]
    with pytest.raises(EndOfTest):
        await cluster.move.announce()
    assert cluster.asked == ["one:2"]
