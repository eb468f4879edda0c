"""The members compare their clocks; a minority of wrong wall clocks changes nothing."""

import pytest

from taskraft_replication.errors import MessageMalformed
from taskraft_service.clock.agreement import WALL_TOLERANCE_MS
from taskraft_service.clock.group_clock import AGREED, ESTIMATED, HEARD, LEAST, RECOVERED_MS
from taskraft_service.clock.member_clocks import BEACON_AGE_MS_MAX
from tests.service.clock.members import HOUR_MS, WALL_MS, group


def started(**ahead_ms):
    """Return members that follow the first member."""
    time, members = group(**ahead_ms)
    first, *others = members
    assert not first.lead(1)
    assert first.lead(1, *others)
    first.exchange(*others)
    return time, members


def test_a_new_group_starts_with_the_wall_clocks_of_a_majority():
    time, (one, two, three) = group(m1=HOUR_MS)
    assert not one.lead(1)
    assert not one.lead(1, two), "two clocks disagree, and the third may still arrive"
    assert one.lead(1, three)
    assert one.clock.now_ms() == WALL_MS
    assert one.clock.started_by == AGREED
    time.ms += 5
    one.exchange(two, three)
    assert two.clock.now_ms() == three.clock.now_ms() == WALL_MS + 5


def test_a_leader_with_a_beacon_of_its_predecessor_does_not_wait():
    time, (_, two, _) = started()
    two.ahead_ms += 24 * HOUR_MS
    time.ms += 1_000
    assert two.lead(2)
    assert two.clock.started_by == HEARD
    assert WALL_MS + 995 <= two.clock.now_ms() <= WALL_MS + 1_000


@pytest.mark.parametrize("ahead_ms", [24 * HOUR_MS, -24 * HOUR_MS])
def test_a_jump_of_a_wall_clock_does_not_change_cluster_time(ahead_ms):
    time, (one, two, three) = started()
    for member in (one, two, three):
        member.ahead_ms += ahead_ms
        time.ms += 10
        one.exchange(two, three)
    assert [member.clock.now_ms() for member in (one, two, three)] == [WALL_MS + 30] * 3


@pytest.mark.parametrize("ahead_ms", [24 * HOUR_MS, -24 * HOUR_MS])
def test_a_starting_leader_with_a_wrong_wall_clock_asks_the_others(ahead_ms):
    time, (one, two, three) = started()
    three.restart()
    three.ahead_ms = ahead_ms
    time.ms += 60_000
    three.applied_ms = WALL_MS
    assert not three.lead(2), "no beacon has arrived"
    assert three.lead(2, two)
    assert three.clock.started_by == ESTIMATED
    assert WALL_MS + 59_900 <= three.clock.now_ms() <= WALL_MS + 60_000
    one.lead_term = 0
    three.exchange(one, two)
    assert one.clock.now_ms() <= WALL_MS + 60_000


def test_the_highest_estimate_of_a_majority_is_used():
    time, (one, two, three) = started()
    time.ms += 10_000
    one.exchange(two)
    three.restart()
    two.restart()
    two.hears(one)
    time.ms += 10_000
    three.lead(2, one, two)
    assert three.clock.now_ms() == WALL_MS + 20_000


def restart_all(members, applied_ms, wall_offset_ms=0):
    for member in members:
        member.restart()
        member.applied_ms, member.wall_offset_ms = applied_ms, wall_offset_ms


@pytest.mark.parametrize("wrong", [1, 2, 3])
@pytest.mark.parametrize("ahead_ms", [24 * HOUR_MS, -24 * HOUR_MS])
def test_after_a_restart_of_all_one_wrong_wall_clock_is_outvoted(wrong, ahead_ms):
    time, members = started()
    restart_all(members, WALL_MS)
    members[wrong - 1].ahead_ms = ahead_ms
    time.ms += HOUR_MS
    one, two, three = members
    assert one.lead(2, two, three)
    assert one.clock.started_by == AGREED
    assert one.clock.now_ms() == WALL_MS + HOUR_MS


