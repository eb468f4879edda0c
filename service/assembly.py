"""Build one node out of its parts, start it, and stop it in order.

The only module that knows all parts. Everything else gets what it needs as arguments.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from replication.core.types import ConfState, LogIndex, MemberId, SoftState, Term
from replication.errors import ReplicationError
from replication.node import Node
from replication.node_config import NodeConfig
from replication.storage.data_directory import DataDirectory
from replication.storage.failpoints import Failpoints
from replication.transport import GrpcTransport
from service import metrics
from service.api.cluster import ClusterApi
from service.api.endpoint import Surface
from service.api.feed import FeedApi
from service.api.forward import Forwarder
from service.api.groups import GroupApi
from service.api.mutations import Mutations
from service.api.outcomes import OutcomeApi
from service.api.reading import Reading
from service.api.schedules import ScheduleApi
from service.api.server import Health, build_server, listen
from service.api.sessions import SessionApi
from service.api.settings import SettingsApi
from service.api.subscribe import Streams, SubscribeApi
from service.api.tasks import KnownOnLeader, TaskApi, TaskSettings
from service.api.tubes import TubeApi
from service.applications import Applications
from service.config import Config, host_of, port_of
from service.disk import DiskWatch
from service.drivers import installed_drivers
from service.joining import Place, find_place
from service.leader.board import QueueBoard
from service.leader.clock import ClusterClock
from service.leader.duties import Leader, LeaderSettings
from service.leader.outcomes import Outcomes
from service.leader.phases import Leadership
from service.leader.proposer import Proposer, ProposerLimits
from service.leader.roles import Phase, Roles
from service.leader.rooms import Rooms
from service.leader.scheduler import Scheduler
from service.leader.waiters import Waiters
from service.members import Members, info_of
from service.probes import Answer, ProbeServer, said
from service.queue.limits import Limits
from service.settings import SettingsInForce
from service.state_machine import CollectPace, QueueMachine
from service.storage.directory import StateDirectory
from service.storage.failing_store import FailingStore
from service.storage.rocks import RocksStore, StateDamaged
from taskraft.v1 import error_pb2

log: Final = structlog.get_logger(__name__)

LAG_ENTRIES_MAX: Final = 10_000
"""A node that is so far behind what it knows to be committed is not ready."""
CLOSING_SECONDS: Final = 0.1
"""How long the last answers may take to leave, once no call is in hand."""
STATE_DIRECTORY: Final = "state"


def monotonic_ms() -> int:
    """Return a time that never goes back."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return the time of day."""
    return time.time_ns() // 1_000_000


def open_machine(config: Config, place: Place, failpoints: Failpoints) -> QueueMachine:
    """Open the queue's state.

    Raises:
        StateForeign: it belongs to another cluster or member.
        StateDamaged, StateMissing: it cannot be read.
        DriverUnusable, DriverMissing: an installed driver is none, or one is missing.
        OSError: the directory cannot be used.
    """
    path = config.data_dir / STATE_DIRECTORY
    directory = StateDirectory(path, config.cluster_id, place.member.member_id, failpoints)

    def open_store(place: Path) -> RocksStore:
        if failpoints.is_armed:
            return FailingStore(
                place, config.block_cache_bytes, config.write_buffer_bytes, failpoints
            )
        return RocksStore(place, config.block_cache_bytes, config.write_buffer_bytes)

    pace = CollectPace(config.collect_entries, config.collect_ms)
    return QueueMachine(directory, open_store, Limits(), pace, monotonic_ms, installed_drivers())


def raft_config(config: Config, place: Place, failpoints: Failpoints) -> NodeConfig:
    """Return the settings of the Raft driver."""
    members = place.founders or (place.member,)
    return NodeConfig(
        cluster_id=config.cluster_id,
        member_id=MemberId(place.member.member_id),
        data_directory=config.data_dir,
        members={MemberId(member.member_id): info_of(member) for member in members},
        is_joining=place.is_joining,
        tick_ms=config.tick_ms,
        heartbeat_ticks=max(1, round(config.heartbeat_ms / config.tick_ms)),
        election_ticks=max(2, round(config.election_timeout_ms / config.tick_ms)),
        segment_bytes=config.log_segment_bytes,
        flush_bytes=config.log_flush_bytes,
        kept_entries=config.log_kept_entries,
        failpoints=failpoints,
    )


