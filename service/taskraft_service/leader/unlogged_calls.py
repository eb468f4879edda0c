"""Count calls that change nothing on the leader, and write the counts to the log in batches.

Takes that time out, and peeks, create no log entry. The leader therefore adds up their counts, and
proposes the sums periodically and before a leadership transfer. This keeps the counts equal on all
replicas for the lifetime of the tube. Statistics include the counts that are not written yet. If
the leader crashes, these counts are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from taskraft.v1 import tube_service_pb2
from taskraft_service.stubs.log.v1 import log_pb2

TUBES_PER_COMMAND_MAX: Final = 1_000
"""Maximum number of tubes in one command; the others follow with the next."""


@dataclass(slots=True)
class _Noted:
    take_timeouts: int = 0
    peeks: int = 0
    metas: int = 0

    def add(self, take_timeouts: int, peeks: int, metas: int) -> None:
        self.take_timeouts += take_timeouts
        self.peeks += peeks
        self.metas += metas


class UnloggedCalls:
    """Counts per tube that are not in the log yet; counts in flight are included.

    Args:
        leads: returns whether this node leads; other nodes count nothing.
    """

    def __init__(self, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self._tubes: dict[str, _Noted] = {}
        self._telling: log_pb2.NoteCalls | None = None

    def count_take_timeout(self, tubes: Iterable[str]) -> None:
        """Count a take from some tubes that timed out without a task."""
        if self._leads():
            for tube in tubes:
                self._of(tube).take_timeouts += 1

    def count_peeks(self, tube: str, tasks: int, *, payload_omit: bool) -> None:
        """Count tasks of a tube that were shown to a caller."""
        if tasks and self._leads():
            noted = self._of(tube)
            if payload_omit:
                noted.metas += tasks
            else:
                noted.peeks += tasks

    def _of(self, tube: str) -> _Noted:
        noted = self._tubes.get(tube)
        if noted is None:
            noted = self._tubes[tube] = _Noted()
        return noted

    def fetch(self) -> log_pb2.NoteCalls | None:
        """Return a command with counts to write, or None; call ``fetch_done`` with its outcome."""
        if not self._tubes or self._telling is not None:
            return None
        message = log_pb2.NoteCalls()
        for tube in sorted(self._tubes)[:TUBES_PER_COMMAND_MAX]:
            noted = self._tubes.pop(tube)
            message.tubes.add(
                tube=tube,
                take_timeouts=noted.take_timeouts,
                peeks=noted.peeks,
                metas=noted.metas,
            )
        self._telling = message
        return message

    def fetch_done(self, *, known: bool) -> None:
        """Record whether the fetched command was applied (``known``) or had no effect."""
        assert self._telling is not None
        telling, self._telling = self._telling, None
        if not known:
            for one in telling.tubes:
                self._of(one.tube).add(one.take_timeouts, one.peeks, one.metas)

    def tubes(self) -> Collection[str]:
        """Return the tubes with unwritten counts, including tubes that do not exist."""
        telling = self._telling.tubes if self._telling is not None else ()
        return self._tubes.keys() | {told.tube for told in telling}

    def add_to(self, message: tube_service_pb2.TubeStatistics, tubes: Iterable[str]) -> None:
        """Add the unwritten counts of some tubes to their statistics."""
        wanted = set(tubes)
        noted = [self._tubes[tube] for tube in self._tubes.keys() & wanted]
        telling = self._telling.tubes if self._telling is not None else ()
        noted += (
            _Noted(told.take_timeouts, told.peeks, told.metas)
            for told in telling
            if told.tube in wanted
        )
        for one in noted:
            for calls in (message.calls, message.calls_since_start):
                calls.take_timeout += one.take_timeouts
                calls.peek += one.peeks
                calls.meta += one.metas
