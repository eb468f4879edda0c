"""Hold the sessions and tubes whose leases return in steps.

The leases of an ended session, or all leases of a tube, return to their tubes in the order of the
takes. A lease that has not returned yet can still be settled. The registry is a queue: work that
is not finished after its step waits behind the other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number
from taskraft_service.queue.values import value


@value
class LeaseReturn:
    """The leases that return: those of an ended session, or those of a tube.

    Attributes:
        of_session: whether ``number`` is that of a session; False: that of a tube.
        number: number of the session or of the tube.
        last_token: newest token that returns; later leases of the tube stay.
        uncounted: whether the attempts do not count.
    """

    of_session: bool
    number: int
    last_token: int
    uncounted: bool = False


LEASE_RETURN: Final = FieldTable(
    LeaseReturn,
    Number("of_session", "?"),
    Number("number", "Q"),
    Number("last_token", "Q"),
    Number("uncounted", "?"),
)


class UnfinishedReturns:
    """The unfinished returns, the next one first; at most one for each session and tube."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Start without returns."""
        self._waiting: dict[tuple[bool, int], LeaseReturn] = {}

    def __bool__(self) -> bool:
        """Return whether a lease may have to return."""
        return bool(self._waiting)

    def add(self, work: LeaseReturn) -> None:
        """Append a return; a newer return of the same tube replaces the older one in its place."""
        self._waiting[work.of_session, work.number] = work

    def fetch_first(self) -> LeaseReturn:
        """Remove and return the next return."""
        return self._waiting.pop(next(iter(self._waiting)))

    def waiting(self) -> Sequence[LeaseReturn]:
        """Return all unfinished returns in order."""
        return tuple(self._waiting.values())

    def restore(self, waiting: Iterable[LeaseReturn]) -> None:
        """Set the unfinished returns from the meta record."""
        for work in waiting:
            self.add(work)
