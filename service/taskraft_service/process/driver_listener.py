"""Let the parts of a node hear what its Raft driver does."""

from __future__ import annotations

import asyncio
from typing import Final

from taskraft_replication.background import run_beside
from taskraft_replication.core.types import ConfState, LogIndex, SoftState, Term
from taskraft_replication.errors import ReadUnconfirmed, Stopped
from taskraft_service.process.components import NodeComponents

RETRY_SECONDS: Final = 0.1
"""A leader that did not answer, which takes longer than this, is asked again after so long."""


class DriverListener:
    """Satisfies ``taskraft_replication.observer.Observer``.

    The driver is in the middle of its work when it tells something: what may propose or ask in turn
    is called in the next turn of the loop.
    """

    def __init__(self, parts: NodeComponents) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._catching_up: asyncio.Task[None] | None = None

    def role_changed(self, state: SoftState, term: Term) -> None:
        """Follow who leads."""
        self._loop.call_soon(self._parts.leadership.role_changed, state, term)
        self._loop.call_soon(self._begin_to_catch_up)

    def applied(self, index: LogIndex) -> None:
        """Learn that more is applied; the machine's listeners know already."""

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
        self._loop.call_soon(self._begin_to_catch_up)

    def _begin_to_catch_up(self) -> None:
        if self._catching_up is None and self._is_behind():
            self._catching_up = run_beside(self._catch_up())

    def _is_behind(self) -> bool:
        leadership = self._parts.leadership
        return leadership.leader is not None and not leadership.is_caught_up

    async def _catch_up(self) -> None:
        """Wait until all is applied that is committed when the leader is asked.

        What this node knows to be committed does not tell: the first words of a leader to a member
        that was away are about what that member has.
        """
        leadership, node = self._parts.leadership, self._parts.node
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
