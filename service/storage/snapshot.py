"""Write the whole state as a stream of chunks, and build a database from one.

Format: the magic, then for each pair varint-prefixed key and value in order of the keys, then an
empty key and the number of pairs, by which a stream that was cut off is recognised. The transport
adds checksums of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from replication.core.types import LogIndex
from service import wire
from service.storage.rocks import Frozen, RocksStore

MAGIC: Final = b"taskraft state 1\n"
CHUNK_BYTES: Final = 1024 * 1024


class SnapshotDamaged(Exception):
    """The stream is not a snapshot, or ends too early; nothing of it may be used."""


class RocksSnapshot:
    """A frozen view of the state at ``index``; satisfies ``replication.machine.SnapshotReader``."""

    def __init__(self, index: LogIndex, frozen: Frozen) -> None:
        self.index = index
        self._frozen: Frozen | None = frozen

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces of at most 1 MiB, the same each time."""
        assert self._frozen is not None, "the snapshot has been closed"
        varint = wire.varint
        content = bytearray(MAGIC)
        pairs = 0
        for key, value in self._frozen.pairs():
            content += varint(len(key)) + key + varint(len(value)) + value
            pairs += 1
            while len(content) >= CHUNK_BYTES:
                yield bytes(content[:CHUNK_BYTES])
                del content[:CHUNK_BYTES]
        content += varint(0) + varint(pairs)
        for start in range(0, len(content), CHUNK_BYTES):
            yield bytes(content[start : start + CHUNK_BYTES])

    def close(self) -> None:
        """Let go of the view."""
        self._frozen = None


def pairs_of(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of a snapshot.

    Raises:
        SnapshotDamaged: it is cut off or not a snapshot.
    """
    rest, begun, pairs, ended = b"", False, 0, False
    for chunk in chunks:
        rest += chunk
        if not begun:
            if len(rest) < len(MAGIC):
                continue
            if not rest.startswith(MAGIC):
                raise SnapshotDamaged("not a snapshot of taskraft")
            rest, begun = rest[len(MAGIC) :], True
        at = 0
        while not ended and (found := _pair(rest, at)) is not None:
            key, value, at = found
            if key:
                yield key, value
                pairs += 1
            elif int.from_bytes(value, "little") == pairs:
                ended = True
            else:
                raise SnapshotDamaged(f"{pairs} pairs, not as many as were written")
        rest = rest[at:]
    if not ended or rest:
        raise SnapshotDamaged(f"cut off after {pairs} pairs")


def _pair(content: bytes, at: int) -> tuple[bytes, bytes, int] | None:
    """Return the next pair and where it ends; None if it is not there as a whole yet.

    The end mark is a pair without key whose value is the number of pairs.
    """
    try:
        key_bytes, at = wire.read_varint(content, at)
        if at + key_bytes > len(content):
            return None
        key = content[at : at + key_bytes]
        number, at = wire.read_varint(content, at + key_bytes)
    except wire.Malformed:
        return None
    if not key:
        return key, number.to_bytes(8, "little"), at
    if at + number > len(content):
        return None
    return key, content[at : at + number], at + number


def build(store: RocksStore, chunks: Iterable[bytes]) -> None:
    """Fill an empty store from a snapshot and bring it to disk.

    Raises:
        SnapshotDamaged: the snapshot is; the store is of no use then.
    """
    batch: list[tuple[bytes, bytes | None]] = []
    size = 0
    for key, value in pairs_of(chunks):
        batch.append((key, value))
        size += len(key) + len(value)
        if size > CHUNK_BYTES:
            store.write(batch)
            batch, size = [], 0
    store.write(batch)
    store.flush()
