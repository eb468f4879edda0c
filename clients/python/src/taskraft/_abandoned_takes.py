"""Give back the tasks of takes whose results nobody receives any more.

A take whose caller was cancelled, or whose time has passed, may still lease tasks: the leases
belong to the session of the client, so the tasks would stay TAKEN as long as the client lives. The
outcome of such a take is decided by its request_id, which one request can use:

1. A settlement of leases that do not exist is sent with the request_id of the take. If the server
   accepts the settlement, the take has had no effect, and can have none any more.
2. Otherwise, the server refuses the request_id as used. The take is then repeated: the server
   answers it with the leases that it has given, and takes nothing. The leases are released.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft._clock import monotonic
from taskraft._leader_caller import new_request_id
from taskraft.v1 import task_service_pb2

if TYPE_CHECKING:
    from taskraft._abandoned_calls import AbandonedCalls
    from taskraft._leader_caller import LeaderCaller

log = logging.getLogger("taskraft")

GIVE_BACK_SECONDS: Final = 30.0
"""Time in which an abandoned take is decided and its tasks are released, in seconds."""
CONCURRENT_MAX: Final = 16
"""Maximum number of abandoned takes that are decided at the same time; the others wait."""
NO_LEASES: Final = ((1 << 62) - 1, (1 << 63) - 1)
"""Tokens that no server assigns: of a replicated tube, and of a temporary tube."""


class AbandonedTakes:
    """The abandoned takes of one client.

    Args:
        caller: calls the leader.
        calls: the calls of the client that continue after a cancellation.
    """

    def __init__(self, caller: LeaderCaller, calls: AbandonedCalls) -> None:
        self._caller = caller
        self._calls = calls
        self._slots = asyncio.Semaphore(CONCURRENT_MAX)

    def add(self, request: task_service_pb2.TakeTasksRequest) -> None:
        """Decide in the background what became of a take that was sent."""
        kept = task_service_pb2.TakeTasksRequest()
        kept.CopyFrom(request)
        self._calls.go_on(self._give_back(kept))

    async def _give_back(self, take: task_service_pb2.TakeTasksRequest) -> None:
        async with self._slots:
            deadline = monotonic() + GIVE_BACK_SECONDS
            try:
                if await self._had_effect(take, deadline):
                    await self._release(take, deadline)
            except errors.TaskraftError as error:
                log.warning("the tasks of a cancelled take may stay taken: %s", error)

    async def _had_effect(self, take: task_service_pb2.TakeTasksRequest, deadline: float) -> bool:
        """Return whether a take has leased tasks; otherwise, the take is void from now on."""
        settlement = task_service_pb2.SettleTasksRequest(request_id=take.request_id)
        settlement.settlements.add(tokens=NO_LEASES).release.SetInParent()
        try:
            await self._caller.call(
                lambda node: node.tasks.SettleTasks, settlement, deadline=deadline
            )
        except errors.RequestIdReused:
            return True
        return False

    async def _release(self, take: task_service_pb2.TakeTasksRequest, deadline: float) -> None:
        """Release the leases of a take; the attempts do not count."""
        response = await self._caller.call(
            lambda node: node.tasks.TakeTasks, take, deadline=deadline
        )
        tokens = [task.token for task in response.tasks]
        if not tokens:
            return  # the leases have ended
        release = task_service_pb2.Settlement.Release(delay_ms=0, uncounted=True)
        request = task_service_pb2.SettleTasksRequest(
            request_id=new_request_id(),
            settlements=[task_service_pb2.Settlement(tokens=tokens, release=release)],
        )
        await self._caller.call(lambda node: node.tasks.SettleTasks, request, deadline=deadline)
