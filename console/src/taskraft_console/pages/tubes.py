"""The list of tubes: filtered, sorted and paged by the console, without a call to the nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from taskraft_console.data.tube_reads import ListedTube
from taskraft_console.pages.page import PageView, PageVisit, integer_of
from taskraft_console.pages.trends import trends_of
from taskraft_console.views.trend import UNKNOWN_TREND

PAGE_SIZE: Final = 50
KINDS: Final = ("fifo", "fifottl", "limfifottl", "utube", "utubettl", "custom")
ONLY: Final = ("failing", "paused", "waiting", "empty", "temporary")


@dataclass(frozen=True, slots=True)
class TubeLine:
    """One line of the list."""

    tube: ListedTube
    age_ms: int
    """Age of the oldest READY task; 0: no task is READY."""


SORTS: Final[dict[str, Callable[[TubeLine], tuple[int, str]]]] = {
    "name": lambda line: (0, line.tube.info.name),
    "ready": lambda line: (line.tube.counts.tasks.ready, ""),
    "delayed": lambda line: (line.tube.counts.tasks.delayed, ""),
    "taken": lambda line: (line.tube.counts.tasks.taken, ""),
    "buried": lambda line: (line.tube.counts.tasks.buried, ""),
    "oldest": lambda line: (line.age_ms, ""),
    "waiting": lambda line: (line.tube.counts.waiting, ""),
}
_TESTS: Final[dict[str, Callable[[ListedTube], bool]]] = {
    "failing": lambda tube: tube.counts.tasks.buried > 0,
    "paused": lambda tube: tube.info.put_paused or tube.info.take_paused,
    "waiting": lambda tube: tube.counts.tasks.ready > 0,
    "empty": lambda tube: tube.counts.tasks.total == 0,
    "temporary": lambda tube: tube.info.is_temporary,
}


async def tubes(visit: PageVisit) -> PageView:
    """Show all tubes, or the tubes that match a pattern."""
    found = visit.value(await visit.cluster.tubes())
    query = visit.query
    pattern, kind, only = query.get("q", ""), query.get("kind", ""), query.get("only", "")
    chosen = [
        tube
        for tube in found.tubes
        if (not pattern or matches(tube.info.name, pattern))
        and (kind not in KINDS or tube.info.kind == kind)
        and (only not in ONLY or _TESTS[only](tube))
    ]
    sort = query.get("sort", "name")
    is_descending, column = sort.startswith("-"), sort.removeprefix("-")
    if column not in SORTS:
        is_descending, column = False, "name"
    lines = [
        TubeLine(
            tube, max(found.now_ms - since, 0) if (since := tube.counts.oldest_ready_ms) else 0
        )
        for tube in chosen
    ]
    lines.sort(key=SORTS[column], reverse=is_descending)
    pages = max((len(lines) + PAGE_SIZE - 1) // PAGE_SIZE, 1)
    page = integer_of(query.get("page", ""), 1, 1, pages)
    lines = lines[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    trends = await trends_of(visit, [line.tube for line in lines])
    kept = {"q": pattern, "kind": kind, "only": only}
    return PageView(
        template="tubes.html",
        title="Tubes",
        values={
            "lines": lines,
            "trends": trends,
            "no_trend": UNKNOWN_TREND,
            "found": len(chosen),
            "count": len(found.tubes),
            "column": column,
            "is_descending": is_descending,
            "kept": kept,
            "page": page,
            "pages": pages,
            "kinds": KINDS,
            "only_choices": ONLY,
        },
        refresh_seconds=4.0,
    )


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern with `*`; a text without `*` matches any part."""
    if "*" in pattern:
        return fnmatchcase(name, pattern.replace("[", "[[]"))
    return pattern.lower() in name.lower()
