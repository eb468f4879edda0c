"""Settle leases of one source: send settlements in batches, trace them, and end lease renewal."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from taskraft import errors
from taskraft._clock import monotonic
from taskraft._durations import Duration, seconds
from taskraft._error_translation import name_task
from taskraft._handler_slots import WaitHook, add_wait_hook, set_wait_hooks
from taskraft._request_batcher import MESSAGE_ITEMS_MAX, raise_refused
from taskraft._settlement import TouchedLease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from taskraft._abandoned_calls import AbandonedCalls
    from taskraft._async_taken_task import AsyncTakenTask
    from taskraft._lease_renewer import LeaseRenewer
    from taskraft._request_batcher import ItemOutcome
    from taskraft._settlement import SettledLease, SettleItem, Settlement
    from taskraft._spans import ClientSpans
    from taskraft._task import Task

SETTLEMENT_BYTES: Final = 16
"""Approximate size of a lease token without a result in a message."""


class SettlementSender(Protocol):
    """Sends settlements, either as separate calls or on the stream of a subscription."""

    async def __call__(
        self, items: Sequence[SettleItem], size_bytes: int, deadline: float
    ) -> list[ItemOutcome[SettledLease]]:
        """Return one outcome per item, in order."""
        ...


class LeaseSettler:
    """Settles tasks of one source: the client's takes, or one subscription."""

    def __init__(
        self,
        submit: SettlementSender,
        timeout_seconds: float,
        spans: ClientSpans | None,
        renewer: LeaseRenewer,
        wait_hook: Callable[[int], WaitHook] | None,
        abandoned_calls: AbandonedCalls,
    ) -> None:
        """Store the parts that settle, trace and renew leases.

        Args:
            submit: sends the settlements.
            timeout_seconds: default time limit of a settlement, in seconds.
            spans: traces the settlements; None if tracing is off.
            renewer: renews the leases.
            wait_hook: returns the hook of a task's handler by lease token; see `WaitHook`.
            abandoned_calls: settles tasks whose block was cancelled at its end.
        """
        self._submit = submit
        self._timeout_seconds = timeout_seconds
        self._spans = spans
        self._renewer = renewer
        self._wait_hook = wait_hook
        self.abandoned_calls: Final = abandoned_calls

    def start_renewal(self, tasks: Iterable[AsyncTakenTask]) -> None:
        """Start renewing the leases of tasks, except leases without a session."""
        leases = [task.lease for task in tasks if task.message.session_id]
        if leases:
            self._renewer.add(leases)

    def stop_renewal(self, tasks: Iterable[Task]) -> None:
        """Stop renewing the leases of tasks."""
        self._renewer.discard([task.message.token for task in tasks])

    def process(self, task: AsyncTakenTask) -> AbstractContextManager[None]:
        """Trace the processing of a task, renew its lease, and set the wait hook of its handler."""
        hook = None if self._wait_hook is None else self._wait_hook(task.message.token)
        block = _Block(self, task, hook)
        return block if self._spans is None else self._traced(task, block)

    @contextmanager
    def _traced(self, task: AsyncTakenTask, block: _Block) -> Iterator[None]:
        assert self._spans is not None
        with block, self._spans.process(task):
            yield

    @contextmanager
    def process_many(self, tasks: Sequence[AsyncTakenTask]) -> Iterator[None]:
        """Trace the processing of tasks that are processed together, and renew their leases."""
        for task in tasks:
            task.lease.is_in_block = True
        self.start_renewal(tasks)
        try:
            with nullcontext() if self._spans is None else self._spans.process_many(tasks):
                yield
        finally:
            for task in tasks:
                task.lease.is_in_block = False
            self.stop_renewal(tasks)

    async def settle(
        self, tasks: Sequence[AsyncTakenTask], action: Settlement, timeout: Duration | None
    ) -> None:
        """Settle all tasks with the same action.

        Raises:
            ItemsRefused: some of several settlements were refused.
            TaskraftError: the single settlement was refused, or the call failed as a whole.
        """
        if self._spans is None:
            await self._settle(tasks, action, timeout)
            return
        with self._spans.settle(str(action.WhichOneof("action")), tasks):
            await self._settle(tasks, action, timeout)

    async def _settle(
        self, tasks: Sequence[AsyncTakenTask], action: Settlement, timeout: Duration | None
    ) -> None:
        items = [(task.message.token, action) for task in tasks]
        outcomes = await self.settle_items(items, timeout)
        for task, outcome in zip(tasks, outcomes, strict=True):
            if isinstance(outcome, errors.TaskraftError):
                name_task(outcome, task.message)
            elif isinstance(outcome, TouchedLease):
                task.lease.touched(outcome)
            elif outcome is not None:
                task.note_given_up(outcome)
        raise_refused(outcomes)

    async def settle_items(
        self, items: Sequence[SettleItem], timeout: Duration | None
    ) -> list[ItemOutcome[SettledLease]]:
        """Send settlements in as few messages as the limits allow; return one outcome per item."""
        self._renewer.discard([token for token, action in items if not action.HasField("touch")])
        allowed = self._timeout_seconds if timeout is None else seconds(timeout, "timeout")
        deadline = monotonic() + allowed
        outcomes: list[ItemOutcome[SettledLease]] = []
        for start in range(0, len(items), MESSAGE_ITEMS_MAX):
            part = items[start : start + MESSAGE_ITEMS_MAX]
            shared = part[0][1].ByteSize()
            outcomes += await self._submit(part, shared + SETTLEMENT_BYTES * len(part), deadline)
        return outcomes


class _Block(AbstractContextManager[None]):
    """The block of a task, in which its lease is renewed and its wait hook is set.

    A class, because a generator with `contextmanager` costs twice as much.
    """

    __slots__ = ("_hook", "_outer", "_settler", "_task")

    def __init__(self, settler: LeaseSettler, task: AsyncTakenTask, hook: WaitHook | None) -> None:
        self._settler = settler
        self._task = task
        self._hook = hook
        self._outer: tuple[WaitHook, ...] = ()

    def __enter__(self) -> None:
        self._task.lease.is_in_block = True
        self._settler.start_renewal([self._task])
        if self._hook is not None:
            self._outer = add_wait_hook(self._hook)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._hook is not None:
            set_wait_hooks(self._outer)
        self._task.lease.is_in_block = False
        self._settler.stop_renewal([self._task])
