"""Carry settlements on a subscription's stream until they are answered.

One that has no answer yet when the stream breaks is sent again on the next, with the same
request_id, so that it has no second effect.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeAlias

from taskraft import errors
from taskraft._error_translation import from_item
from taskraft._leader_caller import new_request_id, pause_seconds
from taskraft._settlement import outcomes_of, settlements_of
from taskraft.v1 import task_service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskraft._request_batcher import ItemOutcome
    from taskraft._settlement import SettleItem, TouchedLease

SubscribeRequest: TypeAlias = task_service_pb2.SubscribeRequest
Settled: TypeAlias = task_service_pb2.SubscribeResponse.Settled


class StreamSettlements:
    """The messages with settlements that have no answer yet."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Take what makes the stream look for what is unsent."""
        self._wake = wake
        self._unanswered: dict[str, tuple[SubscribeRequest, asyncio.Future[Settled]]] = {}
        self._unsent: list[SubscribeRequest] = []
        self._over: errors.TaskraftError | None = None

    async def settle(
        self, items: Sequence[SettleItem], deadline: float
    ) -> list[ItemOutcome[TouchedLease | None]]:
        """Settle leases, over as many connections as it takes.

        Raises:
            DeadlinePassed: No answer came in time.
            TaskraftError: The whole message was refused, or the subscription is over.
        """
        request = SubscribeRequest(request_id=new_request_id(), settlements=settlements_of(items))
        attempts = 0
        while True:
            settled = await self._answer_to(request, deadline)
            if not settled.HasField("error"):
                return outcomes_of(items, settled.errors, settled.touched)
            attempts += 1
            error = from_item(settled.error)
            pause = pause_seconds(error, attempts, nodes=1)
            if pause is None or time.monotonic() + pause >= deadline:
                raise error
            await asyncio.sleep(pause)

    async def _answer_to(self, request: SubscribeRequest, deadline: float) -> Settled:
        if self._over is not None:
            raise self._over
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._unanswered[request.request_id] = (request, answer)
        self._unsent.append(request)
        self._wake()
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await answer
        except TimeoutError:
            raise errors.DeadlinePassed(
                "the settlements were not confirmed in time; they may still take effect"
            ) from None
        finally:
            self._unanswered.pop(request.request_id, None)

    def take_unsent(self) -> list[SubscribeRequest]:
        """Return what is to be sent now; what nobody waits for any more is left out."""
        unsent, self._unsent = self._unsent, []
        return [request for request in unsent if request.request_id in self._unanswered]

    def resend(self) -> None:
        """Note that another stream begins, on which nothing was sent."""
        self._unsent = [request for request, _ in self._unanswered.values()]
        self._wake()

    def answered(self, settled: Settled) -> None:
        """Tell who waits for it."""
        _, answer = self._unanswered.get(settled.request_id, (None, None))
        if answer is not None and not answer.done():
            answer.set_result(settled)

    def fail(self, error: errors.TaskraftError) -> None:
        """Tell all who wait, and all who come, that the subscription is over."""
        self._over = error
        for _, answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)
