"""Perform the driver's effects on the event loop, and pass it the messages of the peers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from taskraft_replication.background import Background
from taskraft_replication.beacons import Beacons
from taskraft_replication.core.types import (
    NO_MEMBER,
    Entry,
    LogIndex,
    MemberId,
    Message,
    Snapshot,
    SnapshotMeta,
    Term,
)
from taskraft_replication.driver.driver import RaftDriver
from taskraft_replication.driver.preferred_followers import PreferredFollowers
from taskraft_replication.effects import StorageWork
from taskraft_replication.errors import (
    DirectoryRefused,
    LogDamaged,
    MessageMalformed,
    SnapshotBroken,
    SnapshotBusy,
    SnapshotUnavailable,
    SnapshotUnusable,
)
from taskraft_replication.machine import SnapshotReader
from taskraft_replication.node.bootstrap import ClusterBootstrap
from taskraft_replication.node.leader_loss import LeaderLossCampaign
from taskraft_replication.node.storage_worker import StorageWorker
from taskraft_replication.peers.contract import Peers, PreferredSet
from taskraft_replication.snapshots.source import OutgoingSnapshot
from taskraft_replication.storage.log_parts import LogKnowledge, ReadableLog
from taskraft_replication.storage.snapshot_inbox import IncomingSnapshot
from taskraft_replication.storage.stored_log import StoredLog

T = TypeVar("T")

_log = logging.getLogger(__name__)


class EffectsHost(Protocol):
    """The node, as its effects and its receiver use it."""

    beacons: Beacons

    @property
    def is_running(self) -> bool:
        """Return whether the driver may still be called."""

    def pump(self) -> None:
        """Run the driver's pump once, and clear ``NodeEffects.is_pump_due``."""

    def fail(self, error: Exception) -> None:
        """Stop the node because of a failure."""


class NodeEffects:
    """The ``Effects`` of a node.

    A requested pump runs in the next iteration of the event loop, once for all requests of the
    current iteration.
    """

    def __init__(self, host: EffectsHost, worker: StorageWorker) -> None:
        self.peers: Peers | None = None
        self.worker = worker
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.is_pump_due = False
        """Whether a pump is requested; a pump clears the flag."""
        self._is_closed = False
        self._background = Background()

    @property
    def storage_work(self) -> StorageWork:
        """Counts of the items given to ``store``."""
        return self.worker.work

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to peers; messages may be lost."""
        if self.peers is not None:
            self.peers.send(messages)

    def set_leading_term(self, term: Term) -> None:
        """Set the term in which this member leads, for all later frames; 0: it does not lead."""
        if self.peers is not None:
            self.peers.set_leading_term(term)

    def send_alive(self, leader: MemberId, term: Term) -> None:
        """Send an activity report to the leader of ``term``; the message may be lost."""
        if self.peers is not None:
            self.peers.send_alive(leader, term)

    def set_preferred(self, chosen: PreferredSet) -> None:
        """Send entries at once to the preferred followers only."""
        if self.peers is not None:
            self.peers.set_preferred(chosen)

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """Stream a snapshot to a peer; then call ``RaftDriver.snapshot_sent``."""
        if self.peers is not None:
            self.peers.send_snapshot(message, meta, content)

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work`` on the storage worker, in order; then call ``then`` with its result."""
        self.worker.submit(work, partial(self._finish, then))

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work``, which may take long, in the background; then call ``then``.

        Runs on a thread of the event loop's pool.
        """
        self.start(self._flush(work, then))

    async def _flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            result = await asyncio.to_thread(work)
        except Exception as error:  # noqa: BLE001 - any exception must stop the node
            self._host.fail(error)
            return
        self._finish(then, result)

    def request_pump(self) -> None:
        """Call ``RaftDriver.pump`` soon; one call may serve several requests."""
        if not self.is_pump_due:
            self.is_pump_due = True
            self._loop.call_soon(self._pump_if_due)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Start a background task; ``close`` waits for it."""
        self._background.start(work)

    async def close(self) -> None:
        """Stop performing effects; wait for running flushes, which use the state machine."""
        self._is_closed = True
        if self.peers is not None:
            await self.peers.close()
        await self._background.ended()

    def _finish(self, then: Callable[[T], None], result: T) -> None:
        if self._is_closed:
            return
        # Pump below, without waiting for the next iteration, because the fsync has already taken
        # long.
        self.is_pump_due = True
        try:
            then(result)
        except Exception as error:  # noqa: BLE001 - a bug: stop, never go on
            self._host.fail(error)
            return
        self._host.pump()

    def _pump_if_due(self) -> None:
        if self.is_pump_due:
            self._host.pump()


