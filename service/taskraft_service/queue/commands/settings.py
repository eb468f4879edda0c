"""Change settings of the whole cluster, and options of a tube."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.commands.options import TubeKind, TubeOptions
from taskraft_service.queue.values import value


@value
class ClusterSettings:
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


@value
class Configure:
    """Set what ``settings`` names; ``None`` leaves a setting as it is. Answer: SettingsResult."""

    settings: ClusterSettings
    request_id: str = ""
    request_hash: int = 0


@value
class SettingsResult:
    """The settings in force."""

    settings: ClusterSettings


@value
class UpdateTube:
    """Set the named options of a tube; those in ``resets`` get the default of the tube's profile.

    Of ``options`` only what ``names`` has counts. Answer: ``TubeResult``.
    """

    name: str
    options: TubeOptions
    names: Sequence[str] = ()
    resets: Sequence[str] = ()
    request_id: str = ""
    request_hash: int = 0
