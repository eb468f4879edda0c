"""Members compare digests of their states; only a minority that differs stops."""

import pytest

from taskraft_replication.beacons import BEACON_BYTES_MAX
from taskraft_replication.errors import MessageMalformed
from taskraft_service.machine.state_comparison import (
    FIRST_MS_MAX,
    StateComparison,
    StateDiffers,
    places_of,
)
from taskraft_service.queue.persistence.record_digest import DIGESTS, PARTS
from taskraft_service.stubs.log.v1 import beacon_pb2
from taskraft_service.versions import DigestVersion

PERIOD_MS = 1_000_000
VERSION = int(DigestVersion.V1)
RIGHT = tuple(range(PARTS))
WRONG = (0, 1, 99, *range(3, PARTS))


class Group:
    def __init__(self, voters):
        self.voters = voters
        self.lead_term = 0

    def has_quorum(self, members):
        return len(set(members) & set(self.voters)) > len(self.voters) // 2


class Member:
    """A member whose digests the test provides."""

    def __init__(self, number, voters):
        self.number = number
        self.group = Group(voters)
        self.applied = 10
        self.now_ms = 0
        self.asked = []
        self.failures = []
        self.comparison = StateComparison(
            number,
            self.group,
            lambda: self.applied,
            self.asked.append,
            PERIOD_MS,
            lambda: self.now_ms,
            self.failures.append,
        )
        self.agreements = 0
        self.comparison.agreed = self.agree

    def agree(self):
        self.agreements += 1


def cluster(count, voters=None):
    """Return members; the first leads and has begun a comparison."""
    voters = voters or tuple(range(1, count + 1))
    members = [Member(number, voters) for number in range(1, count + 1)]
    leader = members[0]
    leader.group.lead_term = 1
    leader.comparison.make()
    leader.now_ms = FIRST_MS_MAX
    return members


def exchange(members, rounds=3):
    leader, *followers = members
    for _ in range(rounds):
        beacon = leader.comparison.make()
        for follower in followers:
            if not follower.failures:
                follower.comparison.received(leader.number, beacon)
                leader.comparison.received(follower.number, follower.comparison.make())


def compare(members, digests):
    exchange(members, 1)
    for member, parts in zip(members, digests, strict=True):
        (index,) = member.asked
        if parts is not None:
            member.comparison.computed(index, VERSION, parts)
    exchange(members)
    return [bool(member.failures) for member in members]


def test_equal_states_stop_no_member():
    members = cluster(3)
    assert compare(members, [RIGHT] * 3) == [False] * 3
    assert members[0].comparison.compared == 1
    assert members[0].comparison.differences == 0
    assert all(member.agreements for member in members)


def test_a_follower_that_differs_stops_and_names_index_member_and_tubes():
    members = cluster(3)
    members[0].applied = 10
    assert compare(members, [RIGHT, RIGHT, WRONG]) == [False, False, True]
    (error,) = members[2].failures
    assert isinstance(error, StateDiffers)
    assert "member 3 after entry 10" in str(error)
    assert f"tubes whose number modulo {PARTS - 1} is 1" in str(error)
    assert members[0].comparison.differences
    assert [bool(member.agreements) for member in members] == [True, True, False]


def test_a_leader_names_a_member_whose_state_was_right_before_its_restart():
    members = cluster(3)
    compare(members, [RIGHT] * 3)
    members[2] = restarted = Member(3, members[0].group.voters)
    exchange(members, 1)
    restarted.comparison.computed(restarted.asked[0], VERSION, WRONG)
    exchange(members)
    assert restarted.failures
    assert members[0].comparison.differences


def test_a_leader_in_the_minority_stops():
    members = cluster(3)
    assert compare(members, [WRONG, RIGHT, RIGHT]) == [True, False, False]
    assert "is 1" in str(members[0].failures[0])


def test_a_member_that_has_received_a_state_is_compared_soon():
    members = cluster(3)
    leader, _, received = members
    compare(members, [RIGHT] * 3)
    for member in members:
        member.applied = 20
    received.comparison.state_received()
    leader.now_ms = 2 * FIRST_MS_MAX - 1
    exchange(members)
    assert len(leader.asked) == 1, "the last comparison began less than a minute ago"
    leader.now_ms += 1
    exchange(members)
    assert leader.asked == [10, 20]
    for member, parts in zip(members, (RIGHT, RIGHT, WRONG), strict=True):
        member.comparison.computed(20, VERSION, parts)
    exchange(members)
    assert received.failures
    leader.now_ms += FIRST_MS_MAX
    exchange(members)
    assert len(leader.asked) == 2, "nobody waits for another comparison"


def test_a_member_whose_state_is_newer_than_the_named_entry_asks_for_another_one():
    members = cluster(3)
    leader, *_, late = members
    assert late.comparison.make(), "no comparison has begun since the start of the member"
    late.applied = 11
    compare(members, [RIGHT, RIGHT, None])
    leader.applied = 12
    leader.now_ms += FIRST_MS_MAX
    exchange(members)
    assert late.asked[-1] > 11
    leader.now_ms += FIRST_MS_MAX
    exchange(members)
    assert len(leader.asked) == 2


