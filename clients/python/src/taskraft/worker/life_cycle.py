"""The life cycle of a worker, and of the process that runs workers, as state machines.

The state machines have no clock, no signals and no threads: callers give the time. `watchdog`
connects them to the process. A `LifeCycle` is used by the event loop and by the thread of the
watchdog. Each method sets one attribute, so no lock is needed.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

HAND_BACK_SECONDS: Final = 0.4
"""Time after the end of the cancel grace in which interrupted tasks are handed back, in seconds."""
STACKS_SECONDS: Final = 0.8
"""Time after the end of the cancel grace at which the watchdog begins to print stacks and to end
the process, in seconds."""
END_SECONDS_MAX: Final = 0.2
"""Maximum time for the stacks and the end, in seconds. So the process has ended 1 s after the
cancel grace."""


class ExitReason(enum.IntEnum):
    """Cause of the end of a worker; the number is the exit status of `taskraft worker`."""

    DRAINED = 0
    """All handlers have finished, or the worker was stopped before it took tasks."""
    GRACE_OVER = 7
    """Handlers were interrupted at the end of the grace; their tasks were handed back."""
    THREADS_STUCK = 8
    """Half of the threads run handlers whose time limit is over."""
    HANDLERS_STUCK = 9
    """The watchdog has ended the process, because code of the app did not end within the cancel
    grace."""


class StoppedEarly(Exception):
    """The worker was asked to stop before it took tasks."""


class Phase(enum.Enum):
    """Phase of a worker."""

    STARTING = "starting"
    """The lifespans of the app begin."""
    WAITING = "waiting"
    """The worker waits for the cluster and for its processes."""
    WORKING = "working"
    """The worker takes tasks."""
    ABANDONED = "abandoned"
    """The worker was asked to stop before it took tasks."""
    DRAINING = "draining"
    """The worker was asked to stop, and its handlers have the grace to finish."""
    ENDED = "ended"
    """The run of the worker has ended."""


class _Stop(NamedTuple):
    """The first request to stop."""

    at: float
    """Time in seconds."""
    reached: Phase
    """Phase of the start in which the request came."""


class LifeCycle:
    """Phases of one run of a worker, and the time at which its process must end.

    STARTING, WAITING and WORKING follow each other. A stop in WORKING leads to DRAINING, and a stop
    before WORKING to ABANDONED. Both lead to ENDED.
    """

    def __init__(self, grace_seconds: float, cancel_grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._cancel_grace_seconds = cancel_grace_seconds
        self._reached = Phase.STARTING
        self._stop: _Stop | None = None
        self._is_ended = False

    @property
    def phase(self) -> Phase:
        """Current phase."""
        if self._is_ended:
            return Phase.ENDED
        if self._stop is None:
            return self._reached
        return Phase.DRAINING if self._stop.reached is Phase.WORKING else Phase.ABANDONED

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was asked to stop, or has ended."""
        return self._stop is not None

    @property
    def ends_at(self) -> float | None:
        """Time at which the process must have ended; None: the worker was not asked to stop."""
        stop = self._stop
        if stop is None:
            return None
        grace = self._grace_seconds if stop.reached is Phase.WORKING else 0.0
        return stop.at + grace + self._cancel_grace_seconds + STACKS_SECONDS

    def reach(self, phase: Phase) -> None:
        """Note that the start has reached WAITING or WORKING."""
        self._reached = phase

    def stop(self, now: float) -> None:
        """Note a request to stop; later requests change nothing."""
        if self._stop is None:
            self._stop = _Stop(now, self._reached)

    def end(self, now: float) -> None:
        """Note the end of the run, also of a run that was not asked to stop."""
        self.stop(now)
        self._is_ended = True


class Response(enum.Enum):
    """Response of a process to a signal."""

    STOP = "stop"
    """Stop all workers."""
    EXIT = "exit"
    """End the process at once."""
    EXIT_UNBEGUN = "exit unbegun"
    """End the process at once with status 0: there was no worker yet."""


class ProcessLife:
    """The life cycle of a process with workers: its signals, and the time at which it must end."""

    def __init__(self) -> None:
        self._workers: list[LifeCycle] = []
        self._signals = 0

    @property
    def is_signalled(self) -> bool:
        """Whether a signal has asked the process to end."""
        return self._signals > 0

    @property
    def ends_at(self) -> float | None:
        """Time at which the process must have ended; None: a worker goes on, or none has begun."""
        ends = [worker.ends_at for worker in self._workers]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None

    def add(self, worker: LifeCycle, now: float) -> None:
        """Add a worker, which stops at once if a signal has come before."""
        self._workers.append(worker)
        if self._signals:
            worker.stop(now)

    def remove(self, worker: LifeCycle) -> None:
        """Remove a worker after its run."""
        self._workers.remove(worker)

    def signalled(self, now: float) -> Response:
        """Note a signal, and return what to do: the second signal ends the process."""
        self._signals += 1
        if not self._workers:
            return Response.EXIT_UNBEGUN
        if self._signals > 1 or all(one.phase is Phase.ENDED for one in self._workers):
            return Response.EXIT
        for worker in self._workers:
            worker.stop(now)
        return Response.STOP
