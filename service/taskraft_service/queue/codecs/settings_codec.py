"""Encode and decode the replicated settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.entities.tube_options import TubeKind

_ABSENT: Final = -1
"""Stands for a setting that is not set."""


def _optional(convert: Callable[[int], object]) -> Callable[[int], object]:
    return lambda number: None if number == _ABSENT else convert(number)


_table: Final = FieldTable(
    (
        ("failover_grace_ms", "q", _optional(int)),
        ("auto_create_tubes", "b", _optional(bool)),
        ("auto_create_kind", "b", _optional(TubeKind)),
        ("feed_retention_ms", "q", _optional(int)),
        ("feed_bytes_max", "q", _optional(int)),
        ("session_ttr_ms", "q", _optional(int)),
    ),
    "bB",
)
"""The settings of fixed size, whether there is a profile, and the length of the profile."""


def write_settings(settings: ReplicatedSettings) -> bytes:
    """Return the settings as bytes, the same on all replicas."""
    profile = settings.auto_create_profile
    name = (profile or "").encode()
    values = [_ABSENT if value is None else value for value in _table.values_of(settings)]
    return _table.write_values(values, _ABSENT if profile is None else 0, len(name)) + name


def read_settings(record: bytes, at: int) -> tuple[ReplicatedSettings, int]:
    """Return the settings that begin at ``at``, and the position after them."""
    fields, (has_profile, profile_bytes) = _table.read(record, at)
    at += _table.size
    end = at + profile_bytes
    profile = None if has_profile == _ABSENT else record[at:end].decode()
    return ReplicatedSettings(**fields, auto_create_profile=profile), end
