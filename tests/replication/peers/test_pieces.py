"""Damaged, lost, repeated and misplaced pieces are refused; no frame grows beyond its limit."""

from __future__ import annotations

import pytest

from taskraft_replication.core.types import Entry, LogIndex, MemberId, Message, MessageKind, Term
from taskraft_replication.peers import pieces
from taskraft_replication.peers.codec import decode_frame, encode_frame
from taskraft_replication.peers.pieces import (
    HEAD_BYTES,
    PIECE_BYTES,
    FrameInvalid,
    HalfReceived,
    PieceKind,
    PieceReader,
    PieceWriter,
)

FRAME_BYTES_MAX = 1 << 20


TERM = Term(3)


class Frames(list[bytes]):
    """Collects the frames of a connection and the reported activity."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders: list[Term] = []
        self.followers: list[Term] = []

    def frame_arrived(self, frame: bytes) -> None:
        self.append(frame)

    def bytes_arrived(self, term: Term) -> None:
        self.leaders.append(term)

    def alive_arrived(self, term: Term) -> None:
        self.followers.append(term)


def pieces_of(writer: PieceWriter, frame: bytes) -> list[bytes]:
    """Return the pieces of one frame."""
    if len(frame) <= pieces.PIECE_BYTES:
        return [writer.whole(frame, TERM)]
    writer.begin([frame])
    found = []
    while writer.is_within_frame:
        found.append(writer.next(TERM))
    return found


def encoded(*frames: bytes) -> list[bytes]:
    """Return the pieces of a new connection."""
    writer = PieceWriter()
    return [piece for frame in frames for piece in pieces_of(writer, frame)]


def read(*data: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> Frames:
    """Return the frames in the bytes of a new connection."""
    frames = Frames()
    reader = PieceReader(frames, frame_bytes_max, HalfReceived(FRAME_BYTES_MAX))
    for each in data:
        reader.feed(each)
    return frames


def append() -> Message:
    """Return an append as a leader sends it, with two entries."""
    entries = tuple(
        Entry(Term(3), LogIndex(index), b"a task of 40 bytes, or a little less") for index in (8, 9)
    )
    return Message(
        MessageKind.APPEND,
        MemberId(2),
        MemberId(1),
        Term(3),
        log_term=Term(2),
        index=LogIndex(7),
        entries=entries,
        commit=LogIndex(6),
    )


@pytest.mark.parametrize("piece_bytes", [PIECE_BYTES, 32], ids=["whole", "cut"])
def test_a_flipped_bit_in_an_append_never_yields_another_message(monkeypatch, piece_bytes):
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece_bytes)
    before, frame, after = (
        b"".join(encode_frame([append()] * count, bytes)) for count in (2, 1, 3)
    )
    writer = PieceWriter()
    first, sent, last = (b"".join(pieces_of(writer, each)) for each in (before, frame, after))
    arrived = [decode_frame(each)[0] for each in read(first + sent + last)]
    assert arrived == [[append()] * count for count in (2, 1, 3)]
    for bit in range(8 * len(sent)):
        damaged = bytearray(sent)
        damaged[bit // 8] ^= 1 << bit % 8
        frames = Frames()
        reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
        # Later bytes are neither needed to detect the damage nor able to hide it.
        with pytest.raises(FrameInvalid, match="fails its checksum"):
            reader.feed(first + damaged)
        assert frames == [before]


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 200_000])
def test_a_frame_of_any_size_is_joined_again(size):
    frame = bytes(number % 251 for number in range(size))
    sent = encoded(frame, b"next")
    assert all(len(piece) <= HEAD_BYTES + PIECE_BYTES for piece in sent)
    assert read(*sent) == [frame, b"next"]
    assert read(b"".join(sent)) == [frame, b"next"]


def test_a_frame_that_arrives_byte_by_byte_is_joined_and_released(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8)
    frames = Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    frame = bytes(range(20))
    sent = b"".join(encoded(frame))
    for count, byte in enumerate(sent, 1):
        reader.feed(bytes([byte]))
        assert (reader.held_bytes == 0) == (count == len(sent))
        assert reader.held_bytes <= len(frame) + HEAD_BYTES
    assert frames == [frame]


@pytest.mark.parametrize(
    ("order", "number"),
    [
        ((1, 2, 3), 0),  # one piece is lost
        ((0, 2, 3), 1),
        ((0, 0, 1), 1),  # one piece is repeated
        ((0, 2, 1, 3), 1),  # two pieces are exchanged
    ],
)
def test_a_piece_out_of_order_is_refused(monkeypatch, order, number):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8)
    sent = encoded(bytes(8), bytes(24))
    with pytest.raises(FrameInvalid, match=f"the header of piece {number} fails its checksum"):
        read(*(sent[each] for each in order))


def test_pieces_are_distinguished_by_number_even_after_it_wraps():
    writer, frames = PieceWriter(), Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    writer._count = reader._count = (1 << 32) - 1
    for frame in (b"a", b"b"):
        for piece in pieces_of(writer, frame):
            reader.feed(piece)
    assert (frames, writer._count) == ([b"a", b"b"], 1)


def test_a_frame_above_its_limit_is_refused():
    frame = bytes(3 * PIECE_BYTES)
    assert read(*encoded(frame), frame_bytes_max=len(frame)) == [frame]
    with pytest.raises(FrameInvalid, match="a frame of 196608 bytes exceeds the limit of 196607"):
        read(encoded(frame)[0][:HEAD_BYTES], frame_bytes_max=len(frame) - 1)


class Odd(PieceWriter):
    """Encodes pieces that no member sends, with correct checksums."""

    def piece(self, kind: int, size: int, frame_bytes: int) -> bytes:
        return self._encode(kind, TERM, bytes(size), frame_bytes)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ([(PieceKind.WHOLE, 5, 6)], "must contain a complete frame"),
        ([(PieceKind.WHOLE, 6, 5)], "a piece of 6 bytes is too long"),
        ([(PieceKind.FIRST, PIECE_BYTES + 1, 1 << 20)], "a piece of 65537 bytes is too long"),
        ([(PieceKind.NEXT, 5, 10)], "a piece of kind 3 is out of place"),
        ([(PieceKind.NEXT, 0, 0)], "a piece of kind 3 is out of place"),
        ([(PieceKind.DROP, 0, 0)], "a piece of kind 4 is out of place"),
        ([(PieceKind.ALIVE, 1, 1)], "a piece of kind 5 is out of place"),
        ([(PieceKind.FIRST, 5, 10), (PieceKind.FIRST, 5, 10)], "kind 2 is out of place"),
        ([(PieceKind.FIRST, 5, 10), (PieceKind.NEXT, 5, 11)], "kind 3 is out of place"),
        ([(PieceKind.FIRST, 6, 10), (PieceKind.NEXT, 5, 10)], "longer than their frame"),
        ([(PieceKind.FIRST, 0, 10)], "a piece of kind 2 is out of place"),
        ([(0, 5, 5)], "a piece of kind 0 is out of place"),
        ([(9, 5, 5)], "a piece of kind 9 is out of place"),
    ],
)
def test_invalid_pieces_with_correct_checksums_are_refused(odd, reason):
    writer = Odd()
    with pytest.raises(FrameInvalid, match=reason):
        read(*(writer.piece(*each) for each in odd))


def test_a_long_frame_is_cut_across_its_parts_without_changing_them(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8)
    parts = [b"", b"abc", b"", b"d" * 20, b"ef", b""]
    writer, frames = PieceWriter(), Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    writer.begin(parts)
    count = 0
    while writer.is_within_frame:
        reader.feed(writer.next(TERM))
        count += 1
    assert (frames, count) == ([b"".join(parts)], 4)


def test_a_frame_of_one_piece_overtakes_a_long_one(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8)
    writer, frames = PieceWriter(), Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    writer.begin([bytes(20)])
    reader.feed(writer.next(TERM))
    reader.feed(writer.whole(b"small", TERM))
    assert frames == [b"small"]
    for _ in range(2):
        reader.feed(writer.next(TERM))
    assert frames == [b"small", bytes(20)]
    assert reader.held_bytes == 0


def test_a_long_frame_can_be_dropped(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8)
    writer, frames = PieceWriter(), Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    writer.begin([bytes(20)])
    reader.feed(writer.next(TERM))
    reader.feed(writer.drop())
    assert not writer.is_within_frame
    assert reader.held_bytes == 0
    for piece in pieces_of(writer, b"another frame"):
        reader.feed(piece)
    assert frames == [b"another frame"]


def test_bytes_of_an_unfinished_frame_are_reported_with_the_leaders_term():
    writer, frames = PieceWriter(), Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    writer.begin([bytes(2 * PIECE_BYTES)])
    first, last = writer.next(Term(3)), writer.next(Term(4))
    reader.feed(first[: HEAD_BYTES - 1])
    assert frames.leaders == [], "the term is not known, or not checked yet"
    reader.feed(first[HEAD_BYTES - 1 : 100])
    reader.feed(first[100:])
    assert frames.leaders == [3, 3]
    reader.feed(last[:100])
    assert frames.leaders == [3, 3, 4]
    reader.feed(last[100:])
    assert frames.leaders == [3, 3, 4], "a complete frame is not reported as activity"
    assert frames == [bytes(2 * PIECE_BYTES)]


def test_bytes_of_a_follower_do_not_count_as_a_sign_of_life_of_a_leader():
    writer, frames = PieceWriter(), Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    writer.begin([bytes(2 * PIECE_BYTES)])
    reader.feed(writer.next(Term(0)))
    assert frames.leaders == []


def test_a_sign_of_life_of_a_follower_does_not_count_as_that_of_a_leader():
    writer, frames = PieceWriter(), Frames()
    reader = PieceReader(frames, FRAME_BYTES_MAX, HalfReceived(FRAME_BYTES_MAX))
    reader.feed(writer.alive(Term(7)) + writer.whole(b"reply", Term(0))[:-1])
    assert (frames.followers, frames.leaders) == ([7], [])


def test_unfinished_frames_of_all_connections_are_limited_together():
    half_received = HalfReceived(5 * PIECE_BYTES)
    frame = bytes(2 * PIECE_BYTES)
    connections = []
    for _ in range(3):
        frames = Frames()
        reader = PieceReader(frames, FRAME_BYTES_MAX, half_received)
        writer = PieceWriter()
        writer.begin([frame])
        connections.append((frames, reader, writer))
    for _, reader, writer in connections[:2]:
        reader.feed(writer.next(TERM))
    _, third, writer = connections[2]
    with pytest.raises(FrameInvalid, match="does not fit beside 262144 bytes of other unfinished"):
        third.feed(writer.next(TERM))
    third.close()
    assert half_received.bytes == 2 * len(frame)
    frames, reader, writer = connections[0]
    reader.feed(writer.next(TERM))
    assert frames == [frame]
    assert half_received.bytes == len(frame)
    connections[1][1].close()
    assert half_received.bytes == 0
    assert connections[1][1].held_bytes == 0
