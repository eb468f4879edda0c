"""The members compare their clocks; a minority of wrong wall clocks changes nothing."""

import pytest

from taskraft_replication.errors import MessageMalformed
from taskraft_service.clock.agreement import START_DELAY_MS_MAX, WALL_TOLERANCE_MS
from taskraft_service.clock.cluster_clock import DRIFT_PER_MILLE
from taskraft_service.clock.group_clock import (
    AGREED,
    CONFIRM_CHECKS,
    ESTIMATED,
    HEARD,
    LEAST,
    RECOVERED_MS,
)
from taskraft_service.clock.member_clocks import BEACON_AGE_MS_MAX
from tests.service.clock.members import HOUR_MS, WALL_MS, group


def started(**ahead_ms):
    """Return members that follow the first member."""
    time, members = group(**ahead_ms)
    first, *others = members
    assert not first.lead(1)
    assert first.lead(1, *others)
    first.serve(*others)
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
def test_a_starting_leader_with_a_wrong_wall_clock_uses_the_other_clocks(ahead_ms):
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


def lost_leader():
    """Return three members: the first leads 24 h ahead, and only the second knows its time."""
    time, (one, two, three) = group()
    one.ahead_ms = 24 * HOUR_MS
    one.clock.cluster.lead(1, WALL_MS + 24 * HOUR_MS, 1)
    one.lead_term = 1
    two.hears(one)
    one.restart()
    one.ahead_ms = 0
    return time, one, two, three


def test_a_follower_drops_the_time_of_an_earlier_epoch():
    """A leader that knew nothing of the earlier time has started a lower time."""
    _, one, two, three = lost_leader()
    assert one.lead(2, three)
    assert one.clock.started_by == AGREED
    one.serve(two, three)
    two.hears(one)
    assert two.clock.now_ms() == WALL_MS
    one.lead_term = 0
    assert two.lead(3)
    assert (two.clock.started_by, two.clock.now_ms()) == (HEARD, WALL_MS)
    assert two.clock.cluster.epoch == 2


def test_a_leader_does_not_use_a_time_that_the_log_has_replaced():
    """The later leader has stored its epoch, but its beacons did not reach the next leader."""
    time, one, two, three = lost_leader()
    assert one.lead(2, three)
    three.hears(one)
    one.lead_term = 0
    time.ms += 10
    for member in (one, two, three):
        member.clock_epoch = 2
    assert not two.lead(3), "its own time is of the first epoch"
    assert two.lead(3, three)
    assert (two.clock.started_by, two.clock.now_ms()) == (ESTIMATED, WALL_MS + 10)


def test_the_time_of_the_applied_epoch_is_preferred():
    """A time that was started from the wall clocks, but never stored, does not count."""
    _, one, two, three = lost_leader()
    assert one.lead(2, three)
    one.lead_term = 0
    three.restart()
    for member in (one, two, three):
        member.clock_epoch = 1
    assert three.lead(3, one, two)
    assert three.clock.now_ms() == WALL_MS + 24 * HOUR_MS
    assert three.clock.cluster.epoch == 1


def slow_start():
    """Return members: the third led from a low estimate, and the second missed its beacons."""
    time, (one, two, three) = started()
    time.ms += 1_000
    one.exchange(two)
    slow = one.clock.make()
    three.restart()
    time.ms += 70
    three.clock.received(1, slow)
    one.lead_term = 0
    assert three.lead(2)
    assert three.clock.now_ms() == WALL_MS + 1_000, "70 ms late"
    three.serve(one, two)
    return time, one, two, three


def test_a_leader_does_not_continue_the_higher_time_of_an_earlier_leader():
    """Clients have seen the deadlines of the lower time; in the higher time they end early."""
    time, one, two, three = slow_start()
    one.hears(three)
    three.lead_term = 0
    time.ms += 10
    assert not two.lead(3), "its own estimate is of the first leader"
    assert two.lead(3, one)
    assert (two.clock.started_by, two.clock.now_ms()) == (ESTIMATED, WALL_MS + 1_010)


