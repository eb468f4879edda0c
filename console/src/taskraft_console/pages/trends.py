"""Read the trends of the tubes that a page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskraft_console.data.tube_reads import CountedTube, ListedTube
from taskraft_console.pages.page import PageVisit
from taskraft_console.views.trend import Trend


async def trends_of(
    visit: PageVisit, tubes: Sequence[CountedTube | ListedTube]
) -> Mapping[str, Trend]:
    """Return the trends of tubes by name; tubes without samples are left out."""
    if not tubes:
        return {}
    names = sorted(tube.info.name for tube in tubes)
    found = visit.value(await visit.cluster.history(names))
    ready = {tube.info.name: tube.counts.tasks.ready for tube in tubes}
    return {
        each.tube: Trend.of(each, found.step_ms, ready.get(each.tube, 0))
        for each in found.histories
    }


async def total_trend(visit: PageVisit, ready: int) -> Trend:
    """Return the trend of all tubes together."""
    found = visit.value(await visit.cluster.history(()))
    return Trend.of(next(iter(found.histories), None), found.step_ms, ready)
