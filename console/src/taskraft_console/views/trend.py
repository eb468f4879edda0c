"""Rates, time to drain and a small curve from the recent samples of a tube."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskraft.v1.tube_service_pb2 import TubeHistory

RATE_SAMPLES: Final = 6
"""Number of samples of a rate: one minute at 10 s."""
DRAIN_SAMPLES: Final = 60
"""Number of samples of the last 10 minutes, at 10 s."""
SPARK_POINTS: Final = 60
SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 22
NEVER_MS: Final = -1
"""Time to drain of a tube whose backlog does not shrink."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The recent past of one tube; None: not known yet."""

    put_rate: float | None = None
    """Puts per second."""
    ack_rate: float | None = None
    """Acknowledgements per second."""
    fail_rate: float | None = None
    """Failed attempts per second."""
    drain_ms: int | None = None
    """Time until no task is READY, if the rates of the last 10 minutes continue; `NEVER_MS`: never.
    """
    spark: str = ""
    """Path of an SVG curve of the READY tasks; empty: there is no curve."""
    wait_p95_ms: int | None = None
    run_p95_ms: int | None = None
    buried_before: int | None = None
    """Number of BURIED tasks 10 minutes ago, or at the first sample after that."""

    @classmethod
    def of(cls, history: TubeHistory | None, step_ms: int, ready: int) -> Trend:
        """Return the trend of a history; `ready` is the present number of READY tasks."""
        if history is None:
            return cls()
        return cls(
            put_rate=_rate(history.put, step_ms, RATE_SAMPLES),
            ack_rate=_rate(history.ack, step_ms, RATE_SAMPLES),
            fail_rate=_rate(history.fail, step_ms, RATE_SAMPLES),
            drain_ms=_drain_ms(history, step_ms, ready),
            spark=spark_path(history.ready),
            wait_p95_ms=_newest(history.wait_p95_ms),
            run_p95_ms=_newest(history.run_p95_ms),
            buried_before=next(
                (each for each in history.buried[-DRAIN_SAMPLES:] if each >= 0), None
            ),
        )


UNKNOWN_TREND: Final = Trend()


def _rate(counts: Sequence[int], step_ms: int, samples: int) -> float | None:
    """Return the mean rate of the newest samples; None if there is none."""
    known = [each for each in counts[-samples:] if each >= 0]
    return sum(known) / (len(known) * step_ms / 1_000) if known else None


def _drain_ms(history: TubeHistory, step_ms: int, ready: int) -> int | None:
    if not ready:
        return 0
    into = _rate(history.put, step_ms, DRAIN_SAMPLES)
    out = _rate(history.ack, step_ms, DRAIN_SAMPLES)
    if into is None or out is None:
        return None
    return round(ready / (out - into) * 1_000) if out > into else NEVER_MS


def _newest(numbers: Sequence[int]) -> int | None:
    """Return the newest known number of the last minute."""
    return next((each for each in reversed(numbers[-RATE_SAMPLES:]) if each >= 0), None)


def spark_path(numbers: Sequence[int]) -> str:
    """Return the path of a curve from 0 to the greatest number; gaps stay gaps."""
    known = [each for each in numbers if each >= 0]
    if len(known) < 2 or not any(known):
        return ""
    group = max(-(-len(numbers) // SPARK_POINTS), 1)
    points = [max(numbers[at : at + group]) for at in range(0, len(numbers), group)]
    top = max(points)
    parts: list[str] = []
    is_gap = True
    for place, number in enumerate(points):
        if number < 0:
            is_gap = True
            continue
        x = place * SPARK_WIDTH / max(len(points) - 1, 1)
        y = SPARK_HEIGHT - 1 - number / top * (SPARK_HEIGHT - 2)
        parts.append(f"{'M' if is_gap else 'L'}{x:.1f} {y:.1f}")
        is_gap = False
    return "".join(parts)
