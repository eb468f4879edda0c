"""Check the requests that change settings: of the cluster, or of a tube."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import cluster_service_pb2, tube_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.queue.entities.tube_profiles import PROFILES

_Kind = tube_service_pb2.Tube
AUTO_KINDS: Final = (_Kind.FIFO, _Kind.FIFOTTL, _Kind.UTUBE, _Kind.UTUBETTL)
"""Kinds that need nothing but a name."""
FEED_RETENTION_MIN_MS: Final = 1_000
FEED_BYTES_MIN: Final = 1024 * 1024
_INT64_MAX: Final = (1 << 63) - 1


def check_configure(request: cluster_service_pb2.ConfigureRequest) -> None:
    """Refuse settings of which one is out of range: then none is changed."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    settings = request.settings
    ranges = {
        "failover_grace_ms": (0, limits.SESSION_TTR_MAX_MS),
        "session_ttr_ms": (0, limits.SESSION_TTR_MAX_MS),
        "feed_retention_ms": (FEED_RETENTION_MIN_MS, _INT64_MAX),
        "feed_bytes_max": (FEED_BYTES_MIN, _INT64_MAX),
    }
    for name, (low, high) in ranges.items():
        if settings.HasField(name):  # type: ignore[arg-type]  # the names are fields of it
            wrong.check_range(f"settings.{name}", getattr(settings, name), low, high)
    if settings.HasField("auto_create_kind") and settings.auto_create_kind not in AUTO_KINDS:
        names = ", ".join(_Kind.Kind.Name(kind) for kind in AUTO_KINDS)
        wrong.add("settings.auto_create_kind", f"{settings.auto_create_kind} is not one of {names}")
    check_profile(wrong, "settings.auto_create_profile", settings.auto_create_profile)
    wrong.raise_if_any()


def check_profile(wrong: Violations, path: str, name: str) -> None:
    """Check that a profile is one of those that exist."""
    if name not in PROFILES:
        names = ", ".join(filter(None, PROFILES))
        wrong.add(path, f"there is no profile {name[:32]!r}, only {names}")
