"""Keep the settings of the cluster: part of the state, so that every leader has the same."""

from __future__ import annotations

from dataclasses import fields, replace
from struct import Struct
from typing import TYPE_CHECKING

from taskraft_service.queue.commands.settings import Configure, SettingsResult
from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.entities.tube_options import TubeKind

if TYPE_CHECKING:
    from taskraft_service.queue.state.queue_state import QueueState

_record = Struct(">qbbqqqbB")
_ABSENT = -1


def configure(ledger: QueueState, command: Configure) -> SettingsResult:
    """Set what the command names, and leave the rest."""
    named = {
        field.name: wish
        for field in fields(ReplicatedSettings)
        if (wish := getattr(command.settings, field.name)) is not None
    }
    ledger.settings = replace(ledger.settings, **named)
    if "session_ttr_ms" in named:
        _renew_session_ttr(ledger)
    return SettingsResult(ledger.settings)


def session_ttr_ms(ledger: QueueState, default_ttr_ms: int) -> int:
    """Return the time that a session gets which names none.

    ``default_ttr_ms`` 0: it was opened by a stream, and may end with that. Others are kept by
    heartbeats, for which less than ``session_ttr_min_ms`` would not do.
    """
    wish = ledger.settings.session_ttr_ms
    if wish is None:
        return default_ttr_ms
    return max(wish, ledger.limits.session_ttr_min_ms) if default_ttr_ms else wish


def _renew_session_ttr(ledger: QueueState) -> None:
    """Let open sessions follow; one that is running out keeps its end.

    So does ``cfg`` of tarantool/queue.
    """
    for session in ledger.sessions.values():
        if session.default_ttr_ms is not None:
            session.ttr_ms = session_ttr_ms(ledger, session.default_ttr_ms)
            ledger.sessions.touch(session)


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
