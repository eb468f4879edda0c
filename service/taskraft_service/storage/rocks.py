"""Keep the queue's state in RocksDB, behind the ordered ``Store`` interface of the queue.

There is one column family, so that the applied index and its state are always flushed together.
There is no write-ahead log, because after a crash the Raft log is replayed from the applied index
in the store. In raw mode keys and values are bytes, and nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    ChecksumType,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from taskraft_service.queue.store.store import RangeDeletion, Write
from taskraft_service.storage.manifest import check_manifest

BLOOM_BITS_PER_KEY: Final = 10
"""10 bits give one percent of false positives; most lookups are for keys that exist in one level
only."""
WRITE_BUFFERS_MAX: Final = 4
"""Three buffers may wait for the disk before a write blocks, and with it the event loop."""
BACKGROUND_THREADS: Final = 2
LEVEL_0_FILES: Final = 12
"""Number of flushed files that start a merge into the next level. The value is high because flushes
are small and a merge may rewrite the whole next level."""
SHORT_WALK_PAIRS: Final = 16
"""Number of pairs after which a generator is faster than the iterator, despite its start-up
cost."""
TABLES_OPEN_MAX: Final = 128
"""Default of the maximum number of open table files; RocksDB opens and closes others as needed."""
INFO_LOGS_MAX: Final = 3
INFO_LOG_BYTES_MAX: Final = 4 * 1024 * 1024


class StateClosed(Exception):
    """The database was closed while a reader used it, because a snapshot replaced it."""


_LOST: Final = ("Corruption", "No such file or directory", "While pread", "random read")
"""Texts of RocksDB about content that is damaged, missing or unreadable. Other errors, such as a
full disk or a failed write, say nothing about the stored content."""


class StateDamaged(Exception):
    """RocksDB cannot be opened or read; the node must not serve from it.

    ``is_lost``: stored content is lost, so that the state must be replaced. Default: judged by the
    text of RocksDB.
    """

    def __init__(self, text: str, *, is_lost: bool | None = None) -> None:
        super().__init__(text)
        self.is_lost = any(known in text for known in _LOST) if is_lost is None else is_lost


_CHARGE_UNKNOWN: Final = 0
"""Lets the cache find out the mean size of its entries."""


def _options(block_cache_bytes: int, write_buffer_bytes: int, tables_max: int) -> Options:
    table = BlockBasedOptions()
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, block_based=False)
    # The other kind of cache has shards of 1 MiB, into which the filter of a large table does not
    # fit: with a million tasks, each lookup of an absent key then read the filter again (2.7 ms).
    table.set_block_cache(Cache.new_hyper_clock_cache(block_cache_bytes, _CHARGE_UNKNOWN))
    # The scrubber checks the blocks itself, with the checksum of the log (``table_check``).
    table.set_checksum_type(ChecksumType.crc32c())
    table.set_cache_index_and_filter_blocks(v=True)
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_paranoid_checks(enabled=True)
    options.set_max_open_files(tables_max)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(WRITE_BUFFERS_MAX)
    options.set_max_background_jobs(BACKGROUND_THREADS)
    options.set_level_zero_file_num_compaction_trigger(LEVEL_0_FILES)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(INFO_LOGS_MAX)
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX)
    return options


class StateView:
    """A fixed state of a database, for one thread; writes and ``close`` do not change it.

    Args:
        pairs: an iterator, which reads the state as it was when the iterator was created.
        options: options of the iterator; the library releases them too early.
        path: directory of the database, for errors.
    """

    def __init__(self, pairs: RdictIter, options: ReadOptions, path: Path) -> None:
        self._pairs = pairs
        self._options = options
        self._path = path

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs whose keys begin with a prefix, in order.

        Raises:
            StateDamaged: a block is corrupt.
        """
        pairs = self._pairs
        pairs.seek(prefix)
        while pairs.valid() and pairs.key().startswith(prefix):
            yield pairs.key(), pairs.value()
            pairs.next()
        try:
            pairs.status()
        except Exception as error:
            raise StateDamaged(f"{self._path}: {error}") from error


