"""Encode and decode the replicated settings."""

from __future__ import annotations

from struct import Struct

from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.entities.tube_options import TubeKind

_record = Struct(">qbbqqqbB")
_ABSENT = -1


def write_settings(settings: ReplicatedSettings) -> bytes:
    """Return the settings as they are written; the same bytes on all replicas."""

    def number(wish: int | None) -> int:
        return _ABSENT if wish is None else wish

    profile = (settings.auto_create_profile or "").encode()
    return (
        _record.pack(
            number(settings.failover_grace_ms),
            number(settings.auto_create_tubes),
            number(settings.auto_create_kind),
            number(settings.feed_retention_ms),
            number(settings.feed_bytes_max),
            number(settings.session_ttr_ms),
            _ABSENT if settings.auto_create_profile is None else 0,
            len(profile),
        )
        + profile
    )


def read_settings(record: bytes, at: int) -> tuple[ReplicatedSettings, int]:
    """Return the settings that stand at a place of a record, and where they end."""
    *numbers, profile_bytes = _record.unpack_from(record, at)
    grace, creates, kind, retention, feed_bytes, ttr, has_profile = (
        None if number == _ABSENT else number for number in numbers
    )
    at += _record.size
    end = at + profile_bytes
    settings = ReplicatedSettings(
        failover_grace_ms=grace,
        auto_create_tubes=None if creates is None else bool(creates),
        auto_create_kind=None if kind is None else TubeKind(kind),
        auto_create_profile=None if has_profile is None else record[at:end].decode(),
        feed_retention_ms=retention,
        feed_bytes_max=feed_bytes,
        session_ttr_ms=ttr,
    )
    return settings, end
