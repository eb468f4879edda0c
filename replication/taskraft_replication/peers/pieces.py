"""Split frames into pieces with checksums, and join the pieces again.

A piece is a header and up to ``PIECE_BYTES`` of one frame. The header has a separate checksum, so
that the receiver detects a damaged length before it waits for the bytes. The checksum of the header
is seeded with the number of the piece on its connection. A lost, repeated or reordered piece
therefore fails the checksum too.

A long frame takes several pieces. A short frame, which is one piece, may be sent between two of
them and so overtake the long frame. The header contains the term in which the sender leads. A
follower therefore counts each piece of a long frame as activity of its leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, Protocol

import google_crc32c

from taskraft_replication.core.types import Term
from taskraft_replication.errors import ReplicationError

PIECE_BYTES: Final = 64 << 10
"""Maximum bytes of a frame in one piece; sending takes half a second at 1 Mbit/s and 11 ms at 46
Mbit/s."""

_HEAD: Final = Struct(">BIIQI")  # kind, bytes in the piece, bytes of the frame, term, checksum
_HEAD_CRC: Final = Struct(">I")
HEAD_BYTES: Final = _HEAD.size + _HEAD_CRC.size
_COUNT_MASK: Final = (1 << 32) - 1


class FrameInvalid(ReplicationError):
    """The bytes on a frame connection are not a frame; the stream is closed."""


class PieceKind(IntEnum):
    """The content of a piece."""

    WHOLE = 1
    """A complete frame."""
    FIRST = 2
    """The beginning of a frame."""
    NEXT = 3
    """A further part of the current frame."""
    DROP = 4
    """The rest of the current frame will not be sent."""
    ALIVE = 5
    """Sign of life: the sender follows the receiver in the term, and receives its bytes."""


class FrameListener(Protocol):
    """Receives the content of a frame connection, in order.

    An exception closes the connection.
    """

    def frame_arrived(self, frame: bytes) -> None:
        """Process a complete frame of the peer."""

    def bytes_arrived(self, term: Term) -> None:
        """Handle the arrival of bytes of an unfinished frame from the leader of ``term``."""

    def alive_arrived(self, term: Term) -> None:
        """Process an activity report of a follower in ``term``."""


class PieceWriter:
    """Splits the frames of one connection, and numbers and encodes the pieces."""

    __slots__ = ("_count", "_frame_bytes", "_kind", "_left", "_offset")

    def __init__(self) -> None:
        self._count = 0
        """Number of pieces that were sent."""
        self._left: deque[bytes] = deque()
        """Parts of the long frame that were not sent yet."""
        self._offset = 0
        """Bytes of the first part that were sent."""
        self._frame_bytes = 0
        """Length of the long frame."""
        self._kind = PieceKind.FIRST
        """Kind of the next piece of the long frame."""

    @property
    def is_within_frame(self) -> bool:
        """Whether a long frame has begun and not ended."""
        return bool(self._left)

    def whole(self, frame: bytes, term: Term) -> bytes:
        """Return a frame as one piece; it may overtake a long frame."""
        assert len(frame) <= PIECE_BYTES
        return self._encode(PieceKind.WHOLE, term, frame, len(frame))

    def begin(self, parts: Sequence[bytes]) -> None:
        """Begin a long frame that consists of ``parts``; ``next`` returns its pieces."""
        assert not self._left, "one long frame at a time"
        self._left.extend(filter(None, parts))
        self._offset = 0
        self._frame_bytes = sum(map(len, parts))
        self._kind = PieceKind.FIRST
        assert self._frame_bytes > PIECE_BYTES

    def next(self, term: Term) -> bytes:
        """Return the next piece of the long frame."""
        assert self._left
        content: list[bytes] = []
        room = PIECE_BYTES
        while room and self._left:
            part = self._left[0][self._offset : self._offset + room]
            content.append(part)
            room -= len(part)
            self._offset += len(part)
            if self._offset == len(self._left[0]):
                self._left.popleft()
                self._offset = 0
        kind, self._kind = self._kind, PieceKind.NEXT
        return self._encode(kind, term, b"".join(content), self._frame_bytes)

    def drop(self) -> bytes:
        """Drop the rest of the long frame; return the piece that reports the drop."""
        assert self._left
        self._left.clear()
        return self._encode(PieceKind.DROP, Term(0))

    def alive(self, term: Term) -> bytes:
        """Return an activity report of a follower in ``term``."""
        return self._encode(PieceKind.ALIVE, term)

    def _encode(
        self, kind: PieceKind, term: Term, content: bytes = b"", frame_bytes: int = 0
    ) -> bytes:
        head = _HEAD.pack(kind, len(content), frame_bytes, term, google_crc32c.value(content))
        head_crc = google_crc32c.extend(self._count, head)
        self._count = (self._count + 1) & _COUNT_MASK
        return head + _HEAD_CRC.pack(head_crc) + content


class _Head(NamedTuple):
    """A decoded header."""

    kind: int
    size: int
    frame_bytes: int
    term: Term
    crc: int


class HalfReceived:
    """Limits the total length of the unfinished long frames of all connections.

    Args:
        bytes_max: maximum total length.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        """Total length of the unfinished frames, from their headers."""

    def begin(self, frame_bytes: int) -> None:
        """Add a frame whose first piece has arrived.

        Raises:
            FrameInvalid: the total length would exceed the maximum.
        """
        if self.bytes + frame_bytes > self._bytes_max:
            raise FrameInvalid(
                f"a frame of {frame_bytes} bytes does not fit beside {self.bytes} bytes of other "
                f"unfinished frames; the limit is {self._bytes_max} bytes"
            )
        self.bytes += frame_bytes

    def end(self, frame_bytes: int) -> None:
        """Remove a frame that is complete or was given up."""
        self.bytes -= frame_bytes


