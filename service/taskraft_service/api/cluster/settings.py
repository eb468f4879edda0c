"""Serve Configure: settings of the whole cluster."""

from __future__ import annotations

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import tube_service_pb2
from taskraft_service.api.cluster.settings_checks import check_configure
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.tubes import CONFIGURE
from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.operations.settings import SettingsResult


class ConfigureHandler:
    """The handler of Configure; it belongs to ClusterService."""

    def __init__(self, mutations: CommandExecutor, in_force: EffectiveSettings) -> None:
        self._mutations = mutations
        self._in_force = in_force

    def method(self) -> UnaryMethod[pb.ConfigureRequest]:
        """Return the method, to be served with those of ClusterService."""
        return UnaryMethod("Configure", pb.ConfigureRequest, ExecutionSite.LEADER, self.configure)

    async def configure(self, call: UnaryCall[pb.ConfigureRequest]) -> pb.ConfigureResponse:
        """Change settings, all or none; a request without any shows them."""
        check_configure(call.request)
        outcome = await self._mutations.apply(CONFIGURE, call)
        told = result_of(outcome, SettingsResult).settings
        settings = settings_message(self._in_force.merged(told))
        return pb.ConfigureResponse(settings=settings, revision=outcome.index)


def settings_message(settings: ReplicatedSettings) -> pb.ClusterSettings:
    """Return settings as a message."""
    kind = settings.auto_create_kind
    return pb.ClusterSettings(
        failover_grace_ms=settings.failover_grace_ms,
        auto_create_tubes=settings.auto_create_tubes,
        auto_create_kind=None if kind is None else tube_service_pb2.Tube.Kind.ValueType(kind),
        auto_create_profile=settings.auto_create_profile,
        feed_retention_ms=settings.feed_retention_ms,
        feed_bytes_max=settings.feed_bytes_max,
        session_ttr_ms=settings.session_ttr_ms,
    )
