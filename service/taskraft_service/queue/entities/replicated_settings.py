"""The settings that are part of the replicated state."""

from __future__ import annotations

from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.values import value


@value
class ReplicatedSettings:
    """Settings of the cluster; None: the leader's own configuration applies.

    ``session_ttr_ms`` applies to sessions that do not set a time to run.
    """

    failover_grace_ms: int | None = None
    auto_create_tubes: bool | None = None
    auto_create_kind: TubeKind | None = None
    auto_create_profile: str | None = None
    feed_retention_ms: int | None = None
    feed_bytes_max: int | None = None
    session_ttr_ms: int | None = None
