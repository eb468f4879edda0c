"""Configure: read and change the settings of the whole cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import tube_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.checks import AUTO_KINDS
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.api.tubes.checks import check_profile
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.tubes import CONFIGURE
from taskraft_service.config.relations import FEED_PARTITION_BYTES_MIN
from taskraft_service.queue.operations.settings import SettingsResult
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings

_Kind = tube_service_pb2.Tube
FEED_RETENTION_MIN_MS: Final = 1_000
FEED_BYTES_MIN: Final = 1024 * 1024
_INT64_MAX: Final = (1 << 63) - 1
_INT32_MAX: Final = (1 << 31) - 1


class SettingsHandler:
    """Tells the settings of the cluster, and handles Configure, a method of ClusterService.

    Args:
        executor: proposes the change.
        in_force: the settings in force.
        feed_partitions: returns the number of partitions of the change feed.
    """

    def __init__(
        self,
        executor: CommandExecutor,
        in_force: EffectiveSettings,
        feed_partitions: Callable[[], int],
    ) -> None:
        self._executor = executor
        self._in_force = in_force
        self._feed_partitions = feed_partitions

    def method(self) -> UnaryMethod[pb.ConfigureRequest]:
        """Return the method Configure with its handler."""
        return UnaryMethod("Configure", pb.ConfigureRequest, ExecutionSite.LEADER, self.configure)

    def in_force(self) -> pb.ClusterSettings:
        """Return the settings in force on this node."""
        return _settings_message(self._in_force())

    async def configure(self, call: UnaryCall[pb.ConfigureRequest]) -> pb.ConfigureResponse:
        """Change all given settings atomically; return the settings in force."""
        _check_configure(call.request, self._feed_partitions())
        outcome = await self._executor.execute(CONFIGURE, call)
        stored = result_of(outcome, SettingsResult).settings
        settings = _settings_message(self._in_force.merged(stored))
        return pb.ConfigureResponse(settings=settings, revision=outcome.index)


def _settings_message(settings: ReplicatedSettings) -> pb.ClusterSettings:
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
        upgrade_hold_ms=settings.upgrade_hold_ms,
        cluster_version_max=settings.cluster_version_max,
    )


def _check_configure(request: pb.ConfigureRequest, feed_partitions: int) -> None:
    """Check all settings of a request; one invalid setting refuses the whole request.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    settings = request.settings
    ranges = {
        "failover_grace_ms": (0, limits.SESSION_TTR_MAX_MS),
        "session_ttr_ms": (0, limits.SESSION_TTR_MAX_MS),
        "upgrade_hold_ms": (0, _INT64_MAX),
        "cluster_version_max": (0, _INT32_MAX),
        "feed_retention_ms": (FEED_RETENTION_MIN_MS, _INT64_MAX),
        "feed_bytes_max": (
            max(FEED_BYTES_MIN, feed_partitions * FEED_PARTITION_BYTES_MIN),
            _INT64_MAX,
        ),
    }
    for name, (low, high) in ranges.items():
        if settings.HasField(name):  # type: ignore[arg-type]  # the names are fields of it
            violations.check_range(f"settings.{name}", getattr(settings, name), low, high)
    if settings.HasField("auto_create_kind") and settings.auto_create_kind not in AUTO_KINDS:
        names = ", ".join(_Kind.Kind.Name(kind) for kind in AUTO_KINDS)
        violations.add(
            "settings.auto_create_kind", f"{settings.auto_create_kind} is not one of {names}"
        )
    check_profile(violations, "settings.auto_create_profile", settings.auto_create_profile)
    violations.raise_if_any()