@pytest.mark.parametrize(
    ("digests", "voters"),
    [
        ([RIGHT, WRONG], None),
        ([RIGHT, RIGHT, WRONG, WRONG], None),
        ([RIGHT, WRONG, (7,) * PARTS], None),
        ([RIGHT, WRONG, WRONG], (1, 2)),
    ],
    ids=["two voters", "tie", "all differ", "a learner has no vote"],
)
def test_without_a_majority_no_member_stops(digests, voters):
    members = cluster(len(digests), voters)
    assert compare(members, digests) == [False] * len(digests)
    assert members[0].comparison.differences
    assert members[0].comparison.compared == 0
    assert not any(member.agreements for member in members)


def test_a_member_that_has_not_answered_is_checked_later():
    members = cluster(3)
    assert compare(members, [RIGHT, RIGHT, None]) == [False] * 3
    assert members[0].comparison.compared == 1
    members[2].comparison.computed(members[2].asked[0], VERSION, WRONG)
    exchange(members)
    assert members[2].failures
    assert members[0].comparison.differences == 1, "the leader has heard of the difference"


def test_digests_of_another_entry_are_ignored():
    members = cluster(3)
    exchange(members, 1)
    members[2].comparison.computed(9, VERSION, WRONG)
    assert compare(members, [RIGHT, RIGHT, RIGHT]) == [False] * 3


def test_an_answer_about_another_entry_is_ignored_by_the_leader():
    """The answer of an earlier comparison may arrive late."""
    members = cluster(3)
    leader, second, _ = members
    leader.comparison.make()
    (index,) = leader.asked
    leader.comparison.computed(index, VERSION, RIGHT)
    ballot = beacon_pb2.StateBallot(index=index - 1, parts=RIGHT, version=VERSION)
    beacon = beacon_pb2.ClockBeacon(state=ballot).SerializeToString()
    leader.comparison.received(second.number, beacon)
    assert leader.comparison.compared == 0
    ballot.index = index
    beacon = beacon_pb2.ClockBeacon(state=ballot).SerializeToString()
    leader.comparison.received(second.number, beacon)
    assert leader.comparison.compared == 1


def test_a_busy_leader_names_an_entry_ahead_and_asks_once_per_period():
    members = cluster(3)
    leader = members[0]
    leader.applied = 35
    leader.comparison.make()
    assert leader.asked == [35 + 4 * 25]
    leader.now_ms += 1
    leader.comparison.make()
    assert len(leader.asked) == 1


@pytest.mark.parametrize(
    ("versions", "stopped"),
    [((1, 1, 2), [False] * 3), ((2, 1, 1), [False] * 3), ((2, 2, 1), [False] * 3)],
    ids=["a follower", "the leader", "a majority"],
)
def test_digests_of_different_versions_are_not_compared(monkeypatch, versions, stopped):
    """Members of a later release that computed another digest by mistake must not stop others."""
    monkeypatch.setitem(DIGESTS, 2, DIGESTS[VERSION])
    members = cluster(3)
    exchange(members, 1)
    for member, version in zip(members, versions, strict=True):
        (index,) = member.asked
        member.comparison.computed(index, version, RIGHT if version == 1 else WRONG)
    exchange(members)
    assert [bool(member.failures) for member in members] == stopped
    assert members[0].comparison.compared == 1, "two equal digests are a majority"
    assert members[0].comparison.differences == 0


def test_digests_of_an_unknown_version_are_no_answer(monkeypatch):
    members = cluster(3)
    exchange(members, 1)
    for member, version in zip(members, (1, 1 << 20, 1 << 20), strict=True):
        (index,) = member.asked
        member.comparison.computed(index, version, RIGHT)
    exchange(members)
    assert members[0].comparison.compared == 0
    assert members[0].comparison.differences == 0


def test_a_single_voter_compares_nothing():
    (alone,) = cluster(1)
    assert alone.comparison.make() == b""
    assert alone.asked == []


def test_a_new_leadership_begins_anew():
    members = cluster(3)
    compare(members, [RIGHT] * 3)
    leader = members[0]
    leader.group.lead_term = 2
    assert leader.comparison.make() == b""


def test_a_beacon_is_small_and_other_bytes_are_refused():
    members = cluster(3)
    compare(members, [tuple((1 << 32) - 1 - each for each in range(PARTS))] * 3)
    assert len(members[0].comparison.make()) < BEACON_BYTES_MAX // 2
    with pytest.raises(MessageMalformed):
        members[0].comparison.received(2, b"\xff")


def test_the_places_are_named():
    assert places_of([0]) == "sessions, schedules or groups"
    assert places_of([]) == "unknown parts"
    assert places_of([0, 3]).endswith(f"modulo {PARTS - 1} is 2")
