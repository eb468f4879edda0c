"""Start, continue and stop bulk sweeps: changes of many tasks in bounded steps.

The leader proposes each step. A step names the number of steps before it, so a step that two
leaders propose has one effect. The step and the progress of the sweep are one change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from taskraft_service.queue.entities.bulk_sweep import (
    BulkAction,
    BulkRequest,
    BulkState,
    BulkSweep,
)
from taskraft_service.queue.entities.quotas import share_refusal, total_refusal
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations import admin, kick_bury_delete, move
from taskraft_service.queue.operations.admin import Restart
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    Idempotent,
    ReadyPrediction,
    predict_nothing,
    replicated,
    shown_answer,
)
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.selection import SCAN_ITEMS, at_most
from taskraft_service.queue.state.bulk_sweeps import BulkSweepRegistry
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target
from taskraft_service.queue.store.fields import Number
from taskraft_service.queue.values import value

BulkChange: TypeAlias = Kick | Restart | Bury | Delete | Move

_CHANGES: Final[Mapping[type, CommandDefinition[Any, Any]]] = {
    definition.command: definition
    for definition in (
        kick_bury_delete.KICK,
        kick_bury_delete.BURY,
        kick_bury_delete.DELETE,
        move.DEFINITION,
        *admin.DEFINITIONS,
    )
}


@value
class StartBulkSweep:
    """Start a bulk sweep.

    Answer: ``BulkSweepResult``.
    """

    request: BulkRequest
    request_id: str = ""
    request_hash: int = 0


@value
class RunBulkSweep(Idempotent):
    """Change the next tasks of a bulk sweep, or end the sweep.

    Answer: ``CountResult``.

    Args:
        number: number of the sweep.
        step: number of steps of the sweep before this one; another number has no effect.
        change: the change; None: the sweep ends.
        problem: why the sweep fails; empty: the sweep has examined all tasks.
    """

    number: int
    step: int
    change: BulkChange | None
    problem: str = ""


@value
class StopBulkSweep:
    """Stop a bulk sweep; an ended sweep is not changed.

    Answer: ``BulkSweepResult``.
    """

    number: int
    request_id: str = ""
    request_hash: int = 0


@value
class BulkSweepResult:
    """The number of the sweep."""

    number: int


def start_bulk_sweep(state: QueueState, command: StartBulkSweep) -> BulkSweepResult | Refusal:
    """Start a sweep, or let the sweep wait for its turn."""
    sweeps, request, limits = state.bulk_sweeps, command.request, state.limits
    tube = state.tubes.find(request.tube)
    if isinstance(tube, Refusal):
        return tube
    refusal = refusal_of_target(state, request.tube, "tube")
    if refusal is None and request.action is BulkAction.MOVE:
        refusal = refusal_of_target(state, request.move_to, "move_to")
        target = state.tubes.find(request.move_to)
        refusal = target if isinstance(target, Refusal) else refusal
    if refusal is not None:
        return refusal
    refusal = _refusal_of_another(sweeps, request.principal, limits)
    if refusal is not None:
        return refusal
    sweeps.forget_old(state.stamp.at_ms - limits.bulk_retention_ms)
    sweep = BulkSweep(sweeps.number + 1, request, tube.number, state.stamp.at_ms)
    sweep.position_max = len(request.ids) or tube.next_id - 1
    sweeps.add(sweep, limits)
    _start_next(state)
    return BulkSweepResult(sweep.number)


def _refusal_of_another(
    sweeps: BulkSweepRegistry, principal: str, limits: Limits
) -> Refusal | None:
    """Return why a principal may not start another sweep; None: it may."""
    what, advice = "bulk sweeps that run or wait", "wait for one of them, or stop it"
    most = limits.bulk_sweeps_share_max
    if principal and sweeps.open_of(principal) >= most:
        return share_refusal("bulk_sweeps_share_max", most, what, principal, advice)
    most = limits.bulk_sweeps_open_max
    if len(sweeps.open) >= most:
        return total_refusal("bulk_sweeps_open_max", most, what, advice)
    return None


def _start_next(state: QueueState) -> None:
    """Start the sweeps that wait, as far as there is a turn."""
    sweeps = state.bulk_sweeps
    free = state.limits.bulk_sweeps_running_max - len(sweeps.running())
    for sweep in [each for each in sweeps.open.values() if each.state is BulkState.WAITING][:free]:
        sweep.state = BulkState.RUNNING
        sweeps.touch(sweep)


def _end(state: QueueState, sweep: BulkSweep, ended: BulkState, problem: str = "") -> None:
    sweep.state, sweep.problem, sweep.ended_ms = ended, problem, state.stamp.at_ms
    state.bulk_sweeps.touch(sweep)
    _start_next(state)


def stop_bulk_sweep(state: QueueState, command: StopBulkSweep) -> BulkSweepResult | Refusal:
    """Stop a sweep."""
    sweep = state.bulk_sweeps.find(command.number)
    if isinstance(sweep, Refusal):
        return sweep
    if not sweep.is_ended:
        _end(state, sweep, BulkState.STOPPED)
    return BulkSweepResult(sweep.number)


def run_bulk_sweep(state: QueueState, command: RunBulkSweep) -> CountResult:
    """Change the next tasks of a sweep; return the number of changed tasks."""
    sweep = state.bulk_sweeps.get(command.number)
    if sweep is None or sweep.state is not BulkState.RUNNING or sweep.steps != command.step:
        return CountResult(0)
    sweep.steps += 1
    tube = state.tubes.get(sweep.request.tube)
    if tube is None or tube.number != sweep.tube_number:
        _end(state, sweep, BulkState.FAILED, "the tube was dropped or truncated")
        return CountResult(0)
    change = command.change
    if change is None:
        ended = BulkState.FAILED if command.problem else BulkState.DONE
        _end(state, sweep, ended, command.problem)
        return CountResult(0)
    result = _CHANGES[type(change)].execute(state, change)
    if isinstance(result, Refusal):
        _end(state, sweep, BulkState.FAILED, f"{result.reason.name}: {result.message}")
        return CountResult(0)
    _advance(state, sweep, change, result)
    return CountResult(result.count)


def _advance(state: QueueState, sweep: BulkSweep, change: BulkChange, result: CountResult) -> None:
    """Count the result of a step, and end the sweep after its last step."""
    sweep.changed += result.count
    handled = at_most(change.selector)
    for item in result.refused:
        if item.refusal.reason is Reason.TOO_MANY_STEPS:
            handled = item.item  # the next step begins with this task
            break
        sweep.count_refusal(int(item.refusal.reason))
    if sweep.request.ids:
        sweep.position = min(sweep.position + handled, sweep.position_max)
    else:
        sweep.position = result.continue_after_id or sweep.position_max
    state.bulk_sweeps.touch(sweep)
    if sweep.position >= sweep.position_max:
        _end(state, sweep, BulkState.DONE)


def _predict(prediction: ReadyPrediction, command: RunBulkSweep) -> None:
    if command.change is not None:
        _CHANGES[type(command.change)].predict(prediction, command.change)


def _show(_state: QueueState, number: int) -> BulkSweepResult:
    return BulkSweepResult(number)


DEFINITIONS: Final = (
    CommandDefinition(
        StartBulkSweep,
        start_bulk_sweep,
        predict=predict_nothing,
        side=replicated,
        answer=shown_answer(40, _show, Number("number", "Q")),
    ),
    CommandDefinition(
        StopBulkSweep,
        stop_bulk_sweep,
        predict=predict_nothing,
        side=replicated,
        answer=shown_answer(41, _show, Number("number", "Q")),
    ),
    CommandDefinition(
        RunBulkSweep,
        run_bulk_sweep,
        predict=_predict,
        side=replicated,
        answer=None,
        items=lambda _command: SCAN_ITEMS,
    ),
)
