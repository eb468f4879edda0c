"""Send heartbeats from a background thread, independent of the user's event loop.

A blocked event loop or a long computation must not end sessions and leases. Heartbeats are
therefore sent from a native thread with gRPC's synchronous API. A `HeartbeatSource` builds the
heartbeats and sets their times.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import grpc

from taskraft._clock import monotonic
from taskraft._node_pool import CHANNEL_OPTIONS
from taskraft._node_selector import LEADER_KEY, NodeSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

log = logging.getLogger("taskraft")

HEARTBEATS_PER_TTR: Final = 3
"""Number of heartbeats per TTR; all but one may be lost."""
RETRY_SECONDS: Final = 0.5
"""Maximum pause after all nodes have failed to answer, in seconds."""
NEVER: Final = float("inf")

Request = TypeVar("Request")
Response = TypeVar("Response")
Response_contra = TypeVar("Response_contra", contravariant=True)
Request_contra = TypeVar("Request_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)


class HeartbeatCall(Protocol[Answer_co]):
    """A heartbeat in flight: a call of gRPC's synchronous API that can be cancelled."""

    def result(self) -> Answer_co: ...
    def cancel(self) -> bool: ...
    def initial_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...
    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


class BlockingUnaryMethod(Protocol[Request_contra, Answer_co]):
    """A unary method of a stub of gRPC's synchronous API."""

    def future(
        self, request: Request_contra, /, timeout: float | None = None
    ) -> HeartbeatCall[Answer_co]:
        """Start a call without waiting for its answer."""
        ...


class HeartbeatSource(Protocol[Request, Response_contra]):
    """Builds the heartbeats and sets their times; its methods run on the heartbeat thread."""

    def due(self) -> float:
        """Return when the next heartbeat is due, by `time.monotonic`; NEVER if none is due."""
        ...

    def request(self) -> Request | None:
        """Return the request to send now; None if nothing is to be sent."""
        ...

    def allowed_seconds(self) -> float:
        """Return the maximum time for one node to answer, in seconds."""
        ...

    def answered(self, request: Request, response: Response_contra) -> None:
        """Process the answer, and schedule the next heartbeat."""
        ...

    def unanswered(self, request: Request) -> None:
        """Schedule a retry, because no node has answered."""
        ...


class HeartbeatThread(Generic[Request, Response]):
    """The thread that sends the heartbeats of one source; it starts with the first `wake`."""

    def __init__(
        self,
        name: str,
        source: HeartbeatSource[Request, Response],
        method: Callable[[grpc.Channel], BlockingUnaryMethod[Request, Response]],
        addresses: Sequence[str],
        credentials: grpc.ChannelCredentials | None,
    ) -> None:
        """Store the source and the cluster to call.

        Args:
            name: name of the thread.
            source: builds the heartbeats and sets their times.
            method: picks the method to call from a channel.
            addresses: addresses of the nodes.
            credentials: credentials for the channels; None: no TLS.
        """
        self._name = name
        self._source = source
        self._method = method
        self._selector = NodeSelector(addresses)
        self._credentials = credentials
        self._changed = threading.Condition()
        self._call: HeartbeatCall[Response] | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Ask the source again when the next heartbeat is due."""
        with self._changed:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Stop the thread without a wait; may be called on any thread, also on this one."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            if self._call is not None:
                self._call.cancel()

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        channels: dict[str, grpc.Channel] = {}
        try:
            while self._wait_until_due():
                request = self._source.request()
                if request is None:
                    continue
                response = self._send_heartbeat(channels, request)
                if response is None:
                    self._source.unanswered(request)
                else:
                    self._source.answered(request, response)
        finally:
            for channel in channels.values():
                channel.close()

    def _wait_until_due(self) -> bool:
        """Return True when the next heartbeat is due, False after `close`."""
        with self._changed:
            while not self._is_closed:
                pause = self._source.due() - monotonic()
                if pause <= 0:
                    return True
                self._changed.wait(min(pause, threading.TIMEOUT_MAX))
            return False

    def _send_heartbeat(
        self, channels: dict[str, grpc.Channel], request: Request
    ) -> Response | None:
        """Send one heartbeat to the leader, or to any node; return the answer or None."""
        allowed_seconds = self._source.allowed_seconds()
        for _ in range(len(self._selector.addresses) + 1):
            address = self._selector.next_address()
            call = self._start_call(self._channel(channels, address), request, allowed_seconds)
            if call is None:
                return None
            try:
                response = call.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                log.debug("heartbeat at %s failed: %s", address, error)
                self._selector.report_failure(address, is_unreachable=True)
                # A new channel resolves the name of the node at once. gRPC pauses for up to 120 s
                # after a failed resolution, longer than a session lives without heartbeats.
                channels.pop(address).close()
                continue
            self._selector.report_answer(address)
            leader = dict(call.initial_metadata() or ()) | dict(call.trailing_metadata() or ())
            self._selector.set_leader_hint(str(leader.get(LEADER_KEY) or ""))
            return response
        return None

    def _start_call(
        self, channel: grpc.Channel, request: Request, allowed_seconds: float
    ) -> HeartbeatCall[Response] | None:
        """Start a call that `close` can cancel; return None if already closed."""
        with self._changed:
            if self._is_closed:
                return None
            self._call = self._method(channel).future(request, timeout=allowed_seconds)
            return self._call

    def _channel(self, channels: dict[str, grpc.Channel], address: str) -> grpc.Channel:
        channel = channels.get(address)
        if channel is None:
            channel = channels[address] = (
                grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
                if self._credentials is None
                else grpc.secure_channel(address, self._credentials, options=CHANNEL_OPTIONS)
            )
        return channel
