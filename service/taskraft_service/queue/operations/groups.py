"""Create, start and cancel task groups, and end them after their last task.

A start or cancellation of many tasks proceeds in bounded steps, one per entry. The end of the last
task and the put of the end task happen in the same entry.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice
from typing import Final

from taskraft_service.queue.entities.group import (
    GroupState,
    GroupTask,
    GroupView,
    TaskGroup,
    wrong_state,
)
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.refusal import Reason, Refusal, together
from taskraft_service.queue.entities.task_state import HELD, TAKEN, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.operations.cancel import ask_to_stop
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    predict_nothing,
    replicated,
    shown_answer,
)
from taskraft_service.queue.operations.put import Put, put
from taskraft_service.queue.operations.put_plan import refusal_of_stored
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target
from taskraft_service.queue.store.fields import Text
from taskraft_service.queue.store.indexes import FIRST
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order, unhold_if_clear
from taskraft_service.queue.values import value


@value
class CreateGroup:
    """Create a group.

    Answer: ``GroupResult``.

    Args:
        name: unique in the cluster.
        end_task: task that is put when all tasks of the group have ended.
        abort_task: task that is put instead if the group was cancelled or a task failed.
        only_if_processed: put the end task only if every task was acknowledged.
        request_id: idempotency key.
        request_hash: hash of the request, to detect a reused request id.
    """

    name: str
    end_task: GroupTask | None = None
    abort_task: GroupTask | None = None
    only_if_processed: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class StartGroup:
    """Make the tasks of a group available, in bounded steps.

    Answer: ``GroupResult``.
    """

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class CancelGroup:
    """Remove the waiting tasks of a group, in bounded steps.

    Answer: ``GroupResult``.

    With ``revoke`` taken tasks are removed as well; otherwise their holders are asked to stop.
    """

    name: str
    revoke: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class GroupResult:
    """The group as it is now."""

    group: GroupView


def create_group(state: QueueState, command: CreateGroup) -> GroupResult | Refusal:
    """Create a group; at the maximum number of groups, remove the group that ended first."""
    groups = state.groups
    if groups.get(command.name) is not None:
        text = f"a group named {command.name!r} exists"
        return Refusal(Reason.GROUP_EXISTS, text, {"group": command.name})
    is_full = len(groups) >= state.limits.groups_max
    if is_full and not groups.ended:
        return Refusal(
            Reason.LIMIT_REACHED,
            "the maximum number of unfinished groups exists; wait until one ends",
            {"limit": str(state.limits.groups_max)},
        )
    wrong = together(
        [
            refusal
            for field, following in (
                ("end_task", command.end_task),
                ("abort_task", command.abort_task),
            )
            if following is not None
            and (refusal := _refusal_of_group_task(state, following, f"group.{field}")) is not None
        ]
    )
    if wrong is not None:
        return wrong
    if is_full:
        _forget_first(state)
    groups.number += 1
    group = TaskGroup(groups.number, command.name, state.now_ms)
    group.end_task = command.end_task
    group.abort_task = command.abort_task
    group.only_if_processed = command.only_if_processed
    groups.add(group)
    return GroupResult(group.view())


def _refusal_of_group_task(state: QueueState, following: GroupTask, path: str) -> Refusal | None:
    """Return why a task cannot be the end or abort task, or None; the later put checks again."""
    tube, spec = following.tube, following.spec
    refusal = refusal_of_target(state, tube, f"{path}.tube")
    return refusal or refusal_of_stored(state, tube, spec, f"{path}.spec")


def start_group(state: QueueState, command: StartGroup) -> GroupResult | Refusal:
    """Start the held tasks; a group without tasks ends at once.

    A second start has no effect.
    """
    group = state.groups.find(command.name)
    if isinstance(group, Refusal):
        return group
    if group.state is GroupState.HELD:
        group.state = GroupState.STARTED
        _sweep(state, group)
        settle_groups(state)
    elif group.state is not GroupState.STARTED:
        return wrong_state(group)
    return GroupResult(group.view())


def cancel_group(state: QueueState, command: CancelGroup) -> GroupResult | Refusal:
    """Remove the waiting tasks; a second cancellation can revoke the remaining leases."""
    group = state.groups.find(command.name)
    if isinstance(group, Refusal):
        return group
    if group.state is GroupState.ENDED:
        return wrong_state(group)
    if group.state is not GroupState.CANCELLED or (command.revoke and not group.has_ended):
        group.state = GroupState.CANCELLED
        group.revoke = command.revoke
        _sweep(state, group)
        settle_groups(state)
    return GroupResult(group.view())


# --------------------------------------------------------------------------------------- in steps


def _sweep(state: QueueState, group: TaskGroup) -> None:
    """Start a scan of the members of a group, and execute its first step."""
    group.sweeping = True
    group.cursor = FIRST
    state.groups.sweeps[group.number] = group
    _step(state, group, state.limits.group_tasks_per_entry_max)


def sweep_groups(state: QueueState) -> None:
    """Execute the next step of the oldest unfinished start or cancellation."""
    groups = state.groups
    if groups.sweeps:
        group = groups.sweeps[min(groups.sweeps)]
        _step(state, group, state.limits.group_tasks_per_entry_max)
        settle_groups(state)


def _step(state: QueueState, group: TaskGroup, tasks_max: int) -> None:
    """Process the next members of a group."""
    groups = state.groups
    members = list(islice(groups.members.after(group.number, group.cursor), tasks_max + 1))
    for member in members[:tasks_max]:
        group.cursor = member
        tube = state.tubes.by_number.get(member[0])
        task = state.find(tube, member[1]) if tube is not None else None
        if task is None:
            continue  # its tube was truncated or dropped
        if group.state is GroupState.CANCELLED:
            _remove(state, group, task)
        elif task.state is HELD:
            unhold_if_clear(state, task, Operation.GROUP_START, Operation.GROUP_START_DELAYED)
    if len(members) <= tasks_max:
        group.sweeping = False
        del groups.sweeps[group.number]
        groups.complete[group.number] = group
    groups.touch(group)


def _remove(state: QueueState, group: TaskGroup, task: QueueTask) -> None:
    """Remove a task of a cancelled group; the holder of a lease may finish unless ``revoke``."""
    if task.state is TAKEN and not group.revoke:
        ask_to_stop(state, task)
        return
    leave_order(task)
    end(state, task, Operation.DELETE, TaskOutcome.DELETED)
    state.signals.signal_ready(task.tube)  # other tasks of the sub-queue may be available now


# ------------------------------------------------------------------------------------------- ends


def settle_groups(state: QueueState) -> None:
    """End the groups whose last open task has ended, and put their end or abort tasks."""
    groups = state.groups
    while groups.complete:
        group = groups.complete.pop(min(groups.complete))
        is_let_go = group.state is not GroupState.HELD and not group.sweeping
        if group.open == 0 and is_let_go and not group.has_ended:
            _end(state, group)


def _end(state: QueueState, group: TaskGroup) -> None:
    """End a group and put its end or abort task, regardless of capacity and pause."""
    group.ended_ms = state.now_ms
    heappush(state.groups.ended, (group.ended_ms, group.number, group.name))
    state.groups.touch(group)
    is_aborted = group.state is GroupState.CANCELLED or (
        group.only_if_processed and (group.failed > 0 or group.cancelled > 0)
    )
    if group.state is GroupState.STARTED:
        group.state = GroupState.ENDED
    following = group.abort_task if is_aborted else group.end_task
    if following is None:
        return
    task = state.new_task(following.spec)
    result = put(state, Put(following.tube, [task], atomic=True), is_admitted=True)
    if isinstance(result, Refusal):
        group.refusal = result
    else:
        group.last_task_id = result.ids[0]
        state.signals.signal_ready(state.tubes[following.tube])


def forget_groups(state: QueueState) -> None:
    """Remove groups that ended long ago; called once per entry."""
    ended, limits = state.groups.ended, state.limits
    for _ in range(limits.deadlines_per_entry_max):
        if not ended or ended[0][0] + limits.group_retention_ms > state.now_ms:
            return
        _forget_first(state)


def _forget_first(state: QueueState) -> None:
    """Remove the group that ended first."""
    groups = state.groups
    _, _, name = heappop(groups.ended)
    group = groups.get(name)
    assert group is not None
    assert group.has_ended
    groups.remove(group)


def _show(state: QueueState, name: str) -> GroupResult | Refusal:
    group = state.groups.find(name)
    return group if isinstance(group, Refusal) else GroupResult(group.view())


_ANSWER: Final = shown_answer(10, _show, Text("name", of="group.name", to_end=True))
DEFINITIONS: Final = (
    CommandDefinition(
        CreateGroup, create_group, predict=predict_nothing, side=replicated, answer=_ANSWER
    ),
    CommandDefinition(
        StartGroup, start_group, predict=predict_nothing, side=replicated, answer=_ANSWER
    ),
    CommandDefinition(
        CancelGroup, cancel_group, predict=predict_nothing, side=replicated, answer=_ANSWER
    ),
)
