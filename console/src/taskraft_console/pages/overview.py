"""The overview page: problems of the cluster, with links to the pages that show more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member
from taskraft_console.data.tube_reads import ListedTube, ListedTubes
from taskraft_console.pages.page import RELOAD_SECONDS, PageView, PageVisit
from taskraft_console.pages.time_window import shown_window
from taskraft_console.pages.trends import total_trend, trends_of
from taskraft_console.views.readable import readable_count, readable_duration
from taskraft_console.views.trend import UNKNOWN_TREND, Trend

SHOWN_MAX: Final = 12
"""Maximum number of tubes in the table."""
IDLE_MS: Final = 60_000
"""Age of the oldest READY task from which a tube without consumers is shown, in ms. A consumer of
several tubes can be busy with another tube for a short time."""
COUNTING_SECONDS: Final = 0.5
"""Interval of live updates until all tubes are counted for the first time."""
OLD_MS: Final = 5 * 60_000
"""Age of the oldest READY task from which a tube is shown as late, in ms."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A line at the top of the overview."""

    level: str
    """Severity: "red" or "amber"."""
    text: str
    url: str
    link: str


@dataclass(frozen=True, slots=True)
class TubeGlance:
    """One line of the table of tubes that need a look."""

    tube: ListedTube
    age_ms: int
    why: str
    score: int
    trend: Trend = UNKNOWN_TREND


async def overview(visit: PageVisit) -> PageView:
    """Show the whole cluster on one page."""
    counted, told, summed, _ = await asyncio.gather(
        visit.cluster.tubes_soon(),
        visit.cluster.state(),
        visit.cluster.total(),
        visit.cluster.history(()),  # for the trend below
    )
    state, total = visit.value(told), visit.value(summed)
    answering = () if state.leader else visit.value(await visit.cluster.nodes()).keys()
    looks = [] if counted is None else _worst_looks(visit.value(counted))
    window = await shown_window(visit)
    shown = looks[:SHOWN_MAX]
    trends = await trends_of(visit, [look.tube for look in shown])
    shown = [replace(look, trend=trends.get(look.tube.info.name, UNKNOWN_TREND)) for look in shown]
    oldest = total.total.oldest_ready_ms
    return PageView(
        template="overview.html",
        title="Overview",
        status=400 if visit.failure else 200,
        values={
            "alarms": list(_alarms(visit, state, answering, [*shown, *looks[SHOWN_MAX:]])),
            "total": total.total,
            "oldest_ms": max(total.now_ms - oldest, 0) if oldest else 0,
            "looks": shown,
            "trend": await total_trend(visit, total.total.tasks.ready),
            "window": window,
            "tube_count": total.tube_count,
            "is_counting": counted is None,
            "state": state,
            "can_lose": losable_members(state, answering),
        },
        refresh_seconds=COUNTING_SECONDS if counted is None else 2.0,
        reload_seconds=RELOAD_SECONDS,
    )


def _worst_looks(tubes: ListedTubes) -> list[TubeGlance]:
    """Return the lines of all tubes, the worst tube first."""
    return sorted(_looks(tubes), key=lambda look: (-look.score, look.tube.info.name))


def _looks(tubes: ListedTubes) -> Iterator[TubeGlance]:
    for tube in tubes.tubes:
        counts = tube.counts
        since = counts.oldest_ready_ms
        age_ms = max(tubes.now_ms - since, 0) if since else 0
        why, score = "", min(counts.tasks.ready, 999)
        if tube.info.quarantined_at:
            why, score = "quarantined", 5_000_000
        elif counts.tasks.buried:
            why, score = "failing", 3_000_000 + min(counts.tasks.buried, 999_999)
        elif counts.tasks.ready and tube.info.take_paused:
            why, score = "takes paused", 2_000_000
        elif age_ms >= IDLE_MS and not counts.tasks.taken and not counts.waiting:
            why, score = "nobody takes", 2_000_000 + min(age_ms // 1_000, 999_999)
        elif age_ms >= OLD_MS:
            why, score = "late", 1_000_000 + min(age_ms // 1_000, 999_999)
        yield TubeGlance(tube, age_ms, why, score)


def _alarms(
    visit: PageVisit,
    state: GetClusterStateResponse,
    answering: Collection[str],
    looks: Sequence[TubeGlance],
) -> Iterator[Alarm]:
    silent = [each.name for each in state.members if not is_active(state, each, answering)]
    if not state.leader:
        yield Alarm("red", "The cluster has no leader", visit.url("cluster"), "cluster")
    for name in silent:
        yield Alarm("red", f"Node {name} does not answer", visit.url("cluster"), "cluster")
    if state.clock_problem:
        yield Alarm("amber", f"Clocks: {state.clock_problem}", visit.url("cluster"), "cluster")
    for look in looks:
        name, tasks = look.tube.info.name, look.tube.counts.tasks
        if look.why == "quarantined":
            yield Alarm("red", f"{name}: its driver failed", visit.url("tubes", name), "open")
        elif look.why == "failing":
            text = f"{name}: {readable_count(tasks.buried)} buried"
            before = look.trend.buried_before
            if before is not None and before != tasks.buried:
                text += f", {tasks.buried - before:+} in 10 minutes"
            yield Alarm("red", text, visit.url("failures", tube=name), "causes")
        elif look.why == "nobody takes" and look.age_ms >= OLD_MS:
            text = f"{name}: {readable_count(tasks.ready)} ready, and nobody takes them"
            yield Alarm("red", text, visit.url("tubes", name), "open")
        elif look.why == "late":
            text = f"{name}: the oldest ready task waits {readable_duration(look.age_ms)}"
            yield Alarm("amber", text, visit.url("tubes", name), "open")


def is_active(state: GetClusterStateResponse, member: Member, answering: Collection[str]) -> bool:
    """Return whether a member answers: the leader, or without a leader the console, tells it.

    ``answering`` has the names of the nodes that answer the console.
    """
    if not state.leader:
        return member.name in answering
    return member.leader or member.active


def active_members(state: GetClusterStateResponse, answering: Collection[str]) -> int:
    """Return the number of voters that answer; see `is_active`."""
    return sum(
        is_active(state, member, answering)
        for member in state.members
        if member.suffrage == Member.Suffrage.VOTER
    )


def losable_members(state: GetClusterStateResponse, answering: Collection[str]) -> int:
    """Return the number of further voters that can stop before the cluster stops."""
    voters = sum(member.suffrage == Member.Suffrage.VOTER for member in state.members)
    return max(active_members(state, answering) - (voters // 2 + 1), 0)
