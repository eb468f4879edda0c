"""Forward the events of the Raft driver to the components of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from taskraft_replication.background import run_beside
from taskraft_replication.core.types import ConfState, LogIndex, SoftState, Term
from taskraft_replication.errors import ReadUnconfirmed, Stopped
from taskraft_service.process.components import NodeComponents

RETRY_SECONDS: Final = 0.1
"""Delay before this node asks the leader again for its read index."""


class DriverListener:
    """Satisfies ``taskraft_replication.observer.Observer``.

    The driver calls these methods while it processes an event. Code that may call the driver is
    therefore deferred to the next iteration of the event loop.

    Args:
        components: the components of the node.
        report_health: publishes the readiness of the node.
    """

    def __init__(self, components: NodeComponents, report_health: Callable[[], None]) -> None:
        self._components = components
        self._report_health = report_health
        self._loop = asyncio.get_running_loop()
        self._catching_up: asyncio.Task[None] | None = None

    def role_changed(self, state: SoftState, term: Term) -> None:
        """Report a change of the role or of the leader to the leadership tracker."""
        self._loop.call_soon(self._components.leadership.role_changed, state, term)
        self._loop.call_soon(self._begin_to_catch_up)

    def applied(self, index: LogIndex) -> None:
        """Do nothing, because the state machine calls its own listeners."""

    def synced(self, entries: int, log_bytes: int) -> None:
        """Build the next entry, with the commands that arrived during the fsync."""
        del entries, log_bytes
        components = self._components
        components.distributions.synced(components.node.counters.sync_us)
        components.proposer.wake()

    def disk_stalled(self, *, is_stalled: bool) -> None:
        """Publish the readiness of this node, which a disk stall changes."""
        del is_stalled
        self._loop.call_soon(self._report_health)

    def membership_changed(self, conf_state: ConfState) -> None:
        """Wake calls that wait for the leader: its address may be known now."""
        del conf_state
        self._loop.call_soon(self._components.leadership.notify)
        self._loop.call_soon(self._begin_to_catch_up)

    def _begin_to_catch_up(self) -> None:
        if self._catching_up is None and self._is_behind():
            self._catching_up = run_beside(self._catch_up())

    def _is_behind(self) -> bool:
        leadership = self._components.leadership
        return leadership.leader is not None and not leadership.is_caught_up

    async def _catch_up(self) -> None:
        """Wait until everything is applied that is committed when the leader answers.

        The commit index that this node knows is not enough: the first messages of a leader to a
        returning member only cover the entries that the member has.
        """
        leadership, node = self._components.leadership, self._components.node
        while self._is_behind():
            leader_and_term = leadership.leader_and_term
            try:
                await node.read_index()
            except ReadUnconfirmed:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Stopped:
                return
            if leadership.leader_and_term == leader_and_term:
                leadership.caught_up()
        self._catching_up = None
