"""Combine the replicated settings of the cluster with the defaults of this node."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Protocol

from taskraft_service.config.server_config import ServerConfig
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.state.cluster_version import HOLD_MS
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings


class Configured(Protocol):
    """Access to the replicated settings."""

    def __call__(self) -> ReplicatedSettings:
        """Return the settings in the replicated state."""


class EffectiveSettings:
    """The replicated settings, with this node's own value for each setting that is not set.

    Args:
        config: settings of the node.
        configured: returns the replicated settings.
    """

    def __init__(self, config: ServerConfig, configured: Configured) -> None:
        self._configured = configured
        self._own = ReplicatedSettings(
            failover_grace_ms=config.failover_grace_ms,
            auto_create_tubes=config.auto_create_tubes,
            auto_create_kind=TubeKind.FIFOTTL,
            auto_create_profile="",
            feed_retention_ms=config.feed_retention_ms,
            feed_bytes_max=config.feed_bytes_max,
            upgrade_hold_ms=HOLD_MS,
            cluster_version_max=0,
        )
        self._told: ReplicatedSettings | None = None
        self._now = self._own

    def merged(self, told: ReplicatedSettings) -> ReplicatedSettings:
        """Return settings in which this node's own values replace missing settings.

        Only ``session_ttr_ms`` may stay unset: each way to open a session has its own default.
        """
        named = {
            field.name: setting
            for field in fields(ReplicatedSettings)
            if (setting := getattr(told, field.name)) is not None
        }
        return replace(self._own, **named)

    def __call__(self) -> ReplicatedSettings:
        """Return the current settings; cached, because every put reads them."""
        told = self._configured()
        if told is not self._told:
            self._told, self._now = told, self.merged(told)
        return self._now

    @property
    def feed_retention_ms(self) -> int:
        """Maximum age of events in the change feed."""
        return self().feed_retention_ms or 0

    @property
    def feed_bytes_max(self) -> int:
        """Maximum size of a node's change feed."""
        return self().feed_bytes_max or 0

    @property
    def creates_tubes(self) -> bool:
        """Return whether the first put creates a missing tube."""
        return bool(self().auto_create_tubes)
