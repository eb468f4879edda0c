"""List the services of the contract: each call with what answers it."""

from __future__ import annotations

import grpc.aio

from taskraft_service.api.cluster.service import ClusterApi
from taskraft_service.api.cluster.settings import SettingsApi
from taskraft_service.api.feed.positions import FeedPositions
from taskraft_service.api.feed.service import FeedApi
from taskraft_service.api.groups.service import GroupApi
from taskraft_service.api.rpc.methods import Servicer
from taskraft_service.api.schedules.service import ScheduleApi
from taskraft_service.api.server import build_server, reflect
from taskraft_service.api.sessions.service import SessionApi
from taskraft_service.api.state.disk_space import DiskRoom
from taskraft_service.api.state.existence import KnownOnLeader
from taskraft_service.api.state.freshness import Freshness
from taskraft_service.api.state.mutations import Mutations
from taskraft_service.api.state.reading import Reading
from taskraft_service.api.streams.service import SubscribeApi
from taskraft_service.api.tasks.outcomes import OutcomeApi
from taskraft_service.api.tasks.reads import TaskReads
from taskraft_service.api.tasks.service import TaskApi, TaskSettings
from taskraft_service.api.tasks.takes import TakeApi
from taskraft_service.api.tubes.service import TubeApi
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.startup import monotonic_ms


def client_server(parts: NodeComponents) -> grpc.aio.Server:
    """Return the server for clients; it does not listen yet.

    With certificates of the nodes, the same services are served to them on their own port: there a
    node that passes a call on is believed when it says for whom.
    """
    offered, security = servicers(parts), parts.security
    gate = security.client_gate
    handlers = [parts.surface.handler(one, gate) for one in offered]
    server = build_server(handlers, parts.health, parts.config.calls_max)
    if security.reflects:
        reflect(server, [one.service.full_name for one in offered])
    gate_of_peers = security.peer_gate(lambda node: parts.members.named(node) is not None)
    if gate_of_peers is not None:
        security.door.handlers = [parts.surface.handler(one, gate_of_peers) for one in offered]
    return server


def servicers(parts: NodeComponents) -> tuple[Servicer, ...]:
    """Return the services of the contract."""
    mutations = Mutations(parts.router)
    freshness = Freshness(parts.node.read_index, parts.leadership.silence_ms, monotonic_ms)
    reading = Reading(parts.machine, freshness, parts.contents, parts.clock.now_ms)
    disk = DiskRoom(parts.disk, parts.contents)
    return (
        _tasks(parts, mutations, reading, disk),
        TubeApi(
            mutations,
            reading,
            parts.waiters,
            parts.notes,
            creates_tubes=lambda: parts.settings.creates_tubes,
        ).servicer(),
        SessionApi(mutations, reading).servicer(),
        GroupApi(mutations, reading, disk).servicer(),
        ScheduleApi(mutations, reading, disk, parts.clock.now_ms).servicer(),
        _feed(parts, mutations, reading),
        ClusterApi(
            parts.config,
            parts.node,
            parts.roles,
            parts.leadership,
            reading,
            SettingsApi(mutations, parts.settings).method(),
            parts.members,
        ).servicer(),
    )


def _tasks(
    parts: NodeComponents, mutations: Mutations, reading: Reading, disk: DiskRoom
) -> Servicer:
    known = KnownOnLeader(reading, lenient=lambda: parts.settings.creates_tubes)
    subscribe = SubscribeApi(
        mutations,
        reading,
        known,
        parts.waiters,
        parts.streams,
        parts.forwarder,
        parts.config.payload_bytes_max,
    )
    return TaskApi(
        mutations,
        reading,
        disk,
        OutcomeApi(reading, parts.outcomes, parts.rooms, parts.forwarder),
        TakeApi(mutations, reading, known, parts.waiters, parts.notes),
        TaskReads(reading, parts.notes),
        TaskSettings(parts.config.payload_bytes_max, parts.settings),
    ).servicer(subscribe.subscribe)


def _feed(parts: NodeComponents, mutations: Mutations, reading: Reading) -> Servicer:
    def leader_name() -> str:
        leader = parts.leadership.leader
        return leader.name if leader else ""

    return FeedApi(
        FeedPositions(mutations, reading),
        reading,
        parts.applications,
        parts.members.all,
        leader_name,
    ).servicer()
