"""Hold reads until a quorum has confirmed that this leader still leads.

ReadIndex (Raft thesis, 6.4): the leader records the commit index when the request arrives and waits
for a quorum to answer a heartbeat. The read is linearizable once that index is applied.
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
    """The pending reads of one leadership, in the order of arrival.

    Reads are numbered. A heartbeat carries the newest number, and its answer confirms all numbers
    up to it, because they were assigned before the heartbeat was sent. Contexts do not identify
    reads: two followers may use the same context.
    """

    __slots__ = ("_acked", "_count_max", "_last", "_rounds", "waiting")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._last = 0
        self._rounds: deque[_Round] = deque()
        self.waiting: list[Message] = []
        """Requests that wait for the first commit of the term."""
        self._acked: dict[MemberId, LogIndex] = {}

    @property
    def is_full(self) -> bool:
        """Return whether further requests must be dropped."""
        return len(self._rounds) + len(self.waiting) >= self._count_max

    def wait_for_commit(self, request: Message) -> None:
        """Hold ``request`` until an entry of this term is committed."""
        assert not self.is_full
        self.waiting.append(request)

    def take_waiting(self) -> list[Message]:
        """Return and remove the requests that waited for the first commit."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def add(self, request: Message, index: LogIndex) -> None:
        """Start a round for ``request``, to be answered with ``index``."""
        assert not self.is_full
        assert not self._rounds or self._rounds[-1].index <= index
        self._last += 1
        self._rounds.append(_Round(self._last, index, request))

    @property
    def heartbeat_context(self) -> bytes:
        """Return the context of the next heartbeat; empty if no read is pending."""
        return _ROUND.pack(self._last) if self._rounds else b""

    def acknowledge(self, member: MemberId, context: bytes) -> None:
        """Record that ``member`` answered the heartbeat with ``context``."""
        number = LogIndex(_ROUND.unpack(context)[0])
        assert number <= self._last, "the answered heartbeat was never sent"
        self._acked[member] = max(number, self._acked.get(member, LogIndex(0)))

    def confirmed(
        self, configuration: ConfState, own_id: MemberId
    ) -> list[tuple[LogIndex, Message]]:
        """Return and remove the confirmed reads, each with its index."""
        if not self._rounds:
            return []
        acked: Mapping[MemberId, LogIndex] = {**self._acked, own_id: LogIndex(self._last)}
        number = joint_index(configuration, acked)
        done = []
        while self._rounds and self._rounds[0].number <= number:
            each = self._rounds.popleft()
            done.append((each.index, each.request))
        return done
