"""Run a batch handler: one call for several tasks, each of which has its own outcome."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Sequence, Set
from functools import partial
from typing import Any

from taskraft import AsyncSubscription, errors
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._clock import monotonic
from taskraft._settlement import Settlement
from taskraft.worker.context import BatchContext
from taskraft.worker.errors import BatchError, InvalidResult, LeaseLost
from taskraft.worker.handler_run import HandlerRun, Surroundings, ready_seconds
from taskraft.worker.settlements import acknowledgement, log_failure, outcome_of, settlement_of
from taskraft.worker.slots import AttemptSlot
from taskraft.worker.spans import describe_span
from taskraft.worker.steps import retain_ms
from taskraft.worker.task import TaskFunction

log = logging.getLogger("taskraft.worker")


class BatchAttempt(HandlerRun):
    """One attempt of the tasks of a batch."""

    def __init__(
        self,
        task: TaskFunction[..., Any],
        subscription: AsyncSubscription,
        batch: Sequence[AsyncTakenTask],
        surroundings: Surroundings,
    ) -> None:
        """Prepare an attempt; `run` executes the handler."""
        super().__init__(task, BatchContext(batch, surroundings.client), surroundings)
        self._subscription = subscription
        self._batch = batch

    async def run(self, slot: AttemptSlot) -> None:
        """Call the handler and settle the tasks; failures of the handler are logged, not raised."""
        started, observer = monotonic(), self._around.observer
        if observer is not None:
            for taken in self._batch:
                observer.started(taken, ready_seconds(taken))
        with self._subscription.processing(self._batch):
            describe_span(self._task.name, self._task.pool, self._task.signature.function)
            outcomes = await self._outcomes()
            await slot.handled(self.thread)
            actions = [self._action(outcome) for outcome in outcomes]
            refused: list[errors.TaskraftError | None]
            try:
                refused = await self._subscription.settle(self._batch, actions)
            except errors.TaskraftError as error:
                refused = [error] * len(actions)
        for taken, reason in zip(self._batch, refused, strict=True):
            if reason is not None:
                log.warning("%s is not settled and may be delivered again: %s", taken, reason)
        if observer is not None:
            for outcome, reason in zip(outcomes, refused, strict=True):
                failure = reason or (outcome if isinstance(outcome, Exception) else None)
                if isinstance(reason, errors.LeaseStale):
                    failure = LeaseLost(str(reason))
                ended = outcome_of(failure, self._task.fatal)
                observer.ended(self._task.name, ended, monotonic() - started)
        spent_ms = round((monotonic() - started) * 1_000)
        log.info("%d tasks of %s ended after %d ms", len(actions), self._task.name, spent_ms)

    def _action(self, outcome: Settlement | Exception) -> Settlement:
        if isinstance(outcome, Exception):
            return settlement_of(outcome, self._task.fatal)
        return outcome

    async def _outcomes(self) -> list[Settlement | Exception]:
        """Return one acknowledgement or failure for each task."""
        outcomes: list[Settlement | Exception | None] = []
        items: list[Any] = []
        tasks: list[AsyncTakenTask] = []
        payloads = self._task.payloads
        for taken in self._batch:
            spec = taken.message.spec
            try:
                items.extend(payloads.decode(spec.payload, spec.content_type).values())
                tasks.append(taken)
                outcomes.append(None)
            except BaseException as error:  # noqa: BLE001 - a codec; the failure of one task
                outcomes.append(self.failure_of(error))
        handled = iter(await self._handled(items, tasks) if items else ())
        merged = [next(handled) if outcome is None else outcome for outcome in outcomes]
        self._log(merged)
        return merged

    async def _handled(
        self, items: list[Any], tasks: Sequence[AsyncTakenTask]
    ) -> list[Settlement | Exception]:
        try:
            results = await self.interruptible(partial(self._called, items))
            return self._acknowledgements(results, tasks)
        except BatchError as failed:
            given = self._acknowledgements(failed.results, tasks, set(failed.failures))
            failures = {at: self.failure_of(one) for at, one in failed.failures.items()}
            return [failures.get(at, ack) for at, ack in enumerate(given)]
        except Exception as failure:  # noqa: BLE001 - the failure of all tasks
            return [failure] * len(items)

    def _acknowledgements(
        self, results: object, tasks: Sequence[AsyncTakenTask], failed: Set[int] = frozenset()
    ) -> list[Settlement | Exception]:
        """Return one acknowledgement per task, or its InvalidResult."""
        if results is None:
            results = [None] * len(tasks)
        if not isinstance(results, Sequence) or isinstance(results, str | bytes):
            return [self._wrong(InvalidResult, tasks, results)] * len(tasks)
        if len(results) != len(tasks):  # another batch may have the right number of results
            return [self._wrong(TypeError, tasks, results)] * len(tasks)
        return [
            self._acknowledgement(taken, None if at in failed else results[at])
            for at, taken in enumerate(tasks)
        ]

    def _wrong(
        self, kind: type[TypeError], tasks: Sequence[AsyncTakenTask], results: object
    ) -> TypeError:
        return kind(
            f"{self._task.name} must return a list of {len(tasks)} results, "
            f"not {reprlib.repr(results)}"
        )

    def _acknowledgement(self, taken: AsyncTakenTask, result: object) -> Settlement | Exception:
        try:
            return acknowledgement(self._task, result, keep_ms_min=retain_ms(taken))
        except BaseException as error:  # noqa: BLE001 - a codec; the failure of one task
            return self.failure_of(error)

    async def _called(self, items: list[Any]) -> object:
        self.begin()
        self.context.enter()
        return await self.called_with(items)

    def _log(self, outcomes: Sequence[Settlement | Exception]) -> None:
        """Log each failure once, although it may have failed many tasks."""
        seen: dict[int, tuple[Exception, list[AsyncTakenTask]]] = {}
        for taken, outcome in zip(self._batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                seen.setdefault(id(outcome), (outcome, []))[1].append(taken)
        for failure, tasks in seen.values():
            named = logging.LoggerAdapter(log, {"task": str(tasks[0]), "type": self._task.name})
            named.warning("%s and %d other tasks of a batch:", tasks[0], len(tasks) - 1)
            log_failure(named, failure, tasks[0].attempt)
