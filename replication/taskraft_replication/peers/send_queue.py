"""Hold what waits for the stream to one peer, and join what can travel together.

A frame costs 100 us of CPU on both sides together, a message in it a fifth of that. So news that
nobody waits for goes with the next message, news that a later message contains goes not at all, and
appends that follow on each other go as one: one frame with an append and one with its
acknowledgement are left of an entry, and of several entries if they wait together.
"""

from __future__ import annotations

from typing import Final

from taskraft_replication.core.config import MESSAGE_BYTES_MAX
from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.types import LogIndex, Message, MessageKind, Term

QUEUE_MESSAGES_MAX: Final = 4096
QUEUE_BYTES_MAX: Final = 32 << 20
"""Data of entries that wait for the stream, unless a single message has more; twice the window that
the core keeps per follower."""

FRAME_BYTES_MAX: Final = 4 << 20
"""Data of entries in one frame; a single larger message still travels alone."""

DELAYED_BYTES_MAX: Final = 256 << 10
"""Data of entries that wait for a patient peer's next frame; with more the frame goes at once."""

_APPEND: Final = MessageKind.APPEND
_APPEND_REPLY: Final = MessageKind.APPEND_REPLY


class PeerSendQueue:
    """A bounded queue of messages to one peer, in order."""

    __slots__ = (
        "_acknowledged",
        "_bytes",
        "_bytes_max",
        "_last_bytes",
        "_messages_max",
        "_queue",
        "is_urgent",
    )

    def __init__(
        self, messages_max: int = QUEUE_MESSAGES_MAX, bytes_max: int = QUEUE_BYTES_MAX
    ) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._queue: list[Message] = []
        self._bytes = 0
        self._last_bytes = 0
        """Data in the last message, to which more may be joined."""
        self._acknowledged = (Term(0), LogIndex(0))
        self.is_urgent = False
        """Whether a message waits that the peer, or somebody behind it, waits for."""

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._queue)

    def put(self, message: Message, *, may_delay: bool = False) -> bool:
        """Take a message; tell whether there was room for it.

        A patient peer gets entries in larger frames: they do not hurry either.
        """
        queue = self._queue
        size = payload_bytes(message.entries)
        # Data that is too large alone goes when no other waits: it would never get through.
        is_full = self._bytes > 0 and self._bytes + size > self._bytes_max
        if is_full or len(queue) >= self._messages_max:
            return False
        if not self._can_be_delayed(message, may_delay=may_delay):
            self.is_urgent = True
        self._bytes += size
        if queue:
            joined_bytes = self._last_bytes + size
            joined = _joined(queue[-1], message) if joined_bytes <= MESSAGE_BYTES_MAX else None
            if joined is not None:
                queue[-1] = joined
                self._last_bytes = joined_bytes
                return True
        queue.append(message)
        self._last_bytes = size
        return True

    def take_frame(self) -> list[Message]:
        """Take as many messages as a frame may hold, at least one."""
        taken, self._queue = self._queue, []
        if self._bytes <= FRAME_BYTES_MAX:
            self._bytes = 0
            self.is_urgent = False
            return taken
        count = _frame_length(taken)
        rest = self._queue = taken[count:]
        self._bytes = sum([payload_bytes(message.entries) for message in rest])
        self.is_urgent = self.is_urgent and bool(rest)
        return taken[:count]

    def clear(self) -> None:
        """Drop everything; what the peer was told before may be lost as well."""
        self._queue.clear()
        self._bytes = 0
        self._acknowledged = (Term(0), LogIndex(0))
        self.is_urgent = False

    def _can_be_delayed(self, message: Message, *, may_delay: bool) -> bool:
        """Tell whether nobody waits for a message: a commit index, an acknowledgement again."""
        if message.kind is _APPEND:
            return not message.entries or (may_delay and self._bytes < DELAYED_BYTES_MAX)
        if message.kind is not _APPEND_REPLY or message.reject:
            return False
        acknowledged = (message.term, message.index)
        if acknowledged <= self._acknowledged:
            return True
        self._acknowledged = acknowledged
        return False


def _frame_length(messages: list[Message]) -> int:
    """Return how many of the first messages make a frame."""
    size = 0
    for count, message in enumerate(messages):
        size += payload_bytes(message.entries)
        if size > FRAME_BYTES_MAX and count:
            return count
    return len(messages)


def _joined(earlier: Message, later: Message) -> Message | None:
    """Return one message that says what both say, None if there is none.

    Acknowledgements hold for everything before them. An append without entries says less than one
    that begins farther on; and an append may bring more entries, for the logs meet at its beginning
    or nowhere. The commit index that counts is the later one, which is never lower.
    """
    if later.kind is not earlier.kind or later.term != earlier.term:
        return None
    if later.kind is _APPEND_REPLY:
        is_covered = later.index >= earlier.index and not (later.reject or earlier.reject)
        return later if is_covered else None
    if later.kind is not _APPEND or later.commit < earlier.commit:
        return None
    if not earlier.entries:
        return later if later.index >= earlier.index else None
    if later.index != earlier.index + len(earlier.entries):
        return None
    return Message(
        _APPEND,
        earlier.to,
        earlier.sender,
        earlier.term,
        earlier.log_term,
        earlier.index,
        earlier.entries + later.entries,
        later.commit,
    )