class RocksStore:
    """Ordered map of bytes on disk.

    Used on one thread, except for ``flush`` and ``freeze``.

    Args:
        path: directory of the database; created if it is missing.
        block_cache_bytes: size of the block cache in memory.
        write_buffer_bytes: size of one write buffer in memory; at most four exist.
        tables_max: maximum number of open table files.
        read_only: open the database without writing to the directory.

    Raises:
        StateDamaged: the files are corrupt or the disk fails. Every method may raise it; the state
            is then unknown, and the node must stop.
    """

    def __init__(
        self,
        path: Path,
        block_cache_bytes: int,
        write_buffer_bytes: int,
        tables_max: int = TABLES_OPEN_MAX,
        *,
        read_only: bool = False,
    ) -> None:
        self._path = path
        self._prepared = WriteBatch(raw_mode=True)
        self._write_options = WriteOptions()
        # The type stub of the library declares a method, but it is a property.
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]  # see above
        access = AccessType.read_only() if read_only else AccessType.read_write()
        with self._damage_named():
            check_manifest(path)
            options = _options(block_cache_bytes, write_buffer_bytes, tables_max)
            # Without options of its own, a column family of an existing database gets those that
            # the database stores, which have no cache of this size and no filter.
            self._rocks = Rdict(str(path), options, {"default": options}, access_type=access)

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Convert the library's errors, which are plain exceptions, to ``StateDamaged``."""
        try:
            yield
        except DbClosedError as error:
            raise StateClosed(f"{self._path} is closed") from error
        except Exception as error:
            raise StateDamaged(f"{self._path}: {error}") from error

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        try:
            found: bytes | None = self._rocks.get(key)
        except DbClosedError as error:
            raise StateClosed(f"{self._path} is closed") from error
        except Exception as error:  # same as _damage_named, but faster
            raise StateDamaged(f"{self._path}: {error}") from error
        return found

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the value of each key, or None; twice as fast as single lookups."""
        with self._damage_named():
            # The library's types do not express that a list of keys gives a list of values.
            return cast("list[bytes | None]", self._rocks.get(list(keys)))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with ``start <= key < stop`` in order, lazily."""
        within = ReadOptions()
        within.set_iterate_upper_bound(stop)
        return self._walk(start, within, backwards=False)

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the same pairs as ``scan`` in reverse order.

        The library (0.3.29) treats a lower bound as an upper bound, so the end is checked here.
        """
        for key, value in self._walk(stop, ReadOptions(), backwards=True):
            if key < start:
                return
            if key < stop:
                yield key, value

    def _walk(
        self, begin: bytes, within: ReadOptions, *, backwards: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs from a key on, within the bounds of the options.

        The library (0.3.29) has an iterator with a status, and generators. The generators take half
        the time, but at a damaged block they end without an error, and a replica that misses pairs
        diverges from the others. Most walks are short, so a walk starts with the iterator. A
        generator continues a longer walk. Then the iterator checks that no pair follows the last
        pair of the generator.

        The options own the bound, and the library releases the options too early. The iterator
        would then compare with freed memory and end too soon, without an error. This generator
        therefore keeps the options and the bound alive as long as the iterator.
        """
        with self._damage_named():
            pairs = self._rocks.iter(within)
        valid, key, value = pairs.valid, pairs.key, pairs.value
        proceed = pairs.prev if backwards else pairs.next
        seek = pairs.seek_for_prev if backwards else pairs.seek
        rest: Iterator[tuple[bytes, bytes]] = iter(())
        try:
            seek(begin)
            walked = 0
            while valid():
                # The library's types do not express that keys and values are bytes in raw mode.
                pair = cast("tuple[bytes, bytes]", (key(), value()))
                yield pair
                proceed()
                walked += 1
                if walked == SHORT_WALK_PAIRS and valid():
                    rest = self._pairs(cast("bytes", key()), within, backwards=backwards)
                    for pair in rest:  # the iterator starts again at the last pair of the generator
                        yield pair
                    seek(pair[0])
                    if valid() and key() == pair[0]:
                        proceed()
            self._check(pairs)
        finally:
            # Release the iterator before its options.
            del pairs, valid, key, value, proceed, seek, rest
            del within

    def _pairs(
        self, begin: bytes, within: ReadOptions, *, backwards: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the library's generator, which may end too early."""
        with self._damage_named():
            found = self._rocks.items(backwards, from_key=begin, read_opt=within)
        return cast("Iterator[tuple[bytes, bytes]]", found)

    def _check(self, pairs: RdictIter) -> None:
        """Check that a walk did not end because of an error."""
        with self._damage_named():
            pairs.status()

    def prepare(self, writes: Iterable[Write]) -> None:
        """Keep writes for the next ``write``, which applies them before its own."""
        batch = self._prepared
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

    def write(self, writes: Iterable[Write]) -> None:
        """Apply the prepared and the given writes in order.

        After a crash, either all or none of them exist.
        """
        self.prepare(writes)
        batch, self._prepared = self._prepared, WriteBatch(raw_mode=True)
        with self._damage_named():
            self._rocks.write(batch, self._write_options)

    @property
    def is_choked(self) -> bool:
        """Return whether a write would block until the disk catches up."""
        number = self._rocks.property_int_value
        return (
            (number("rocksdb.num-immutable-mem-table") or 0) >= WRITE_BUFFERS_MAX - 1
            or bool(number("rocksdb.is-write-stopped"))
            or bool(number("rocksdb.actual-delayed-write-rate"))
        )

    def view(self) -> StateView:
        """Return the state as it is now."""
        options = ReadOptions()
        with self._damage_named():
            return StateView(self._rocks.iter(options), options, self._path)

    def tables(self) -> Mapping[str, int]:
        """Return name and size in bytes of each table in use; may be called on any thread."""
        with self._damage_named():
            return {
                str(each["name"]).lstrip("/"): each["size"] for each in self._rocks.live_files()
            }

    def key_ranges(self) -> Mapping[str, tuple[bytes, bytes]]:
        """Return name, first and last key of each table in use."""
        with self._damage_named():
            return {
                str(each["name"]).lstrip("/"): (each["start_key"], each["end_key"])
                for each in self._rocks.live_files()
            }

    def flush(self) -> None:
        """Flush and sync all writes so far; may be called on another thread."""
        with self._damage_named():
            self._rocks.flush(wait=True)

    def freeze(self, place: Path) -> None:
        """Copy the current state into a new directory; may be called on any thread.

        Costs one flush and some hard links, because the files of a database never change. The
        library (0.3.29) holds the interpreter lock while it makes a checkpoint, which includes a
        flush, but not during a flush alone. The flush before therefore keeps the event loop free.
        """
        self.flush()
        with self._damage_named():
            Checkpoint(self._rocks).create_checkpoint(str(place))

    def close(self) -> None:
        """Close the files; the object cannot be used afterwards.

        Raises:
            StateDamaged: an earlier write in the background has failed; the files are closed.
        """
        with self._damage_named():
            self._rocks.close()
