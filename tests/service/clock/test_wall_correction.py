"""Small errors of the wall offset are slewed; large ones are stepped after a lasting agreement."""

import pytest

from taskraft_service.clock.agreement import WALL_TOLERANCE_MS
from taskraft_service.clock.wall_correction import (
    SLEW_PER_MILLE,
    STEP_AFTER_MS,
    UNCORRECTED_MS,
    WallCorrection,
)

HOUR_MS = 3_600_000


class Leader:
    """A leader that checks the clocks every second and applies each correction."""

    def __init__(self) -> None:
        self.correction = WallCorrection(0)
        self.now_ms = self.offset_ms = 0

    def look(self, agreed_ms, seconds=1):
        for _ in range(seconds):
            self.now_ms += 1_000
            following = self.correction.next_offset(self.offset_ms, agreed_ms, self.now_ms)
            self.offset_ms = self.offset_ms if following is None else following
        return self.offset_ms


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_error_is_slewed(sign):
    leader = Leader()
    assert leader.look(sign * 700) == sign * SLEW_PER_MILLE
    assert leader.look(sign * 700, seconds=9) == sign * 10 * SLEW_PER_MILLE
    assert abs(leader.look(sign * 700, seconds=1_000) - sign * 700) <= UNCORRECTED_MS


def test_an_error_below_the_threshold_is_not_corrected():
    leader = Leader()
    assert leader.look(UNCORRECTED_MS, seconds=100) == 0
    assert leader.look(UNCORRECTED_MS + 1, seconds=1) == SLEW_PER_MILLE


def test_after_a_pause_the_slew_is_limited():
    leader = Leader()
    leader.now_ms += HOUR_MS
    assert leader.look(WALL_TOLERANCE_MS) == 10 * SLEW_PER_MILLE


@pytest.mark.parametrize("agreed_ms", [24 * HOUR_MS, -24 * HOUR_MS, WALL_TOLERANCE_MS + 1])
def test_a_large_error_is_stepped_after_a_majority_has_agreed_for_long(agreed_ms):
    leader = Leader()
    assert leader.look(agreed_ms, seconds=STEP_AFTER_MS // 1_000) == 0
    assert leader.look(agreed_ms) == agreed_ms
    assert leader.look(agreed_ms, seconds=500) == agreed_ms


@pytest.mark.parametrize("between_ms", [None, 0, 500, 2 * HOUR_MS])
def test_an_interrupted_agreement_restarts_the_waiting_time(between_ms):
    leader = Leader()
    leader.look(HOUR_MS, seconds=STEP_AFTER_MS // 1_000)
    leader.look(between_ms)
    leader.offset_ms = 0
    assert leader.look(HOUR_MS, seconds=STEP_AFTER_MS // 1_000) == 0
    assert leader.look(HOUR_MS) == HOUR_MS


def test_after_a_start_with_disagreeing_clocks_the_first_agreement_is_used_at_once():
    leader = Leader()
    leader.correction = WallCorrection(0, at_once=True)
    assert leader.look(None, seconds=100) == 0
    assert leader.look(HOUR_MS) == HOUR_MS
    assert leader.look(-HOUR_MS, seconds=STEP_AFTER_MS // 1_000) == HOUR_MS, "only the first"


def test_without_an_agreement_nothing_is_corrected():
    leader = Leader()
    leader.offset_ms = 77
    assert leader.look(None, seconds=1_000) == 77
