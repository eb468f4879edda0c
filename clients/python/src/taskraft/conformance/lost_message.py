"""Find the messages in the bytes of an HTTP/2 connection, and choose one of them to be lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from taskraft.conformance.program import CaseSkipped

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""First bytes of a client; frames follow. The first bytes of a node are a frame."""
_HEADER_BYTES: Final = 9
"""Size of the header of a frame: 24 bits of length, type, flags, number of the stream."""
_DATA: Final = 0
_SETTINGS: Final = 4


class MessageFrames:
    """Splits the bytes of one direction of a connection into frames.

    A frame of the type DATA is a message, or a part of a message of more than 16 KiB. All other
    frames, such as pings and window updates, are no messages.

    Args:
        is_request: True for the bytes of the client; False for the bytes of the node.
    """

    def __init__(self, *, is_request: bool) -> None:
        self._rest = b""
        self._preface_left = len(_PREFACE) if is_request else 0
        self._is_start = True
        self.is_encrypted = False
        """True if the bytes are no HTTP/2, so that the frames cannot be seen."""

    def split(self, received: bytes) -> Iterator[tuple[bytes, bool]]:
        """Return the complete frames that these bytes complete, and whether each is a message."""
        self._rest += received
        if self._is_start and len(self._rest) >= self._preface_left + _HEADER_BYTES:
            self._is_start = False
            self.is_encrypted = self._rest[self._preface_left + 3] != _SETTINGS
            start, self._rest = self._rest[: self._preface_left], self._rest[self._preface_left :]
            if start:
                yield start, False
        while not self._is_start and len(self._rest) >= _HEADER_BYTES:
            if self.is_encrypted:
                frame, self._rest = self._rest, b""
                yield frame, False
                return
            length = int.from_bytes(self._rest[:3], "big")
            end = _HEADER_BYTES + length
            if len(self._rest) < end:
                return
            frame, self._rest = self._rest[:end], self._rest[end:]
            yield frame, frame[3] == _DATA and length > 0


class LostMessage:
    """One message between a program and the nodes that is lost, together with its connection.

    Args:
        is_request: True: a message of the program is lost; False: a message of a node.
        number: position of the message among the messages of this direction, from 1.
    """

    def __init__(self, *, is_request: bool, number: int) -> None:
        self._is_request = is_request
        self._left = number
        self._lock = threading.Lock()
        self._has_happened = threading.Event()
        self._is_encrypted = False

    def is_lost(self, *, is_request: bool) -> bool:
        """Count a message; return whether this message is lost."""
        if is_request is not self._is_request:
            return False
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._has_happened.set()
            return self._left == 0

    def encrypted(self) -> None:
        """Note that a connection is encrypted, so that the messages cannot be counted."""
        self._is_encrypted = True

    @property
    def has_happened(self) -> bool:
        """Return whether the message was lost.

        Raises:
            CaseSkipped: the connections are encrypted.
        """
        if self._is_encrypted:
            raise CaseSkipped("TLS is on: the suite cannot see the messages")
        return self._has_happened.is_set()
