"""Run a member of a group on the event loop: perform what its driver decides."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from typing import TypeVar

from replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    RaftRole,
    SoftState,
    Term,
)
from replication.driver import build_driver
from replication.errors import (
    DirectoryUnwritable,
    NodeBroken,
    NotLeader,
    ReplicationError,
    Stopped,
    StorageFailed,
    TransferFailed,
)
from replication.failing_machine import machine_with_failpoints
from replication.machine import StateMachine
from replication.node_config import NodeConfig
from replication.node_status import NodeStatus, peers_of, successor_of
from replication.observer import Counters, Observer
from replication.peers import Membership, Transport
from replication.performer import PeerReceiver, Performer
from replication.storage.data_directory import DataDirectory
from replication.storage.failing_filesystem import with_failpoints
from replication.storage.filesystem import DiskFileSystem
from replication.storage.group_storage import GroupStorage, StorageConfig
from replication.storage.metadata import Identity
from replication.storage_worker import StorageWorker

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Node:
    """A member of a group; made by ``Node.open``.

    Everything happens on the event loop except storage work and flushes, which have a thread each.
    Satisfies ``Observer`` towards the driver and passes on what it hears.
    """

    def __init__(
        self,
        config: NodeConfig,
        machine: StateMachine,
        transport: Transport,
        storage: GroupStorage,
        directory: DataDirectory | None,
    ) -> None:
        """Use ``Node.open``. ``directory`` is released by ``stop``."""
        self._loop = asyncio.get_running_loop()
        self.config = config
        self.failed: asyncio.Future[ReplicationError] = self._loop.create_future()
        """Resolved with the reason when the node stopped by itself: end the process then."""
        self._machine = machine
        self._transport = transport
        self._storage = storage
        self._directory = directory
        self._observers: list[Observer] = []
        self._role_waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._random = random.Random()  # noqa: S311 - spreads election timeouts; no secret
        name = f"raft-{config.group_id}-{config.member_id}"
        self._worker = StorageWorker(self._loop, name, storage.sync_mark, self.fail)
        self._performer = Performer(self, self._worker)
        self._driver = build_driver(
            config.core,
            self._random.randrange,
            storage,
            machine,
            self._performer,
            self,
            config.trim_policy,
        )
        self._performer.driver = self._driver

    @classmethod
    async def open(
        cls,
        config: NodeConfig,
        machine: StateMachine,
        transport: Transport,
        directory: DataDirectory | None = None,
    ) -> Node:
        """Claim the data directory and read back what it holds; found the group if it is empty.

        ``directory`` is given by a process that has claimed it already; it then stays claimed.

        Raises:
            DirectoryRefused: it cannot be used; see the subclasses.
            LogDamaged: synced data is missing or unreadable; the member must join anew.
            StateLost: the state machine stands before the log begins.
        """
        own = DataDirectory(config.data_directory) if directory is None else None
        machine = machine_with_failpoints(machine, config.failpoints)
        try:
            storage = await asyncio.to_thread(_open_storage, config, machine.applied_index)
            return cls(config, machine, transport, storage, own)
        except OSError as error:
            _release(own)
            raise DirectoryUnwritable(
                f"data directory {config.data_directory} cannot be used: {error.strerror}"
            ) from error
        except BaseException:
            _release(own)
            raise

    async def start(self) -> None:
        """Begin to talk to the others, to apply, and to take part in elections."""
        assert not self._is_running
        self._is_running = True
        membership = Membership(
            self.config.cluster_id,
            self.config.group_id,
            self.config.member_id,
            self._storage.incarnation,
        )
        self._performer.peers = self._transport.join(
            membership, self.config.members, PeerReceiver(self._driver, self._performer, self)
        )
        if self._driver.is_only_voter:
            # Nobody else could win, so there is nothing to wait for.
            self._driver.campaign()
        self._performer.request_pump()
        # Members that were started together must not tick, and so campaign, in the same moment.
        self._arm_timer(self._random.random())

    async def stop(self) -> None:
        """End: nothing is lost that was acknowledged; what is in flight is unknown."""
        self._halt(Stopped("the node is stopping"))
        await self._performer.close()
        await asyncio.to_thread(self._worker.stop)
        if not self.failed.done():
            await asyncio.to_thread(self._storage.close, self._driver.hard_state)
        _release(self._directory)
        self._directory = None

    def observe(self, observer: Observer) -> None:
        """Tell ``observer`` from now on what happens."""
        self._observers.append(observer)

    # What is wanted

    def propose(self, data: bytes) -> asyncio.Future[object]:
        """Append an entry, as leader; resolved with the state machine's result for it.

        The future fails with ``NotLeader``, ``ProposalDropped`` or ``Stopped`` if it is certain
        that nothing was appended, and with ``ProposalLost`` if the outcome is unknown.
        """
        outcome: asyncio.Future[object] = self._loop.create_future()
        if not self._is_running:
            outcome.set_exception(Stopped("the node is not running"))
            return outcome
        self._driver.propose(data, outcome)
        return outcome

    async def read_index(self) -> LogIndex:
        """Wait until a read of the local state is linearizable; return the index it stands at.

        Raises:
            ReadUnconfirmed: no leader with a quorum answered in time.
            Stopped: the node is stopping.
        """
        if not self._is_running:
            raise Stopped("the node is not running")
        outcome: asyncio.Future[LogIndex] = self._loop.create_future()
        self._driver.read_index(outcome)
        return await outcome

    async def transfer_leadership(self, to: MemberId | None = None) -> None:
        """Hand leadership to ``to``, or to the voter whose log is longest; wait until it is done.

        Raises:
            NotLeader: this member does not lead.
            TransferFailed: it did not happen within two election timeouts.
        """
        status = self._driver.core.status()
        if status.soft_state.role is not RaftRole.LEADER:
            raise NotLeader(status.soft_state.leader)
        target = successor_of(status) if to is None else to
        if target is None:
            raise TransferFailed("no other voter answers")
        self._driver.transfer_leader(target)
        timeout_ms = 2 * self.config.election_ticks * self.config.tick_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._driver.core.role is RaftRole.LEADER:
                    await self._next_role()
        except TimeoutError as error:
            raise TransferFailed(f"member {target} did not take over in {timeout_ms} ms") from error

    # What is

    @property
    def append_idle(self) -> bool:
        """Tell whether everything in the log is synced here: the time to build the next entry.

        It becomes true when ``Observer.synced`` is called, if nothing was proposed meanwhile.
        """
        return self._driver.is_synced

    @property
    def counters(self) -> Counters:
        """What this member has done since its start."""
        self._driver.counters.sync_us = self._worker.busy_us
        return self._driver.counters

    def status(self) -> NodeStatus:
        """Return a copy of this member's state."""
        status = self._driver.core.status()
        return NodeStatus(
            member_id=status.member_id,
            group_id=self.config.group_id,
            role=status.soft_state.role,
            term=status.hard_state.term,
            leader=status.soft_state.leader,
            commit=status.hard_state.commit,
            applied=self._machine.applied_index,
            first=self._storage.view.first_index(),
            last=status.last,
            synced=self._storage.view.last_index(),
            durable=self._machine.durable_index,
            conf_state=status.configuration,
            peers=peers_of(status),
        )

    # What the driver tells

    def role_changed(self, state: SoftState, term: Term) -> None:
        """See ``Observer``."""
        waiters, self._role_waiters = self._role_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        _log.info(
            "member %d is %s in term %d, leader %d",
            self.config.member_id,
            state.role.value,
            term,
            state.leader,
        )
        for observer in self._observers:
            observer.role_changed(state, term)

    def applied(self, index: LogIndex) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.applied(index)

    def synced(self, entries: int, log_bytes: int) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.synced(entries, log_bytes)

    # How it runs

    @property
    def is_running(self) -> bool:
        """Tell whether the node was started and neither stopped nor failed."""
        return self._is_running

    def pump(self) -> None:
        """Let the driver do what can be done now; any exception is the end of this node."""
        if not self._is_running:
            return
        try:
            self._driver.pump()
        except Exception as error:  # noqa: BLE001 - a bug or a broken disk: stop, never go on
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop because of a failure: acknowledge nothing any more."""
        if self.failed.done():
            return
        if isinstance(error, OSError):
            reason: ReplicationError = StorageFailed(f"the storage failed: {error}")
        elif isinstance(error, ReplicationError):
            reason = error
        else:
            reason = NodeBroken(f"{type(error).__name__}: {error}")
        reason.__cause__ = error
        _log.critical("member %d stops: %s", self.config.member_id, reason, exc_info=error)
        self.failed.set_result(reason)
        self._halt(Stopped(f"the node stopped: {reason}"))

    def _halt(self, error: Stopped) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._driver.fail_all(error)

    def _arm_timer(self, ticks: float = 1) -> None:
        self._timer = self._loop.call_later(ticks * self.config.tick_ms / 1000, self._tick)

    def _tick(self) -> None:
        """Let one tick pass.

        Ticks that the loop was late for are not made up: after a pause of the process its peers'
        messages must be read before an election timeout can be judged.
        """
        self._arm_timer()
        try:
            self._driver.tick()
        except Exception as error:  # noqa: BLE001 - see pump
            self.fail(error)

    def _next_role(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._role_waiters.append(waiter)
        return waiter


def _open_storage(config: NodeConfig, applied: LogIndex) -> GroupStorage:
    founders = () if config.is_joining else tuple(sorted(config.members))
    return GroupStorage.open(
        with_failpoints(DiskFileSystem(config.data_directory), config.failpoints),
        StorageConfig(
            identity=Identity(config.cluster_id, config.member_id, config.group_id),
            founders=ConfState(voters=founders),
            salt=secrets.randbits(32),
            segment_bytes=config.segment_bytes,
        ),
        applied,
    )


def _release(directory: DataDirectory | None) -> None:
    if directory is not None:
        directory.release()
