"""Limit the appends in flight to one follower, by messages and by bytes."""

from __future__ import annotations

from collections import deque

from taskraft_replication.core.types import LogIndex


class Inflights:
    """The appends that a follower has not acknowledged, oldest first.

    Each message is represented by its last index. The window is full at ``messages_max`` messages
    or at ``bytes_max`` bytes; the message that crosses the byte limit is still sent.
    """

    __slots__ = ("_bytes", "_bytes_max", "_messages", "_messages_max")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        assert messages_max >= 1
        assert bytes_max >= 1
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of messages in flight."""
        return len(self._messages)

    @property
    def payload_bytes(self) -> int:
        """Return the payload in flight, in bytes."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Return whether the follower must acknowledge a message before it gets another message."""
        return len(self._messages) >= self._messages_max or self._bytes >= self._bytes_max

    def add(self, last_index: LogIndex, payload_bytes: int) -> None:
        """Record a message that ends with ``last_index``; the window must not be full."""
        messages = self._messages
        assert len(messages) < self._messages_max
        assert self._bytes < self._bytes_max
        assert not messages or messages[-1][0] < last_index, "indexes grow"
        messages.append((last_index, payload_bytes))
        self._bytes += payload_bytes

    def free_up_to(self, index: LogIndex) -> None:
        """Forget the messages that end at or before ``index``."""
        messages = self._messages
        while messages and messages[0][0] <= index:
            self._bytes -= messages.popleft()[1]
        assert self._bytes >= 0
        assert messages or not self._bytes

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._bytes = 0
