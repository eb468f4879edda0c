"""Let the parts of a node hear what its Raft driver does."""

from __future__ import annotations

import asyncio

from replication.core.types import ConfState, LogIndex, SoftState, Term
from service.leader.roles import Phase
from service.process.parts import Parts


class DriverListener:
    """Satisfies ``replication.observer.Observer``.

    The driver is in the middle of its work when it tells something: what may propose or ask in turn
    is called in the next turn of the loop.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()

    def role_changed(self, state: SoftState, term: Term) -> None:
        """Follow who leads."""
        self._loop.call_soon(self._parts.leadership.role_changed, state, term)
        self._loop.call_soon(self._look_whether_caught_up)

    def applied(self, index: LogIndex) -> None:
        """Learn that more is applied; the machine's listeners know already."""
        del index
        if self._parts.roles.phase is Phase.INIT:
            self._loop.call_soon(self._look_whether_caught_up)

    def synced(self, entries: int, log_bytes: int) -> None:
        """Build the next entry: what came during the sync goes into it."""
        del entries, log_bytes
        parts = self._parts
        parts.distributions.synced(parts.node.counters.sync_us)
        parts.proposer.wake()

    def membership_changed(self, conf_state: ConfState) -> None:
        """Tell those who wait for the leader: its address may be known now."""
        del conf_state
        self._loop.call_soon(self._parts.leadership.notify)

    def _look_whether_caught_up(self) -> None:
        parts = self._parts
        if parts.roles.phase is Phase.INIT and parts.leadership.leader is not None:
            status = parts.node.status()
            if status.applied >= status.commit:
                parts.leadership.caught_up()