class Server:
    """One node of the service; made by ``Server.open``.

    Satisfies ``replication.observer.Observer``.
    """

    def __init__(
        self,
        config: Config,
        place: Place,
        node: Node,
        machine: QueueMachine,
        transport: GrpcTransport,
        directory: DataDirectory,
    ) -> None:
        """Use ``Server.open``."""
        self.config = config
        self.place = place
        self.node = node
        self.machine = machine
        self._transport = transport
        self._directory = directory
        self._tasks: list[asyncio.Task[None]] = []
        self._health_said: asyncio.Task[None] | None = None
        self.client_port = self.http_port = 0
        self._build()

    @classmethod
    async def open(cls, config: Config) -> Server:
        """Claim the data directory and read back what it holds.

        Raises:
            ReplicationError: the log or the directory cannot be used; one line says why.
            StateDamaged, StateForeign, StateMissing: the queue's state cannot be used.
            OSError: a port or a directory cannot be had.
        """
        async with AsyncExitStack() as undo:
            directory = DataDirectory(config.data_dir)
            undo.callback(directory.release)
            failpoints = config.armed_failpoints()
            place = await find_place(config)
            machine = open_machine(config, place, failpoints)
            undo.callback(machine.abandon)
            transport = GrpcTransport()
            undo.push_async_callback(transport.stop)
            await transport.start(config.peer_listen)
            node = await Node.open(
                raft_config(config, place, failpoints), machine, transport, directory
            )
            server = cls(config, place, node, machine, transport, directory)
            undo.pop_all()
        return server

    # ------------------------------------------------------------------------------ the graph

    def _build(self) -> None:
        config, node, machine = self.config, self.node, self.machine
        member_id = MemberId(self.place.member.member_id)
        self.members = Members(
            lambda: node.status().conf_state, self.place.founders or (self.place.member,)
        )
        self.registry = CollectorRegistry()
        self._distributions = metrics.Distributions(self.registry)
        self.clock = ClusterClock(wall_ms, monotonic_ms)
        self.roles = Roles()
        board = QueueBoard(machine)
        self.waiters = Waiters(board)
        self.proposer = Proposer(
            node, board, self.clock, self.waiters, self._distributions, self._proposer_limits()
        )
        self.scheduler = Scheduler(lambda: machine.queue, self.proposer, self.clock.now_ms)
        self.streams = Streams()
        settings = LeaderSettings(
            member_id,
            config.failover_grace_ms,
            config.feed_partitions,
        )
        self.outcomes = Outcomes(lambda: machine.queue)
        self.rooms = Rooms(lambda: machine.queue)
        self.settings = SettingsInForce(config, lambda: machine.queue.settings)
        self.leader = Leader(
            settings,
            self.proposer,
            machine,
            self.waiters,
            (self.outcomes, self.rooms),
            self.streams,
            self.settings,
        )
        self.leadership = Leadership(self.roles, member_id, self.members, self.leader)
        # A timeout is drawn up to double the shortest.
        self.forwarder = Forwarder(self.leadership, 2 * config.election_timeout_ms)
        self.disk = DiskWatch(config.data_dir, config.disk_low_bytes, monotonic_ms)
        self._build_api()
        machine.listen(self._observe_stamp)
        machine.listen(self._applications.applied)
        machine.listen(self._serve_woken)
        machine.listen(self.scheduler.applied)
        machine.listen(self.outcomes.applied)
        machine.listen(self.rooms.applied)
        self.roles.listen(lambda phase: self.leader.phase_changed(phase, self.leadership))
        self.roles.listen(self.scheduler.phase_changed)
        self.roles.listen(lambda _phase: self._say_health())
        node.observe(self)

    def _proposer_limits(self) -> ProposerLimits:
        config = self.config
        return ProposerLimits(
            entry_bytes=config.entry_bytes_max,
            entry_commands=config.entry_commands_max,
            entries_in_flight=config.entries_in_flight_max,
            pending_commands=config.pending_commands_max,
            pending_bytes=config.pending_bytes_max,
        )

    def _build_api(self) -> None:
        config = self.config
        mutations = Mutations(self.proposer)
        reading = Reading(self.machine, self.node.read_index, self.leadership.silence_ms)
        known = KnownOnLeader(reading, lenient=lambda: self.settings.creates_tubes)
        self._applications = Applications()
        self.surface = Surface(self.forwarder, self._defect_met)
        self.health = Health()
        subscribe = SubscribeApi(
            mutations, reading, known, self.waiters, self.streams, self.forwarder
        )
        settings = TaskSettings(config.payload_bytes_max, self.settings)
        outcomes = OutcomeApi(reading, self.outcomes, self.rooms, self.forwarder)
        tasks = TaskApi(mutations, reading, known, self.waiters, self.disk, outcomes, settings)
        feed = FeedApi(reading, self._applications, self.members.all, self._leader_name)
        cluster = ClusterApi(
            config,
            self.node,
            self.roles,
            self.leadership,
            reading,
            SettingsApi(mutations, self.settings).method(),
            self.members,
        )
        servicers = (
            tasks.servicer(subscribe.subscribe),
            TubeApi(mutations, reading, self.waiters).servicer(),
            SessionApi(mutations, reading).servicer(),
            GroupApi(mutations, reading).servicer(),
            ScheduleApi(mutations, reading, self.clock.now_ms).servicer(),
            feed.servicer(),
            cluster.servicer(),
        )
        self._grpc = build_server(self.surface, servicers, self.health, config.calls_max)
        self.registry.register(
            metrics.NodeCollector(
                self.node,
                self.machine,
                self.roles,
                self.leadership,
                self.proposer,
                self.waiters,
                lambda: len(self.streams),
                self.surface.counts,
                self.disk,
            )
        )
        self._probes = ProbeServer(
            {
                "/livez": lambda: said("alive", ok=True),
                "/startupz": self._startupz,
                "/readyz": self._readyz,
                "/metrics": lambda: metrics.page(self.registry),
            }
        )

    def _leader_name(self) -> str:
        leader = self.leadership.leader
        return leader.name if leader else ""

    # ------------------------------------------------------------------------------ life

    async def start(self) -> None:
        """Begin to serve.

        Raises:
            PortTaken, OSError: a port cannot be had.
        """
        config = self.config
        http = config.http_listen
        try:
            self.client_port = listen(self._grpc, config.listen)
            self.http_port = await self._probes.start(host_of(http), port_of(http))
        except BaseException:
            await self._end()
            raise
        await self._grpc.start()
        await self.health.phase_changed(Phase.INIT, ready=False)
        await self.node.start()
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self.leader.keep_feed(self.leadership)))
        log.info(
            "serves",
            client=f"{host_of(config.listen)}:{self.client_port}",
            http=f"{host_of(http)}:{self.http_port}",
            members=len(self.members.all()),
        )

    async def stop(self) -> None:
        """Stop in order: be seen as gone, hand over, say good-bye, finish, sync."""
        await self.health.stop()
        self.surface.draining = True
        if self.leadership.leads_here and len(self.node.status().conf_state.voters) > 1:
            await self._hand_over()
        self.streams.depart(error_pb2.Error.DRAINING, "this node stops", self.leadership.address)
        self.leader.send_away(self.leadership)
        self._applications.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end()
        log.info("stopped")

    async def _end(self) -> None:
        """Finish the calls in hand, then close everything."""
        if not await self.surface.drained(self.config.stop_grace_ms / 1000):
            log.warning("calls are cut off", grace_ms=self.config.stop_grace_ms)
        await self._grpc.stop(CLOSING_SECONDS)
        self.proposer.rest()
        await self.forwarder.close()
        await self.node.stop()
        await self._transport.stop()
        await self._probes.stop()
        if not self.node.failed.done():
            await asyncio.to_thread(self.machine.close)
        self._directory.release()

    async def _hand_over(self) -> None:
        try:
            await self.leadership.hand_over(self.node.transfer_leadership)
        except ReplicationError as error:
            log.warning("leadership was not handed over", reason=str(error))

    # ------------------------------------------------------------------------------ from the driver

    def role_changed(self, state: SoftState, term: Term) -> None:
        """Follow who leads."""
        loop = asyncio.get_running_loop()
        # The driver is in the middle of its work: what follows may propose and ask.
        loop.call_soon(self.leadership.role_changed, state, term)
        loop.call_soon(self._look_whether_caught_up)

    def applied(self, index: LogIndex) -> None:
        """Learn that more is applied; the machine's listeners know already."""
        del index
        if self.roles.phase is Phase.INIT:
            asyncio.get_running_loop().call_soon(self._look_whether_caught_up)

    def synced(self, entries: int, log_bytes: int) -> None:
        """Build the next entry: what came during the sync goes into it."""
        del entries, log_bytes
        self._distributions.synced(self.node.counters.sync_us)
        self.proposer.wake()

    def membership_changed(self, conf_state: ConfState) -> None:
        """Tell those who wait for the leader: its address may be known now."""
        del conf_state
        asyncio.get_running_loop().call_soon(self.leadership.notify)

    def _defect_met(self, error: Exception) -> None:
        """Stop the node if a call met damage: what this node says of its state is worth nothing."""
        if isinstance(error, StateDamaged):
            self.node.fail(error)

    def _observe_stamp(self, now_ms: int) -> None:
        following = self.roles.phase is Phase.WAITING
        self.clock.observe(now_ms, live=following)

    def _serve_woken(self, _now_ms: int) -> None:
        """Let consumers have tasks that became ready as a consequence of others."""
        for tube in self.machine.queue.woken_tubes():
            self.waiters.feed(tube, 0)
            self.proposer.wake()

    def _look_whether_caught_up(self) -> None:
        if self.roles.phase is Phase.INIT and self.leadership.leader is not None:
            status = self.node.status()
            if status.applied >= status.commit:
                self.leadership.caught_up()

    # ------------------------------------------------------------------------------ what is shown

    def _say_health(self) -> None:
        if not self.surface.draining:
            saying = self.health.phase_changed(self.roles.phase, ready=self._is_ready())
            # Kept, since the loop forgets tasks that nobody holds.
            self._health_said = asyncio.get_running_loop().create_task(saying)

    def _is_ready(self) -> bool:
        if self.surface.draining or self.roles.phase is Phase.INIT:
            return False
        status = self.node.status()
        is_near = status.commit - status.applied <= LAG_ENTRIES_MAX
        # An election makes nobody unready; a minute without a leader does.
        return is_near and self.leadership.silence_ms() <= 60_000

    def _startupz(self) -> Answer:
        phase = self.roles.phase
        return said(phase.name, ok=phase is not Phase.INIT)

    def _readyz(self) -> Answer:
        return said(self.roles.phase.name, ok=self._is_ready())
