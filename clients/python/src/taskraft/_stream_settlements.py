"""Send settlements on the stream of a subscription until they are answered.

A settlement without an answer is sent again on the next stream with the same idempotency_key, so it
has no second effect. The request_id only serves to match an answer with its message.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, TypeAlias

from taskraft import errors
from taskraft._clock import monotonic
from taskraft._error_translation import from_item
from taskraft._leader_caller import new_request_id, pause_seconds
from taskraft._settlement import outcomes_of, settlements_of
from taskraft.v1 import task_service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskraft._request_batcher import ItemOutcome
    from taskraft._settlement import SettledLease, SettleItem

SubscribeRequest: TypeAlias = task_service_pb2.SubscribeRequest
Settled: TypeAlias = task_service_pb2.SubscribeResponse.Settled


class StreamSettlements:
    """Messages with settlements that have no answer yet."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Store the function that makes the stream send unsent messages."""
        self._wake = wake
        self._numbers = itertools.count(1)
        self._unanswered: dict[str, tuple[SubscribeRequest, asyncio.Future[Settled]]] = {}
        self._unsent: list[SubscribeRequest] = []
        self._over: errors.TaskraftError | None = None

    async def settle(
        self, items: Sequence[SettleItem], deadline: float
    ) -> list[ItemOutcome[SettledLease]]:
        """Settle leases, over as many streams as needed.

        Raises:
            DeadlinePassed: no answer arrived before the deadline.
            TaskraftError: the whole message was refused, or the subscription has failed.
        """
        request = SubscribeRequest(
            request_id=str(next(self._numbers)),
            idempotency_key=new_request_id(),
            settlements=settlements_of(items),
        )
        attempts = 0
        while True:
            settled = await self._answer_to(request, deadline)
            if not settled.HasField("error"):
                return outcomes_of(items, settled.errors, settled.touched, settled.given_up)
            attempts += 1
            error = from_item(settled.error)
            pause = pause_seconds(error, attempts, nodes=1)
            if pause is None or monotonic() + pause >= deadline:
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
            async with asyncio.timeout(deadline - monotonic()):
                return await answer
        except TimeoutError:
            raise errors.DeadlinePassed(
                "the settlements were not confirmed before the deadline; "
                "they may still take effect",
                advice="Settle the tasks again. LeaseStale then means that the first settlement "
                "took effect, or that the lease has ended.",
            ) from None
        finally:
            self._unanswered.pop(request.request_id, None)

    def take_unsent(self) -> list[SubscribeRequest]:
        """Return and clear the unsent messages, without messages whose callers have given up."""
        unsent, self._unsent = self._unsent, []
        return [request for request in unsent if request.request_id in self._unanswered]

    def resend(self) -> None:
        """Mark all unanswered messages as unsent, because a new stream has started."""
        self._unsent = [request for request, _ in self._unanswered.values()]
        self._wake()

    def answered(self, settled: Settled) -> None:
        """Give an answer to the caller that waits for it."""
        _, answer = self._unanswered.get(settled.request_id, (None, None))
        if answer is not None and not answer.done():
            answer.set_result(settled)

    def fail(self, error: errors.TaskraftError) -> None:
        """Fail all current and future callers, because the subscription has failed."""
        self._over = error
        for _, answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)
