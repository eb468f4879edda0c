"""Provide call loads for tests."""

from taskraft_service.api.rpc.call_load import CallLoad
from taskraft_service.api.rpc.live_calls import LiveCalls, PrincipalShares
from taskraft_service.limits import MESSAGE_BYTES_MAX


def call_load(calls_max=100, streams_max=100, bytes_max=2 * MESSAGE_BYTES_MAX):
    """Return a load without calls."""
    return CallLoad(
        calls_max, streams_max, bytes_max, LiveCalls(PrincipalShares(calls_max, streams_max, 100))
    )
