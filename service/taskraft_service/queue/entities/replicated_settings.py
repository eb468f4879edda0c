"""Define the settings that are part of the replicated state."""

from __future__ import annotations

from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.values import value


@value
class ReplicatedSettings:
    """Settings of the whole cluster; ``None``: as the leader's own configuration says.

    ``session_ttr_ms`` is for sessions that name none.
    """

    failover_grace_ms: int | None = None
    auto_create_tubes: bool | None = None
    auto_create_kind: TubeKind | None = None
    auto_create_profile: str | None = None
    feed_retention_ms: int | None = None
    feed_bytes_max: int | None = None
    session_ttr_ms: int | None = None