@pytest.mark.parametrize(
    ("ahead_ms", "passed_ms"),
    [(24 * HOUR_MS, HOUR_MS), (-24 * HOUR_MS, HOUR_MS), (-HOUR_MS // 2, HOUR_MS // 2)],
)
def test_two_wrong_clocks_of_three_never_move_time_ahead_of_the_right_one(ahead_ms, passed_ms):
    time, members = started()
    restart_all(members, WALL_MS)
    one, two, _ = members
    one.ahead_ms = ahead_ms
    time.ms += HOUR_MS
    assert not one.lead(2, two), "the third clock may arrive and decide"
    assert one.lead(2, two, waits_for_all=False)
    assert one.clock.started_by == LEAST
    assert one.clock.now_ms() == WALL_MS + passed_ms


def test_cluster_time_never_starts_below_the_log():
    _, members = started()
    restart_all(members, WALL_MS + 5 * HOUR_MS)
    one, two, three = members
    assert one.lead(2, two, three)
    assert one.clock.now_ms() == WALL_MS + 5 * HOUR_MS


def test_the_estimate_of_each_member_uses_the_wall_offset_of_the_log():
    time, members = started()
    restart_all(members, WALL_MS, wall_offset_ms=7 * HOUR_MS)
    one, two, three = members
    for member in members:
        member.ahead_ms = 7 * HOUR_MS
    time.ms += 3_000
    assert one.lead(2, two, three)
    assert one.clock.now_ms() == WALL_MS + 3_000


def test_a_single_voter_uses_its_own_wall_clock():
    time, (one,) = group(count=1)
    one.applied_ms = WALL_MS - HOUR_MS
    assert one.lead(1)
    assert one.clock.now_ms() == WALL_MS
    one.clock.compare()
    assert one.clock.wall_deviation_ms == 0
    time.ms += 1


def test_a_leader_ignores_late_beacons_of_an_earlier_leader():
    time, (one, two, three) = started()
    one.clock.compare()
    late = one.clock.make()
    time.ms += 50_000
    two.lead(2, three)
    three.hears(two)
    before = two.clock.now_ms()
    two.clock.received(1, late)
    assert two.clock.now_ms() == before
    three.clock.received(1, late)
    assert three.clock.agreed_offset_ms is None, "the leader has not compared the clocks yet"


@pytest.mark.parametrize("waits_for_all", [True, False])
def test_a_leader_that_does_not_know_the_time_never_starts_with_a_minority(waits_for_all):
    _, (one, two, three, *_) = group(count=5)
    assert not one.lead(1, waits_for_all=waits_for_all)
    assert not one.lead(1, two, waits_for_all=waits_for_all)
    assert not one.clock.cluster.is_known
    assert one.lead(1, three, waits_for_all=waits_for_all)


def compared(members):
    leader, *others = members
    for _ in range(2):
        leader.exchange(*others)
        for member in members:
            member.clock.compare()
    return [member.clock.wall_deviation_ms for member in members]


@pytest.mark.parametrize("wrong", [1, 2, 3])
@pytest.mark.parametrize("ahead_ms", [WALL_TOLERANCE_MS + 1, -24 * HOUR_MS])
def test_a_node_detects_its_own_wrong_wall_clock(wrong, ahead_ms):
    _, members = started()
    members[wrong - 1].ahead_ms = ahead_ms
    expected = [ahead_ms if place == wrong else 0 for place in (1, 2, 3)]
    assert compared(members) == expected
    assert [member.clock.deviates for member in members] == [each != 0 for each in expected]
    right = {1, 2, 3} - {wrong}
    assert members[0].clock.right_members() == right


def test_a_wall_clock_counts_as_right_again_only_well_within_the_tolerance():
    _, members = started()
    _, two, _ = members
    for ahead_ms, deviates in [
        (WALL_TOLERANCE_MS, False),
        (WALL_TOLERANCE_MS + 1, True),
        (RECOVERED_MS + 1, True),
        (RECOVERED_MS, False),
    ]:
        two.ahead_ms = ahead_ms
        compared(members)
        assert two.clock.deviates is deviates


def test_without_an_agreeing_majority_no_clock_counts_as_wrong():
    _, members = started()
    members[1].ahead_ms, members[2].ahead_ms = HOUR_MS, -HOUR_MS
    assert compared(members) == [None] * 3
    assert members[0].clock.right_members() == set()


def test_the_majority_can_contradict_the_leader():
    _, members = started()
    for member in members[1:]:
        member.ahead_ms = 5 * HOUR_MS
    assert compared(members) == [-5 * HOUR_MS, 0, 0]
    assert members[0].clock.agreed_offset_ms == 5 * HOUR_MS


def test_stopped_members_do_not_count():
    time, members = started()
    compared(members)
    time.ms += BEACON_AGE_MS_MAX + 1
    members[0].clock.compare()
    assert members[0].clock.agreed_offset_ms is None
    assert members[1].clock.wall_deviation_ms is None, "the leader's beacon is too old"
    members[0].exchange(members[1])
    members[0].clock.compare()
    assert members[0].clock.agreed_offset_ms == 0


def test_learners_do_not_count():
    _, members = started()
    for member in members:
        member.voters = (1, 2)
    members[1].ahead_ms = members[2].ahead_ms = HOUR_MS
    assert compared(members) == [None] * 3


def test_a_beacon_wakes_waiting_callers_and_a_malformed_one_is_refused():
    _, (one, two, _) = group()
    told = []
    one.clock.on_beacon = lambda: told.append(1)
    one.hears(two)
    assert told == [1]
    with pytest.raises(MessageMalformed):
        one.clock.received(2, b"")
    assert told == [1]
    assert one.clock.unheard_voters() == {3}
