"""Hold all calls in progress by principal: bound their share of a node, and end revoked calls.

Every call of an authenticated caller is here from its authentication to its end: streams, waits,
transfers of snapshots, and the calls and streams that this node forwards to the leader. So are the
calls that the node which forwarded them may end (see ``call_ends``), whoever calls. The calls
of a principal are checked again when a new version of the access file changes the principal. A call
whose certificate has expired ends as well. A call that passes the check does not notice the check.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from taskraft.v1 import error_pb2
from taskraft_replication.background import run_beside
from taskraft_service.access.authenticator import CERTIFICATE_EXPIRED
from taskraft_service.access.caller import Caller, PermissionDenied, Unauthenticated
from taskraft_service.api.rpc.methods import parse_request
from taskraft_service.api.rpc.status import CallRefused

CHECKED_AT_ONCE: Final = 100
"""Maximum number of calls that are checked or ended before other callbacks of the event loop
run."""


class LiveCall:
    """One call in progress.

    The current task serves the call, unless ``work`` is set afterwards.

    Args:
        caller: the authenticated caller.
        connection: the address of the other end of the connection.
        request: the type of the messages of the client.
        is_stream: the call is a stream.
        first: the first message of the client; None: it has not been received yet.
        key: the key by which the node that has forwarded the call can end it; empty: none.
    """

    __slots__ = (
        "caller",
        "connection",
        "ended_by",
        "first",
        "is_stream",
        "key",
        "request",
        "version",
        "work",
    )

    def __init__(
        self,
        caller: Caller,
        connection: str,
        request: type[Message],
        *,
        is_stream: bool,
        first: bytes | None = None,
        key: str = "",
    ) -> None:
        self.caller = caller
        self.key = key
        self.connection = connection
        self.request = request
        self.is_stream = is_stream
        self.first = first
        self.version = caller.version
        """Version of the principals for which the call was last authorized."""
        self.ended_by: Exception | None = None
        """Why this node has ended the call; ``work`` ends with ``CancelledError``."""
        self.work: asyncio.Future[Any] | None = asyncio.current_task()
        """The task of the handler, or the outcome for which a prompt call waits."""

    def first_came(self, raw: bytes) -> None:
        """Note the first message of the client."""
        self.first = raw

    def check(self) -> None:
        """Authorize the call again, and end it if the credentials or a permission are gone."""
        if self.version == self.caller.version:
            return
        self.version = self.caller.version
        try:
            self.caller.revalidate()
            if self.first is not None:
                self.caller.authorize(parse_request(self.request, self.first))
        except (Unauthenticated, PermissionDenied) as error:
            self.end(error)
        except CallRefused:
            return  # the handler refuses a malformed request

    def expire(self) -> None:
        """End the call because the certificate of the caller has expired."""
        self.end(Unauthenticated(CERTIFICATE_EXPIRED))

    def end(self, error: Exception) -> None:
        """Cancel the handler or the outcome; ``error`` becomes the status of the call."""
        if self.ended_by is None and self.work is not None:
            self.ended_by = error
            self.work.cancel()

    def outcome(self, error: BaseException) -> BaseException:
        """Return the error with which the call ends, given the error that ended its handler."""
        if self.ended_by is None or not isinstance(error, asyncio.CancelledError):
            return error
        if isinstance(self.work, asyncio.Task):
            self.work.uncancel()
        return self.ended_by


@dataclass(slots=True, frozen=True)
class PrincipalShares:
    """Maximum numbers of calls, streams and connections of one principal on a node; at least 1."""

    calls_max: int
    """Calls without streams."""
    streams_max: int
    connections_max: int
    """Connections with at least one call or stream."""


class _PrincipalCalls:
    """The calls in progress of one principal."""

    __slots__ = ("calls", "connections", "streams")

    def __init__(self) -> None:
        self.calls: dict[LiveCall, None] = {}
        self.streams = 0
        self.connections: dict[str, int] = {}
        """Number of calls of each connection with calls."""


class LiveCalls:
    """The calls in progress of authenticated callers.

    Args:
        shares: the shares of each principal.
    """

    def __init__(self, shares: PrincipalShares) -> None:
        self.shares: Final = shares
        self._by_principal: dict[str, _PrincipalCalls] = {}
        self._by_expiry: dict[float, dict[LiveCall, None]] = {}
        self._by_key: dict[str, LiveCall] = {}
        self._to_check: deque[Callable[[], None]] = deque()
        """The checks of calls and the ends of expired calls that are due, in order."""
        self._checker: asyncio.Task[None] | None = None

    def add(self, call: LiveCall) -> LiveCall:
        """Add a call, and return it; a call without a principal has no share and is not revoked.

        Raises:
            CallRefused: OVERLOADED, the principal has its share of the calls, streams or
                connections already.
        """
        name = call.caller.name
        if not name:
            self._add_key(call)
            return call
        own = self._by_principal.get(name)
        if own is None:
            own = self._by_principal[name] = _PrincipalCalls()
        shares, connections = self.shares, own.connections
        if call.is_stream and own.streams >= shares.streams_max:
            raise _overloaded(name, "streams", "streams_share_max", shares.streams_max)
        if not call.is_stream and len(own.calls) - own.streams >= shares.calls_max:
            raise _overloaded(name, "calls", "calls_share_max", shares.calls_max)
        of_connection = connections.get(call.connection, 0)
        if not of_connection and len(connections) >= shares.connections_max:
            limit, most = "connections_share_max", shares.connections_max
            raise _overloaded(name, "connections with calls", limit, most)
        connections[call.connection] = of_connection + 1
        own.calls[call] = None
        own.streams += call.is_stream
        if math.isfinite(call.caller.expires_at):
            self._by_expiry.setdefault(call.caller.expires_at, {})[call] = None
        self._add_key(call)
        return call

    def _add_key(self, call: LiveCall) -> None:
        if call.key:
            self._by_key[call.key] = call

    def remove(self, call: LiveCall) -> None:
        """Remove a call that has ended, and its reference to the request."""
        call.work = call.first = None
        if self._by_key.get(call.key) is call:
            del self._by_key[call.key]
        name = call.caller.name
        if not name:
            return
        own = self._by_principal[name]
        del own.calls[call]
        own.streams -= call.is_stream
        own.connections[call.connection] -= 1
        if not own.connections[call.connection]:
            del own.connections[call.connection]
        if not own.calls:
            del self._by_principal[name]
        expiring = self._by_expiry.get(call.caller.expires_at)
        if expiring is not None:
            expiring.pop(call, None)
            if not expiring:
                del self._by_expiry[call.caller.expires_at]

    def of(self, principal: str) -> list[LiveCall]:
        """Return the calls of a principal, the oldest first."""
        own = self._by_principal.get(principal)
        return [] if own is None else list(own.calls)

    def end_forwarded(self, key: str, principal: str) -> None:
        """End a forwarded call of a principal with DRAINING; no call with this key: do nothing."""
        call = self._by_key.get(key)
        if call is not None and call.caller.name == principal:
            call.end(
                CallRefused(error_pb2.Error.DRAINING, "the node that forwarded the call gave it up")
            )

    def principals_changed(self, names: Iterable[str]) -> None:
        """Check the calls of principals that are gone or whose credentials or grants differ."""
        self._to_check.extend(call.check for name in names for call in self.of(name))
        self._start_checks()

    def end_expired(self, wall_seconds: float) -> None:
        """End the calls whose certificates have expired, in steps.

        Args:
            wall_seconds: the time, in seconds since the Unix epoch.
        """
        for expires_at in [one for one in self._by_expiry if one <= wall_seconds]:
            calls = self._by_expiry.pop(expires_at)
            self._to_check.extend(call.expire for call in calls)
        self._start_checks()

    def _start_checks(self) -> None:
        if self._to_check and (self._checker is None or self._checker.done()):
            self._checker = run_beside(self._check())

    async def _check(self) -> None:
        """Check and end the noted calls in steps; other work of the event loop runs between."""
        while self._to_check:
            for _ in range(min(CHECKED_AT_ONCE, len(self._to_check))):
                self._to_check.popleft()()
            await asyncio.sleep(0)


def share_of(total_max: int, share_max: int) -> int:
    """Return the share in force of one principal: at most three quarters of the node's maximum."""
    return min(share_max, -(-total_max * 3 // 4))


def revoked_in_progress() -> CallRefused:
    """Return the error of a call that was ended while it may have had an effect."""
    return CallRefused(
        error_pb2.Error.COMMIT_UNKNOWN,
        "the credentials or permissions of the call were withdrawn before its outcome was known",
    )


def _overloaded(principal: str, what: str, limit: str, most: int) -> CallRefused:
    return CallRefused(
        error_pb2.Error.OVERLOADED,
        f'principal "{principal}" has {most} {what} in progress on this node, the maximum for one '
        "principal; end some of them, or retry later",
        {"limit": limit, "value": str(most), "principal": principal},
    )
