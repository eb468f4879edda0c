"""Opening a node's state, and its monotonic clock."""

import time

import pytest

from taskraft_service.clock.cluster_clock import monotonic_ms


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux tells")
def test_the_monotonic_clock_includes_time_asleep(monkeypatch):
    slept_ms = 3_600_000
    clocks = {time.CLOCK_MONOTONIC: 5, time.CLOCK_BOOTTIME: 5 + slept_ms}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: clocks[clock] * 1_000_000)
    assert monotonic_ms() == 5 + slept_ms
