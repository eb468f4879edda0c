"""Renew the leases of tasks in progress from a background thread.

A lease with a TTR expires after the TTR even if its holder is alive. While a task is in progress, a
native thread therefore touches its lease every third of the TTR, with many leases in one message.
The TTR then bounds how long the task of a crashed holder stays TAKEN; it does not limit how long
the work may take. The option `touch_max` bounds the total time for which a lease is renewed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskraft import errors
from taskraft._clock import monotonic
from taskraft._error_translation import refused_items
from taskraft._heartbeats import NEVER, RETRY_SECONDS
from taskraft._leader_caller import ATTEMPT_SECONDS_MAX, new_request_id
from taskraft._network import GRPC, Network
from taskraft._request_batcher import MESSAGE_ITEMS_MAX
from taskraft.v1 import task_service_pb2, task_service_pb2_grpc

if TYPE_CHECKING:
    import grpc

    from taskraft._lease import Lease

log = logging.getLogger("taskraft")


@dataclass(slots=True)
class _RenewedLease:
    """A lease with the time of its next touch, by `time.monotonic`."""

    lease: Lease
    pause: float
    due: float


class LeaseRenewer:
    """Renews the leases of one client; all methods are thread-safe.

    Invariant: `_planned` is never later than the earliest due time of a lease.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: grpc.ChannelCredentials | None,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = monotonic,
        network: Network = GRPC,
    ) -> None:
        """Store the addresses, the credentials and the clock.

        Args:
            addresses: addresses of the nodes.
            credentials: credentials for the channels; None: no TLS.
            call_soon: runs a function on the client's event loop.
            clock: returns the time in seconds.
            network: sends the touches.
        """
        self._heartbeats = network.heartbeats(
            "taskraft-touches",
            self,
            lambda channel: task_service_pb2_grpc.TaskServiceStub(channel).SettleTasks,
            addresses,
            credentials,
        )
        self._call_soon = call_soon
        self._clock = clock
        self._changing = threading.Lock()
        self._renewed: dict[int, _RenewedLease] = {}
        self._planned = NEVER
        self._sent = 0.0

    def add(self, leases: Iterable[Lease]) -> None:
        """Start renewing leases."""
        is_earlier = False
        with self._changing:
            for lease in leases:
                if lease.message.token in self._renewed:
                    continue
                pause = lease.pause_seconds
                due = lease.started + pause
                self._renewed[lease.message.token] = _RenewedLease(lease, pause, due)
                if due < self._planned:
                    self._planned = due
                    is_earlier = True
        if is_earlier:
            self._heartbeats.wake()

    def discard(self, tokens: Iterable[int]) -> None:
        """Stop renewing leases, because their tasks are settled or no longer in progress."""
        if not self._renewed:
            return
        with self._changing:
            for token in tokens:
                self._renewed.pop(token, None)

    def session_lost(self, session_id: str) -> None:
        """Mark all leases of a session as lost; called on the event loop."""
        with self._changing:
            lost = [
                kept.lease
                for kept in self._renewed.values()
                if kept.lease.message.session_id == session_id
            ]
        self.discard(lease.message.token for lease in lost)
        for lease in lost:
            lease.lost()

    def stop(self) -> None:
        """Stop renewing leases, from any thread and without a wait."""
        self._heartbeats.stop()

    def close(self) -> None:
        """Stop renewing leases."""
        self._heartbeats.close()

    # ------------------------------------------------------------ HeartbeatSource

    def due(self) -> float:
        """Return the time of the next renewal by `time.monotonic`; NEVER without a lease."""
        with self._changing:
            self._planned = min((kept.due for kept in self._renewed.values()), default=NEVER)
            return self._planned

    def request(self) -> task_service_pb2.SettleTasksRequest | None:
        """Return one touch for all leases due now or within half of their renewal interval."""
        now = self._clock()
        with self._changing:
            self._sent = now
            tokens = []
            for token, kept in self._renewed.items():
                if kept.pause == NEVER or kept.due - kept.pause / 2 > now:
                    continue
                if now < kept.lease.touch_until:
                    tokens.append(token)
                else:
                    kept.pause = kept.due = NEVER
                    log.warning("%s is no longer renewed: touch_max has passed", kept.lease)
        if not tokens:
            return None
        touch = task_service_pb2.Settlement.Touch(restart=True)
        return task_service_pb2.SettleTasksRequest(
            request_id=new_request_id(),
            settlements=[
                task_service_pb2.Settlement(tokens=tokens[:MESSAGE_ITEMS_MAX], touch=touch)
            ],
        )

    def allowed_seconds(self) -> float:
        """Return half of the shortest pause, at most `ATTEMPT_SECONDS_MAX`."""
        with self._changing:
            shortest = min((kept.pause for kept in self._renewed.values()), default=NEVER)
        return min(shortest / 2, ATTEMPT_SECONDS_MAX)

    def answered(
        self,
        request: task_service_pb2.SettleTasksRequest,
        response: task_service_pb2.SettleTasksResponse,
    ) -> None:
        """Process the response to a touch: schedule the next touch, and update the leases."""
        tokens = request.settlements[0].tokens
        self._wait(tokens, self._sent, NEVER)
        over = [
            tokens[item]
            for item, error in refused_items(response.errors).items()
            if isinstance(error, errors.LeaseStale)
        ]
        self._call_soon(lambda: self._update_leases(over, list(response.touched)))

    def unanswered(self, request: task_service_pb2.SettleTasksRequest) -> None:
        """Schedule a retry."""
        self._wait(request.settlements[0].tokens, self._clock(), RETRY_SECONDS)

    def _wait(self, tokens: Iterable[int], since: float, seconds_max: float) -> None:
        with self._changing:
            for token in tokens:
                kept = self._renewed.get(token)
                if kept is not None:
                    kept.due = since + min(kept.pause, seconds_max)

    def _update_leases(
        self, over: Sequence[int], touched: Sequence[task_service_pb2.TouchedLease]
    ) -> None:
        """Update the leases that are still renewed; runs on the event loop."""
        for lease in touched:
            kept = self._renewed.get(lease.token)
            if kept is not None:
                kept.lease.touched(lease)
                if not lease.lease_until_ms:  # the lease now ends with its session
                    kept.pause = kept.due = NEVER
        for token in over:
            with self._changing:
                kept = self._renewed.pop(token, None)
            if kept is not None:
                kept.lease.lost()
