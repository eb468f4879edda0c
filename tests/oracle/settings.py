"""Apply the settings of a trace to the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft.v1 import cluster_service_pb2
from tests.oracle.connection import Stubs
from tests.oracle.operations import milliseconds
from tests.oracle.refusals import INVALID_CONFIG, Refused
from tests.oracle.trace import Json

SESSION_TTR_MAX_MS: Final = 86_400_000
"""Maximum TTR of a session in the service: one day. The oracle has no maximum."""
KNOWN: Final = ("ttr", "in_replicaset")


def configure(stubs: Stubs, settings: Mapping[str, Json]) -> Mapping[str, Json]:
    """Apply all settings of a trace's ``cfg`` step, or none; return them.

    Raises:
        Refused: a setting is unknown or malformed.
    """
    for name, wish in settings.items():
        is_number = isinstance(wish, int | float) and not isinstance(wish, bool)
        if name not in KNOWN:
            raise Refused(INVALID_CONFIG, text=f"unknown setting {name}")
        if name == "ttr" and (not is_number or wish < 0):
            raise Refused(INVALID_CONFIG, text=f"ttr {wish!r}")
        if name == "in_replicaset" and not isinstance(wish, bool):
            raise Refused(INVALID_CONFIG, text=f"in_replicaset {wish!r}")
    if "ttr" in settings:
        wish = cluster_service_pb2.ClusterSettings(
            session_ttr_ms=min(milliseconds(settings["ttr"]), SESSION_TTR_MAX_MS),
            failover_grace_ms=0,
        )
        request = cluster_service_pb2.ConfigureRequest(settings=wish)
        stubs.call(stubs.cluster.Configure, request)
    return settings
