"""Wrong wall clocks in a simulated group: deadlines do not fire early, and a majority decides."""

import pytest

from taskraft_service.clock.agreement import WALL_TOLERANCE_MS
from taskraft_service.clock.group_clock import AGREED, HEARD, LEAST
from taskraft_service.clock.wall_correction import STEP_AFTER_MS, UNCORRECTED_MS
from tests.sim.clocks import WALL_MS
from tests.sim.machine import Stamped
from tests.sim.test_known_failures import scripted
from tests.sim.time_rules import TimeRules
from tests.sim.violation import Violation

DAY_MS = 86_400_000
LATE_MS = 50
"""Maximum delay of cluster time after some changes of leader in a good network."""


def lead_ms(world, member):
    """Return how far the cluster time of a member is ahead of true time."""
    return member.clocks.clock.now_ms() - WALL_MS - world.schedule.now_us // 1000


def serving(world):
    """Return a leader that serves, once its first timestamp is applied by all that run."""
    world.until(
        lambda: (
            world.leader is not None
            and world.leader.serves
            and all(each.machine.queue.now_ms for each in world.running)
        )
    )
    assert world.leader is not None
    return world.leader


@pytest.mark.parametrize("wrong_by_ms", [DAY_MS, -DAY_MS])
def test_a_leader_that_started_with_a_wrong_wall_clock_does_not_move_cluster_time(wrong_by_ms):
    world, leader, (follower, _) = scripted()
    serving(world)
    follower.stop(power=False)
    follower.clocks.wrong_by_ms = wrong_by_ms
    follower.start()
    world.elapse(2_000)
    leader.driver.transfer_leader(follower.id)
    world.until(lambda: follower.serves)
    assert follower.clocks.clock.started_by == HEARD
    assert -LATE_MS <= lead_ms(world, follower) <= 0
    world.settle()


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize("wrong_by_ms", [DAY_MS, -DAY_MS])
def test_after_the_power_loss_of_all_one_wrong_wall_clock_is_outvoted(wrong, wrong_by_ms):
    world, leader, followers = scripted()
    serving(world)
    members = [leader, *followers]
    for member in members:
        member.stop(power=True)
    members[wrong].clocks.wrong_by_ms = wrong_by_ms
    world.elapse(5_000)
    for member in members:
        member.start()
    leader = serving(world)
    assert leader.clocks.clock.started_by == AGREED
    assert abs(lead_ms(world, leader)) <= LATE_MS
    world.settle()


@pytest.mark.parametrize("wrong_by_ms", [DAY_MS, -DAY_MS])
def test_two_of_three_members_with_different_wall_clocks_never_jump_ahead(wrong_by_ms):
    world, leader, followers = scripted()
    serving(world)
    one, two, _ = members = [leader, *followers]
    for member in members:
        member.stop(power=True)
    one.clocks.wrong_by_ms = wrong_by_ms
    world.elapse(5_000)
    for member in (one, two):
        member.start()
    leader = serving(world)
    assert leader.clocks.clock.started_by == LEAST
    assert abs(lead_ms(world, leader)) <= LATE_MS
    world.settle()


def test_after_the_power_loss_of_all_the_wall_offset_of_the_log_counts():
    world, leader, followers = scripted()
    serving(world)
    members = [leader, *followers]
    for member in members:
        member.clocks.wrong_by_ms = DAY_MS
    world.elapse(STEP_AFTER_MS + 5_000)
    for member in members:
        member.stop(power=True)
    world.elapse(5_000)
    for member in members:
        member.start()
    leader = serving(world)
    assert leader.clocks.clock.started_by == AGREED
    assert abs(lead_ms(world, leader)) <= LATE_MS
    world.settle()


def test_a_majority_of_wall_clocks_corrects_wall_time_but_not_cluster_time():
    world, leader, followers = scripted()
    serving(world)
    for member in followers:
        member.clocks.wrong_by_ms = DAY_MS
    world.elapse(STEP_AFTER_MS - 5_000)
    assert leader.machine.queue.wall_offset_ms == 0
    world.elapse(10_000)
    assert abs(leader.machine.queue.wall_offset_ms - DAY_MS) <= LATE_MS
    assert abs(lead_ms(world, leader)) <= LATE_MS
    for member in followers:
        member.clocks.wrong_by_ms = 0
    world.elapse(STEP_AFTER_MS + 5_000)
    assert abs(leader.machine.queue.wall_offset_ms) <= LATE_MS
    world.settle()


def test_one_wrong_wall_clock_corrects_nothing():
    world, leader, (follower, _) = scripted()
    serving(world)
    for member in (leader, follower):
        member.clocks.wrong_by_ms = DAY_MS
        world.elapse(2 * STEP_AFTER_MS)
        assert abs(leader.machine.queue.wall_offset_ms) <= LATE_MS
        member.clocks.wrong_by_ms = 0
    world.settle()


def test_the_wall_offset_is_slewed_to_the_majority():
    world, leader, followers = scripted()
    serving(world)
    for member in followers:
        member.clocks.skew_ms = 400
    world.elapse(120_000)
    queue = leader.machine.queue
    assert abs(queue.wall_offset_ms - leader.clocks.clock.agreed_offset_ms) <= UNCORRECTED_MS
    assert queue.wall_offset_ms > 100
    world.settle()


def judged(*stamps):
    rules = TimeRules()
    for index, stamped in enumerate(stamps, 1):
        rules.applied(index, stamped)


def test_the_rules_find_time_that_runs_ahead_or_back():
    judged(Stamped(1_000, (), true_us=0), Stamped(2_000, (), true_us=1_000_000))
    judged(Stamped(1_000, (), true_us=0), Stamped(1_000, (), true_us=9_000_000))
    with pytest.raises(Violation, match="runs ahead by"):
        judged(Stamped(1_000, (), true_us=0), Stamped(2_010, (), true_us=1_000_000))
    with pytest.raises(Violation, match="goes back from 1000 to 999"):
        judged(Stamped(1_000, (), true_us=0), Stamped(999, (), true_us=1_000_000))
    late = Stamped(1_000, (), true_us=9_000_000)
    with pytest.raises(Violation, match="runs ahead by"):
        judged(Stamped(1_000, (), true_us=0), late, Stamped(9_000, (), true_us=9_000_000))


def test_a_start_by_wall_clocks_may_be_wrong_by_their_tolerance_only():
    first = Stamped(1_000, (), true_us=0)
    for ahead_ms, is_allowed in ((WALL_TOLERANCE_MS, True), (3 * WALL_TOLERANCE_MS, False)):
        start = Stamped(1_000 + ahead_ms, (), true_us=9, epoch=2)
        if is_allowed:
            judged(first, start)
            continue
        with pytest.raises(Violation, match="runs ahead by"):
            judged(first, start)
    after_late = Stamped(9_000_000, (), true_us=9, epoch=3)
    judged(Stamped(1_000, (), true_us=0, epoch=2, may_be_late=True), after_late)
