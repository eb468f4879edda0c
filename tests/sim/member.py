"""One member of the simulated group: the real driver and storage on virtual time and disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol, TypeVar

import google_crc32c

from replication.core.config import Config
from replication.core.errors import Compacted, Unavailable
from replication.core.types import (
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    Message,
    Snapshot,
    SnapshotMeta,
    SoftState,
    Term,
)
from replication.driver import Driver, build_driver
from replication.errors import LogDamaged, SnapshotBroken
from replication.machine import SnapshotReader
from replication.storage.group_storage import GroupStorage, StorageConfig
from replication.storage.metadata import Identity
from replication.storage.stored_log import StoredLog
from replication.trimmer import TrimPolicy
from tests.sim.disk import Crashed, SimDisk
from tests.sim.invariants import Invariants
from tests.sim.machine import DigestMachine
from tests.sim.schedule import Event, Schedule

T = TypeVar("T")

TICK_US = 50_000

PIECE_BYTES = 5
"""Snapshots travel in several pieces."""

Piece = tuple[int, bytes, int]
"""Offset, data and checksum of the content so far."""


def pieces_of(content: SnapshotReader) -> list[Piece]:
    """Return a snapshot as it travels."""
    pieces: list[Piece] = []
    offset = crc = 0
    while data := content.read(offset, PIECE_BYTES):
        crc = google_crc32c.extend(crc, data)
        pieces.append((offset, data, crc))
        offset += len(data)
    return pieces


class World(Protocol):
    """What a member needs of the world."""

    schedule: Schedule
    invariants: Invariants

    def send(self, message: Message, incarnation: int) -> None: ...

    def send_snapshot(
        self, message: Message, pieces: list[Piece], done: Callable[[bool], None]
    ) -> None: ...

    def ended(self, member: Member, why: str) -> None: ...


class CheckedMachine(DigestMachine):
    """Shows everything that it applies to the invariants."""

    member: Member

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        results = super().apply(entries)
        for entry, digest in zip(entries, results, strict=True):
            assert isinstance(digest, bytes)
            self.member.world.invariants.applied(self.member, entry, digest)
        return results

    def adopted(self) -> None:
        self.member.world.invariants.installed(self.member, self.applied_index, self.digest)


class Member:
    """A member through all its lives."""

    def __init__(
        self, member: MemberId, world: World, config: Config, rng: Random, members: int
    ) -> None:
        self.id = member
        self.world = world
        self.disk = SimDisk(rng)
        self.is_running = False
        self.is_damaged = False
        self.is_paused = False
        self.is_whole = True
        """No write of this life was broken off, which may have cut a suffix already."""
        self.rate = 1.0
        """How fast its clock runs."""
        self.sync_us = (100, 3000)
        self.machine = CheckedMachine()
        self.machine.member = self
        self.incarnation = 0
        self.heard: dict[MemberId, int] = {}
        """Latest life of each peer that was heard of."""
        self.driver: Driver
        self.view: StoredLog
        self._config = config
        self._rng = rng
        self._founders = ConfState(voters=tuple(MemberId(each) for each in range(1, members + 1)))
        self._events: set[Event] = set()
        self._pump: Event | None = None
        self._work: list[tuple[Callable[[], object], Callable[[object], None]]] = []
        self._transfers: list[Callable[[bool], None]] = []
        """Who waits to hear that a snapshot was received."""
        self._synced: tuple[LogIndex, Term] | None = None
        """The last entry that the life before had synced."""
        self._hard_state = (-1, HardState())
        self._storage: GroupStorage

    # Lives

    def start(self) -> None:
        """Begin a life with what the disk has."""
        self.disk.recover()
        self.machine = CheckedMachine(self.machine.durable)
        self.machine.member = self
        config = StorageConfig(
            Identity("sim", self.id, 0),
            self._founders,
            salt=self._rng.randrange(1 << 32),
            segment_bytes=self._rng.choice((2048, 4096, 16384)),
            recent_entries_max=self._rng.choice((10, 1000)),
        )
        try:
            self._storage = GroupStorage.open(self.disk, config, self.machine.applied_index)
        except LogDamaged as error:
            self.is_damaged = True
            self.world.ended(self, f"damaged: {error}")
            return
        synced = self._synced
        self.view = self._storage.view
        self.incarnation = self._storage.incarnation
        self.heard.clear()
        self.is_running = self.is_whole = True
        self.is_paused = False
        self.world.invariants.began(self, synced)
        policy = TrimPolicy(self._rng.choice((3000, 20_000)), self._rng.choice((0, 5, 50)))
        self.driver = build_driver(
            self._config, self._rng.randrange, self._storage, self.machine, self, self, policy
        )
        self._later(self._rng.randrange(TICK_US), f"tick {self.id}", self._tick)

    def stop(self, *, power: bool) -> None:
        """End this life in the middle of whatever it did."""
        self.is_running = False
        for event in self._events:
            event.cancel()
        self._events.clear()
        self._pump = None
        if self.is_whole:
            self._synced = (self.view.last_index(), self.view.term(self.view.last_index()))
        else:
            self._synced = None
        self._work.clear()
        transfers, self._transfers = self._transfers, []
        for done in transfers:
            done(False)
        if power:
            self.disk.lose_power()
        self.driver.fail_all(SnapshotBroken("the process ended"))

    def crash_in_work(self) -> bool:
        """Let the storage worker get stuck in the middle of its work; tell whether it had any."""
        if not self._work:
            return False
        self.is_whole = False
        self.disk.crash_at = self.disk.operations + self._rng.randrange(1, 8)
        with contextlib.suppress(Crashed, OSError):
            self._work[0][0]()
        return True

    # Facts for the invariants

    def durable_hard_state(self) -> HardState:
        operations, found = self._hard_state
        if operations != self.disk.operations:
            found = self._storage.metadata.hard_state()
            self._hard_state = (self.disk.operations, found)
        return found

    def term_at(self, index: LogIndex) -> Term | None:
        try:
            return self.driver.core._member.log.term(index)
        except (Compacted, Unavailable):
            return None

    def has_synced(self, index: LogIndex, term: Term) -> bool:
        if index < self.view.first_index() - 1:
            return True
        return index <= self.view.last_index() and self.view.term(index) == term

    # Input

    def receive(self, message: Message, incarnation: int) -> None:
        if not self.is_running or incarnation < self.heard.get(message.sender, 0):
            return
        self.heard[message.sender] = incarnation
        if self.is_paused:
            self._later(
                self._rng.randrange(50_000), "late", lambda: self.receive(message, incarnation)
            )
        else:
            self.driver.receive([message])

    def receive_snapshot(
        self, message: Message, pieces: list[Piece], done: Callable[[bool], None]
    ) -> None:
        """Take a whole snapshot piece by piece, as the transport would."""
        assert message.snapshot is not None
        try:
            incoming = self.driver.inbox.begin(f"t{self.world.schedule.now_us}")
            turn = incoming.attach()
        except SnapshotBroken:
            done(False)
            return
        try:
            for offset, data, crc in pieces:
                incoming.write(turn, offset, data, crc)
        except SnapshotBroken:
            incoming.detach(turn)
            done(False)
            return
        incoming.complete(turn)
        self._transfers.append(done)

        def taken() -> None:
            self._transfers.remove(done)
            done(True)

        reference = Snapshot(message.snapshot.meta, incoming.name.encode())
        self.driver.receive_snapshot(replace(message, snapshot=reference), incoming, taken)

    def _tick(self) -> None:
        self._later(int(TICK_US / self.rate), f"tick {self.id}", self._tick)
        if not self.is_paused:
            self.driver.tick()

    # Effects

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.world.invariants.sent(self, message)
            self.world.send(message, self.incarnation)

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        self.world.invariants.check_installable(meta)
        announcement = replace(message, snapshot=Snapshot(meta))
        incarnation = self.incarnation

        def done(ok: bool) -> None:
            if self.is_running and self.incarnation == incarnation:
                self.driver.snapshot_sent(message.to, ok=ok)

        self.world.send_snapshot(announcement, pieces_of(content), done)
        content.close()

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._work.append((work, then))  # type: ignore[arg-type]  # the pair agrees on T
        if len(self._work) == 1:
            self._begin_work()

    def _begin_work(self) -> None:
        self._later(self._rng.randint(*self.sync_us), f"store {self.id}", self._end_work)

    def _end_work(self) -> None:
        work, then = self._work[0]
        try:
            result = work()
        except OSError as error:
            self.is_whole = False
            self.world.ended(self, f"failed: {error}")
            return
        self._work.pop(0)
        if self._work:
            self._begin_work()
        then(result)
        if self.is_running:
            self.pump()

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._later(self._rng.randrange(1, 20_000), f"flush {self.id}", lambda: then(work()))

    def request_pump(self) -> None:
        if self._pump is None:
            self._pump = self._later(self._rng.randrange(1, 50), f"pump {self.id}", self.pump)

    def pump(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None
        self.driver.pump()

    def _later(self, delay_us: int, name: str, run: Callable[[], None]) -> Event:
        def happen() -> None:
            self._events.discard(event)
            run()
            if self.is_running:
                self.world.invariants.check(self)

        event = self.world.schedule.after(delay_us, name, happen)
        self._events.add(event)
        return event

    # Observer

    def role_changed(self, state: SoftState, term: Term) -> None:
        pass

    def applied(self, index: LogIndex) -> None:
        pass

    def synced(self, entries: int, log_bytes: int) -> None:
        pass
