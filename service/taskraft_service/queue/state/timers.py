"""Hold the timers: when the clock has something to do next, and for whom."""

from __future__ import annotations

from typing import Protocol

from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import timer_key, timer_scan
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write


class Timed(Protocol):
    """Whatever a deadline can be set for: a task, a tube, a session."""

    timer: OrderKey | None
    """Its entry among the timers, or None."""

    def due(self) -> OrderKey | None:
        """Return the timer that it must have now, or None."""


class Timers(OrderedIndex):
    """The timers of all tasks, tubes and sessions, at most one each, in order of their instants."""

    __slots__ = ()

    def __init__(self, store: Store, limits: Limits, *, stored: bool) -> None:
        """Begin with none, or (``stored``) with those of the store."""
        super().__init__(timer_scan(store), limits.head_entries_max, stored=stored)

    def renew(self, holder: Timed) -> None:
        """Give a holder the timer that it must have now."""
        timer = holder.due()
        if timer != holder.timer:
            if holder.timer is not None:
                self.discard(holder.timer)
            if timer is not None:
                self.add(timer)
            holder.timer = timer

    def cancel(self, holder: Timed) -> None:
        """Let a holder have no timer any more."""
        if holder.timer is not None:
            self.discard(holder.timer)
            holder.timer = None


def write_timer(holder: QueueTube | QueueSession, writes: list[Write]) -> None:
    """Append to ``writes`` what brings the timer of a record in the store up to date."""
    timer = timer_key(holder.timer) if holder.timer is not None else b""
    if timer != holder.written:
        if holder.written:
            writes.append((holder.written, None))
        if timer:
            writes.append((timer, b""))
        holder.written = timer
