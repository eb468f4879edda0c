"""Describe settings of the whole cluster that shall change."""

from __future__ import annotations

from typing import Final, TypedDict

from taskraft._arguments import check_known
from taskraft._durations import Duration, set_durations
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import set_fields
from taskraft._tube_settings import Kind, kind_of
from taskraft.v1 import cluster_service_pb2


class ClusterSettings(TypedDict, total=False):
    """Settings of the whole cluster; absent ones stay as they are."""

    failover_grace: Duration
    """How long sessions outlive a change of leader at least."""
    session_ttr: Duration
    """How long sessions that name no time of their own outlive their last heartbeat."""
    auto_create_tubes: bool
    """Tubes that do not exist are made by the first put."""
    auto_create_kind: Kind
    """Kind of tubes that are made by the first put."""
    auto_create_profile: str
    """Profile of tubes that are made by the first put; "" for taskraft's own."""
    feed_retention: Duration
    """Events of the feed that are older may go."""
    feed_bytes_max: int
    """The oldest events go when the feed of a node is larger."""


_PLAIN: Final = ("auto_create_tubes", "auto_create_profile", "feed_bytes_max")
_DURATIONS: Final = (
    ("failover_grace", "failover_grace_ms"),
    ("session_ttr", "session_ttr_ms"),
    ("feed_retention", "feed_retention_ms"),
)


def configure_request(settings: ClusterSettings) -> cluster_service_pb2.ConfigureRequest:
    """Return the request that changes settings; without any it only asks for those in force."""
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
