"""Run one member of the simulated group: real driver and storage on virtual time and disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TypeVar

from taskraft_replication.core.confchange import of_entry
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.errors import Compacted, EntryUnavailable
from taskraft_replication.core.types import (
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    Message,
    RaftRole,
    Snapshot,
    SnapshotMeta,
    SoftState,
    Term,
)
from taskraft_replication.driver.driver import RaftDriver, build_driver
from taskraft_replication.effects import StorageWork
from taskraft_replication.errors import (
    MemberRemoved,
    SnapshotBroken,
    SnapshotUnavailable,
    SnapshotUnusable,
    StateLost,
)
from taskraft_replication.machine import SnapshotReader
from taskraft_replication.peers.codec import has_heartbeat
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity
from taskraft_replication.storage.stored_log import StoredLog
from taskraft_service.leader.clock_keeper import CHECK_MS
from tests.sim.checked_machine import CheckedMachine
from tests.sim.clocks import SimClocks
from tests.sim.comparison import SimComparison
from tests.sim.disk import SimDisk
from tests.sim.link import Links
from tests.sim.member_world import World
from tests.sim.network import Activity, ActivityKind, Frame
from tests.sim.pieces import Piece, pieces_of
from tests.sim.planned_crashes import Moment
from tests.sim.probe import MOMENTS_MAX, PROBE_SHARE, REFUSALS, Probe
from tests.sim.schedule import Event
from tests.sim.state_damage import DamageableState, Finder, StateUnreadable
from tests.sim.state_repair import repair
from tests.sim.storage_thread import StorageThread
from tests.sim.violation import demand

T = TypeVar("T")

TICK_US = 50_000
CHECK_US = 1000 * CHECK_MS
"""Interval in which the wall clocks are compared."""


class Member(DamageableState):
    """A member through all its starts."""

    def __init__(
        self, member: MemberId, world: World, config: RaftConfig, rng: Random, founders: ConfState
    ) -> None:
        super().__init__()
        self.id = member
        self.world = world
        self.config = config
        self.disk = SimDisk(rng)
        self.storage_thread = StorageThread(self, self.disk, rng)
        self.is_running = False
        self.has_lived = False
        self.is_damaged = False
        """Whether the member's data is lost; then the member never starts again."""
        self.is_paused = False
        self.rate = 1.0
        """Rate of its clock; 1.0 is real time."""
        self.clocks = SimClocks(self, Random(f"{rng.random()} clocks"))
        self.machine = CheckedMachine(world.workload.contents, rng)
        self.comparison: SimComparison
        self.incarnation = 0
        self.heard: dict[MemberId, int] = {}
        """Highest incarnation of each peer that was seen."""
        self.driver: RaftDriver
        self.view: StoredLog
        self.founders = founders
        self._rng = rng
        self._probe_rng = Random(f"{rng.random()} probes")
        self._events: set[Event] = set()
        self._pump: Event | None = None
        self._pumps_at_once = False
        self.is_in_event = False
        self.links: Links
        self._transfers: list[Callable[[bool], None]] = []
        """Callbacks that wait for the end of a snapshot transfer."""
        self.synced_last: tuple[LogIndex, Term] | None = None
        """The last entry that was synced before the last restart."""
        self._hard_state = (-1, HardState())
        self._storage: GroupStorage

    # Starts and stops

    def start(self) -> None:
        self.disk.recover()
        self.disk.watch(None)
        self.meets(Finder.START)
        durable = self.machine.durable
        self.machine = CheckedMachine(self.world.workload.contents, self._rng, durable)
        self.machine.member = self
        config = StorageConfig(
            Identity("sim", self.id, 0),
            self.founders,
            salt=self._rng.randrange(1 << 32),
            segment_bytes=self._rng.choice(self.world.profile.segment_bytes),
            recent_entries_max=self._rng.choice((10, 1000)),
        )
        try:
            self._storage = GroupStorage.open(self.disk, config, self.machine.applied_index)
        except MemberRemoved:
            self.stay_away()
            return
        except StateLost:
            demand(self.has_lost_state, f"member {self.id} has a state before the start of its log")
            repair(self, config)
            return
        except REFUSALS as error:
            demand(
                self.id in self.world.flipped,
                f"member {self.id} is damaged, but no fault flipped a bit: {error}",
            )
            self.is_damaged = True
            self.world.ended(self, f"damaged: {error}")
            return
        synced = self.synced_last
        self.view = self._storage.view
        self.incarnation = self._storage.incarnation
        self.heard.clear()
        self.storage_thread.begin_life()
        self.is_running = self.has_lived = True
        self.is_paused = False
        self.has_lost_state = False
        self.clocks.start()
        self.comparison = SimComparison(self)
        self.world.invariants.began(self, synced)
        self.note_commit_found()
        policy = self.world.profile.storage_policy(self._rng)
        self.driver = build_driver(
            self.config, self._rng.randrange, self._storage, self.machine, self, self, policy
        )
        self.links = Links(self, self._rng, self.driver.membership, self.world.profile.long_share)
        self.later(self._rng.randrange(TICK_US), "tick", self._tick)
        self.later(self._rng.randrange(CHECK_US), "clocks", self._check_clocks)
        self.world.on_rare_event(self, Moment.START)

    def stay_away(self) -> None:
        self.is_damaged = True
        self.world.count("removed member stays away")

    def start_again(self) -> None:
        if not self.is_running and not self.is_damaged:
            self.start()

    def stop(self, *, power: bool) -> None:
        self.is_running = False
        for event in self._events:
            event.cancel()
        self._events.clear()
        self._pump = None
        self._pumps_at_once = False
        self.links = Links(self, self._rng, ConfState(), 0)
        self.synced_last = None
        if self.storage_thread.is_whole:
            self.synced_last = (self.view.last_index(), self.view.term(self.view.last_index()))
        transfers, self._transfers = self._transfers, []
        for done in transfers:
            done(False)
        if power:
            self.disk.lose_power()
        self.driver.fail_all(SnapshotBroken("the process ended"))

    def failed(self, error: OSError) -> None:
        self.world.ended(self, f"failed: {error}")

    def crashed(self) -> None:
        self.world.crashed(self)

    def draw_us(self, bounds_us: tuple[int, int]) -> int:
        return self._rng.randrange(*bounds_us)

    # Facts

    @property
    def serves(self) -> bool:
        core = self.driver.core
        return core.role is RaftRole.LEADER and self.clocks.served_term == core.term

    @property
    def configuration(self) -> ConfState:
        return self.driver.core._member.configuration

    @property
    def is_installing(self) -> bool:
        return self.driver._installer.current is not None

    @property
    def commit_found(self) -> LogIndex:
        """The commit index that was found at the start."""
        return self.view.initial_state()[0].commit

    def durable_hard_state(self) -> HardState:
        operations, found = self._hard_state
        if operations != self.disk.operations:
            found = self._storage.metadata.hard_state()
            self._hard_state = (self.disk.operations, found)
        return found

    def term_at(self, index: LogIndex) -> Term | None:
        try:
            return self.driver.core._member.log.term(index)
        except (Compacted, EntryUnavailable):
            return None

    def has_synced(self, index: LogIndex, term: Term) -> bool:
        if not self.has_lived:
            return False
        if index < self.view.first_index() - 1:
            return True
        return index <= self.view.last_index() and self.view.term(index) == term

    def membership_at(self, index: LogIndex) -> ConfState:
        return self._storage.memberships.at(index)

    def uncommitted_changes(self) -> list[LogIndex]:
        """Return the indexes of membership changes that may be uncommitted for this member."""
        log = self.driver.core._member.log
        first, end = LogIndex(log.commit_index + 1), LogIndex(log.last_index + 1)
        found: list[LogIndex] = []
        while first < end:
            # ``read`` returns only the stored changes of one segment at a time.
            tail = log.entries(first, end, 1 << 30)
            found += [entry.index for entry in tail if of_entry(entry) is not None]
            first = LogIndex(tail[-1].index + 1)
        return found

    # Input

    def receive(self, frame: list[Message], incarnation: int) -> None:
        """Handle a frame that an incarnation of a peer has sent."""
        sender = frame[0].sender
        if not self.is_running or incarnation < self.heard.get(sender, 0):
            return
        self.heard[sender] = incarnation
        if self.is_paused:
            delay_us = self._rng.randrange(50_000)
            self.later(delay_us, "late", lambda: self.receive(frame, incarnation))
        else:
            beacon = getattr(frame, "beacon", None)
            if beacon is not None:
                self.clocks.clock.received(sender, beacon)
                self.comparison.real.received(sender, beacon)
            self.links.received(frame, self.driver.core.commit_index)
            self.driver.receive(frame)
            self._try_to_serve()

    def receive_activity(self, sender: MemberId, activity: Activity, incarnation: int) -> None:
        """Handle activity of an incarnation of a peer; a paused process misses it."""
        if not self.is_running or self.is_paused or incarnation < self.heard.get(sender, 0):
            return
        if activity.kind is ActivityKind.LEADER:
            self.driver.leader_alive(sender, activity.term)
        else:
            self.driver.follower_alive(sender, activity.term)

    def lost(self, to: MemberId) -> None:
        """Handle a broken connection to a peer."""
        self.links.broke(to)
        self.driver.unreachable(to)

    def receive_snapshot(
        self, message: Message, pieces: list[Piece], done: Callable[[bool], None]
    ) -> None:
        """Receive a whole snapshot piece by piece, as the transport would."""
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
        except OSError as error:
            done(False)
            self.failed(error)
            return
        incoming.complete(turn)
        self._transfers.append(done)

        def taken(error: SnapshotUnusable | None) -> None:
            self._transfers.remove(done)
            done(error is None)

        reference = Snapshot(message.snapshot.meta, incoming.name.encode())
        self.driver.receive_snapshot(replace(message, snapshot=reference), incoming, taken)

    def _tick(self) -> None:
        self.later(int(TICK_US / self.rate), "tick", self._tick)
        if not self.is_paused:
            self.driver.tick()
            if self.driver.disk.is_hung:
                self.world.count("hung disk ends a member")
                self.failed(TimeoutError("the disk does not answer"))

    # Effects

    @property
    def storage_work(self) -> StorageWork:
        return self.storage_thread.progress

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.world.invariants.promises.sent(self, message)
        for to in self.links.send(messages):
            self.world.count("send queue is full")
            self.driver.unreachable(to)

    def carry(self, to: MemberId, frame: list[Message]) -> None:
        self.world.invariants.check_state_use(self)
        for message in frame:
            self.world.invariants.promises.left(self, message)
        content = Frame(frame)
        if has_heartbeat(frame):
            content.beacon = self.clocks.clock.make() + self.comparison.real.make()
        self.world.send(to, content, self)

    def carry_activity(self, to: MemberId, activity: Activity) -> None:
        self.world.send(to, activity, self)

    def set_leading_term(self, term: Term) -> None:
        self.links.set_leading_term(term)

    def send_alive(self, leader: MemberId, term: Term) -> None:
        self.carry_activity(leader, Activity(ActivityKind.FOLLOWER, term))

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        self.world.invariants.check_installable(meta)
        announcement = replace(message, snapshot=Snapshot(meta))
        incarnation = self.incarnation

        def done(ok: bool) -> None:
            if self.is_running and self.incarnation == incarnation:
                self.driver.snapshot_sent(message.to, ok=ok)

        try:
            pieces = pieces_of(content)
        except SnapshotUnavailable:
            self.world.count("snapshot not sent: blocks of the sender are damaged")
            return
        self.world.send_snapshot(announcement, pieces, done)

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        is_rare = self._is_rare(work)
        is_probed = is_rare or self._probe_rng.random() < PROBE_SHARE
        probes: list[Probe] = []
        if getattr(work, "func", work) == self._storage.trim:
            self.world.on_rare_event(self, Moment.TRIM)

        def begin() -> T:
            if is_probed:
                probes.append(Probe(self, self._probe_rng, MOMENTS_MAX if is_rare else 1))
            return work()

        def end(result: T) -> None:
            self.disk.watch(None)
            then(result)
            if is_rare:
                self._note_change()
            for probe in probes:
                probe.check()

        self.storage_thread.store(begin, end)

    def _is_rare(self, work: Callable[[], object]) -> bool:
        """Return whether a write is more than an append to the end in the same term."""
        if not isinstance(work, partial) or work.func != self._storage.store:
            return True
        hard_state, entries, _ = work.args
        return bool(entries) and (
            hard_state is not None or entries[0].index <= self.view.last_index()
        )

    def _note_change(self) -> None:
        """Demand that the last stored membership change stays stored; it may be committed."""
        last, _ = self._storage.metadata.memberships()[-1]
        self.world.invariants.change_stored(self, last)

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        def happen() -> None:
            try:
                result = work()
            except OSError as error:
                self.failed(error)
                return
            then(result)

        self.later(self._rng.randrange(1, 20_000), "flush", happen)

    def request_pump(self) -> None:
        """Pump at the end of this event, like an idle node, or a little later."""
        if self._pump is None and not self._pumps_at_once:
            if self.is_in_event and self._rng.random() < 0.7:
                self._pumps_at_once = True
            else:
                self._pump = self.later(self._rng.randrange(1, 50), "pump", self.pump)

    def pump(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None
        self._pumps_at_once = False
        self.driver.pump()

    def later(self, delay_us: int, name: str, run: Callable[[], None]) -> Event:
        """Schedule a call for this process; it is dropped if the process ends before."""

        def happen() -> None:
            self._events.discard(event)
            self.act(run)

        event = self.world.schedule.after(delay_us, f"{self.id} {name}", happen)
        self._events.add(event)
        return event

    def act(self, run: Callable[[], None]) -> None:
        """Run a call in this process, then check the invariants."""
        self.is_in_event = True
        with self.disk.read_by_member(self.failed), contextlib.suppress(StateUnreadable):
            run()
            if self._pumps_at_once and self.is_running:
                self.pump()
            if self.damage is None or not self.damage.is_found:
                self.links.depart()
        self.is_in_event = False
        if self.damage is not None and self.damage.is_found:
            self.world.state_damage_found(self)
        if self.is_running:
            self.world.invariants.check(self)

    # Observer

    def role_changed(self, state: SoftState, term: Term) -> None:
        if state.role is RaftRole.LEADER:
            self.world.on_rare_event(self, Moment.ELECTION)

    def applied(self, index: LogIndex) -> None:
        self._try_to_serve()

    def _try_to_serve(self) -> None:
        """Begin to serve once the log is applied and the cluster time is known."""
        if self.clocks.try_to_serve():
            self.world.count(f"cluster time from {self.clocks.clock.started_by}")
            self.world.workload.startup(self)

    def _check_clocks(self) -> None:
        """Compare the wall clocks, and correct the wall offset as leader."""
        self.later(CHECK_US, "clocks", self._check_clocks)
        if self.is_paused:
            return
        self._try_to_serve()
        offset_ms = self.clocks.next_wall_offset()
        if offset_ms is not None:
            self.world.count("wall offset corrected")
            self.world.workload.correct(self, offset_ms)

    def synced(self, entries: int, log_bytes: int) -> None:
        pass

    def disk_stalled(self, *, is_stalled: bool) -> None:
        if is_stalled:
            self.world.count("disk stalls")

    def membership_changed(self, conf_state: ConfState) -> None:
        self.links.membership_changed(conf_state)
        self.world.on_rare_event(self, Moment.CHANGE)
