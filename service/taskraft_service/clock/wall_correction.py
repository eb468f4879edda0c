"""Decide the steps by which the leader corrects the wall offset."""

from __future__ import annotations

from typing import Final

from taskraft_service.clock.agreement import WALL_TOLERANCE_MS

SLEW_PER_MILLE: Final = 5
"""The wall offset is slewed by at most 5 ms per second."""
SLEW_INTERVAL_MS_MAX: Final = 10_000
"""Maximum time that one correction covers, so that no correction exceeds 50 ms."""
UNCORRECTED_MS: Final = 20
"""Maximum error that is not corrected; delays of the network and of the event loop cause such
errors."""
STEP_AFTER_MS: Final = 60_000
"""Time for which the wall clocks of a majority must agree before an error above
``WALL_TOLERANCE_MS`` is corrected in one step."""


class WallCorrection:
    """The state of the correction during one leadership.

    Args:
        monotonic_ms: a clock that never goes back.
        at_once: step without a wait when a majority first agrees. Set if the cluster time was
            computed while the wall clocks disagreed, because it may then be too low. If all nodes
            stopped again before the correction, the next cluster time would jump ahead by the
            error.
    """

    def __init__(self, monotonic_ms: int, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self._slewed_at_ms = monotonic_ms
        self._against_ms: int | None = None
        """Offset on which a majority agrees, if it differs from the offset in force by more than 1
        s."""
        self._against_since_ms = 0

    def next_offset(self, in_force_ms: int, agreed_ms: int | None, monotonic_ms: int) -> int | None:
        """Return the wall offset to set now, or None to leave it.

        Args:
            in_force_ms: wall offset in force.
            agreed_ms: wall offset on which a majority of the voters agrees; None: there is none.
            monotonic_ms: a clock that never goes back.
        """
        elapsed_ms = min(monotonic_ms - self._slewed_at_ms, SLEW_INTERVAL_MS_MAX)
        self._slewed_at_ms = monotonic_ms
        error_ms = 0 if agreed_ms is None else agreed_ms - in_force_ms
        if agreed_ms is not None and self._at_once:
            self._at_once = False
            return agreed_ms if error_ms else None
        if agreed_ms is None or abs(error_ms) <= WALL_TOLERANCE_MS:
            self._against_ms = None
            if abs(error_ms) <= UNCORRECTED_MS:
                return None
            slew_ms = elapsed_ms * SLEW_PER_MILLE // 1_000
            return in_force_ms + max(-slew_ms, min(slew_ms, error_ms)) if slew_ms else None
        against_ms = self._against_ms
        if against_ms is None or abs(agreed_ms - against_ms) > WALL_TOLERANCE_MS:
            self._against_ms, self._against_since_ms = agreed_ms, monotonic_ms
        elif monotonic_ms - self._against_since_ms >= STEP_AFTER_MS:
            self._against_ms = None
            return agreed_ms
        return None
