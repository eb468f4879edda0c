"""Combine the items of concurrent calls into messages, with one message in flight at a time.

While a message is in flight, new items wait and form the next message together. A single caller is
not delayed: the first message is sent in the same iteration of the event loop, after all callers of
this iteration have added their items. Items keep their order, because only one message is in
flight.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from taskraft import _answering_node, errors
from taskraft._clock import monotonic
from taskraft._deadlines import Deadlines
from taskraft._error_translation import raise_refused_items

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from taskraft._answering_node import AnsweringNode

MESSAGE_ITEMS_MAX: Final = 1_000
"""Maximum number of items per message; more items do not lower the cost per item (measured with
bench/client_batches.py)."""
MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a message, well below gRPC's limit of 4 MiB; a larger item gets its own
message."""
WAITING_ITEMS_MAX: Final = 20_000
"""Maximum number of waiting items; further callers wait until items are sent."""

FAILURE_REPORT_SECONDS: Final = 0.1
"""Time that a caller waits beyond the deadline of its message, so that the message's own error
arrives first."""
CLOSE_SECONDS_MAX: Final = 5.0
"""Maximum time in which a closing client sends waiting items, in seconds."""

Item = TypeVar("Item")
Result = TypeVar("Result")
ItemOutcome: TypeAlias = "Result | errors.TaskraftError"


@dataclass(slots=True, eq=False)
class _Submission(Generic[Item, Result]):
    """Items of one caller; they are always sent in one message."""

    items: Sequence[Item]
    size_bytes: int
    deadline: float
    answer: asyncio.Future[list[ItemOutcome[Result]]]
    node: AnsweringNode | None


class RequestBatcher(Generic[Item, Result]):
    """Sends items in messages, one message at a time.

    Invariants: `_waiting_items` is the number of items in `_waiting`. `_sender` is not None exactly
    while a message is in flight or about to be built.
    """

    def __init__(
        self, send: Callable[[list[Item], float], Awaitable[list[ItemOutcome[Result]]]]
    ) -> None:
        """Store the function that sends one message.

        Args:
            send: gets the items and a deadline by `time.monotonic`; returns one outcome per item in
                order, or raises if the whole message failed.
        """
        self._send = send
        self._waiting: deque[_Submission[Item, Result]] = deque()
        self._waiting_items = 0
        self._room = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._deadlines: Deadlines[_Submission[Item, Result]] = Deadlines(_fail_late)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits and nothing is in flight."""
        return self._sender is None

    async def submit(
        self, items: Sequence[Item], size_bytes: int, deadline: float
    ) -> list[ItemOutcome[Result]]:
        """Send items and return their outcomes, in order.

        Raises:
            DeadlinePassed: the deadline has passed; the items may still take effect.
            TaskraftError: the whole message failed.
        """
        assert 0 < len(items) <= MESSAGE_ITEMS_MAX
        if self._waiting_items + len(items) > WAITING_ITEMS_MAX:
            await self._wait_for_room(len(items), deadline)
        answer: asyncio.Future[list[ItemOutcome[Result]]] = (
            asyncio.get_running_loop().create_future()
        )
        entry = _Submission(items, size_bytes, deadline, answer, _answering_node.current())
        self._waiting.append(entry)
        self._waiting_items += len(items)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        self._deadlines.add(entry, deadline + FAILURE_REPORT_SECONDS)
        try:
            return await answer
        finally:
            self._deadlines.discard(entry)

    async def _wait_for_room(self, items: int, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - monotonic() + FAILURE_REPORT_SECONDS):
                while self._waiting_items + items > WAITING_ITEMS_MAX:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise _deadline_passed() from None

    async def _send_all(self) -> None:
        """Send messages until nothing waits."""
        try:
            while self._waiting:
                entries = self._next_message()
                if entries:
                    await self._send_one(entries)
        finally:
            self._sender = None
            for entry in self._waiting:
                entry.answer.cancel()
            self._waiting.clear()
            self._waiting_items = 0
            self._room.set()

    def _next_message(self) -> list[_Submission[Item, Result]]:
        """Remove and return the items of the next message, without items of cancelled callers."""
        entries: list[_Submission[Item, Result]] = []
        items = size_bytes = 0
        while self._waiting:
            entry = self._waiting[0]
            items += len(entry.items)
            size_bytes += entry.size_bytes
            if entries and (items > MESSAGE_ITEMS_MAX or size_bytes > MESSAGE_BYTES_MAX):
                break
            self._waiting.popleft()
            self._waiting_items -= len(entry.items)
            if entry.answer.done():
                items -= len(entry.items)
                size_bytes -= entry.size_bytes
            else:
                entries.append(entry)
        self._room.set()
        return entries

    async def _send_one(self, entries: list[_Submission[Item, Result]]) -> None:
        """Send one message and give each caller its part of the outcomes."""
        items = [item for entry in entries for item in entry.items]
        nodes = [entry.node for entry in entries if entry.node is not None]
        try:
            with _answering_node.reported_to(nodes[0] if nodes else None):
                outcomes = await self._send(items, max(entry.deadline for entry in entries))
        except Exception as error:  # noqa: BLE001 - every caller must get the error
            for entry in entries:
                if not entry.answer.done():
                    entry.answer.set_exception(error)
            return
        except asyncio.CancelledError:
            for entry in entries:
                entry.answer.cancel()
            raise
        finally:
            for node in nodes:
                node.address = nodes[0].address
        assert len(outcomes) == len(items)
        start = 0
        for entry in entries:
            end = start + len(entry.items)
            if not entry.answer.done():
                entry.answer.set_result(outcomes[start:end])
            start = end

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Send waiting items for up to `grace_seconds`; then cancel the remaining callers."""
        sender = self._sender
        if sender is not None:
            await asyncio.wait({sender}, timeout=grace_seconds)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


def _fail_late(entry: _Submission[Item, Result]) -> None:
    """Fail a caller that has no answer at its deadline."""
    if not entry.answer.done():
        entry.answer.set_exception(_deadline_passed())


def _deadline_passed() -> errors.DeadlinePassed:
    return errors.DeadlinePassed(
        "the deadline of the call has passed; the call may still take effect"
    )


def single_outcome(outcomes: Sequence[ItemOutcome[Result]]) -> Result:
    """Return the single outcome, or raise it if it is an error."""
    (outcome,) = outcomes
    if isinstance(outcome, errors.TaskraftError):
        raise outcome
    return outcome


def raise_refused(outcomes: Sequence[ItemOutcome[Result]], *, task_ids: Sequence[int] = ()) -> None:
    """Raise an error if some outcomes are errors.

    Raises:
        ItemsRefused: some of several items were refused.
        TaskraftError: the single item was refused.
    """
    refused = {
        position: outcome
        for position, outcome in enumerate(outcomes)
        if isinstance(outcome, errors.TaskraftError)
    }
    raise_refused_items(refused, len(outcomes), task_ids=task_ids)
