"""Findings about a cluster, for monitoring and for people."""

from __future__ import annotations

import time
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from taskraft import TubeStatistics
    from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member


class Level(IntEnum):
    """Severity of a finding; the numbers are the exit codes of monitoring plugins."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class HealthFinding(NamedTuple):
    """One result of a health check: the checked subject, its level, and advice for a problem."""

    subject: str
    level: Level
    detail: str
    advice: str = ""


class Threshold(NamedTuple):
    """Two limits of a value; None: no limit."""

    warning: float | None
    critical: float | None

    def level(self, value: float) -> Level:
        """Return the level of a value: a value above a limit is not OK."""
        if self.critical is not None and value > self.critical:
            return Level.CRITICAL
        if self.warning is not None and value > self.warning:
            return Level.WARNING
        return Level.OK


CLOCK_MS: Final = Threshold(250, 1_000)
"""Limits of the deviation of a clock, in ms."""
LAG_ENTRIES: Final = Threshold(10_000, 100_000)
"""Limits of the log entries that a member lacks."""


def worst(findings: Sequence[HealthFinding]) -> Level:
    """Return the most severe level; OK without findings."""
    return max((each.level for each in findings), default=Level.OK)


def voters(state: GetClusterStateResponse) -> list[Member]:
    """Return the members that vote."""
    return [each for each in state.members if each.suffrage == each.VOTER]


def active_voters(state: GetClusterStateResponse) -> list[Member]:
    """Return the leader and the voters with which the leader has contact."""
    return [each for each in voters(state) if each.leader or each.active]


def entries_behind(state: GetClusterStateResponse, member: Member) -> int:
    """Return the number of log entries that a member lacks, as the leader knows it."""
    return 0 if member.leader else max(state.state.last_index - member.match_index, 0)


def oldest_ready_seconds(counts: TubeStatistics, now_ms: int) -> float:
    """Return the age of the oldest READY task in seconds; 0 without a READY task."""
    oldest_ms = counts.oldest_ready_ms
    return max(now_ms - oldest_ms, 0) / 1_000 if oldest_ms else 0.0


def of_cluster(
    state: GetClusterStateResponse, lag: Threshold = LAG_ENTRIES, clock: Threshold = CLOCK_MS
) -> Iterator[HealthFinding]:
    """Yield findings about the leader, the members, their logs and their clocks."""
    voting, active = voters(state), active_voters(state)
    if not state.leader:
        needed = len(voting) // 2 + 1
        yield HealthFinding(
            "leader",
            Level.CRITICAL,
            "there is no leader",
            f"{needed} of {len(voting)} voters must run",
        )
        return
    yield HealthFinding("leader", Level.OK, f"{state.leader} leads in term {state.state.term}")
    if state.leader != state.node:
        yield HealthFinding(
            "members", Level.UNKNOWN, "the answer is not from the leader", "try again"
        )
        return
    missing = [each.name for each in voting if each not in active]
    spare = len(active) - (len(voting) // 2 + 1)
    level = Level.OK if not missing else Level.WARNING if spare else Level.CRITICAL
    detail = f"{len(active)} of {len(voting)} voters are active, {spare} more may fail"
    names = f"start {', '.join(missing)}" if missing else ""
    yield HealthFinding("members", level, detail, names)
    for member in state.members:
        behind = entries_behind(state, member)
        yield HealthFinding(f"log of {member.name}", lag.level(behind), f"{behind} entries behind")
        if member.HasField("wall_deviation_ms"):
            off = member.wall_deviation_ms
            yield HealthFinding(
                f"clock of {member.name}",
                clock.level(abs(off)),
                f"deviates by {off} ms",
                "check the time service of the machine" if clock.level(abs(off)) else "",
            )
    if state.clock_problem:
        yield HealthFinding(
            "clock", Level.CRITICAL, state.clock_problem, "check the time service of this node"
        )


def of_client_clock(cluster_now_ms: int) -> HealthFinding:
    """Return a finding about the clock of this machine."""
    off = round(time.time() * 1_000) - cluster_now_ms
    level = min(CLOCK_MS.level(abs(off)), Level.WARNING)
    return HealthFinding(
        "clock of this machine",
        level,
        f"differs by {off} ms from the cluster",
        "check the time service of this machine; the cluster does not use this clock"
        if level
        else "",
    )


def of_tube(
    counts: TubeStatistics,
    now_ms: int,
    *,
    backlog: Threshold,
    age_seconds: Threshold,
    buried: Threshold,
) -> Iterator[HealthFinding]:
    """Yield findings about the READY and BURIED tasks of a tube."""
    tasks = counts.tasks
    age = oldest_ready_seconds(counts, now_ms)
    yield HealthFinding("backlog", backlog.level(tasks.ready), f"{tasks.ready} tasks READY")
    yield HealthFinding("age", age_seconds.level(age), f"oldest READY task {age:.0f} s")
    yield HealthFinding("buried", buried.level(tasks.buried), f"{tasks.buried} tasks BURIED")
