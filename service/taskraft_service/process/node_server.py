"""Open one node, start it, and stop it in order.

``process.components`` builds the objects between the driver and the calls. This module handles
failures while they are opened, and the order of the shutdown.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from taskraft_replication.background import Background, run_beside
from taskraft_replication.core.types import MemberId
from taskraft_replication.errors import ReplicationError, StorageFailed
from taskraft_replication.node.node import Node
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_replication.storage.data_directory import DataDirectory
from taskraft_service.access.security import NodeSecurity
from taskraft_service.cluster.address_announcer import AddressAnnouncer
from taskraft_service.cluster.departure import Departure
from taskraft_service.cluster.lost_member import LostMemberRecord
from taskraft_service.cluster.member_identity import (
    GROUP_ID,
    MemberIdentity,
    resolve_member_identity,
)
from taskraft_service.cluster.member_requests import other_addresses
from taskraft_service.cluster.past_samples import PastSamples
from taskraft_service.cluster.voter_request import VoterRequest
from taskraft_service.config.addresses import host_of, port_of
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.process import tracing
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.descriptors import current_shares
from taskraft_service.process.driver_listener import DriverListener
from taskraft_service.process.member_replacement import ReplacementWatch
from taskraft_service.process.metrics.edge import EdgeCollector
from taskraft_service.process.node_opener import NodeOpener, replace_state
from taskraft_service.process.probes import ProbeServer
from taskraft_service.process.readiness import (
    OPENING_PAGES,
    Readiness,
    probe_pages,
    repairing_pages,
)
from taskraft_service.process.repair_journal import RepairJournal
from taskraft_service.process.services import client_server
from taskraft_service.storage.node_storage import NODE_STORAGE, NodeStorage

if TYPE_CHECKING:
    from taskraft_service.process.spans.node_spans import NodeSpans

log: Final = structlog.get_logger(__name__)

RETURNS_SECONDS: Final = 1.0
"""Maximum time in which a stopping node releases the leases of consumers whose calls or streams
have ended."""
HAND_OVER_SECONDS: Final = 0.5
"""Pause of a stopping leader before it tries again to transfer its leadership."""
CLOSING_SECONDS: Final = 0.1
"""Maximum time for sending the last responses once no call is running."""
BROKEN_SECONDS: Final = 1.0
"""Maximum time of a broken node for ending its calls, and again for closing its files. A node with
a stalled disk has the same time for closing its files."""


Opened = TypeVar("Opened")


async def _in_thread(work: Callable[[], Opened], undo: Callable[[Opened], None]) -> Opened:
    """Run blocking work on a thread and return its result.

    After a cancellation, wait for the thread and undo the work, because the thread holds files.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        if running.exception() is None:
            undo(running.result())
        raise


def node_spans(components: NodeComponents) -> NodeSpans | None:
    """Return the spans of a node; None if the environment requests no export of traces."""
    if not tracing.is_asked_for():
        return None
    from taskraft_service.process.spans.node_spans import NodeSpans  # noqa: PLC0415 - optional

    return NodeSpans(components)


