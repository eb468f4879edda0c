"""Hold the timers of tasks, tubes and sessions, in order of their instants."""

from __future__ import annotations

from typing import Protocol

from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import timer_key, timer_scan
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write


class Timed(Protocol):
    """An object that can have a deadline: a task, a tube or a session."""

    timer: OrderKey | None
    """Entry of the object among the timers, or None."""

    def due(self) -> OrderKey | None:
        """Return the timer that the object must have in its present state, or None."""


class Timers(OrderedIndex):
    """The timers of all tasks, tubes and sessions: at most one each."""

    __slots__ = ()

    def __init__(self, store: Store, limits: Limits, *, stored: bool) -> None:
        """Start empty, or (``stored``) with the timers in the store."""
        super().__init__(timer_scan(store), limits.head_entries_max, stored=stored)

    def renew(self, holder: Timed) -> None:
        """Set the timer that an object must have in its present state."""
        timer = holder.due()
        if timer != holder.timer:
            if holder.timer is not None:
                self.discard(holder.timer)
            if timer is not None:
                self.add(timer)
            holder.timer = timer

    def cancel(self, holder: Timed) -> None:
        """Remove the timer of an object."""
        if holder.timer is not None:
            self.discard(holder.timer)
            holder.timer = None


def write_timer(holder: QueueTube | QueueSession, writes: list[Write]) -> None:
    """Append what updates the stored timer of a tube or a session to ``writes``."""
    timer = timer_key(holder.timer) if holder.timer is not None else b""
    if timer != holder.written:
        if holder.written:
            writes.append((holder.written, None))
        if timer:
            writes.append((timer, b""))
        holder.written = timer
