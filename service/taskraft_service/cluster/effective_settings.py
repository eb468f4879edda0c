"""Say which settings are in force: the cluster's, else those of this node's configuration."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Protocol

from taskraft_service.config.server_config import ServerConfig
from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.entities.tube_options import TubeKind


class Configured(Protocol):
    """Who knows what the cluster has been told."""

    def __call__(self) -> ReplicatedSettings:
        """Return the settings that are part of the replicated state."""


class EffectiveSettings:
    """The settings of the cluster, with this node's own where nobody has set them.

    Args:
        config: the node's configuration.
        configured: returns what the cluster has been told.
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
        )
        self._told: ReplicatedSettings | None = None
        self._now = self._own

    def merged(self, told: ReplicatedSettings) -> ReplicatedSettings:
        """Return settings with this node's own for what they leave open.

        Only ``session_ttr_ms`` may stay open: then each way to open a session has its own default.
        """
        named = {
            field.name: wish
            for field in fields(ReplicatedSettings)
            if (wish := getattr(told, field.name)) is not None
        }
        return replace(self._own, **named)

    def __call__(self) -> ReplicatedSettings:
        """Return the settings as they are now; every put asks for them."""
        told = self._configured()
        if told is not self._told:
            self._told, self._now = told, self.merged(told)
        return self._now

    @property
    def feed_retention_ms(self) -> int:
        """How old events may become."""
        return self().feed_retention_ms or 0

    @property
    def feed_bytes_max(self) -> int:
        """How large a node's feed may become."""
        return self().feed_bytes_max or 0

    @property
    def creates_tubes(self) -> bool:
        """Tell whether the first put makes its tube."""
        return bool(self().auto_create_tubes)
