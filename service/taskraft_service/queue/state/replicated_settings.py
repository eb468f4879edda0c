"""Define the settings that are part of the replicated state, and the layout of their record."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Size, Text
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
    upgrade_hold_ms: int | None = None
    cluster_version_max: int | None = None


_ABSENT: Final = -1
"""Stands for a setting that is not set."""
_GIVEN: Final = 0


def _mark_of(settings: ReplicatedSettings) -> int:
    return _ABSENT if settings.auto_create_profile is None else _GIVEN


def _name_of(settings: ReplicatedSettings) -> str:
    return settings.auto_create_profile or ""


def _profile(mark: int, name: str) -> str | None:
    return None if mark == _ABSENT else name


SETTINGS: Final = FieldTable(
    ReplicatedSettings,
    Number("failover_grace_ms", "q", absent=_ABSENT),
    Number("auto_create_tubes", "b", bool, absent=_ABSENT),
    Number("auto_create_kind", "b", TubeKind, absent=_ABSENT),
    Number("feed_retention_ms", "q", absent=_ABSENT),
    Number("feed_bytes_max", "q", absent=_ABSENT),
    Number("session_ttr_ms", "q", absent=_ABSENT),
    Number("upgrade_hold_ms", "q", absent=_ABSENT),
    Number("cluster_version_max", "i", absent=_ABSENT),
    Number("auto_create_profile.mark", "b", of=_mark_of),
    Size("B", "auto_create_profile.name"),
    Text("auto_create_profile.name", of=_name_of),
    parts={"auto_create_profile": _profile},
)