class OwnLog:
    """The log of a node as a ``ReadableLog``: damage stops the node, whoever reads."""

    def __init__(
        self, view: StoredLog, stored_commit: Callable[[], LogIndex], host: EffectsHost
    ) -> None:
        """``stored_commit``: returns the last committed entry that ``view`` has."""
        self._view = view
        self._stored_commit = stored_commit
        self._host = host

    def knowledge(self) -> LogKnowledge:
        """Return the stored entries, and which of them are committed."""
        return LogKnowledge(self._view.runs(), self._stored_commit())

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return entries from ``lo`` to below ``hi``; see ``ReadableLog``."""
        try:
            return self._view.entries(lo, hi, bytes_max)
        except LogDamaged as error:
            self._host.fail(error)
            raise


class PeerReceiver:
    """The ``Receiver`` of a node."""

    def __init__(
        self,
        driver: RaftDriver,
        preferred: PreferredFollowers,
        bootstrap: ClusterBootstrap,
        leader_loss: LeaderLossCampaign,
        log: ReadableLog,
        host: EffectsHost,
    ) -> None:
        self._driver = driver
        self._preferred = preferred
        self._bootstrap = bootstrap
        self._leader_loss = leader_loss
        self._host = host
        self.log = log

    @property
    def leader(self) -> MemberId:
        """Member that leads as far as this member knows, or ``NO_MEMBER``."""
        return self._driver.core.live_leader if self._host.is_running else NO_MEMBER

    def receive(self, messages: Sequence[Message]) -> None:
        """Process messages from one peer, in the order in which it sent them.

        Before this member has started, a message only shows that the sender runs.
        """
        if not self._host.is_running:
            self._bootstrap.others_seen_running()
            return
        self._preferred.received(messages, self._driver.core.commit_index)
        try:
            self._driver.receive(messages)
        except Exception as error:  # noqa: BLE001 - a broken invariant: stop, never go on
            self._host.fail(error)

    def leader_alive(self, member: MemberId, term: Term) -> None:
        """Handle the arrival of a part of a frame from ``member``, which leads in ``term``."""
        if self._host.is_running:
            self._driver.leader_alive(member, term)

    def follower_alive(self, member: MemberId, term: Term) -> None:
        """Handle an activity report of ``member``, which follows this leader of ``term``."""
        if self._host.is_running:
            self._driver.follower_alive(member, term)

    def make_beacon(self) -> bytes:
        """Return the beacon for a frame with a heartbeat; see ``Beacons``."""
        return self._host.beacons.make()

    def receive_beacon(self, member: MemberId, beacon: bytes) -> None:
        """Process the beacon of a frame, before its messages; see ``Beacons``."""
        if not self._host.is_running:
            return
        try:
            self._host.beacons.received(member, beacon)
        except MessageMalformed:
            raise
        except Exception as error:  # noqa: BLE001 - a bug: stop, never go on
            self._host.fail(error)

    def unreachable(self, member: MemberId) -> None:
        """Handle the loss of messages to ``member``."""
        if self._host.is_running:
            self._driver.unreachable(member)

    def stream_ended(self, member: MemberId) -> None:
        """Handle the end of the stream from ``member``, whose process may have crashed."""
        if self._host.is_running:
            self._leader_loss.stream_ended(member)

    def handshake_done(self, member: MemberId, directory_id: str) -> None:
        """Handle a successful handshake with ``member``; ``directory_id`` is its data directory."""
        self._bootstrap.handshake_done(member, directory_id)

    def refused(self, error: DirectoryRefused) -> None:
        """Stop this member, because a peer refuses it permanently."""
        self._host.fail(error)

    def snapshot_sent(self, member: MemberId, *, ok: bool) -> None:
        """Handle the end of the transfer of a snapshot to ``member``."""
        if self._host.is_running:
            self._driver.snapshot_sent(member, ok=ok)

    async def open_state(self, member: MemberId) -> tuple[SnapshotMeta, SnapshotReader]:
        """Open the applied state for ``member``, which has lost its own state."""
        if not self._host.is_running:
            raise SnapshotBroken("the node is not running")
        opened: asyncio.Future[OutgoingSnapshot] = asyncio.get_running_loop().create_future()

        def done(outgoing: OutgoingSnapshot | SnapshotUnavailable) -> None:
            if isinstance(outgoing, SnapshotUnavailable):
                if not opened.done():
                    opened.set_exception(outgoing)
            elif not opened.done():
                opened.set_result(outgoing)
            else:  # the member has disconnected
                outgoing.content.close()

        _log.info("member %d has lost its state and fetches the state of this member", member)
        try:
            self._driver.open_state(done)
        except Exception as error:
            self._host.fail(error)
            raise SnapshotBroken("the node is stopping") from error
        outgoing = await opened
        return outgoing.meta, outgoing.content

    def begin_snapshot(self, message: Message, transfer_id: str) -> SealingSink:
        """Prepare to receive the content of the snapshot in ``message``, or the rest of it."""
        if not self._host.is_running:
            raise SnapshotBusy("the node is stopping")
        incoming = self._driver.inbox.begin(transfer_id)
        return SealingSink(incoming, message, self._driver)


class SealingSink:
    """The ``SnapshotSink`` of a node: writes on a worker thread, then informs the driver."""

    def __init__(self, incoming: IncomingSnapshot, message: Message, driver: RaftDriver) -> None:
        self._incoming = incoming
        self._message = message
        self._driver = driver
        self._turn = incoming.attach()
        self._is_whole = False

    @property
    def size(self) -> int:
        """Number of bytes received so far, by this stream and earlier streams."""
        return self._incoming.size

    async def write(self, offset: int, data: bytes, crc32c: int) -> None:
        """Write the next piece.

        If the disk is full, the content received so far is deleted.
        """
        try:
            await asyncio.to_thread(self._incoming.write, self._turn, offset, data, crc32c)
        except OSError:
            self._driver.inbox.give_up(self._incoming)
            raise

    async def finish(self) -> int:
        """Make the content durable and pass it to the driver; return its length in bytes."""
        assert self._message.snapshot is not None
        self._incoming.complete(self._turn)
        self._is_whole = True
        reference = Snapshot(self._message.snapshot.meta, self._incoming.name.encode())
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: SnapshotUnusable | None) -> None:
            if taken.done():
                return  # the sender has disconnected
            if error is None:
                taken.set_result(None)
            else:
                taken.set_exception(error)

        message = replace(self._message, snapshot=reference)
        self._driver.receive_snapshot(message, self._incoming, done)
        await taken
        _log.info("snapshot of entry %d received", self._message.snapshot.meta.index)
        return self._incoming.size

    def abandon(self) -> None:
        """Stop before the content is complete; another stream may continue the transfer.

        Has no effect once the content is complete.
        """
        if not self._is_whole:
            self._incoming.detach(self._turn)
