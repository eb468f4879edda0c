"""Replicate the real queue as a state machine, on a store that loses unflushed data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from struct import Struct

import google_crc32c

from taskraft_replication.core.types import Entry, EntryKind, LogIndex, Term
from taskraft_replication.errors import SnapshotUnusable
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.registry import Command, Result
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.values import value
from tests.service.queue.memory_store import MemoryStore

NO_DIGEST = bytes(16)
DIGEST_PERIOD = 64
"""Interval of digests of the whole state in entries; a digest takes longer than applying the
entries."""

_LENGTHS = Struct(">II")
_HEADER = Struct(">16sI")
"""Digest and CRC32C of a snapshot."""


@value
class Stamped:
    """The commands of an entry and its timestamp."""

    now_ms: int
    commands: Sequence[Command]
    true_us: int = 0
    """True time at which the leader made the timestamp."""
    epoch: int = 0
    """Term in which a leader started this cluster time from the wall clocks."""
    may_be_late: bool = False
    """Whether the epoch began with the lowest of wall clocks that disagreed."""
    trusts_wrong_clock: bool = False
    """Whether wrong wall clocks alone were a quorum when the epoch began."""


@value
class Applied:
    """The results of an entry, and a digest of all entries up to it."""

    index: LogIndex
    digest: bytes
    now_ms: int
    results: Sequence[Result]


@value
class Durable:
    """The data that survives the end of a process."""

    index: LogIndex = LogIndex(0)
    digest: bytes = NO_DIGEST
    store: MemoryStore = MemoryStore()
    """The store as it was at the last flush; a new process begins with a copy."""


NOTHING = Durable()


class FrozenState:
    """A snapshot."""

    def __init__(self, index: LogIndex, digest: bytes, pairs: Mapping[bytes, bytes]) -> None:
        self.index = index
        packed = [_LENGTHS.pack(len(k), len(v)) + k + v for k, v in sorted(pairs.items())]
        content = b"".join(packed)
        self._content = _HEADER.pack(digest, google_crc32c.value(digest + content)) + content

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]

    def close(self) -> None:
        pass


class QueueMachine:
    """Equal digests at equal indexes mean equal histories; some checks compare whole queues."""

    def __init__(
        self, contents: Mapping[bytes, Stamped], rng: Random, durable: Durable = NOTHING
    ) -> None:
        self._contents = contents
        self._pace = rng.choice((1, 4, 30))
        self._limits = Limits(
            head_entries_max=rng.choice((2, 5, 1000)),
            resident_bytes_max=rng.choice((1, 1000, 1 << 20)),
            feed_chunk_rows_max=rng.choice((1, 7, 100)),
        )
        self.is_choked = False
        """Whether writes of the state would block."""
        self._durable = durable
        self._open(durable.store.copy(), durable.index, durable.digest)

    def _open(self, store: MemoryStore, index: LogIndex, digest: bytes) -> None:
        self._store = store
        self.queue = Queue(store, self._limits)
        self.applied_index, self.digest = index, digest
        self.applied_term = Term(0)
        """Term of the last entry applied since the start; 0 after a start or a snapshot."""
        self._written = (index, digest)
        assert self.queue.applied_index == index

    @property
    def durable(self) -> Durable:
        return self._durable

    @property
    def durable_index(self) -> LogIndex:
        return self._durable.index

    is_writing = False

    def write_some(self) -> None:
        raise AssertionError("writes are made at once")

    def waits_for_disk(self, entry: Entry) -> bool:
        return self.is_choked

    def waits_for_members(self) -> bool:
        return False

    def apply(self, entries: Sequence[Entry]) -> Sequence[Applied]:
        # A membership change is stored after ``waits_for_disk`` and before its application.
        is_change = entries[0].kind is not EntryKind.NORMAL
        assert not self.is_choked or is_change, "the event loop would stop"
        done = [self._apply(entry) for entry in entries]
        waiting = self.applied_index - self._written[0]
        has_change = any(each.kind is not EntryKind.NORMAL for each in entries)
        if not self._written[0] or waiting >= self._pace or has_change:
            self.collect()
        return done

    def _apply(self, entry: Entry) -> Applied:
        assert entry.index == self.applied_index + 1
        content = self._contents.get(entry.data)
        commands: Sequence[Command] = () if content is None else content.commands
        now_ms = self.queue.now_ms if content is None else content.now_ms
        results = self.queue.apply(entry.index, now_ms, commands)
        self.applied_index, self.applied_term = entry.index, entry.term
        chain = blake2b(self.digest, digest_size=16)
        chain.update(b"%d %d " % (entry.index, entry.term))
        chain.update(entry.data)
        if entry.index % DIGEST_PERIOD == 0:
            chain.update(self.queue.digest())
        self.digest = chain.digest()
        return Applied(entry.index, self.digest, now_ms, results)

    def lose(self, state: Durable) -> None:
        """Let the next process find an older state, or none."""
        self._durable = state

    def collect(self) -> None:
        self._store.write(self.queue.collect_writes())
        self._written = (self.applied_index, self.digest)

    def write_applied(self) -> None:
        if not self.is_choked:
            self.collect()

    def flush_durably(self) -> LogIndex:
        self._durable = Durable(*self._written, self._store.copy())
        return self._durable.index

    @property
    def snapshot_index(self) -> LogIndex:
        return self._written[0]

    def open_snapshot(self) -> FrozenState:
        return FrozenState(*self._written, self._store.pairs)

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedState:
        """Build a received state.

        Raises:
            SnapshotUnusable: the content is damaged.
        """
        content = b"".join(chunks)
        digest, checksum = _HEADER.unpack_from(content)
        if google_crc32c.value(digest + content[_HEADER.size :]) != checksum:
            raise SnapshotUnusable("a received block is damaged")
        pairs: dict[bytes, bytes] = {}
        at = _HEADER.size
        while at < len(content):
            key_bytes, value_bytes = _LENGTHS.unpack_from(content, at)
            middle = at + _LENGTHS.size + key_bytes
            at = middle + value_bytes
            pairs[content[middle - key_bytes : middle]] = content[middle:at]
        return StagedState(self, Durable(index, digest, MemoryStore(pairs)))

    def switched(self, state: Durable) -> None:
        """Record that a restart would find ``state``."""
        self._durable = state

    def adopted(self, state: Durable) -> None:
        """Continue with ``state``."""
        self._open(state.store.copy(), state.index, state.digest)


class StagedState:
    """A state that is built beside the state of a ``QueueMachine``."""

    def __init__(self, machine: QueueMachine, state: Durable) -> None:
        self._machine = machine
        self.state = state

    def switch(self) -> None:
        self._machine.switched(self.state)

    def adopt(self) -> None:
        self._machine.adopted(self.state)

    def discard(self) -> None:
        pass
