"""Hold the sessions and tubes whose leases return in steps.

The leases of an ended session, or all leases of a tube, return to their tubes in the order of the
takes. A lease that has not returned yet can still be settled. The registry is a queue: work that
is not finished after its step waits behind the other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from taskraft_service.queue.entities.tube import QueueTask
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


class UnfinishedReturns(dict[tuple[bool, int], LeaseReturn]):
    """The unfinished returns, the next one first; at most one for each session and tube.

    A dictionary that only its own methods change.
    """

    __slots__ = ()

    def add(self, work: LeaseReturn) -> None:
        """Append a return; a later return of the same tube takes the place of the earlier one."""
        self[work.of_session, work.number] = work

    def find(self, task: QueueTask) -> LeaseReturn | None:
        """Return the unfinished return that has the lease of a task, or None."""
        work = self.get((True, task.session.number)) if task.session is not None else None
        if work is None:
            work = self.get((False, task.tube.number))
        return work if work is not None and task.token <= work.last_token else None

    def fetch_first(self) -> LeaseReturn:
        """Remove and return the next return."""
        return self.pop(next(iter(self)))

    def waiting(self) -> Sequence[LeaseReturn]:
        """Return all unfinished returns in order."""
        return tuple(self.values())

    def restore(self, waiting: Iterable[LeaseReturn]) -> None:
        """Set the unfinished returns from the meta record."""
        for work in waiting:
            self.add(work)
