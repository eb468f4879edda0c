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
    clock.heard(400_000)
    monotonic.ms += 100
    assert clock.is_known
    assert clock.now_ms() == 400_100


def test_a_late_message_does_not_lower_the_estimate(clock, monotonic):
    clock.heard(400_000)
    monotonic.ms += 100
    clock.heard(400_020)
    assert clock.estimate_ms() == 400_100
    monotonic.ms += 10
    clock.heard(400_115)
    assert clock.estimate_ms() == 400_115


def test_an_old_estimate_decays_at_the_maximum_drift_of_clocks(clock, monotonic):
    clock.heard(400_000)
    for _ in range(100):
        monotonic.ms += 100
        clock.heard(0)
    assert clock.estimate_ms() == 410_000 - 10 * DRIFT_PER_MILLE


def test_a_leader_continues_from_its_estimate_at_its_own_rate(clock, monotonic):
    clock.heard(400_000)
    monotonic.ms += 10_000
    clock.lead()
    began = clock.now_ms()
    assert began == 410_000 - 10 * DRIFT_PER_MILLE
    monotonic.ms += 3_600_000
    assert clock.now_ms() == began + 3_600_000


def test_a_leader_never_starts_below_an_applied_or_given_time(clock, monotonic):
    clock.applied(900_000)
    clock.heard(400_000)
    clock.lead()
    monotonic.ms += 5
    assert clock.now_ms() == 900_005
    clock.lead(at_least_ms=1_000_000)
    monotonic.ms += 5
    assert clock.now_ms() == 1_000_005


def test_a_former_leader_follows_a_new_one_with_a_slightly_lower_time(clock, monotonic):
    clock.heard(400_000)
    clock.lead()
    monotonic.ms += 10_000
    assert clock.now_ms() == 410_000
    clock.heard(409_990)
    assert clock.now_ms() == 410_000, "not below a time that was given out"
    monotonic.ms += 20
    clock.heard(410_010)
    assert clock.now_ms() == 410_010


def test_an_applied_timestamp_proves_that_the_cluster_time_is_not_lower(clock, monotonic):
    clock.heard(400_000)
    clock.applied(450_000)
    monotonic.ms += 7
    assert clock.estimate_ms() == 450_007
    clock.applied(1)
    assert clock.estimate_ms() == 450_007
