"""Settings of the whole cluster."""

from __future__ import annotations

from typing import Final, TypedDict

from taskraft._arguments import check_known
from taskraft._durations import Duration, set_durations
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import set_fields
from taskraft._tube_settings import Kind, kind_of
from taskraft.v1 import cluster_service_pb2


class ClusterSettings(TypedDict, total=False):
    """Settings of the whole cluster; absent settings stay unchanged."""

    failover_grace: Duration
    """Minimum time for which sessions survive a change of leader."""
    session_ttr: Duration
    """Default session TTR: lifetime of a session after its last heartbeat."""
    auto_create_tubes: bool
    """True: the first put creates a missing tube."""
    auto_create_kind: Kind
    """Kind of tubes that the first put creates."""
    auto_create_profile: str
    """Profile of tubes that the first put creates; "" for taskraft's own defaults."""
    feed_retention: Duration
    """Minimum age at which events of the change feed may be removed."""
    feed_bytes_max: int
    """Maximum size of the change feed on a node, in bytes; the oldest events are removed first."""
    upgrade_hold: Duration
    """Minimum time for which all members must speak a higher cluster version before the raise."""
    cluster_version_max: int
    """Highest cluster version that a raise may reach; 0: no limit."""


_PLAIN: Final = (
    "auto_create_tubes",
    "auto_create_profile",
    "feed_bytes_max",
    "cluster_version_max",
)
_DURATIONS: Final = (
    ("failover_grace", "failover_grace_ms"),
    ("session_ttr", "session_ttr_ms"),
    ("feed_retention", "feed_retention_ms"),
    ("upgrade_hold", "upgrade_hold_ms"),
)


def configure_request(settings: ClusterSettings) -> cluster_service_pb2.ConfigureRequest:
    """Return the request that changes settings; without settings it only reads them."""
    given: dict[str, object] = dict(settings)
    check_known(given, ClusterSettings, "a cluster has no setting")
    request = cluster_service_pb2.ConfigureRequest(request_id=new_request_id())
    set_fields(request.settings, _PLAIN, given)
    set_durations(request.settings, _DURATIONS, given)
    if "auto_create_kind" in settings:
        request.settings.auto_create_kind = kind_of(
            "auto_create_kind", settings["auto_create_kind"]
        )
    return request
