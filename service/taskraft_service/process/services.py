"""Build the gRPC services of the API from the components of a node."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import structlog

from taskraft.v1 import feed_service_pb2
from taskraft_replication.core.types import Roster
from taskraft_replication.membership.roster import is_named
from taskraft_service.access.authenticator import Trust
from taskraft_service.api.cluster.audit import AuditHandlers
from taskraft_service.api.cluster.service import (
    ClusterHandlers,
    ClusterService,
    Keepers,
    server_version,
)
from taskraft_service.api.cluster.settings import SettingsHandler
from taskraft_service.api.cluster.snapshots import SnapshotOrigin, SnapshotTransfers
from taskraft_service.api.feed.positions import FeedPositionHandlers
from taskraft_service.api.feed.read_pace import ReadPace
from taskraft_service.api.feed.service import FeedService
from taskraft_service.api.feed.task_events import TaskEventsHandler
from taskraft_service.api.groups import GroupService
from taskraft_service.api.reflection import reflection_table
from taskraft_service.api.rpc.grpc_calls import TableHandlers
from taskraft_service.api.rpc.grpc_server import GrpcServer
from taskraft_service.api.rpc.method_table import MethodTable
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ServiceMethods
from taskraft_service.api.rpc.rpc_server import (
    CALLS_PER_CONNECTION_MAX,
    HEALTH_CALLS_MAX,
    RpcServer,
    ServerLimits,
)
from taskraft_service.api.scaler import ScalerService
from taskraft_service.api.schedules import ScheduleService
from taskraft_service.api.sessions import SessionService
from taskraft_service.api.state.checks import DiskSpaceGuard, ExistenceCheck
from taskraft_service.api.state.command_executor import CommandExecutor
from taskraft_service.api.state.queue_reader import QueueReader, StalenessGuard
from taskraft_service.api.streams.subscribe import SubscribeHandler
from taskraft_service.api.tasks.outcomes import OutcomeHandlers
from taskraft_service.api.tasks.reads import TaskReadHandlers
from taskraft_service.api.tasks.service import TaskHandlers, TaskService
from taskraft_service.api.tasks.takes import TakeHandler
from taskraft_service.api.tasks.task_snapshots import TaskSnapshots
from taskraft_service.api.tubes.consumers import ConsumersHandler
from taskraft_service.api.tubes.failures import FailuresHandler
from taskraft_service.api.tubes.history import HistoryHandler
from taskraft_service.api.tubes.service import TubeService
from taskraft_service.api.tubes.statistics import StatisticsHandler
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.descriptors import current_shares
from taskraft_service.process.server_limits import server_limits

if TYPE_CHECKING:
    from taskraft_service.process.spans.node_spans import NodeSpans

log: Final = structlog.get_logger(__name__)


def client_server(components: NodeComponents, spans: NodeSpans | None = None) -> RpcServer:
    """Return the gRPC server for clients; it does not listen yet.

    If nodes have certificates, the peer port serves the same services to other nodes. On the peer
    port, a node that forwards a call may name the principal of the caller.

    Args:
        components: the components of the node.
        spans: creates spans of calls and commands; None: tracing is off.
    """
    if spans is not None:
        components.endpoint.instrument = spans.calls.traced
    offered, security = servicers(components, spans), components.security
    table = {
        **components.endpoint.table(offered, security.client_authenticator),
        **components.health.table(),
    }
    if security.reflects:
        table.update(reflection_table(one.service.full_name for one in offered))
    peer_authenticator = security.peer_authenticator(
        lambda node: trust_of(components.node.membership.roster, node)
    )
    if peer_authenticator is not None:
        peer_table = components.endpoint.table(offered, peer_authenticator)
        security.peer_services.handlers = (TableHandlers(peer_table),)
    calls_max = components.config.concurrent_calls_max
    limits = ServerLimits(
        calls_max + HEALTH_CALLS_MAX,
        current_shares().client_connections,
        # Without TLS between nodes, a follower forwards all its calls on one connection to this
        # port.
        calls_max if security.peer is None else CALLS_PER_CONNECTION_MAX,
    )
    return chosen_server(components.config.edge, table, limits)


def trust_of(roster: Roster, node: str) -> Trust:
    """Return how far this node trusts another node."""
    named = [info for info in roster.members if is_named(info, node)]
    if not named:
        return Trust.NONE
    return Trust.TOKENS if named[-1].added_itself else Trust.WORD


def chosen_server(edge: str, table: MethodTable, limits: ServerLimits) -> RpcServer:
    """Return the server of the client port.

    Raises:
        ConfigInvalid: the configured server is not installed.
    """
    is_built = find_spec("taskraft_edge") is not None
    if edge == "native" and not is_built:
        raise ConfigInvalid(
            "edge: the native edge is not installed; `pip install 'taskraft-server[edge]'` or, in a"
            ' clone, `make native` installs it, and edge = "auto" uses grpc.aio without it'
        )
    if edge == "grpc" or not is_built:
        if not is_built:
            log.info(
                "serves clients with grpc.aio",
                faster="`pip install 'taskraft-server[edge]'` or, in a clone, `make native`",
            )
        return GrpcServer(table, limits)
    # The extension is optional.
    from taskraft_service.api.rpc.native_server import NativeServer  # noqa: PLC0415 - see above

    return NativeServer(table, limits)


def servicers(
    components: NodeComponents, spans: NodeSpans | None = None
) -> tuple[ServiceMethods, ...]:
    """Return the services of the API; see ``client_server`` for the arguments."""
    router = components.router
    executor = CommandExecutor(router if spans is None else spans.submitter(router))
    staleness = StalenessGuard(
        components.node.read_index, components.leadership.silence_ms, components.clocks.monotonic_ms
    )
    reader = QueueReader(components.machine, staleness, components.queues, components.clock.now_ms)
    disk = DiskSpaceGuard(components.disk, components.queues)
    return (
        _tasks(components, executor, reader, disk),
        TubeService(
            executor,
            reader,
            components.waiters,
            _tube_methods(components, reader),
            creates_tubes=lambda: components.settings.creates_tubes,
        ).methods(),
        SessionService(executor, reader).methods(),
        GroupService(executor, reader, disk).methods(),
        ScheduleService(
            executor,
            reader,
            disk,
            components.wall_now_ms,
            lambda: components.scheduler.problems,
        ).methods(),
        _feed(components, executor, reader),
        ScalerService(reader, components.sampler, components.apply_notifier).methods(),
        ClusterService(
            components.config,
            components.node,
            components.leadership,
            reader,
            components.members,
            Keepers(components.membership, components.clock_keeper, components.version_keeper),
            ClusterHandlers(
                SettingsHandler(
                    executor,
                    components.settings,
                    lambda: len(components.machine.queue.feed.partitions),
                ),
                AuditHandlers(reader).methods(),
                executor.record_act,
                _snapshots(components, executor, reader).save,
                lambda: server_limits(
                    components.config,
                    reader.applied.limits,
                    components.load.live.shares,
                    components.load.answers,
                ),
                components.disk,
                lambda: components.saved_snapshots.age_ms,
            ),
        ).methods(),
    )


def _tube_methods(components: NodeComponents, reader: QueueReader) -> Sequence[AnyUnaryMethod]:
    """Return the methods of TubeService with handlers of their own."""
    name, now_ms = components.config.node_name, components.wall_now_ms
    return (
        StatisticsHandler(reader, components.waiters, components.unlogged_calls).method(),
        HistoryHandler(components.sampler, name, now_ms).method(),
        FailuresHandler(components.failure_counter, name, now_ms).method(),
        ConsumersHandler(reader, components.waiters).method(),
    )


def _snapshots(
    components: NodeComponents, executor: CommandExecutor, reader: QueueReader
) -> SnapshotTransfers:
    config = components.config
    return SnapshotTransfers(
        SnapshotOrigin(config.cluster_id, config.node_name, server_version()),
        components.machine,
        reader,
        components.apply_notifier,
        lambda: components.node.status().term,
        components.saved_snapshots.record,
        executor.record_act,
    )


def _tasks(
    components: NodeComponents, executor: CommandExecutor, reader: QueueReader, disk: DiskSpaceGuard
) -> ServiceMethods:
    existence = ExistenceCheck(reader, creates_tubes=lambda: components.settings.creates_tubes)
    subscribe = SubscribeHandler(
        executor,
        reader,
        existence,
        components.lease_returns,
        components.waiters,
        components.streams,
        components.forwarder,
        components.config.payload_bytes_max,
    )
    handlers = TaskHandlers(
        TakeHandler(
            executor,
            reader,
            existence,
            components.lease_returns,
            components.waiters,
            components.unlogged_calls,
            lambda: components.leadership.serves and not components.lifecycle.is_stopping,
        ),
        TaskReadHandlers(reader, components.unlogged_calls),
        OutcomeHandlers(reader, components.outcomes, components.forwarder),
        subscribe.subscribe,
    )
    return TaskService(
        executor,
        reader,
        disk,
        components.capacity_waiters,
        components.settings,
        components.config.payload_bytes_max,
        handlers,
    ).methods()


def _feed(
    components: NodeComponents, executor: CommandExecutor, reader: QueueReader
) -> ServiceMethods:
    def nodes() -> list[feed_service_pb2.FeedNode]:
        leader = components.leadership.leader
        return [
            feed_service_pb2.FeedNode(
                name=node.name,
                address=node.client_address,
                leader=leader is not None and node.name == leader.name,
            )
            for node in components.members.all()
        ]

    return FeedService(
        FeedPositionHandlers(executor, reader),
        TaskEventsHandler(reader),
        TaskSnapshots(
            components.config.node_name, components.machine, reader, components.apply_notifier
        ),
        reader,
        components.feed_waits,
        nodes,
        ReadPace(),
    ).methods()
