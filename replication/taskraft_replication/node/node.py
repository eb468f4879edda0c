"""Run a member of a group on the event loop."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator

from taskraft_replication.beacons import Beacons, NoBeacons
from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Roster
from taskraft_replication.damage import Damage
from taskraft_replication.driver.driver import build_driver
from taskraft_replication.driver.preferred_followers import PreferredFollowers
from taskraft_replication.errors import (
    DirectoryRefused,
    ReplicationError,
    Stopped,
    StorageFailed,
    reason_of,
)
from taskraft_replication.machine import StateMachine
from taskraft_replication.membership.roster import with_configured
from taskraft_replication.node.bootstrap import ClusterBootstrap
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.leader_loss import LeaderLossCampaign
from taskraft_replication.node.member_requests import MemberRequests
from taskraft_replication.node.node_effects import NodeEffects, OwnLog, PeerReceiver
from taskraft_replication.node.observers import Observers
from taskraft_replication.node.open_storage import open_storage
from taskraft_replication.node.status import NodeStatus, status_of
from taskraft_replication.node.storage_worker import StorageWorker
from taskraft_replication.node.ticker import Ticker
from taskraft_replication.observer import Observer, RaftCounters
from taskraft_replication.peers.contract import Membership, Transport, process_id
from taskraft_replication.storage.data_directory import DataDirectory
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.log_scrub import Read

_log = logging.getLogger(__name__)


class Node:
    """A member of a group; create it with ``Node.open``.

    Everything runs on the event loop, except storage work and flushes, which run on worker threads.
    """

    def __init__(
        self,
        config: NodeConfig,
        machine: StateMachine,
        transport: Transport,
        storage: GroupStorage,
        directory: DataDirectory | None,
    ) -> None:
        """Called by ``Node.open`` only; ``stop`` releases the lock of ``directory``."""
        self._loop = asyncio.get_running_loop()
        self.config = config
        self.failed: asyncio.Future[ReplicationError] = self._loop.create_future()
        """Resolved with the reason when the node has stopped on its own; the process must then
        exit."""
        self.is_running = False
        """Whether the node was started and has neither stopped nor failed."""
        self.beacons: Beacons = NoBeacons()
        """The beacons that the members attach to heartbeats; set before ``start``."""
        self._machine = machine
        self._transport = transport
        self._storage = storage
        self._directory = directory
        self._observers = Observers(config.group_id, config.member_id, self._membership_changed)
        self._random = random.Random()  # noqa: S311 - spreads election timeouts; no secret
        name = f"raft-{config.group_id}-{config.member_id}"
        self._worker = StorageWorker(self._loop, name, storage.sync_mark, self.fail)
        self._effects = NodeEffects(self, self._worker)
        self._preferred = PreferredFollowers(config.member_id, self._effects.set_preferred)
        self._driver = build_driver(
            config.core,
            self._random.randrange,
            storage,
            machine,
            self._effects,
            self._observers,
            config.storage_policy,
        )
        self._ticker = Ticker(config.tick_ms, self._tick)
        self._requests = MemberRequests(
            self._driver,
            self._observers.changes,
            (config.election_ticks + 1) * config.tick_ms,
            lambda: self.is_running,
        )
        self._leader_loss = LeaderLossCampaign(
            self._driver, config.tick_ms, self._random.random, lambda: self.is_running
        )
        self._bootstrap = ClusterBootstrap(
            config, storage, self._driver, self._effects, self._begin, self.failed.done
        )
        self._was_started = False
        stored = storage.memberships
        self.roster_at_start = stored.at(stored.last_index).roster
        """Names and addresses of the members that were stored when this process started."""

    @classmethod
    async def open(
        cls,
        config: NodeConfig,
        machine: StateMachine,
        transport: Transport,
        directory: DataDirectory | None = None,
    ) -> Node:
        """Lock the data directory and load it; create the data of a new member if it is empty.

        A process that has already locked the directory passes it as ``directory``; the directory
        then stays locked after an error.

        Raises:
            DirectoryRefused: the directory cannot be used; see the subclasses.
            LogDamaged: durable data is missing or unreadable; the node must join as a new member.
            StateLost: the state machine is behind the first entry of the log.
        """
        own = DataDirectory(config.data_directory) if directory is None else None
        try:
            storage = await open_storage(config, machine.applied_index)
            return cls(config, machine, transport, storage, own)
        except BaseException:
            _release(own)
            raise

    async def start(self) -> None:
        """Connect to the peers, apply entries and take part in elections.

        A founder takes part once it has connected to all other founders; see ``ClusterBootstrap``.
        """
        assert not self._was_started
        self._was_started = True
        config = self.config
        membership = Membership(
            config.cluster_id,
            config.group_id,
            config.member_id,
            self._storage.incarnation,
            self._storage.directory_id,
            config.members[config.member_id].peer_address,
            self._bootstrap.founders,
            config.program,
            process_id(),
        )
        receiver = PeerReceiver(
            self._driver,
            self._preferred,
            self._bootstrap,
            self._leader_loss,
            OwnLog(self._storage.view, lambda: self._driver.core.stored_commit_index, self),
            self,
        )
        roster = self._driver.membership.roster
        roster = with_configured(roster, config.members, roster)
        self._effects.peers = self._transport.join(membership, roster, receiver)
        self._preferred.membership_changed(self._driver.membership)
        self._bootstrap.begin()

    def _begin(self) -> None:
        if self.failed.done():
            return
        self.is_running = True
        if self._driver.is_only_voter:
            # Campaign at once, because no other member can win an election.
            self._driver.campaign()
        self._effects.request_pump()
        self._ticker.start(self._random.random())

    async def stop(self) -> None:
        """Stop the node; acknowledged entries are durable, the outcome of others is unknown."""
        self._halt(Stopped("the node is stopping"))
        await self._effects.close()
        await asyncio.to_thread(self._worker.stop)
        reason = self.failed.result() if self.failed.done() else None
        if reason is None:
            await asyncio.to_thread(self._storage.close, self._driver.hard_state)
        elif isinstance(reason, DirectoryRefused) and not self.is_founding:
            # A founder has no data yet: its data directory may get another member later.
            await asyncio.to_thread(self._storage.end_refused, reason)
        _release(self._directory)
        self._directory = None

    def observe(self, observer: Observer) -> None:
        """Add an observer."""
        self._observers.join(observer)

    def before_applying(self, ask: Callable[[], bool]) -> None:
        """Set the function that decides whether applying waits; see ``RaftDriver``."""
        self._driver.before_applying = ask

    # Requests

    def propose(self, data: bytes) -> asyncio.Future[object]:
        """Append an entry to the leader's log before the call returns.

        Entries that are proposed in the same iteration of the event loop share one message to each
        peer and one fsync. They are sent in the next iteration, or when ``pump`` is called.

        The future is resolved with the state machine's result for the entry. It fails with
        ``NotRaftLeader``, ``ProposalDropped`` or ``Stopped`` if nothing was appended, and with
        ``ProposalLost`` if it is unknown whether the entry will be committed.
        """
        outcome: asyncio.Future[object] = self._loop.create_future()
        if not self.is_running:
            outcome.set_exception(Stopped("the node is not running"))
            return outcome
        try:
            self._driver.propose(data, outcome)
        except Exception as error:
            self.fail(error)
            raise
        return outcome

    async def change_membership(self, change: ConfChange) -> ConfState:
        """Make a membership change as leader; return the membership once it is applied here.

        If the change enters a joint configuration that is left automatically, the call returns
        after that. The change must carry names and addresses of new members: see
        ``taskraft_replication.membership.roster.change_of``.

        Raises:
            NotRaftLeader, ProposalDropped, ChangeRefused: nothing was changed.
            ProposalLost: the outcome is unknown.
            Stopped: the node is stopping; the outcome is unknown.
        """
        return await self._requests.change_membership(change)

    async def read_index(self) -> LogIndex:
        """Wait until a read of the local state is linearizable; return its index.

        Raises:
            ReadUnconfirmed: no leader with a quorum answered in time.
            Stopped: the node is stopping.
        """
        return await self._requests.read_index()

    async def transfer_leadership(self, to: MemberId | None = None) -> None:
        """Transfer leadership to ``to``, or to the voter with the longest log, and wait for it.

        Raises:
            NotRaftLeader: this member does not lead.
            Stopped: the node is stopping; the outcome is unknown.
            TransferFailed: no member took over, in two attempts.
        """
        await self._requests.transfer_leadership(to)

    async def end_leadership(self) -> None:
        """Transfer leadership, or step down if no other member takes over.

        The next leader, which may be this member, leads in a later term.

        Raises:
            NotRaftLeader: this member does not lead.
            Stopped: the node is stopping; the outcome is unknown.
        """
        await self._requests.end_leadership()

    # State

    def status(self) -> NodeStatus:
        """Return a copy of this member's state."""
        return status_of(self.config.group_id, self._driver, self._machine)

    @property
    def membership(self) -> ConfState:
        """The membership after the last change that this member has applied."""
        return self._driver.membership

    @property
    def roster(self) -> Roster:
        """Names and addresses of the members after the last change that this member has applied."""
        return self._driver.membership.roster

    @property
    def is_founding(self) -> bool:
        """Return whether this member still waits for other founders of its group."""
        return bool(self._bootstrap.founders)

    @property
    def is_accepted(self) -> bool:
        """Whether a peer has accepted this process since its start."""
        peers = self._effects.peers
        return peers is not None and peers.is_accepted

    @property
    def append_idle(self) -> bool:
        """Return whether the whole log is durable here, so that the next entry can be built.

        The value is True when ``Observer.synced`` is called, unless further entries were proposed.
        """
        return self._driver.is_synced

    @property
    def is_committed(self) -> bool:
        """Return whether the whole log is committed; its last entries may not be applied yet."""
        return self._driver.is_committed

    @property
    def disk_waited_ms(self) -> int:
        """Time for which the disk of the log or of the state has not answered, in whole ticks."""
        disk = self._driver.disk
        return max(disk.waited_ticks, disk.applying_waited_ticks) * self.config.tick_ms

    @property
    def is_disk_stalled(self) -> bool:
        """Return whether the disk has not answered for ``NodeConfig.disk_stall_ticks``."""
        return self._driver.disk.is_stalled

    @property
    def counters(self) -> RaftCounters:
        """Counters of this member since its start."""
        self._driver.counters.sync_us = self._worker.busy_us
        return self._driver.counters

    def scrub(self, read: Read) -> Iterator[int | Damage]:
        """Check the stored log and the files beside it, on the caller's thread.

        Yields the bytes that a step has read, or damage; see ``taskraft_replication.damage``.
        """
        yield from self._storage.scrub(read)

    # Control

    def pump(self) -> None:
        """Run the driver's pump now, not in the next iteration of the event loop.

        Any exception stops this node.
        """
        self._effects.is_pump_due = False
        if not self.is_running:
            return
        try:
            self._driver.pump()
        except Exception as error:  # noqa: BLE001 - a bug or a broken disk: stop, never go on
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop because of a failure; nothing is acknowledged from now on."""
        if self.failed.done():
            return
        reason = reason_of(error)
        is_told = isinstance(error, DirectoryRefused)
        _log.critical(
            "group %d: member %d stops: %s",
            self.config.group_id,
            self.config.member_id,
            reason,
            exc_info=None if is_told else error,
        )
        self.failed.set_result(reason)
        self._halt(Stopped(f"the node stopped: {reason}"))

    def _halt(self, error: Stopped) -> None:
        self.is_running = False
        self._ticker.stop()
        self._driver.fail_all(error)
        self._observers.changes.notify_all()

    def _tick(self) -> None:
        try:
            self._driver.tick()
        except Exception as error:  # noqa: BLE001 - see pump
            self.fail(error)
            return
        if self._driver.disk.is_hung:
            self.fail(
                StorageFailed(
                    f"the disk of {self.config.data_directory} has not answered for"
                    f" {self.disk_waited_ms} ms, the maximum is"
                    f" {self.config.disk_hang_ticks * self.config.tick_ms} ms; check the disk"
                )
            )

    def _membership_changed(self, conf_state: ConfState) -> None:
        """Update the peers.

        A removed member stops once another member that has applied the removal refuses its
        connection. Until then, the others may need its vote: in a group of two voters, the other
        voter may not know that the removal is committed.
        """
        assert self._effects.peers is not None
        roster = with_configured(conf_state.roster, self.config.members, self.roster_at_start)
        self._effects.peers.set_roster(roster)
        self._preferred.membership_changed(conf_state)


def _release(directory: DataDirectory | None) -> None:
    if directory is not None:
        directory.release()
