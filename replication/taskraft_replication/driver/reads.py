"""Confirm linearizable reads with ReadIndex rounds (Raft thesis, 6.4).

Readers that arrive during a round share the next round. A round takes one heartbeat to each
follower, for any number of readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import LogIndex, ReadState
from taskraft_replication.effects import ResultFuture
from taskraft_replication.errors import ReadUnconfirmed, ReplicationError

_CONTEXT: Final = Struct("<QQ")  # incarnation, number of the round

READERS_MAX: Final = 100_000
"""Maximum number of waiting readers; further readers fail at once."""


@dataclass(slots=True, frozen=True)
class _Confirmed:
    """Readers that wait until ``index`` is applied here, at most until the tick ``expires_at``."""

    index: LogIndex
    expires_at: int
    readers: Sequence[ResultFuture[LogIndex]]


class LinearizableReads:
    """The linearizable reads of one member.

    Each read ends after at most ``expiry_ticks``, even if no leader answers, or if this member is
    cut off or removed and never receives the entries.
    """

    def __init__(
        self, core: RaftCore, incarnation: int, *, retry_ticks: int, expiry_ticks: int
    ) -> None:
        self._core = core
        self._incarnation = incarnation
        self._retry_ticks = retry_ticks
        self._expiry_ticks = expiry_ticks
        self.waiting: list[ResultFuture[LogIndex]] = []
        """Readers that wait for the next round."""
        self._asked: list[ResultFuture[LogIndex]] = []
        self._context = b""
        self._number = 0
        self._ticks = 0
        self._asked_at = 0
        self.confirmed: deque[_Confirmed] = deque()
        """Readers that wait until this member has applied their index."""

    def add(self, outcome: ResultFuture[LogIndex]) -> None:
        """Add a reader; its future gets an index once this member has applied that index."""
        if len(self.waiting) >= READERS_MAX:
            outcome.set_exception(
                ReadUnconfirmed(f"{READERS_MAX} linearizable reads already wait; retry later")
            )
            return
        self.waiting.append(outcome)

    @property
    def has_next(self) -> bool:
        """Return whether readers wait for a round that can start now."""
        return bool(self.waiting) and not self._asked

    def begin_round(self) -> None:
        """Start a round for the waiting readers, unless a round is in progress."""
        if self._asked or not self.waiting:
            return
        self._asked, self.waiting = self.waiting, []
        self._number += 1
        self._context = _CONTEXT.pack(self._incarnation, self._number)
        self._asked_at = self._ticks
        self._core.read_index(self._context)

    def answered(self, state: ReadState) -> None:
        """Process the answer to a round; answers to earlier rounds are ignored."""
        if self._asked and state.context == self._context:
            expires_at = self._ticks + self._expiry_ticks
            self.confirmed.append(_Confirmed(state.index, expires_at, self._asked))
            self._asked = []

    def applied(self, index: LogIndex) -> None:
        """Release the readers whose index is applied."""
        while self.confirmed and self.confirmed[0].index <= index:
            confirmed = self.confirmed.popleft()
            for outcome in confirmed.readers:
                if not outcome.done():
                    outcome.set_result(confirmed.index)

    def tick(self) -> None:
        """Repeat the request after ``retry_ticks``; fail the readers after ``expiry_ticks``."""
        self._ticks += 1
        while self.confirmed and self.confirmed[0].expires_at <= self._ticks:
            confirmed = self.confirmed.popleft()
            error = ReadUnconfirmed(
                f"entry {confirmed.index} was not applied on this member in time; retry"
            )
            _fail(confirmed.readers, error)
        if not self._asked:
            return
        waited = self._ticks - self._asked_at
        if waited >= self._expiry_ticks:
            error = ReadUnconfirmed("no leader with a quorum confirmed the read in time; retry")
            outcomes = [*self._asked, *self.waiting]
            self._asked, self.waiting = [], []
            _fail(outcomes, error)
        elif waited % self._retry_ticks == 0:
            self._core.read_index(self._context)

    def fail_all(self, error: ReplicationError) -> None:
        """Fail all readers that wait."""
        outcomes = [*self._asked, *self.waiting]
        for confirmed in self.confirmed:
            outcomes += confirmed.readers
        self._asked, self.waiting = [], []
        self.confirmed.clear()
        _fail(outcomes, error)


def _fail(outcomes: Sequence[ResultFuture[LogIndex]], error: ReplicationError) -> None:
    for outcome in outcomes:
        if not outcome.done():
            outcome.set_exception(error)
