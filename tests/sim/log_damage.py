"""Damage the logs of several members at once, and let them complete each other without a leader.

The members exchange what they know and what they read through function calls; storage and planning
are those of the product. The rule: a member ends with the log that it had, if each of its damaged
entries is whole on another member, and it says exactly which entries are missing otherwise. No
member ends with another log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from taskraft_replication.core.types import ConfState, Entry, HardState, LogIndex, MemberId, Term
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.damaged_log import DamagedLog
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.log_copy import LogCopy
from taskraft_replication.storage.log_parts import LogRange, ReadableLog, plan_repair
from taskraft_replication.storage.metadata import Identity, Metadata
from taskraft_replication.storage.record import HEADER_BYTES, record_bytes
from tests.sim.disk import SimDisk
from tests.sim.violation import Violation

SEGMENT_BYTES = 4096
FIRST = 2
"""Index of the first entry of a new group."""


@dataclass(slots=True)
class Copy:
    """The disk of one member, and the entries that it had before the damage."""

    number: int
    disk: SimDisk
    entries: dict[LogIndex, Entry]
    hard_state: HardState
    damaged: set[LogIndex] = field(default_factory=set)
    missing: list[LogRange] = field(default_factory=list)
    """What the last attempt has not found."""

    def config(self) -> StorageConfig:
        voters = tuple(MemberId(number) for number in (1, 2, 3))
        return StorageConfig(
            Identity("sim", MemberId(self.number), 0),
            ConfState(voters=voters),
            salt=1000 + self.number,
            segment_bytes=SEGMENT_BYTES,
        )

    def metadata(self) -> Metadata:
        return Metadata(self.disk, "raft-0")

    def open(self) -> GroupStorage:
        return GroupStorage.open(self.disk, self.config(), LogIndex(1))

    def is_whole(self) -> bool:
        """Return whether the member can start."""
        try:
            self.open()
        except LogDamaged:
            return False
        return True

    def read(self) -> dict[LogIndex, Entry]:
        """Return the log after a start."""
        view = self.open().view
        found: dict[LogIndex, Entry] = {}
        at = view.first_index()
        while at <= view.last_index():
            for entry in view.entries(at, LogIndex(view.last_index() + 1), 1 << 20):
                found[entry.index] = entry
            at = LogIndex(max(found) + 1)
        return found


def history(rng: Random) -> tuple[list[Copy], LogIndex]:
    """Return three copies of one log, and the commit index; the copies may differ behind it."""
    last = rng.randrange(FIRST, 120)
    term, common = 1, []
    for index in range(FIRST, last + 1):
        term += rng.random() < 0.05
        common.append(_entry(rng, index, term))
    lengths = sorted(rng.randrange(len(common) + 1) for _ in range(2))
    commit = LogIndex(FIRST - 1 + lengths[1])
    copies = []
    for number, length in zip((1, 2, 3), (*lengths, len(common)), strict=True):
        entries = common[:length]
        if rng.random() < 0.3:
            # Entries of a leader that has never reached a majority.
            later = term + number
            begin = FIRST + length
            entries = [
                *entries,
                *(_entry(rng, index, later) for index in range(begin, begin + rng.randrange(1, 9))),
            ]
        copies.append(_stored(rng, number, entries, LogIndex(min(commit, FIRST - 1 + length))))
    return copies, commit


def _entry(rng: Random, index: int, term: int) -> Entry:
    size = rng.choice((1, 30, 300, 3000))
    return Entry(Term(term), LogIndex(index), rng.randbytes(size) + b"!")


def _stored(rng: Random, number: int, entries: list[Entry], commit: LogIndex) -> Copy:
    """Store entries in random batches, and end the process; ``commit``: of the stored entries."""
    state = HardState(Term(entries[-1].term if entries else 1), MemberId(1), LogIndex(1))
    copy = Copy(number, SimDisk(rng), {entry.index: entry for entry in entries}, state)
    storage = copy.open()
    rest = entries
    while rest:
        size = rng.choice((1, 1, 2, 10))
        batch, rest = rest[:size], rest[size:]
        term = HardState(batch[-1].term, MemberId(1), LogIndex(1))
        known = LogIndex(min(commit, batch[-1].index) if rng.random() < 0.5 else 1)
        storage.store(term, batch, known)
        storage.view.publish(batch)
        if rng.random() < 0.2:
            storage.sync_mark()
    if not entries:
        storage.store(state, (), LogIndex(1))
    storage.sync_mark()
    if rng.random() < 0.3:
        copy.disk.lose_power()
    return copy


def damage(rng: Random, copies: list[Copy]) -> None:
    """Damage entries of several copies, at equal or at different places."""
    places = [LogIndex(rng.randrange(FIRST, 120)) for _ in range(4)]
    for copy in copies:
        for index in places if rng.random() < 0.3 else rng.sample(places, rng.randrange(3)):
            if index in copy.entries:
                _flip(rng, copy, index)


def _flip(rng: Random, copy: Copy, index: LogIndex) -> None:
    """Flip a bit of an entry, anywhere in its record."""
    try:
        place = DamagedLog(copy.disk, copy.metadata())._places.get(index)
    except LogDamaged:
        return  # the end is damaged already
    if place is None:
        return
    inode = copy.disk._names[f"raft-0/log/{place.segment}"]
    size = HEADER_BYTES + len(copy.entries[index].data)
    at = place.offset + rng.randrange(size)
    inode.current[at] ^= 1 << rng.randrange(8)
    inode.durable[at] = inode.current[at]
    copy.damaged.add(index)


def repair(copies: list[Copy]) -> None:
    """Let the members complete each other until no attempt changes anything."""
    while any(_attempt(copy, copies) for copy in copies):
        pass


def _attempt(copy: Copy, copies: list[Copy]) -> bool:
    """Try to complete the log of one member; return whether it is complete now, and was not."""
    if copy.is_whole():
        return False
    try:
        log = DamagedLog(copy.disk, copy.metadata())
    except LogDamaged:
        return False  # the member must be replaced
    others = [_readable(other) for other in copies if other is not copy]
    gaps = log.gaps(log.start)
    known = [None if other is None else other.knowledge() for other in others]
    parts, copy.missing = plan_repair(log.knowledge(), gaps, known)
    if copy.missing:
        return False
    written = LogCopy(copy.disk, copy.metadata(), log.start, log.commit, SEGMENT_BYTES)
    sources: dict[LogIndex, tuple[LogRange, ReadableLog]] = {}
    for wanted, position in parts:
        source = others[position]
        assert source is not None
        sources[wanted.first] = wanted, source
    at, end_bytes = LogIndex(log.start.index + 1), 0
    while at <= log.last:
        wanted, source = sources.get(at, (LogRange(at, log.last), log))
        entries = source.entries(at, LogIndex(wanted.last + 1), 1000)
        written.add(entries)
        if source is not log:
            end_bytes += sum(
                record_bytes(len(each.data)) for each in entries if each.index >= log.end_first
            )
        at = LogIndex(entries[-1].index + 1)
        if at <= wanted.last and source is not log:
            sources[at] = LogRange(at, wanted.last), source
    try:
        log.check_end(end_bytes)
    except LogDamaged:
        written.discard()
        return False  # the member must be replaced
    written.finish()
    return True


def _readable(copy: Copy) -> ReadableLog | None:
    """Return what a member offers: its log, or what is left of the log."""
    try:
        return DamagedLog(copy.disk, copy.metadata())
    except LogDamaged:
        return None


def check(copies: list[Copy], commit: LogIndex) -> None:
    """Check the rule of this module.

    Raises:
        Violation: a member has another log, or misses entries that another member has.
    """
    for copy in copies:
        if copy.is_whole():
            if copy.read() != copy.entries:
                raise Violation(f"member {copy.number} has another log than before")
            if copy.metadata().hard_state() != copy.hard_state:
                raise Violation(f"the vote of member {copy.number} has changed")
            continue
        for gap in copy.missing:
            for index in map(LogIndex, range(gap.first, gap.last + 1)):
                _check_missing(copy, index, copies, commit)


def _check_missing(copy: Copy, index: LogIndex, copies: list[Copy], commit: LogIndex) -> None:
    """Check that no other member could have sent a missing entry."""
    for other in copies:
        log = _readable(other)
        if other is copy or log is None or other.entries.get(index) != copy.entries[index]:
            continue
        own = DamagedLog(copy.disk, copy.metadata())
        is_known = index <= min(own.commit, log.knowledge().commit)
        later = max(copy.entries)
        is_anchored = later in own._places and later in _indexes(log)
        same = other.entries.get(later) == copy.entries[later]
        if index in _indexes(log) and (is_known or (is_anchored and same)):
            raise Violation(
                f"member {copy.number} misses entry {index}, which member {other.number} has"
            )


def _indexes(log: ReadableLog) -> set[LogIndex]:
    return {
        LogIndex(index)
        for run in log.knowledge().readable
        for index in range(run.first, run.last + 1)
    }


def run(seed: int) -> int:
    """Run one history; return the number of members that were completed."""
    rng = Random(seed)
    copies, commit = history(rng)
    damage(rng, copies)
    harmed = [copy for copy in copies if not copy.is_whole()]
    repair(copies)
    check(copies, commit)
    return sum(copy.is_whole() for copy in harmed)
