"""Keep the reads that wait until a quorum has confirmed that this leader still leads.

ReadIndex (Raft thesis, 6.4): remember the commit index when the request arrives, have a round of
heartbeats answered, then the read is linearizable as soon as that index is applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Final

from taskraft_replication.core.quorum import joint_index
from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Message, value

_ROUND: Final = Struct(">Q")


@value
class _Round:
    number: int
    index: LogIndex
    request: Message


class PendingReads:
    """The reads of one leadership, in the order of their arrival.

    Each gets a number; a heartbeat carries the newest, and its answer confirms all numbers up to
    that one, for they were given out before the heartbeat left. Two followers may use the same
    context, so contexts do not serve as names.
    """

    __slots__ = ("_acked", "_count_max", "_last", "_rounds", "_waiting")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._last = 0
        self._rounds: deque[_Round] = deque()
        self._waiting: list[Message] = []
        self._acked: dict[MemberId, LogIndex] = {}

    @property
    def is_full(self) -> bool:
        """Tell whether another request must be refused."""
        return len(self._rounds) + len(self._waiting) >= self._count_max

    @property
    def has_waiting(self) -> bool:
        """Tell whether requests wait for a commit."""
        return bool(self._waiting)

    def wait_for_commit(self, request: Message) -> None:
        """Hold ``request`` until an entry of this term is committed."""
        assert not self.is_full
        self._waiting.append(request)

    def take_waiting(self) -> list[Message]:
        """Return the requests that waited for a commit, and forget them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def add(self, request: Message, index: LogIndex) -> None:
        """Begin a round for ``request``, to be answered with ``index``."""
        assert not self.is_full
        assert not self._rounds or self._rounds[-1].index <= index
        self._last += 1
        self._rounds.append(_Round(self._last, index, request))

    @property
    def heartbeat_context(self) -> bytes:
        """Return what a heartbeat carries; empty if no read waits."""
        return _ROUND.pack(self._last) if self._rounds else b""

    def acknowledge(self, member: MemberId, context: bytes) -> None:
        """Take in that ``member`` answered the heartbeat with ``context``."""
        number = LogIndex(_ROUND.unpack(context)[0])
        assert number <= self._last, "an answer to what was never sent"
        self._acked[member] = max(number, self._acked.get(member, LogIndex(0)))

    def confirmed(
        self, configuration: ConfState, own_id: MemberId
    ) -> list[tuple[LogIndex, Message]]:
        """Return the index and request of each confirmed read, and forget them."""
        if not self._rounds:
            return []
        acked: Mapping[MemberId, LogIndex] = {**self._acked, own_id: LogIndex(self._last)}
        number = joint_index(configuration, acked)
        done = []
        while self._rounds and self._rounds[0].number <= number:
            each = self._rounds.popleft()
            done.append((each.index, each.request))
        return done
