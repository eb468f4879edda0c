"""Decide when what waits for a peer leaves: at once, or a little later with what comes meanwhile.

Shared by the link, on the clock of the event loop, and the simulator, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

from taskraft_replication.core.types import Message
from taskraft_replication.peers.send_queue import PeerSendQueue

DELAY_MS: Final = 20
"""How long a message that nobody waits for may wait for others to travel with."""


class Timer(Protocol):
    """A call that will be made, unless it is cancelled."""

    def cancel(self) -> object:
        """See to it that the call is not made any more."""


ScheduleCall: TypeAlias = Callable[[int, Callable[[], None]], Timer]
"""Makes a call so many milliseconds from now."""


class SendBatcher:
    """The outbox of one peer, and the moments in which it is emptied.

    Args:
        leave: has the frames taken, now or soon.
        later: the clock.
    """

    __slots__ = ("_flush", "_queue", "_schedule", "_timer", "may_delay")

    def __init__(
        self, outbox: PeerSendQueue, flush: Callable[[], None], schedule: ScheduleCall
    ) -> None:
        self.may_delay = False
        """Whether no commit waits for the peer: others are asked first."""
        self._queue = outbox
        self._flush = flush
        self._schedule = schedule
        self._timer: Timer | None = None

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._queue)

    def put(self, message: Message) -> bool:
        """Take a message; tell whether there was room for it. ``flush_soon`` follows."""
        return self._queue.put(message, may_delay=self.may_delay)

    def flush_soon(self) -> None:
        """Let go what was put: at once if anybody waits for it, else in a while."""
        if self._queue.is_urgent:
            self._flush()
        elif self._queue and self._timer is None:
            self._timer = self._schedule(DELAY_MS, self._flush)

    def frames(self, has_room: Callable[[], bool]) -> Iterator[list[Message]]:
        """Yield what waits, frame by frame, while the way to the peer has room."""
        self._stop_timer()
        while self._queue and has_room():
            yield self._queue.take_frame()

    def clear(self) -> None:
        """Drop everything; what the peer was told before may be lost as well."""
        self._queue.clear()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
