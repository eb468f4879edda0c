"""Keep the queue's state in RocksDB, behind the ordered ``Store`` that the queue sees.

One column family, so that the applied index and the state it stands for can never be flushed apart.
No write-ahead log: the Raft log is the truth, and after a crash it is replayed from the applied
index that is found here. Raw mode: keys and values are bytes, nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from service.queue.store import RangeDeletion, Write

BLOOM_BITS_PER_KEY: Final = 10
"""One percent of false positives: most lookups are of keys that exist in one level only."""
WRITE_BUFFERS_MAX: Final = 4
"""Three may wait to be written before a write stalls (and with it the event loop)."""
BACKGROUND_THREADS: Final = 2
INFO_LOGS_MAX: Final = 3
INFO_LOG_BYTES_MAX: Final = 4 * 1024 * 1024


class StateDamaged(Exception):
    """RocksDB cannot be opened or read; the node must not serve from it."""


def _options(block_cache_bytes: int, write_buffer_bytes: int) -> Options:
    table = BlockBasedOptions()
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, block_based=False)
    table.set_block_cache(Cache(block_cache_bytes))
    table.set_cache_index_and_filter_blocks(v=True)
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_paranoid_checks(enabled=True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(WRITE_BUFFERS_MAX)
    options.set_max_background_jobs(BACKGROUND_THREADS)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(INFO_LOGS_MAX)
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX)
    return options


class Frozen:
    """The state at one moment; it pins files and buffers until it is let go.

    It is an iterator, which RocksDB keeps at the moment in which it was made. The library's own
    snapshots (0.3.29) are of no use here: iterated over, they show later writes.
    """

    def __init__(self, iterator: RdictIter) -> None:
        self._iterator = iterator

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield everything, in order of the keys; one walk at a time."""
        iterator = self._iterator
        iterator.seek_to_first()
        while iterator.valid():
            key, value = iterator.key(), iterator.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            yield key, value
            iterator.next()
        # Raises if the walk ended because of an error, for example a wrong checksum.
        iterator.status()


class RocksStore:
    """An ordered map of bytes on disk.

    Used on one thread, except for ``flush``.

    Args:
        path: directory of the database; made if it is missing.
        block_cache_bytes: bound of what is kept of the files in memory.
        write_buffer_bytes: size of one of at most four buffers of changes in memory.

    Raises:
        StateDamaged: the files are not what was written.
    """

    def __init__(self, path: Path, block_cache_bytes: int, write_buffer_bytes: int) -> None:
        self._write_options = WriteOptions()
        # The library's stub declares a method; at run time it is a property.
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]
        try:
            self._rocks = Rdict(str(path), _options(block_cache_bytes, write_buffer_bytes))
        except Exception as error:  # the library has no class of its own for this
            raise StateDamaged(f"{path}: {error}") from error

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        found: bytes | None = self._rocks.get(key)
        return found

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with ``start <= key < stop`` in order; consumed lazily."""
        within = ReadOptions()
        within.set_iterate_upper_bound(stop)
        return self._walk(start, within, backwards=False)

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the same pairs as ``scan``, the last one first.

        The library (0.3.29) takes a lower bound for an upper one, so the end is found here.
        """
        for key, value in self._walk(stop, ReadOptions(), backwards=True):
            if key < start:
                return
            if key < stop:
                yield key, value

    def _walk(
        self, begin: bytes, within: ReadOptions, *, backwards: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs from a key on, as far as the options allow.

        The options own the bound, and the library (0.3.29) lets go of them too early: the iterator
        then compares with freed memory and ends too soon, without an error. So this generator keeps
        options and bound for as long as the iterator lives.
        """
        # What the library's types cannot say: in raw mode, keys and values are bytes.
        pairs = cast(
            "Iterator[tuple[bytes, bytes]]",
            self._rocks.items(backwards=backwards, from_key=begin, read_opt=within),
        )
        try:
            yield from pairs
        finally:
            del pairs  # before the options
            del within

    def write(self, writes: Iterable[Write]) -> None:
        """Apply the writes in order, all or none as far as a later crash can tell."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for write in writes:
            if isinstance(write, RangeDeletion):
                batch.delete_range(write.start, write.stop)
                continue
            key, value = write
            if value is None:
                delete(key)
            else:
                put(key, value)
        self._rocks.write(batch, self._write_options)

    def flush(self) -> None:
        """Bring what has been written so far to disk, synced; may be called on another thread."""
        self._rocks.flush(wait=True)

    def freeze(self) -> Frozen:
        """Return a view of the state as it is now, which later writes do not change."""
        return Frozen(self._rocks.iter(ReadOptions()))

    def close(self) -> None:
        """Close the files; the object is of no use afterwards."""
        self._rocks.close()
