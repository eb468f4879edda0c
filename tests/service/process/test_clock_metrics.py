"""The metrics show the clocks of a node, and leave out unknown values."""

from prometheus_client import CollectorRegistry

from taskraft_service.clock.group_clock import CONFIRM_CHECKS
from taskraft_service.process.metrics.clock import ClockCollector
from tests.service.clock.members import HOUR_MS, group

UNKNOWN = ("taskraft_wall_clock_offset_seconds", "taskraft_wall_clock_deviation_seconds")


def test_the_clocks_are_shown_as_far_as_they_are_known():
    _, (one, two, three) = group()
    registry = CollectorRegistry()
    registry.register(ClockCollector(one.clock, lambda: 1_500))
    read = registry.get_sample_value
    assert read("taskraft_cluster_time_known") == 0
    assert read("taskraft_wall_offset_seconds") == 1.5
    assert [read(name) for name in UNKNOWN] == [None, None]
    one.lead(1, two, three)
    one.exchange(two, three)
    one.ahead_ms = 2 * HOUR_MS
    for _ in range(CONFIRM_CHECKS):
        one.clock.compare()
    assert read("taskraft_cluster_time_known") == read("taskraft_wall_clock_deviates") == 1
    assert [read(name) for name in UNKNOWN] == [7_200, 7_200]