def test_a_follower_drops_the_higher_time_of_an_earlier_leader():
    time, _one, two, three = slow_start()
    two.hears(three)
    three.lead_term = 0
    time.ms += 10
    assert two.lead(3)
    assert (two.clock.started_by, two.clock.now_ms()) == (HEARD, WALL_MS + 1_010)


def test_the_time_of_an_earlier_leader_counts_with_an_allowance_if_there_is_no_other():
    time, one, two, three = slow_start()
    three.restart()
    time.ms += 10_000
    assert two.lead(3, one)
    assert two.clock.started_by == ESTIMATED
    assert WALL_MS + 9_990 <= two.clock.now_ms() + START_DELAY_MS_MAX - 1_070 <= WALL_MS + 10_000


def test_a_new_leader_tells_its_time_only_once_it_has_started_it():
    """Its estimate may be of an earlier leader and higher than its own time will be."""
    _, one, two, three = slow_start()
    two.lead_term = 3
    one.hears(two)
    assert one.clock.cluster.term == 1
    assert two.clock.try_start(waits_for_all=True) is False
    two.exchange(three)
    assert two.clock.try_start(waits_for_all=True)
    one.hears(two)
    assert (one.clock.cluster.term, one.clock.now_ms()) == (3, two.clock.now_ms())


def test_beacons_of_an_earlier_term_do_not_make_a_majority():
    """They were sent before the members knew the last leader's time."""
    _, one, two, three = slow_start()
    two.hears(one)
    assert not two.lead(3)
    assert two.clock.unheard_voters() == {1, 3}
    assert two.lead(3, three)
    assert two.clock.unheard_voters() == {1}


def test_an_old_beacon_counts_less_by_the_maximum_drift_of_clocks():
    time, one, two, three = slow_start()
    two.lead_term = 3
    two.hears(three)
    time.ms += 100_000
    two.exchange(one)
    assert two.clock.try_start(waits_for_all=True)
    assert two.clock.now_ms() == WALL_MS + 101_000 - 100 * DRIFT_PER_MILLE


def test_a_time_that_no_applied_startup_names_does_not_count_at_once():
    """Leader 2 started from the wall clocks and was lost before its Startup was applied."""
    _, one, two, three = lost_leader()
    for member in (one, two, three):
        member.clock_epoch = member.clock_term = 1
    assert one.lead(2, three)
    three.hears(one)
    one.lead_term = 0
    assert not three.lead(3), "its own time is of the second epoch"
    assert three.lead(3, two)
    assert three.clock.now_ms() == WALL_MS + 24 * HOUR_MS


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
    for _ in range(CONFIRM_CHECKS + 1):
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


def test_a_late_beacon_is_not_taken_for_a_wrong_clock():
    time, members = started()
    leader, follower, other = members
    leader.clock.compare()
    late = leader.clock.make()
    follower.restart()
    time.ms += WALL_TOLERANCE_MS + 57
    follower.clock.received(1, late)
    for _ in range(CONFIRM_CHECKS - 1):
        follower.clock.compare()
        assert follower.clock.wall_deviation_ms > WALL_TOLERANCE_MS
        assert not follower.clock.deviates
    leader.exchange(follower, other)
    follower.clock.compare()
    assert follower.clock.wall_deviation_ms == 0
    assert not follower.clock.deviates


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


def test_the_leader_knows_how_far_each_wall_clock_is_from_those_of_a_majority():
    _time, members = group(m3=5_000)
    one, two, three = members
    assert one.clock.wall_deviations() == {}
    one.lead(1, two, three)
    one.exchange(two, three)
    one.clock.compare()
    assert one.clock.wall_deviations() == {1: 0, 2: 0, 3: 5_000}
    assert not one.clock.is_alone
    one.voters = (1,)
    assert one.clock.is_alone
