"""The times of a drill without a fault: the elections in them, and how long puts took.

A fault can cause elections and slow puts. Without a fault, only the callers can cause them. The
first phase ends before the hostile callers begin, so the load of the machine can be told apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.percentiles import median_and_p99
from tests.drill.history import Operation
from tools.local_cluster import LocalCluster

P99_GOAL_MS = 250.0
"""Goal for the 99th percentile of the puts of other clients while a demanding caller sends
requests. Runs on two quiet cores have 180 to 280 ms, so missing the goal does not fail a drill."""
P99_MAX_MS = 500.0
"""Maximum of the same percentile; more fails a drill, if the machine was quiet before."""
QUIET_P99_MAX_MS = 100.0
"""Maximum of the percentile before the demanding caller begins, for a machine to count as quiet.
Quiet machines have 12 to 15 ms. On a busy machine, other programs may have delayed the puts."""
CALM_AFTER_SECONDS = 1.0
"""Time after the end of a fault until no election timeout is left that the fault started."""


@dataclass(frozen=True)
class CalmPhase:
    """One time without a fault."""

    begun_ns: float
    ended_ns: float
    elections: int = 0
    """Number by which the highest Raft term has grown."""


def highest_term(cluster: LocalCluster) -> int:
    """Return the highest Raft term that a running node knows; 0 if none answers."""
    states = [node.state() for node in cluster.running()]
    return max((state.state.term for state in states if state is not None), default=0)


class CalmPhases:
    """Records the times without a fault; all methods block until nodes have answered.

    Args:
        cluster: the nodes.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.phases: list[CalmPhase] = []
        self._cluster = cluster
        self._begun_ns, self._term = 0, 0

    def begin(self) -> None:
        """Begin a phase: all faults are healed, and the cluster is ready."""
        self._term = highest_term(self._cluster)
        self._begun_ns = time.monotonic_ns()

    def end(self) -> None:
        """End the phase, before the next fault."""
        ended_ns = time.monotonic_ns()
        elections = highest_term(self._cluster) - self._term if self._term else 0
        self.phases.append(CalmPhase(self._begun_ns, ended_ns, max(elections, 0)))


def waits_ms(puts: Iterable[Operation], phases: Sequence[CalmPhase]) -> list[float]:
    """Return how long the puts took that began in one of the phases, in ms.

    A put without an answer at the end of its phase counts until this end, because a fault may have
    delayed its answer.
    """
    return [
        (min(put.ended_ns, phase.ended_ns) - put.invoked_ns) / 1e6
        for put in puts
        for phase in phases
        if phase.begun_ns <= put.invoked_ns < phase.ended_ns and put.may_have_happened
    ]


@dataclass(frozen=True)
class Waits:
    """Durations of puts in ms; 0 if there were no puts."""

    puts: int
    median: float
    p99: float
    longest: float

    def __str__(self) -> str:
        """Return the figures as text."""
        return (
            f"median {self.median:.0f}, p99 {self.p99:.0f}, longest {self.longest:.0f} ms"
            f" of {self.puts} puts"
        )


def waits_of(took_ms: Sequence[float]) -> Waits:
    """Return the figures of some durations in ms."""
    if not took_ms:
        return Waits(0, 0.0, 0.0, 0.0)
    return Waits(len(took_ms), *median_and_p99(took_ms), max(took_ms))


@dataclass(frozen=True)
class Strain:
    """How a cluster bore a demanding caller in the times without a fault."""

    seconds: float
    """Duration of these times."""
    elections: int
    before: Waits
    """Puts of the other clients before the demanding caller began."""
    during: Waits

    def __str__(self) -> str:
        """Return the figures as one line."""
        return (
            f"{self.elections} elections in {self.seconds:.0f} s without a fault;"
            f" puts of others then: {self.during}; before: {self.before}"
        )

    @property
    def goal_line(self) -> str:
        """Return whether the puts met the goal, and whether the machine was quiet, as one line."""
        met = "met" if self.during.puts and self.during.p99 <= P99_GOAL_MS else "NOT MET"
        line = (
            f"goal {met}: p99 of the puts of others {self.during.p99:.0f} ms,"
            f" goal {P99_GOAL_MS:.0f} ms, maximum {P99_MAX_MS:.0f} ms"
        )
        if self._was_quiet:
            return line
        return f"{line}; the maximum is not judged: p99 {self.before.p99:.0f} ms before the caller"

    @property
    def _was_quiet(self) -> bool:
        return self.before.p99 <= QUIET_P99_MAX_MS

    def breaches(self) -> Iterator[str]:
        """Yield what fails the drill."""
        if self.elections:
            yield f"{self.elections} elections without a fault"
        for name, waits in (("before", self.before), ("during", self.during)):
            if not waits.puts:
                yield f"no put of others to judge {name} the requests of the caller"
        if self._was_quiet and self.during.p99 > P99_MAX_MS:
            yield (
                f"p99 of the puts of others {self.during.p99:.0f} ms, maximum {P99_MAX_MS:.0f} ms;"
                f" before the caller {self.before.p99:.0f} ms"
            )


def strain_of(puts: Sequence[Operation], phases: Sequence[CalmPhase]) -> Strain:
    """Return the figures of the phases, of which the first is before the demanding caller."""
    first, later = phases[:1], phases[1:]
    return Strain(
        seconds=sum(phase.ended_ns - phase.begun_ns for phase in later) / 1e9,
        elections=sum(phase.elections for phase in phases),
        before=waits_of(waits_ms(puts, first)),
        during=waits_of(waits_ms(puts, later)),
    )
