"""Run requests that take several steps: membership changes, reads and leadership transfers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.status import successor_of
from taskraft_replication.core.types import ConfState, LogIndex, MemberId, RaftRole
from taskraft_replication.driver.driver import RaftDriver
from taskraft_replication.errors import NotRaftLeader, Stopped, TransferFailed
from taskraft_replication.node.change_notifier import ChangeNotifier

TRANSFER_ATTEMPTS: Final = 2
"""Maximum attempts of a leadership transfer; the message of the first attempt may get lost."""


class MemberRequests:
    """The requests to a member that take several steps.

    Args:
        driver: the member.
        changes: notified of each change of the member's role or membership, and when it stops.
        transfer_ms_max: maximum time of one attempt to transfer leadership, in milliseconds; a
            little longer than the core's own timeout.
        is_running: returns whether the member runs. If not, every request fails with ``Stopped``.
    """

    def __init__(
        self,
        driver: RaftDriver,
        changes: ChangeNotifier,
        transfer_ms_max: int,
        is_running: Callable[[], bool],
    ) -> None:
        self._driver = driver
        self._changes = changes
        self._transfer_ms_max = transfer_ms_max
        self._is_running = is_running
        self._loop = asyncio.get_running_loop()

    async def change_membership(self, change: ConfChange) -> ConfState:
        """Make a membership change as leader; return the membership once it is applied here."""
        self._check_running()
        outcome: asyncio.Future[object] = self._loop.create_future()
        self._driver.propose_change(change, outcome)
        await outcome
        while self._driver.membership.auto_leave:
            if not self._is_running():
                raise Stopped("the node stopped before a joint configuration was left")
            await self._changes.wait()
        return self._driver.membership

    async def read_index(self) -> LogIndex:
        """Wait until a read of the local state is linearizable; return its index."""
        self._check_running()
        outcome: asyncio.Future[LogIndex] = self._loop.create_future()
        self._driver.read_index(outcome)
        return await outcome

    async def transfer_leadership(self, to: MemberId | None) -> None:
        """Transfer leadership to ``to``, or to the voter with the longest log, and wait for it."""
        self._check_running()
        status = self._driver.core.status()
        if status.soft_state.role is not RaftRole.LEADER:
            raise NotRaftLeader(status.soft_state.leader)
        target = successor_of(status) if to is None else to
        if target is None:
            raise TransferFailed("no other voter answers")
        for _ in range(TRANSFER_ATTEMPTS):
            self._driver.transfer_leader(target)
            if await self._is_deposed():
                return
        waited_ms = TRANSFER_ATTEMPTS * self._transfer_ms_max
        raise TransferFailed(f"member {target} did not take over in {waited_ms} ms")

    async def end_leadership(self) -> None:
        """Transfer leadership, or step down if no other member takes over."""
        try:
            await self.transfer_leadership(None)
        except TransferFailed:
            self._driver.step_down()
            await self._is_deposed()

    async def _is_deposed(self) -> bool:
        """Wait until this member stops leading; return False after the timeout of one attempt."""
        try:
            async with asyncio.timeout(self._transfer_ms_max / 1000):
                while self._driver.core.role is RaftRole.LEADER:
                    self._check_running()
                    await self._changes.wait()
        except TimeoutError:
            return False
        return True

    def _check_running(self) -> None:
        if not self._is_running():
            raise Stopped("the node is not running")