class NodeServer:
    """One node of the service; created by ``NodeServer.open``."""

    def __init__(
        self,
        config: ServerConfig,
        identity: MemberIdentity,
        node: Node,
        machine: QueueMachine,
        transport: GrpcTransport,
        directory: DataDirectory,
        security: NodeSecurity,
    ) -> None:
        """Create a node from its opened parts; called by ``NodeServer.open`` only."""
        self.config = config
        self.identity = identity
        self.node = node
        self.machine = machine
        self.security = security
        self.components = NodeComponents(config, identity, node, machine, security)
        self._transport = transport
        self._directory = directory
        self._background = Background()
        self.client_port = self.http_port = 0
        self._spans = node_spans(self.components)
        self._clients = client_server(self.components, self._spans)
        self._readiness = readiness = Readiness(self.components)
        self._pages = probe_pages(self.components, readiness)
        self._probes = ProbeServer(OPENING_PAGES)
        node.observe(DriverListener(self.components, readiness.report_health))
        node.before_applying(self.components.proposer.committed)

    @classmethod
    async def open(
        cls,
        config: ServerConfig,
        journal: RepairJournal | None = None,
        storage: NodeStorage = NODE_STORAGE,
    ) -> NodeServer:
        """Lock the data directory and read its contents, on a thread; answer probes meanwhile.

        A lost state is repaired first, see ``process.node_opener``.

        Raises:
            ReplicationError: the log or the directory cannot be used.
            StateDamaged, StateForeign: the queue's state cannot be used.
            TlsUnusable, AccessInvalid: a certificate or the access file cannot be used.
            OSError: a port or a directory cannot be opened.
        """
        security, journal = NodeSecurity(config), journal or RepairJournal()
        async with AsyncExitStack() as undo:
            directory = await _in_thread(
                partial(DataDirectory, config.data_dir), DataDirectory.release
            )
            undo.callback(directory.release)
            probes = ProbeServer(OPENING_PAGES)
            undo.push_async_callback(probes.stop)
            await probes.start(host_of(config.http_listen), port_of(config.http_listen))
            identity = await resolve_member_identity(
                config, security.peer, lambda doing: probes.show(repairing_pages(doing))
            )
            opener = NodeOpener(config, identity, storage, security.peer, journal)
            machine = await _in_thread(opener.open_machine, QueueMachine.abandon)
            undo.callback(machine.abandon)
            transport = GrpcTransport(
                security.peer,
                (security.peer_services,),
                current_shares().peer_connections,
                config.concurrent_calls_max,
            )
            undo.push_async_callback(transport.stop)
            await transport.start(config.peer_listen)
            node = await opener.open_node(
                machine,
                transport,
                directory,
                lambda doing: probes.show(repairing_pages(doing)),
            )
            server = cls(config, identity, node, machine, transport, directory, security)
            server.components.registry.register(journal)
            server.components.registry.register(EdgeCollector(server._clients))
            server.watch_replacement(journal)
            server.use_probes(probes)
            undo.pop_all()
        return server

    def use_probes(self, probes: ProbeServer) -> None:
        """Answer on the HTTP port that was opened before the data directory."""
        self._probes, self.http_port = probes, probes.port
        probes.pages = self._pages

    def watch_replacement(self, journal: RepairJournal) -> None:
        """Watch the replacement of a lost member by this node, if there is one."""
        watch = ReplacementWatch(
            LostMemberRecord(self.config.data_dir, GROUP_ID),
            lambda: self.node.membership,
            MemberId(self.identity.member.member_id),
            journal,
            self.components.leadership.wait_for_change,
        )
        self._readiness.repairs = lambda: watch.problem
        self._background.start(watch.run())

    async def start(self) -> None:
        """Start serving.

        Raises:
            PortTaken, OSError: the client port cannot be opened.
        """
        config, components = self.config, self.components
        try:
            self.client_port = self._clients.listen(config.listen, self.security.client)
        except BaseException:
            await self._end()
            raise
        await self._clients.start()
        await components.health.phase_changed(NodePhase.INIT, ready=False)
        await self.node.start()
        components.scrubber.start()
        self._background.start(components.housekeeping.run_periodically(components.leadership))
        self._background.start(components.clock_keeper.run_periodically(components.leadership))
        self._background.start(components.version_keeper.run_periodically(components.leadership))
        self._background.start(components.membership.run_periodically())
        self._background.start(components.sampler.run_periodically())
        self._background.start(self._past_samples().run())
        self._background.start(components.failure_counter.run_periodically())
        self._background.start(components.revoked_sessions.run())
        if self._spans is not None:
            self._background.start(self._spans.tasks.run_periodically())
        self._background.start(
            self.security.watch_files(self._peers_renewed, components.load.live.end_expired)
        )
        roster_changed = components.leadership.wait_for_change
        peer = self.security.peer
        node = self.node
        move = AddressAnnouncer(
            config,
            self.identity,
            lambda: node.roster,
            peer,
            roster_changed,
            lambda: node.is_accepted,
        )
        self._background.start(move.announce())
        if config.join_as == "voter":
            voter = VoterRequest(
                self.identity,
                lambda: self.node.status().conf_state,
                lambda: self._readiness.is_ready,
                peer,
            )
            self._background.start(voter.run())
        log.info(
            "serves",
            client=f"{host_of(config.listen)}:{self.client_port}",
            http=f"{host_of(config.http_listen)}:{self.http_port}",
            members=len(components.members.all()),
        )

    def _past_samples(self) -> PastSamples:
        """Return what reads the samples before the start of this node from the other nodes."""
        own, peer = self.identity.member.member_id, self.security.peer
        return PastSamples(
            self.components.sampler,
            lambda: other_addresses(self.node.roster, own, has_certificates=peer is not None),
            peer,
        )

    async def stop(self) -> None:
        """Stop: fail health checks, transfer leadership, end streams, finish calls, sync.

        A broken node only ends its calls: it does not transfer leadership, wait for calls or sync.

        Raises:
            StorageFailed: the disk did not answer in time. Threads still wait for the disk and
                cannot be stopped; the process must exit without waiting for the threads.
        """
        components = self.components
        is_broken = self.node.failed.done()
        await components.health.stop()
        components.endpoint.load.is_draining = components.lifecycle.is_stopping = True
        components.forwarder.stop_waiting()
        if not is_broken:
            await self._hand_over_if_leader()
        components.lifecycle.redirect_waiting_calls(components.leadership)
        components.apply_notifier.end()
        components.feed_waits.end()
        components.scrubber.stop()
        await asyncio.to_thread(components.digests.stop, BROKEN_SECONDS)
        self._background.cancel()
        await self._background.ended()
        await self._end(self._leave)
        log.info("stopped")

    async def _leave(self) -> None:
        """Remove this member if the operator no longer wants it; see ``cluster.departure``."""
        if self.node.failed.done() or self.node.is_disk_stalled or self.node.is_founding:
            return
        departure = Departure(
            self.config.replicas_file,
            self.identity,
            lambda: self.node.status().conf_state,
            self._hand_over_if_leader,
            self.security.peer,
        )
        await departure.run()

    async def _end(self, before_closing: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait for the running calls, then close everything."""
        components = self.components
        is_broken = self.node.failed.done()
        seconds = BROKEN_SECONDS if is_broken else self.config.stop_grace_ms / 1000
        handing_over = run_beside(self._keep_handing_over())
        try:
            if not await components.endpoint.load.wait_idle(seconds):
                log.warning("running calls cancelled", grace_ms=int(seconds * 1000))
        finally:
            handing_over.cancel()
        await self._clients.stop(CLOSING_SECONDS)
        await components.forwarder.finish_ends()
        await components.lease_returns.finish(RETURNS_SECONDS)
        if before_closing is not None:
            await before_closing()
        components.proposer.stop()
        await components.forwarder.close()
        try:
            if self.node.is_disk_stalled:
                seconds = BROKEN_SECONDS
            await self._close_storage(max(seconds, BROKEN_SECONDS))
        finally:
            # If a thread hangs in the kernel, the sockets of the process stay open until the disk
            # answers.
            await self._transport.stop()
            await self._probes.stop()
        self._directory.release()

    async def _close_storage(self, seconds: float) -> None:
        """Close the log and the state.

        Raises:
            StorageFailed: the disk did not answer in time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.node.stop()
                if not self.node.failed.done():
                    await asyncio.to_thread(self.machine.close)
        except TimeoutError:
            raise StorageFailed(
                f"the disk of {self.config.data_dir} did not answer within {seconds:g} s while the"
                f" node stopped; acknowledged tasks are durable"
            ) from None

    async def set_state_aside(self, reason: str) -> None:
        """Close the damaged state of a stopped node and move it away; the next ``open`` repairs.

        Iterators keep a database open after its closing, and then the next one could not be opened.
        """
        await asyncio.to_thread(self.machine.abandon)
        gc.collect()
        await asyncio.to_thread(replace_state, self.config, reason)

    async def _hand_over_if_leader(self, to: MemberId | None = None) -> None:
        if self.components.leadership.is_leader:
            await self._hand_over(to)

    async def _hand_over(self, to: MemberId | None = None) -> None:
        """Transfer leadership, to the most advanced voter if ``to`` is None.

        A node that is the only voter writes its call counts instead.
        """
        if len(self.node.status().conf_state.voters) == 1:
            await self.components.lifecycle.before_transfer()
            return
        try:
            await self.components.leadership.transfer(partial(self.node.transfer_leadership, to))
        except ReplicationError as error:
            log.warning("leadership not transferred", reason=str(error))

    async def _keep_handing_over(self) -> None:
        """Transfer leadership while the last calls run, because a stopping leader serves nobody.

        An earlier transfer may have failed, or the others may have elected this node since then.
        """
        leadership = self.components.leadership
        while not self.node.failed.done():
            if not leadership.is_leader:
                await leadership.wait_for_change()
            elif len(self.node.status().conf_state.voters) == 1:
                return
            else:
                await self._hand_over()
                until = asyncio.get_running_loop().time() + HAND_OVER_SECONDS
                await leadership.wait_for_change_until(until)

    def reload(self) -> None:
        """Read certificates and the access file again, as SIGHUP requests."""
        if self.security.refresh(always=True):
            self._peers_renewed()

    def _peers_renewed(self) -> None:
        self._transport.renew()
        self.components.forwarder.route.renew()
