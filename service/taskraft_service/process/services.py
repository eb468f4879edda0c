"""Build the gRPC services of the API from the components of a node."""

from __future__ import annotations

import grpc.aio

from taskraft_service.api.cluster.service import (
    ClusterHandlers,
    ClusterService,
    Keepers,
    server_version,
)
from taskraft_service.api.cluster.settings import SettingsHandler
from taskraft_service.api.cluster.snapshots import SnapshotOrigin, SnapshotTransfers
from taskraft_service.api.feed.positions import FeedPositionHandlers
from taskraft_service.api.feed.service import FeedService
from taskraft_service.api.groups import GroupService
from taskraft_service.api.rpc.methods import ServiceMethods
from taskraft_service.api.schedules import ScheduleService
from taskraft_service.api.server import (
    CALLS_PER_CONNECTION_MAX,
    build_server,
    enable_reflection,
)
from taskraft_service.api.sessions import SessionService
from taskraft_service.api.state.checks import DiskSpaceGuard, ExistenceCheck
from taskraft_service.api.state.command_executor import CommandExecutor
from taskraft_service.api.state.queue_reader import QueueReader, StalenessGuard
from taskraft_service.api.streams.subscribe import SubscribeHandler
from taskraft_service.api.tasks.outcomes import OutcomeHandlers
from taskraft_service.api.tasks.reads import TaskReadHandlers
from taskraft_service.api.tasks.service import TaskHandlers, TaskService
from taskraft_service.api.tasks.takes import TakeHandler
from taskraft_service.api.tubes.service import TubeService
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.descriptors import current_shares


def client_server(components: NodeComponents) -> grpc.aio.Server:
    """Return the gRPC server for clients; it does not listen yet.

    If nodes have certificates, the peer port serves the same services to other nodes. On the peer
    port, a node that forwards a call may name the principal of the caller.
    """
    offered, security = servicers(components), components.security
    authenticator = security.client_authenticator
    handlers = [components.endpoint.generic_handler(one, authenticator) for one in offered]
    calls_max = components.config.concurrent_calls_max
    server = build_server(
        handlers,
        components.health,
        calls_max,
        current_shares().client_connections,
        # Without TLS between nodes, a follower forwards all its calls on one connection to this
        # port.
        calls_max if security.peer is None else CALLS_PER_CONNECTION_MAX,
    )
    if security.reflects:
        enable_reflection(server, [one.service.full_name for one in offered])
    peer_authenticator = security.peer_authenticator(
        lambda node: components.members.named(node) is not None
    )
    if peer_authenticator is not None:
        security.peer_services.handlers = [
            components.endpoint.generic_handler(one, peer_authenticator) for one in offered
        ]
    return server


def servicers(components: NodeComponents) -> tuple[ServiceMethods, ...]:
    """Return the services of the API."""
    executor = CommandExecutor(components.router)
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
            components.unlogged_calls,
            creates_tubes=lambda: components.settings.creates_tubes,
        ).methods(),
        SessionService(executor, reader).methods(),
        GroupService(executor, reader, disk).methods(),
        ScheduleService(executor, reader, disk, components.wall_now_ms).methods(),
        _feed(components, executor, reader),
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
                ).method(),
                _snapshots(components, reader).save,
            ),
        ).methods(),
    )


def _snapshots(components: NodeComponents, reader: QueueReader) -> SnapshotTransfers:
    config = components.config
    return SnapshotTransfers(
        SnapshotOrigin(config.cluster_id, config.node_name, server_version()),
        components.machine,
        reader,
        components.apply_notifier,
        lambda: components.node.status().term,
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
    def leader_name() -> str:
        leader = components.leadership.leader
        return leader.name if leader else ""

    return FeedService(
        FeedPositionHandlers(executor, reader),
        reader,
        components.apply_notifier,
        components.members.all,
        leader_name,
    ).methods()
