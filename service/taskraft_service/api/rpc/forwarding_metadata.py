"""Mark the calls that one node passes on to another, and read the marks.

They say how often a call was passed on, since when it has been under way, for whom, and in which
trace. Anybody may send such metadata: what no node of ours writes counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from taskraft_service.access.authenticator import PRINCIPAL_KEY

TraceContext: TypeAlias = tuple[tuple[str, str], ...]
"""Metadata with a trace context; empty if a call has none."""

HOPS_KEY: Final = "x-taskraft-hops"
"""How often a call has been passed on; a second time is refused, so that calls cannot go round."""
WAITED_KEY: Final = "x-taskraft-waited-ms"
"""How long a call that is passed on has been under way: its wait goes on from there."""
TRACE_KEYS: Final = ("traceparent", "tracestate")
"""W3C trace context of a caller: whoever traces the leader's calls sees whose they are."""
_DIGITS_MAX: Final = 15
"""Numbers in metadata are no longer."""


def forwarding_metadata(principal: str, trace: TraceContext) -> TraceContext:
    """Return the metadata of a call that is passed on: that it is, for whom, in which trace."""
    hops = (HOPS_KEY, "1")
    return (hops, (PRINCIPAL_KEY, principal), *trace) if principal else (hops, *trace)


def trace_context(metadata: Mapping[str, str | bytes]) -> TraceContext:
    """Return the trace context of a call, to be passed on with it."""
    found = ((key, metadata.get(key)) for key in TRACE_KEYS)
    return tuple((key, value) for key, value in found if isinstance(value, str))


def waited_seconds(metadata: Mapping[str, str | bytes]) -> float:
    """Return for how many seconds a call had been under way when it was passed on."""
    return _number(metadata, WAITED_KEY) / 1000


def hop_count(metadata: Mapping[str, str | bytes]) -> int:
    """Return how often a call has been passed on."""
    return _number(metadata, HOPS_KEY)


def _number(metadata: Mapping[str, str | bytes], key: str) -> int:
    """Return a number of the metadata; 0 for what no node of ours writes: anybody may send it."""
    text = metadata.get(key)
    if isinstance(text, str) and text.isdecimal() and len(text) <= _DIGITS_MAX:
        return int(text)
    return 0
