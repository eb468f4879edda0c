"""Cluster time continues by monotonic clocks, without jumps and without going back."""

import pytest

from taskraft_service.clock.cluster_clock import DRIFT_PER_MILLE, ClusterClock


class Monotonic:
    def __init__(self) -> None:
        self.ms = 50

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def monotonic():
    return Monotonic()


@pytest.fixture
def clock(monotonic):
    return ClusterClock(monotonic)


def test_a_process_without_beacons_knows_only_applied_timestamps(clock, monotonic):
    clock.applied(700)
    monotonic.ms += 1_000
    assert not clock.is_known
    assert clock.estimate_ms() is None
    assert clock.now_ms() == 700


def test_the_leaders_time_is_continued(clock, monotonic):
    clock.heard(400_000, 1, 1)
    monotonic.ms += 100
    assert clock.is_known
    assert clock.now_ms() == 400_100


def test_a_late_message_does_not_lower_the_estimate(clock, monotonic):
    clock.heard(400_000, 1, 1)
    monotonic.ms += 100
    clock.heard(400_020, 1, 1)
    assert clock.estimate_ms() == 400_100
    monotonic.ms += 10
    clock.heard(400_115, 1, 1)
    assert clock.estimate_ms() == 400_115


def test_an_old_estimate_decays_at_the_maximum_drift_of_clocks(clock, monotonic):
    clock.heard(400_000, 1, 1)
    for _ in range(100):
        monotonic.ms += 100
        clock.heard(0, 1, 1)
    assert clock.estimate_ms() == 410_000 - 10 * DRIFT_PER_MILLE


@pytest.mark.parametrize("per_mille", [1_050, 950])
def test_a_fast_clock_moves_the_estimate_ahead_by_less_than_its_error_in_20_s(
    clock, monotonic, per_mille
):
    began_ms = monotonic.ms
    for true_ms in range(0, 3_600_000, 100):
        monotonic.ms = began_ms + true_ms * per_mille // 1_000
        clock.heard(400_000 + true_ms, 1, 1)
        assert 0 <= clock.estimate_ms() - (400_000 + true_ms) <= 1_100


def test_the_best_bound_of_the_last_seconds_is_kept(clock, monotonic):
    """Most messages were long under way."""
    clock.heard(400_000, 1, 1)
    began_ms = monotonic.ms
    for after_ms in range(1_000, 60_000, 1_000):
        monotonic.ms = began_ms + after_ms
        late_ms = 0 if after_ms % 9_000 == 0 else 300
        clock.heard(400_000 + after_ms - late_ms, 1, 1)
        assert clock.estimate_ms() >= 400_000 + after_ms - 20 * DRIFT_PER_MILLE


def test_after_a_long_silence_of_the_leader_its_next_message_counts(clock, monotonic):
    """The clock was fast during the silence."""
    clock.heard(400_000, 1, 1)
    monotonic.ms += 3_600_000
    clock.heard(400_000 + 3_500_000, 1, 1)
    assert clock.estimate_ms() == 400_000 + 3_500_000


def test_a_new_leader_does_not_start_from_a_timestamp_that_it_showed_as_a_follower(
    clock, monotonic
):
    clock.heard(400_000, 1, 1)
    monotonic.ms += 3_600_000
    assert clock.now_ms() > 3_900_000
    clock.heard(3_900_000, 1, 1)
    clock.lead(2)
    assert clock.now_ms() == 3_900_000


def test_a_leader_continues_from_its_estimate_at_its_own_rate(clock, monotonic):
    clock.heard(400_000, 1, 1)
    monotonic.ms += 10_000
    clock.lead(2)
    began = clock.now_ms()
    assert began == 410_000 - 10 * DRIFT_PER_MILLE
    monotonic.ms += 3_600_000
    assert clock.now_ms() == began + 3_600_000


def test_a_leader_never_starts_below_an_applied_or_given_time(clock, monotonic):
    clock.applied(900_000)
    clock.heard(400_000, 1, 1)
    clock.lead(2)
    monotonic.ms += 5
    assert clock.now_ms() == 900_005
    clock.lead(3, 1_000_000)
    monotonic.ms += 5
    assert clock.now_ms() == 1_000_005


def test_a_former_leader_drops_its_time_when_it_hears_a_later_leader(clock, monotonic):
    """The later leader's time is lower, because its last message was long under way."""
    clock.heard(400_000, 1, 1)
    clock.lead(2)
    clock.applied(400_000)
    monotonic.ms += 10_000
    assert clock.now_ms() == 410_000
    clock.heard(409_990, 1, 3)
    assert clock.now_ms() == 409_990
    assert (clock.epoch, clock.term) == (1, 3)
    monotonic.ms += 20
    clock.heard(410_005, 1, 3)
    assert clock.now_ms() == 410_010


def test_a_lower_time_of_a_later_leader_is_never_below_an_applied_timestamp(clock):
    clock.heard(400_000, 1, 1)
    clock.applied(409_995)
    clock.heard(409_990, 1, 2)
    assert clock.now_ms() == 409_995


def test_an_applied_timestamp_proves_that_the_cluster_time_is_not_lower(clock, monotonic):
    clock.heard(400_000, 1, 1)
    clock.applied(450_000)
    monotonic.ms += 7
    assert clock.estimate_ms() == 450_007
    clock.applied(1)
    assert clock.estimate_ms() == 450_007
