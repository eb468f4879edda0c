"""What `taskraft top` shows: rows of tubes, their order, a filter, and the keys for both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskraft import Statistics, TubeStatistics

SORT_KEYS: Final = {
    "n": "name",
    "r": "ready",
    "t": "taken",
    "b": "buried",
    "p": "put",
    "k": "take",
    "c": "ack",
    "f": "fail",
    "o": "age",
    "w": "waiting",
}
"""Order of the tubes, by key."""
SORTS: Final = tuple(SORT_KEYS.values())
HELP: Final = " ".join(
    (
        "q quit | sort:",
        *(f"{key} {name}" for key, name in SORT_KEYS.items()),
        "| R reverse | / filter | space pause | ? help",
    )
)
ENTER: Final = ("\r", "\n")
ERASE: Final = ("\x7f", "\b")
ESCAPE: Final = "\x1b"


class TubeRow(NamedTuple):
    """One tube: counts, and rates per second since the previous refresh."""

    name: str
    ready: int
    taken: int
    buried: int
    put: float
    take: float
    ack: float
    fail: float
    age_ms: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """Order, filter and mode of the view."""

    sort: str = "name"
    """One of SORTS: names ascend, numbers descend."""
    is_reversed: bool = False
    filter: str = ""
    """Part of the names of the shown tubes; empty: all tubes."""
    former_filter: str | None = None
    """Filter before the one that is being typed; None: no filter is being typed."""
    is_paused: bool = False
    has_help: bool = False
    is_ended: bool = False

    @property
    def status(self) -> str:
        """Line that tells the mode of the view."""
        if self.former_filter is not None:
            return f"filter: {self.filter}_  (Enter keeps the filter, Esc drops the change)"
        if self.has_help:
            return HELP
        parts = [f"sort: {self.sort}{' reversed' if self.is_reversed else ''}"]
        if self.filter:
            parts.append(f"filter: {self.filter}")
        if self.is_paused:
            parts.append("paused")
        return "   ".join((*parts, "? help"))


def pressed(view: TopView, key: str) -> TopView:
    """Return the view after a key; a key without a meaning changes nothing."""
    if view.former_filter is not None:
        return _typed(view, key)
    if key in SORT_KEYS:
        return replace(view, sort=SORT_KEYS[key], is_reversed=False)
    match key:
        case "q":
            return replace(view, is_ended=True)
        case "R":
            return replace(view, is_reversed=not view.is_reversed)
        case "/":
            return replace(view, former_filter=view.filter)
        case " ":
            return replace(view, is_paused=not view.is_paused)
        case "?":
            return replace(view, has_help=not view.has_help)
        case _:
            return view


def _typed(view: TopView, key: str) -> TopView:
    """Return the view after a key while a filter is being typed."""
    if key in ENTER:
        return replace(view, former_filter=None)
    if key == ESCAPE:
        return replace(view, filter=view.former_filter or "", former_filter=None)
    if key in ERASE:
        return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key) if key.isprintable() else view


def arranged(rows: Iterable[TubeRow], view: TopView) -> list[TubeRow]:
    """Return the rows that the filter selects, in the order of the view."""
    chosen = sorted(row for row in rows if view.filter in row.name)
    if view.sort == "name":
        return chosen[::-1] if view.is_reversed else chosen
    field = "age_ms" if view.sort == "age" else view.sort
    return sorted(chosen, key=lambda row: getattr(row, field), reverse=not view.is_reversed)


def rows_of(before: Statistics | None, now: Statistics) -> list[TubeRow]:
    """Return one row per tube; rates are 0 at the first refresh."""
    earlier = {each.tube: each for each in before.tubes} if before else {}
    seconds = max(now.now_ms - before.now_ms, 1) / 1_000 if before else 1.0

    def rate(each: TubeStatistics, call: str) -> float:
        known = earlier.get(each.tube)
        if known is None:
            return 0.0
        more: int = getattr(each.calls, call) - getattr(known.calls, call)
        return max(more, 0) / seconds

    return [
        TubeRow(
            name=each.tube,
            ready=each.tasks.ready,
            taken=each.tasks.taken,
            buried=each.tasks.buried,
            put=rate(each, "put"),
            take=rate(each, "take"),
            ack=rate(each, "ack"),
            fail=rate(each, "fail"),
            age_ms=max(now.now_ms - each.oldest_ready_ms, 0) if each.oldest_ready_ms else 0,
            waiting=each.waiting,
        )
        for each in now.tubes
    ]
