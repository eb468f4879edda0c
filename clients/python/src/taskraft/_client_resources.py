"""What one client holds outside the process: its channels, its session and its heartbeats.

Threads and the event loop refer to these resources. The resources do not refer to the objects of
the user. The client can therefore notice that the user has dropped it without `close`, and end
them.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from taskraft import _fork, errors
from taskraft._abandoned_calls import AbandonedCalls
from taskraft._clock import monotonic
from taskraft._leader_caller import LeaderCaller
from taskraft._lease_renewer import LeaseRenewer
from taskraft._node_pool import NodePool
from taskraft._node_selector import NodeSelector
from taskraft._request_batcher import CLOSE_SECONDS_MAX
from taskraft._sessions import SessionKeepAlive, TakeSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import grpc

    from taskraft._network import Network

_ending: Final[set[asyncio.Task[None]]] = set()
"""The ends of dropped clients; the event loop alone would not keep them alive."""


class ClientResources:
    """The channels, the session and the heartbeats of one client."""

    def __init__(
        self,
        selector: NodeSelector,
        credentials: grpc.ChannelCredentials | None,
        network: Network,
        *,
        client_id: str,
        session_name: str,
        session_labels: Mapping[str, str],
        session_ttr_ms: int,
    ) -> None:
        addresses = list(selector.addresses)
        self.network: Final = network
        self.nodes: Final = NodePool(selector, credentials, network.open_channel)
        self.caller: Final = LeaderCaller(self.nodes, client_id)
        self.keep_alive: Final = SessionKeepAlive(addresses, credentials, network)
        self.lease_renewer: Final = LeaseRenewer(
            addresses, credentials, self.call_soon, network=network
        )
        self.abandoned_calls: Final = AbandonedCalls()
        self.take_session: Final = TakeSession(
            self.caller,
            self.abandoned_calls,
            self.keep_alive,
            name=session_name,
            labels=session_labels,
            ttr_ms=session_ttr_ms,
            call_soon=self.call_soon,
            lost=self.lease_renewer.session_lost,
        )
        self.loop: asyncio.AbstractEventLoop | None = None
        """Event loop of the client; None before its first call."""
        self.is_ended = False
        """Whether the client has sent its last messages."""
        self._is_closing = False

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a function on the client's event loop, from any thread."""
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop was closed
                self.loop.call_soon_threadsafe(callback)

    async def close(self) -> None:
        """End the abandoned calls, the session, the heartbeats and the channels, in this order."""
        self._is_closing = True
        try:
            await self.abandoned_calls.close(CLOSE_SECONDS_MAX)
            with suppress(errors.TaskraftError):  # the session expires after its TTR
                await self.take_session.close(monotonic() + CLOSE_SECONDS_MAX)
        finally:
            self.is_ended = True
            self.keep_alive.close()
            self.lease_renewer.close()
            await self.nodes.close()
            self.network.client_disconnected()

    def dropped(self) -> None:
        """Warn, and end the resources of a client that was dropped without `close`.

        The heartbeats end at once, on whichever thread the garbage was collected. If the event loop
        does not run any more, the session therefore expires after its TTR.
        """
        if self.loop is None or self._is_closing or self.network.is_dead or _fork.is_forked():
            return
        self._is_closing = True
        self.keep_alive.stop()
        self.lease_renewer.stop()
        self.call_soon(self._start_end)
        warnings.warn(
            "unclosed taskraft client; use the client as a context manager, or call close",
            ResourceWarning,
            stacklevel=2,
        )

    def _start_end(self) -> None:
        ending = asyncio.get_running_loop().create_task(self.close())
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)
