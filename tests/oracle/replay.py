"""Replay traces, and report how the service differs from the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.oracle.clusters import Host
from tests.oracle.comparison import event_differences, outcome_differences
from tests.oracle.player import Player, TooSlow
from tests.oracle.renaming import renamed
from tests.oracle.stretching import stretched
from tests.oracle.trace import Outcome, Trace, TraceUnreadable, read_trace

RUNS_MAX: Final = 3
"""Maximum number of runs of a timed trace that differs: a busy machine may have missed a deadline.
Each run has half the pace of the previous run, because a machine that is busy during one run is
often busy during the next."""
PACES: Final = (1, 1, 2, 4, 8)
"""Paces of the repetitions after runs that missed a time, because such runs are not valid."""
SHOWN_MAX: Final = 5

DIVERGES: Final = frozenset(
    {
        "id_reuse",
        "waiter_deadline_order",
        "truncate_keeps_claims",
        "truncate_breaks_disconnect",
        "touch_overflow",
        "touch_magic_3153",
        "kick_returns_argument",
        "ready_buffer_kick_lost",
        "ready_buffer_priority",
        "utubettl_taken_outlives_ttl",
        "utubettl_release_loses_ttl",
        "limfifottl_dead_after_role_switch",
        "waiter_deaf_after_role_switch",
    }
)
"""Peculiarities that the service does not have, with the reasons in docs/divergence.md."""


def replay(path: Path, host: Host) -> list[str]:
    """Return the differences between the service on ``host`` and the trace at ``path``."""
    try:
        trace = renamed(read_trace(path))
    except TraceUnreadable as error:
        return [str(error)]
    runs_left = RUNS_MAX if trace.timed else 1
    paces = iter(PACES)
    pace = next(paces)
    while True:
        try:
            found = _differences(stretched(trace, pace), host)
        except TooSlow as error:
            slower = next(paces, None)
            if slower is None:
                return [f"too slow at every pace: {error}"]
            pace = max(pace, slower)
        else:
            runs_left -= 1
            if not found or not runs_left:
                return found
            pace *= 2


def _differences(trace: Trace, host: Host) -> list[str]:
    """Play a trace once and compare.

    Raises:
        TooSlow: the run is not valid.
    """
    try:
        got = _play(trace, host)
    except TooSlow:
        raise
    except Exception as error:  # noqa: BLE001 - reported as a difference
        return [f"cannot be played: {type(error).__name__}: {error}"]
    found = [
        f"{step}: {difference}"
        for step, outcome in zip(trace.steps, got, strict=True)
        if step.quirk not in DIVERGES
        for difference in outcome_differences(step.outcome, outcome)
    ]
    found = found or event_differences(trace.steps, got, DIVERGES)
    return found[:SHOWN_MAX] + (["..."] if len(found) > SHOWN_MAX else [])


def _play(trace: Trace, host: Host) -> list[Outcome]:
    host.clean()
    return Player(trace, host).play()
