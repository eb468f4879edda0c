"""Flush the send queue of a peer at once, or after a delay together with later messages.

Shared by the link, which uses the event loop's clock, and the simulator, which uses virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, Protocol, TypeAlias

from taskraft_replication.core.types import Message
from taskraft_replication.peers.send_queue import PeerSendQueue

DELAY_MS: Final = 20
"""Maximum delay of a message that is not urgent, in milliseconds."""


class LinkCapacity(Enum):
    """The kinds of messages that a connection can accept now."""

    NOTHING = "nothing"
    SMALL = "small"
    """Small messages, which overtake the frame that is being sent."""
    ANYTHING = "anything"


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> object:
        """Cancel the call."""


ScheduleCall: TypeAlias = Callable[[int, Callable[[], None]], Timer]
"""Schedules a call after a delay in milliseconds."""


class SendBatcher:
    """The send queue of one peer, with the decision when to flush it.

    Args:
        flush: sends the frames.
        schedule: schedules a delayed flush.
    """

    __slots__ = ("_flush", "_queue", "_schedule", "_timer", "may_delay")

    def __init__(
        self, queue: PeerSendQueue, flush: Callable[[], None], schedule: ScheduleCall
    ) -> None:
        self.may_delay = False
        """Whether entries may be delayed, because the commit does not wait for this peer."""
        self._queue = queue
        self._flush = flush
        self._schedule = schedule
        self._timer: Timer | None = None

    def __len__(self) -> int:
        """Return the number of queued messages."""
        return len(self._queue)

    def put(self, message: Message) -> bool:
        """Queue a message; return whether the queue had capacity.

        Call ``flush_soon`` after the last message.
        """
        return self._queue.put(message, may_delay=self.may_delay)

    def flush_soon(self) -> None:
        """Flush at once if a message is urgent, otherwise after ``DELAY_MS``."""
        if self._queue.is_urgent:
            self._flush()
        elif self._queue and self._timer is None:
            self._timer = self._schedule(DELAY_MS, self._flush)

    def frames(self, capacity: Callable[[], LinkCapacity]) -> Iterator[list[Message]]:
        """Yield the queued messages, frame by frame, while the connection can take more."""
        self._stop_timer()
        while self._queue:
            match capacity():
                case LinkCapacity.ANYTHING:
                    yield self._queue.take_frame()
                case LinkCapacity.SMALL if self._queue.has_small:
                    yield self._queue.take_small()
                case _:
                    return

    def drop_bulk(self) -> None:
        """Drop all appends and proposals, because this member no longer leads."""
        self._queue.drop_bulk()

    def clear(self) -> None:
        """Drop all messages; earlier acknowledgements may be lost too."""
        self._queue.clear()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
