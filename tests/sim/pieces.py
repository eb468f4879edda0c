"""Split snapshots into pieces with checksums."""

import google_crc32c

from taskraft_replication.machine import SnapshotReader

PIECE_BYTES = 1024
"""Size of one piece of a snapshot."""

Piece = tuple[int, bytes, int]
"""Offset, data, and checksum of all content up to the end of the piece."""


def pieces_of(content: SnapshotReader) -> list[Piece]:
    """Return a snapshot split into pieces."""
    pieces: list[Piece] = []
    offset = crc = 0
    while data := content.read(offset, PIECE_BYTES):
        crc = google_crc32c.extend(crc, data)
        pieces.append((offset, data, crc))
        offset += len(data)
    return pieces
