"""Write and read the gRPC metadata of forwarded calls.

The metadata holds the hop count, the time that the call has already waited, the token of the call
or else the name of its principal, the person for whom it speaks, the address of the client, and the
W3C trace context. Clients can send these keys too, so a malformed value is treated as absent. The
answer to a forwarded call has its size in the initial metadata, if it is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from urllib.parse import quote

from taskraft_service.access.authenticator import (
    AUTHORIZATION_KEY,
    PEER_KEY,
    PERSON_KEY,
    PRINCIPAL_KEY,
)
from taskraft_service.access.caller import ANONYMOUS, Caller

TraceContext: TypeAlias = tuple[tuple[str, str], ...]
"""Metadata with the W3C trace context of a call; empty if the call has none."""

HOPS_KEY: Final = "x-taskraft-hops"
"""Number of times that a call was forwarded. A node never forwards a forwarded call, so calls
cannot loop."""
WAITED_KEY: Final = "x-taskraft-waited-ms"
"""Time in ms that a forwarded call has already waited; subtracted from its maximum wait."""
ANSWER_BYTES_KEY: Final = "x-taskraft-answer-bytes"
"""Size in bytes of the leader's answer to a forwarded call; sent before an answer above 16 KiB."""
TRACE_KEYS: Final = ("traceparent", "tracestate")
"""Keys of the W3C trace context, so that the leader's spans join the caller's trace."""
_DIGITS_MAX: Final = 15
"""Maximum length of a number in the metadata."""


@dataclass(slots=True, frozen=True)
class CallOrigin:
    """Origin of a forwarded call."""

    caller: Caller = ANONYMOUS
    """The caller, as authenticated by this node."""
    trace: TraceContext = ()
    arrived_at: float | None = None
    """Event loop time at which the call arrived; None: now."""
    outlives_stop: bool = False
    """Whether a stopping node continues the call; True for calls that the node itself makes."""

    def arrived(self, now: float) -> CallOrigin:
        """Return the origin with the time of arrival; ``now`` if the time is not known."""
        return self if self.arrived_at is not None else replace(self, arrived_at=now)


UNKNOWN_ORIGIN: Final = CallOrigin()


def forwarding_metadata(caller: Caller, trace: TraceContext) -> TraceContext:
    """Return the metadata of a forwarded call: its hop count, caller and trace context."""
    hops = (HOPS_KEY, "1")
    if not caller.name:
        return (hops, *trace)
    proof = (
        (AUTHORIZATION_KEY, f"Bearer {caller.token}")
        if caller.token
        else (PRINCIPAL_KEY, caller.name)
    )
    person = ((PERSON_KEY, quote(caller.person)),) if caller.person else ()
    return (hops, proof, (PEER_KEY, caller.peer), *person, *trace)


def trace_context(metadata: Mapping[str, str | bytes]) -> TraceContext:
    """Return the trace context in the metadata of a call."""
    found = ((key, metadata.get(key)) for key in TRACE_KEYS)
    return tuple((key, value) for key, value in found if isinstance(value, str))


def waited_seconds(metadata: Mapping[str, str | bytes]) -> float:
    """Return the seconds that a call waited before it was forwarded; 0 if it was not forwarded."""
    return _number(metadata, WAITED_KEY) / 1000


def hop_count(metadata: Mapping[str, str | bytes]) -> int:
    """Return the number of times that a call was forwarded."""
    return _number(metadata, HOPS_KEY)


def answer_bytes(metadata: Mapping[str, str | bytes]) -> int:
    """Return the size of the answer that follows; 0 for a small answer."""
    return _number(metadata, ANSWER_BYTES_KEY)


def _number(metadata: Mapping[str, str | bytes], key: str) -> int:
    """Return a number in the metadata; 0 if it is missing or malformed."""
    text = metadata.get(key)
    if isinstance(text, str) and text.isdecimal() and len(text) <= _DIGITS_MAX:
        return int(text)
    return 0
