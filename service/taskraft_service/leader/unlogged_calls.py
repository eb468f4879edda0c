"""Count the calls that change nothing, on the leader, and tell the log of them now and then.

Takes that found nothing and looks at tasks leave no entry. So that they are counted as long as a
tube lives, and by every replica alike, the leader sums them up and proposes the sums: now and then,
and before it hands over. What it has not told yet is shown together with what the queue knows; a
leader that crashes takes it along.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from taskraft.v1 import tube_service_pb2
from taskraft_replication.stubs.log.v1 import log_pb2

TOLD_TUBES_MAX: Final = 1_000
"""Tubes in one command; the others come with the next."""


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
    """What has not been told yet, by tube; what is being told counts until it is known.

    Args:
        leads: tells whether this node leads; others note nothing.
    """

    def __init__(self, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self._tubes: dict[str, _Noted] = {}
        self._telling: log_pb2.NoteCalls | None = None

    def count_take_timeout(self, tubes: Iterable[str]) -> None:
        """Note that a take from some tubes found nothing in time."""
        if self._leads():
            for tube in tubes:
                self._of(tube).take_timeouts += 1

    def count_peeks(self, tube: str, tasks: int, *, payload_omit: bool) -> None:
        """Note that tasks of a tube were shown."""
        if tasks and self._leads():
            noted = self._of(tube)
            if payload_omit:
                noted.metas += tasks
            else:
                noted.peeks += tasks

    def _of(self, tube: str) -> _Noted:
        return self._tubes.setdefault(tube, _Noted())

    def fetch(self) -> log_pb2.NoteCalls | None:
        """Return what is to be told, until ``told`` says how that ended; None: nothing."""
        if not self._tubes or self._telling is not None:
            return None
        message = log_pb2.NoteCalls()
        for tube in sorted(self._tubes)[:TOLD_TUBES_MAX]:
            noted = self._tubes.pop(tube)
            message.tubes.add(
                tube=tube,
                take_timeouts=noted.take_timeouts,
                peeks=noted.peeks,
                metas=noted.metas,
            )
        self._telling = message
        return message

    def told(self, *, known: bool) -> None:
        """Take note that the log knows what was fetched, or (``known`` False) never will."""
        assert self._telling is not None
        telling, self._telling = self._telling, None
        if not known:
            for one in telling.tubes:
                self._of(one.tube).add(one.take_timeouts, one.peeks, one.metas)

    def noted(self) -> Collection[str]:
        """Return the tubes of which something was not told yet, also those that do not exist."""
        telling = self._telling.tubes if self._telling is not None else ()
        return self._tubes.keys() | {told.tube for told in telling}

    def add_to(self, message: tube_service_pb2.TubeStatistics, tubes: Iterable[str]) -> None:
        """Add what was not told yet of some tubes to their counts."""
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
