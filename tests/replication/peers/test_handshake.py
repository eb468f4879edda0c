"""A handshake checks cluster, member, incarnation and data directory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskraft_replication.core.types import MemberId, MemberInfo, Roster
from taskraft_replication.errors import (
    DirectoryOutdated,
    DirectoryUnknown,
    MemberInUse,
    MemberRemoved,
    PeerRefused,
    VersionTooOld,
)
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.peers import handshake
from taskraft_replication.peers.contract import Membership, ProgramVersions
from taskraft_replication.peers.handshake import (
    LOWEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    Expulsion,
    PeerExpelled,
    answer_to,
    check_directory,
    check_version,
    expulsion_error,
    hello_to,
)
from taskraft_replication.peers.incarnations import PeerIncarnations
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb

ONE, TWO, THREE, FOUR = map(MemberId, (1, 2, 3, 4))
HERE = Membership("c", 7, ONE, 4, "d1", "127.0.0.1:1")
PEER = Membership("c", 7, TWO, 5, "d2", "127.0.0.1:2")
ROSTER = roster_of(
    [MemberInfo(ONE, directory_id="d1"), MemberInfo(TWO, directory_id="d2"), MemberInfo(FOUR)]
)


def test_a_hello_names_sender_and_receiver():
    hello = hello_to(ONE, PEER)
    said = (hello.cluster_id, hello.group_id, hello.sender, hello.receiver)
    assert said == ("c", 7, 2, 1)
    assert (hello.incarnation, hello.directory_id) == (5, "d2")
    assert hello.peer_address == "127.0.0.1:2"
    PeerIncarnations().check_hello(hello, HERE, ROSTER)


@pytest.mark.parametrize(
    ("own", "receiver", "reason"),
    [
        (replace(PEER, cluster_id="other"), ONE, "cluster 'other' is not 'c'"),
        (PEER, THREE, "this is member 1, not 3"),
        (replace(PEER, member_id=ONE), ONE, "member 1 cannot be a peer of 1"),
        (replace(PEER, member_id=MemberId(0)), ONE, "member 0 cannot be a peer of 1"),
    ],
)
def test_a_hello_of_or_to_a_wrong_member_is_refused_with_a_reason(own, receiver, reason):
    with pytest.raises(PeerRefused, match=reason):
        PeerIncarnations().check_hello(hello_to(receiver, own), HERE, ROSTER)


@pytest.mark.parametrize(
    ("spoken", "in_force", "refused_for"),
    [((1, 1), 1, None), ((1, 2), 1, None), ((0, 0), 2, None), ((1, 1), 0, None), ((1, 1), 2, True)],
)
def test_a_program_older_than_the_group_is_expelled_with_the_version_it_needs(
    spoken, in_force, refused_for
):
    here = replace(HERE, program=ProgramVersions(1, 2, lambda: in_force))
    hello = hello_to(ONE, replace(PEER, program=ProgramVersions(*spoken)))
    if refused_for is None:
        PeerIncarnations().check_hello(hello, here, ROSTER)
        return
    with pytest.raises(PeerExpelled) as refused:
        PeerIncarnations().check_hello(hello, here, ROSTER)
    assert str(refused.value) == (
        "the release of member 2 speaks cluster version 1, and the cluster is at cluster version 2;"
        " run a release that speaks cluster version 2"
    )
    error = expulsion_error(refused.value.expulsion.value, str(refused.value))
    assert isinstance(error, VersionTooOld)


def test_a_program_newer_than_the_group_may_come_back_after_the_raise():
    here = replace(HERE, program=ProgramVersions(1, 1, lambda: 1))
    hello = hello_to(ONE, replace(PEER, program=ProgramVersions(2, 2)))
    with pytest.raises(PeerRefused) as refused:
        PeerIncarnations().check_hello(hello, here, ROSTER)
    assert not isinstance(refused.value, PeerExpelled)


def test_member_1_is_an_ordinary_peer():
    peers, hello = PeerIncarnations(), hello_to(TWO, HERE)
    peers.check_hello(hello, PEER, ROSTER)
    assert peers.is_current(hello)


@pytest.mark.parametrize(
    ("peer", "own", "common"),
    [
        ((2, 2), (2, 2), 2),
        ((2, 5), (4, 7), 5),
        ((4, 7), (2, 5), 5),
        ((2, 7), (4, 5), 5),
        ((0, 4), (4, 5), 4),  # The sender does not name its lowest version.
    ],
)
def test_the_highest_common_version_is_chosen(monkeypatch, peer, own, common):
    monkeypatch.setattr(handshake, "LOWEST_PROTOCOL_VERSION", own[0])
    monkeypatch.setattr(handshake, "PROTOCOL_VERSION", own[1])
    hello = hello_to(ONE, PEER)
    hello.lowest_protocol_version, hello.protocol_version = peer
    PeerIncarnations().check_hello(hello, HERE, ROSTER)
    answer = answer_to(hello, HERE, b"ticket")
    assert answer.protocol_version == common
    check_version(ONE, answer)


@pytest.mark.parametrize(
    ("lowest", "highest", "reason"),
    [
        (0, 1, "member 2 speaks version 1 of the protocol between members, member 1 speaks versio"),
        (3, 4, "member 2 speaks versions 3 to 4 of the protocol between members, member 1 speaks"),
        (0, 0, "member 2 speaks version 0"),
    ],
)
def test_a_peer_without_a_common_version_is_refused(lowest, highest, reason):
    hello = hello_to(ONE, PEER)
    hello.lowest_protocol_version, hello.protocol_version = lowest, highest
    with pytest.raises(PeerRefused, match=reason):
        PeerIncarnations().check_hello(hello, HERE, ROSTER)


@pytest.mark.parametrize("version", [0, LOWEST_PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_an_answer_with_a_version_that_was_not_offered_is_refused(version):
    with pytest.raises(PeerRefused, match=f"member 2 answers in version {version}"):
        check_version(TWO, pb.ExchangeResponse(protocol_version=version))


def test_an_earlier_incarnation_is_refused_and_the_current_one_accepted_again():
    peers = PeerIncarnations()
    present, earlier, later = (
        hello_to(ONE, replace(PEER, incarnation=incarnation)) for incarnation in (5, 4, 6)
    )
    peers.check_hello(present, HERE, ROSTER)
    peers.check_hello(present, HERE, ROSTER)
    assert peers.is_current(present)
    with pytest.raises(PeerRefused, match="incarnation 4 of member 2 is outdated"):
        peers.check_hello(earlier, HERE, ROSTER)
    peers.check_hello(later, HERE, ROSTER)
    assert peers.is_current(later)
    assert not peers.is_current(present)


def test_a_second_process_is_refused_while_the_first_is_connected():
    peers = PeerIncarnations()
    first = hello_to(ONE, replace(PEER, start_id=11))
    second = hello_to(ONE, replace(PEER, incarnation=6, start_id=12))
    peers.check_hello(first, HERE, ROSTER)
    peers.check_hello(first, HERE, ROSTER, is_connected=True)
    with pytest.raises(PeerExpelled, match="another process of member 2 is connected") as refused:
        peers.check_hello(second, HERE, ROSTER, is_connected=True)
    assert refused.value.expulsion is Expulsion.SECOND
    assert peers.is_current(first)
    peers.check_hello(second, HERE, ROSTER)
    assert peers.is_current(second)
    with pytest.raises(PeerExpelled, match="incarnation 5 of member 2 is outdated") as refused:
        peers.check_hello(first, HERE, ROSTER)
    assert refused.value.expulsion is Expulsion.OUTDATED


def test_a_member_that_starts_again_in_its_process_is_accepted_while_its_stream_looks_open():
    peers = PeerIncarnations()
    before, repaired = (
        hello_to(ONE, replace(PEER, incarnation=incarnation, start_id=11)) for incarnation in (5, 6)
    )
    peers.check_hello(before, HERE, ROSTER)
    peers.check_hello(repaired, HERE, ROSTER, is_connected=True)
    assert peers.is_current(repaired)


def test_another_process_of_the_same_incarnation_is_outdated():
    """Two processes began with copies of one directory."""
    peers = PeerIncarnations()
    peers.check_hello(hello_to(ONE, replace(PEER, start_id=11)), HERE, ROSTER)
    with pytest.raises(PeerExpelled, match="another process has connected as incarnation 5") as no:
        peers.check_hello(hello_to(ONE, replace(PEER, start_id=12)), HERE, ROSTER)
    assert no.value.expulsion is Expulsion.OUTDATED


def test_each_directory_of_a_founder_counts_its_own_starts():
    peers, unknown = PeerIncarnations(), Roster()
    first = hello_to(ONE, replace(PEER, start_id=11))
    emptied = hello_to(ONE, replace(PEER, directory_id="new", incarnation=1, start_id=12))
    peers.check_hello(first, HERE, unknown)
    # The stream of the killed process looks open until the keepalive of its connection has failed.
    peers.check_hello(emptied, HERE, unknown, is_connected=True)
    assert peers.is_current(emptied)
    assert not peers.is_current(first)


def test_incarnations_are_kept_per_member_and_group():
    peers = PeerIncarnations()
    peers.check_hello(hello_to(ONE, PEER), HERE, ROSTER)
    for other in (replace(PEER, member_id=THREE), replace(PEER, group_id=8)):
        hello = hello_to(ONE, replace(other, incarnation=1))
        peers.check_hello(hello, HERE, Roster())
        assert peers.is_current(hello)
    assert peers.is_current(hello_to(ONE, PEER))


def test_a_refused_hello_does_not_replace_the_current_incarnation():
    peers = PeerIncarnations()
    peers.check_hello(hello_to(ONE, PEER), HERE, ROSTER)
    wiped = hello_to(ONE, replace(PEER, incarnation=9, directory_id="new"))
    with pytest.raises(PeerExpelled):
        peers.check_hello(wiped, HERE, ROSTER)
    assert peers.is_current(hello_to(ONE, PEER))


@pytest.mark.parametrize(
    ("member", "directory", "expulsion"),
    [
        (TWO, "d2", None),
        (TWO, "new", Expulsion.DIRECTORY),
        (TWO, "", Expulsion.DIRECTORY),
        (THREE, "d3", Expulsion.REMOVED),
        (FOUR, "any: it is not known yet", None),
        (MemberId(5), "any: it joins", None),
    ],
)
def test_a_removed_or_wiped_member_is_expelled(member, directory, expulsion):
    if expulsion is None:
        check_directory(member, directory, ROSTER)
        return
    with pytest.raises(PeerExpelled) as refusal:
        check_directory(member, directory, ROSTER)
    assert refusal.value.expulsion is expulsion


def test_an_expulsion_is_decoded_to_its_error():
    for expulsion, error in (
        (Expulsion.REMOVED, MemberRemoved),
        (Expulsion.DIRECTORY, DirectoryUnknown),
        (Expulsion.OUTDATED, DirectoryOutdated),
        (Expulsion.SECOND, MemberInUse),
    ):
        assert type(expulsion_error(expulsion.value, "x")) is error
    assert expulsion_error("", "x") is None


@pytest.mark.parametrize(
    ("founders", "own", "is_accepted"),
    [
        ((), (1, 2, 3), True),
        ((1, 2, 3), (1, 2, 3), True),
        ((1, 2, 3), (), True),  # a slow founder of a group that exists
        ((1, 2), (), True),  # a member was added since
        ((1, 2, 3, 4, 5), (1, 2, 3), False),
        ((1, 2), (1, 2, 3), False),
        ((1, 2, 3, 4, 5), (), False),
        ((4, 5), (), False),
    ],
)
def test_a_founder_of_another_group_is_refused(founders, own, is_accepted):
    hello = hello_to(ONE, replace(PEER, founders=founders))
    here, peers = replace(HERE, founders=own), PeerIncarnations()
    peers.check_hello(hello, HERE, Roster())  # a member that has just joined knows no other
    if is_accepted:
        peers.check_hello(hello, here, ROSTER)
        return
    with pytest.raises(PeerRefused, match="member 2 founds a group of members"):
        peers.check_hello(hello, here, ROSTER)