class PieceReader:
    """Checks the received pieces of one connection and joins the pieces to frames.

    Buffers at most one incomplete piece and one unfinished frame.

    Args:
        listener: receives each frame.
        frame_bytes_max: maximum length of a frame.
        half_received: counts the unfinished frames of all connections.
    """

    __slots__ = (
        "_count",
        "_frame",
        "_frame_bytes",
        "_frame_bytes_max",
        "_half_received",
        "_head",
        "_listener",
        "_term",
        "_unread",
    )

    def __init__(
        self, listener: FrameListener, frame_bytes_max: int, half_received: HalfReceived
    ) -> None:
        self._listener = listener
        self._frame_bytes_max = frame_bytes_max
        self._half_received = half_received
        self._count = 0
        """Number of complete pieces that were received."""
        self._unread = bytearray()
        self._head: _Head | None = None
        """Header of the piece that is arriving."""
        self._term = Term(0)
        """Term in which the sender leads; 0 if it does not lead."""
        self._frame = bytearray()
        """The beginning of the long frame whose pieces are arriving."""
        self._frame_bytes = 0
        """Length of the unfinished long frame; 0 between long frames."""

    @property
    def held_bytes(self) -> int:
        """Received bytes that are not part of a complete frame yet."""
        return len(self._unread) + len(self._frame)

    def feed(self, data: bytes) -> None:
        """Process the next received bytes.

        Raises:
            FrameInvalid: the bytes are damaged or invalid.
            Exception: any exception of the listener.
        """
        unread = self._unread
        unread += data
        begin = 0
        while (head := self._head or self._next_head(begin)) is not None:
            content_at = begin + HEAD_BYTES
            end = content_at + head.size
            if end > len(unread):
                break
            content = bytes(unread[content_at:end])
            if google_crc32c.value(content) != head.crc:
                raise FrameInvalid(f"piece {self._count} of the connection fails its checksum")
            begin = end
            self._head = None
            self._count = (self._count + 1) & _COUNT_MASK
            self._take(head, content)
        del unread[:begin]
        if self._term and (self._head is not None or self._frame_bytes):
            self._listener.bytes_arrived(self._term)

    def close(self) -> None:
        """Give up the unfinished frame, because its connection is closed."""
        self._end_frame()
        self._unread = bytearray()

    def _next_head(self, begin: int) -> _Head | None:
        """Return the header at ``begin`` once it has arrived completely."""
        raw = bytes(self._unread[begin : begin + HEAD_BYTES])
        if len(raw) < HEAD_BYTES:
            return None
        (head_crc,) = _HEAD_CRC.unpack_from(raw, _HEAD.size)
        if google_crc32c.extend(self._count, raw[: _HEAD.size]) != head_crc:
            raise FrameInvalid(f"the header of piece {self._count} fails its checksum")
        head = _Head._make(_HEAD.unpack_from(raw))
        if head.size > min(head.frame_bytes, PIECE_BYTES):
            raise FrameInvalid(f"a piece of {head.size} bytes is too long")
        if head.frame_bytes > self._frame_bytes_max:
            raise FrameInvalid(
                f"a frame of {head.frame_bytes} bytes exceeds the limit of "
                f"{self._frame_bytes_max} bytes"
            )
        self._head = head
        if head.kind != PieceKind.ALIVE:
            self._term = head.term
        return head

    def _take(self, head: _Head, content: bytes) -> None:
        kind = head.kind
        if kind == PieceKind.WHOLE:
            if head.size != head.frame_bytes:
                raise FrameInvalid("a piece of kind WHOLE must contain a complete frame")
            self._listener.frame_arrived(content)
        elif kind == PieceKind.ALIVE and not content:
            self._listener.alive_arrived(head.term)
        elif kind == PieceKind.DROP and self._frame_bytes:
            self._end_frame()
        elif kind == PieceKind.FIRST and not self._frame_bytes and content:
            self._half_received.begin(head.frame_bytes)
            self._frame_bytes = head.frame_bytes
            self._frame += content
        elif kind == PieceKind.NEXT and head.frame_bytes == self._frame_bytes and content:
            self._continue(content)
        else:
            raise FrameInvalid(f"a piece of kind {kind} is out of place")

    def _continue(self, content: bytes) -> None:
        self._frame += content
        if len(self._frame) < self._frame_bytes:
            return
        if len(self._frame) > self._frame_bytes:
            raise FrameInvalid("the pieces are longer than their frame")
        frame = bytes(self._frame)
        self._end_frame()
        self._listener.frame_arrived(frame)

    def _end_frame(self) -> None:
        self._half_received.end(self._frame_bytes)
        self._frame = bytearray()
        self._frame_bytes = 0
