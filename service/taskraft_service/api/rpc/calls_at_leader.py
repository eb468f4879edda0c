"""Track the calls that this node has forwarded, and give up those whose leader was replaced.

A leader that hangs, or that the network cut off, answers nothing and breaks no connection. Without
this tracking, a forwarded call would wait for as long as the old leader hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from taskraft_replication.background import run_beside
from taskraft_replication.core.types import MemberId
from taskraft_service.leader.leadership import LeadershipTracker

ANSWER_GRACE_SECONDS: Final = 0.2
"""Time for the old leader to answer after its leadership has ended. A healthy node answers its
calls within a few milliseconds of losing the leadership."""


class LeaderLost(Exception):
    """The node that received the call did not answer: another node leads, or it was unreachable.

    Attributes:
        leader: the member that received the call.
    """

    def __init__(self, leader: MemberId) -> None:
        super().__init__(f"member {leader} was lost while it led")
        self.leader = leader


class CancellableCall(Protocol):
    """A gRPC call that can be cancelled."""

    def cancel(self) -> bool:
        """Cancel the call; whoever waits for its answer gets CancelledError."""


class CallsAtLeader:
    """The forwarded calls in flight.

    Args:
        leadership: tracks the leader.
    """

    def __init__(self, leadership: LeadershipTracker) -> None:
        self._leadership = leadership
        self._calls: dict[CancellableCall, MemberId] = {}
        self._given_up: set[CancellableCall] = set()
        self._watch: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop the tracking."""
        if self._watch is not None:
            self._watch.cancel()

    @contextmanager
    def tracked(self, call: CancellableCall, leader: MemberId) -> Iterator[None]:
        """Track a call while its answer is awaited.

        Args:
            call: the call.
            leader: the member that received the call.

        Raises:
            LeaderLost: the member no longer leads, and the call is still unanswered.
        """
        if self._watch is None:
            self._watch = run_beside(self._follow_leadership())
        self._calls[call] = leader
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "only tasks wait for answers"
            if call not in self._given_up or task.cancelling():
                raise
            raise LeaderLost(leader) from None
        finally:
            del self._calls[call]
            self._given_up.discard(call)

    async def _follow_leadership(self) -> None:
        loop = asyncio.get_running_loop()
        leader = self._leadership.leader_id
        while True:
            await self._leadership.wait_for_change()
            if self._leadership.leader_id != leader:
                leader = self._leadership.leader_id
                loop.call_later(ANSWER_GRACE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """Cancel the calls at members that do not lead."""
        for call, receiver in self._calls.items():
            if receiver != self._leadership.leader_id and call not in self._given_up:
                self._given_up.add(call)
                call.cancel()
