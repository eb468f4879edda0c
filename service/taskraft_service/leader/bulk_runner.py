"""Propose the steps of bulk sweeps, on the leader only.

The queue keeps the progress of each sweep, and a new leader continues after the last applied step.
A step is a command with a bounded number of tasks. A pause after each step keeps the rate of the
sweep. A sweep whose stored filter this release cannot read ends with this problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service.command_codecs.bulk_sweeps import RUN_BULK_SWEEP
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.languages.comparisons import FilterMalformed
from taskraft_service.leader.command_submitter import (
    CommandSubmitter,
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.queue.entities.bulk_sweep import BulkAction, BulkState, BulkSweep
from taskraft_service.queue.queue import Queue
from taskraft_service.stubs.log.v1 import log_pb2

STEP_TASKS_MAX: Final = 1_000
"""Maximum number of tasks of one step; an entry with this many changes takes some milliseconds."""
STEPS_PER_SECOND: Final = 5
"""Number of steps per second of a sweep whose rate needs no larger steps."""
RETRY_SECONDS: Final = 0.5
"""Pause after a step that was not applied."""

log: Final = structlog.get_logger(__name__)


class BulkRunner:
    """Runs the bulk sweeps while this node leads: one asyncio task for each running sweep.

    Args:
        queue: returns the queue; installing a snapshot replaces it.
        submitter: the proposer.
        may: returns why a principal may not continue a sweep, or an empty text.
    """

    def __init__(
        self,
        queue: Callable[[], Queue],
        submitter: CommandSubmitter,
        may: Callable[[BulkSweep], str],
    ) -> None:
        self._queue = queue
        self._submitter = submitter
        self._refusal = may
        self._open = False
        self._running: dict[int, asyncio.Task[None]] = {}

    def phase_changed(self, phase: NodePhase) -> None:
        """Run sweeps while this node serves."""
        self._open = phase is NodePhase.RUNNING
        if self._open:
            self.applied(0)
            return
        for running in self._running.values():
            running.cancel()

    def applied(self, _now_ms: int) -> None:
        """Run the sweeps that have started; called after each slice of applied entries."""
        if not self._open:
            return
        for sweep in self._queue().running_bulk_sweeps():
            if sweep.number not in self._running:
                running = asyncio.get_running_loop().create_task(self._run(sweep.number))
                self._running[sweep.number] = running
                running.add_done_callback(partial(self._ended, sweep.number))

    def _ended(self, number: int, done: asyncio.Task[None]) -> None:
        del self._running[number]
        if not done.cancelled():
            error = done.exception()
            if error is not None:
                raise error

    async def _run(self, number: int) -> None:
        """Propose the steps of a sweep until the sweep ends, or until cancelled."""
        clock = asyncio.get_running_loop().time
        while self._open:
            sweep = self._queue().bulk_sweep(number)
            if sweep is None or sweep.state is not BulkState.RUNNING:
                return
            began, before = clock(), sweep.changed + sweep.refused
            try:
                await self._submitter.submit(self._encoded_step(sweep))
            except (NotProposed, LeaderOverloaded, OutcomeUnknown, CommandTooLarge) as error:
                log.info("step of a bulk sweep postponed", sweep=number, reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            after = self._queue().bulk_sweep(number)
            handled = 0 if after is None else after.changed + after.refused - before
            rate_per_second = max(sweep.request.rate_per_second, 1)
            await asyncio.sleep(max(handled / rate_per_second - (clock() - began), 0.0))

    def _encoded_step(self, sweep: BulkSweep) -> EncodedCommand:
        """Return the command of the next step, or one that ends a sweep with an invalid filter."""
        try:
            return encode_leader_command(RUN_BULK_SWEEP, self._step(sweep))
        except FilterMalformed as error:
            problem = f"the stored filter is invalid: {error}"
            step = log_pb2.RunBulkSweep(number=sweep.number, step=sweep.steps, problem=problem)
            return encode_leader_command(RUN_BULK_SWEEP, step)

    def _step(self, sweep: BulkSweep) -> log_pb2.RunBulkSweep:
        """Return the next step of a sweep."""
        step = log_pb2.RunBulkSweep(number=sweep.number, step=sweep.steps)
        step.problem = self._refusal(sweep)
        if not step.problem and sweep.position < sweep.position_max:
            _set_change(step, sweep)
        return step


def _set_change(step: log_pb2.RunBulkSweep, sweep: BulkSweep) -> None:
    """Set the change of the next tasks of a sweep."""
    request, selector = sweep.request, next_tasks(sweep)
    match request.action:
        case BulkAction.KICK:
            step.kick.CopyFrom(
                task_service_pb2.KickTasksRequest(tube=request.tube, selector=selector)
            )
        case BulkAction.RESTART:
            step.restart.CopyFrom(
                task_service_pb2.RestartTasksRequest(tube=request.tube, selector=selector)
            )
        case BulkAction.BURY:
            step.bury.CopyFrom(
                task_service_pb2.BuryTasksRequest(
                    tube=request.tube,
                    selector=selector,
                    failure=task_pb2.Failure(message=request.bury_reason),
                )
            )
        case BulkAction.DELETE:
            step.delete.CopyFrom(
                task_service_pb2.DeleteTasksRequest(tube=request.tube, selector=selector)
            )
        case BulkAction.MOVE:
            step.move.CopyFrom(
                task_service_pb2.MoveTasksRequest(
                    tube=request.tube, selector=selector, move_to=request.move_to
                )
            )


def next_tasks(sweep: BulkSweep) -> task_pb2.TaskSelector:
    """Return the selector of the next step: some ids, or a filter after the last examined id."""
    request = sweep.request
    most = min(max(request.rate_per_second // STEPS_PER_SECOND, 1), STEP_TASKS_MAX)
    if request.ids:
        return task_pb2.TaskSelector(ids=request.ids[sweep.position : sweep.position + most])
    return task_pb2.TaskSelector(
        filter=bounded_filter(request.filter, sweep.position_max),
        tasks_max=most,
        after_id=sweep.position,
    )


def bounded_filter(text: str, id_max: int) -> str:
    """Return a filter that leaves out the tasks that were put after the start of a sweep."""
    return f"({text}) AND id <= {id_max}" if text else f"id <= {id_max}"
