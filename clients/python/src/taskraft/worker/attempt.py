"""Run one attempt of a task: decode, call the handler, and settle by its outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from taskraft import Batch, errors
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._clock import monotonic
from taskraft._settlement import Settlement
from taskraft.worker.child_process import Call, Notice
from taskraft.worker.context import WorkerContext
from taskraft.worker.errors import CancelRequested, LeaseLost
from taskraft.worker.handler_run import HandlerRun, Surroundings, ready_seconds
from taskraft.worker.middleware import around_run, around_settle
from taskraft.worker.process_pool import PooledProcess
from taskraft.worker.settlements import (
    EncodedResult,
    acknowledgement,
    log_failure,
    outcome_of,
    settlement_of,
)
from taskraft.worker.slots import AttemptSlot
from taskraft.worker.spans import describe_span, trace_fields
from taskraft.worker.steps import retain_ms, steps_before
from taskraft.worker.task import TaskFunction

log = logging.getLogger("taskraft.worker")


class Attempt(HandlerRun):
    """One attempt of a task."""

    def __init__(
        self, task: TaskFunction[..., Any], taken: AsyncTakenTask, surroundings: Surroundings
    ) -> None:
        """Prepare an attempt; `run` executes the handler."""
        super().__init__(task, WorkerContext(taken, surroundings.client), surroundings)
        self._taken = taken
        self._process: PooledProcess | None = None

    def note_stopping(self) -> None:
        """Tell the handler that the worker was asked to stop."""
        super().note_stopping()
        if self._process is not None:
            self._process.send(Notice("is_stopping"))

    async def run(self, slot: AttemptSlot) -> None:
        """Make the attempt and settle the task; failures of the handler are logged, not raised."""
        started, observer = monotonic(), self._around.observer
        if observer is not None:
            observer.started(self._taken, ready_seconds(self._taken))
        is_logged = log.isEnabledFor(logging.INFO)
        if is_logged:
            self.context.log.info("started attempt %d of %s", self._taken.attempt, self._task.name)
        failure = await self._failure(slot)
        if failure is None and is_logged:
            spent_ms = round((monotonic() - started) * 1_000)
            self.context.log.info("ended after %d ms", spent_ms)
        if observer is not None:
            outcome = outcome_of(failure, self._task.fatal)
            observer.ended(self._task.name, outcome, monotonic() - started)

    async def _failure(self, slot: AttemptSlot) -> Exception | None:
        """Make the attempt in the block of the task; log and return its failure."""
        try:
            async with self._taken:
                describe_span(self._task.name, self._task.pool, self._task.signature.function)
                await self._attempt(slot)
        except Exception as error:  # noqa: BLE001 - the failure of the handler
            if self._taken.is_settled:
                log_failure(self.context.log, error, self._taken.attempt)
            elif isinstance(error, errors.LeaseStale):
                log.warning("%s: the lease has ended; another worker can take it", self._taken)
                return LeaseLost(str(error))
            else:
                log.warning("%s is not settled and may be delivered again: %s", self._taken, error)
            return error
        return None

    async def _attempt(self, slot: AttemptSlot) -> None:
        """Call the handler, and settle the task outside of its slot; raise its failure then."""
        try:
            settlement = await self.interruptible(self._acknowledgement)
        except Exception as failure:
            if not (isinstance(failure, LeaseLost) or self._taken.is_settled):
                settlement = settlement_of(failure, self._task.fatal)
                await self._settle(partial(self._taken.settle, settlement), slot)
            raise
        if self.context.plans:
            batch = Batch().settle(self._taken, settlement).put(*self.context.plans)
            await self._settle(partial(self._execute, batch), slot)
        else:
            await self._settle(partial(self._taken.settle, settlement), slot)

    async def _settle(self, innermost: Callable[[], Awaitable[None]], slot: AttemptSlot) -> None:
        """Free the slot of the handler, and settle the task inside the middleware."""
        await slot.handled(self.thread)
        await self.guarded(around_settle(self._around.middleware, self.context, innermost))

    async def _execute(self, batch: Batch) -> None:
        await self._around.client.execute(batch)

    async def _acknowledgement(self) -> Settlement:
        """Call the handler; return the acknowledgement with its result."""
        value = await self._cancellable()
        return acknowledgement(self._task, value, keep_ms_min=retain_ms(self._taken))

    async def _cancellable(self) -> object:
        """Call the handler, and interrupt the call if the task is cancelled."""
        lease = self._taken.lease
        if self._task.pool != "thread":
            lease.on_cancel_request = self._cancel_later
            if self._taken.is_cancel_requested:
                lease.cancel_requested()
        try:
            return await self._called()
        finally:
            lease.on_cancel_request = None

    def _cancel_later(self) -> None:
        cause = CancelRequested(f"{self._taken} was cancelled")
        if self._process is not None:
            self._process.send(Notice("is_cancel_requested"))
        grace = self._around.cancel_grace_seconds
        asyncio.get_running_loop().call_later(grace, self.interrupt, cause)

    async def _called(self) -> object:
        """Call the handler inside the middleware."""
        self.context.enter()
        self.context.earlier = await steps_before(self._taken, self._around.client)
        self.begin()
        if self._task.pool == "process":
            return await around_run(self._around.middleware, self.context, self._in_process)()
        return await self.called_with(**self._task.decode(self._taken.message.spec))

    async def _in_process(self) -> object:
        """Run the handler in a process, which decodes the payload and encodes the result."""
        pool = self._around.processes
        assert pool is not None
        with self.waiting_for_process():
            process = await pool.take()
        self._process = process
        try:
            call = Call(
                self._task.name,
                self._taken.message.SerializeToString(),
                self.context.deadline,
                self._taken.is_cancel_requested,
                self.context.earlier,
                trace_fields(),
            )
            answer = await pool.run(process, call, self.context.progress)
        finally:
            self._process = None
            pool.give_back(process)
        self.context.plans.extend(answer.plans)
        if not self._around.middleware:
            return EncodedResult(answer.result)
        payloads = self._task.payloads
        return payloads.decode_result(answer.result, payloads.codec.content_type)
