"""Start and cancel task groups in steps, end them after their last task, and forget ended groups.

A start or cancellation of many tasks proceeds in bounded steps, one per entry. The end of the last
task and the put of the end task happen in the same entry.
"""

from __future__ import annotations

from itertools import islice

from taskraft_service.queue.entities.group import GroupState, TaskGroup
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.ownership import ownership_of_later
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.task_state import HELD, TAKEN, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.operations.cancel import ask_to_stop
from taskraft_service.queue.operations.put import Put, put
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.indexes import FIRST
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order, unhold_if_clear

# --------------------------------------------------------------------------------------- in steps


def start_sweep(state: QueueState, group: TaskGroup) -> None:
    """Start a scan of the members of a group, and execute its first step."""
    group.sweeping = True
    group.cursor = FIRST
    state.groups.sweeps[group.number] = group
    _step(state, group, max(state.steps.left, 0))


def sweep_groups(state: QueueState) -> None:
    """Execute the next step of the oldest unfinished start or cancellation."""
    groups = state.groups
    if groups.sweeps:
        group = groups.sweeps[min(groups.sweeps)]
        _step(state, group, state.steps.room)
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
    state.steps.left -= min(len(members), tasks_max)
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
    state.groups.ended.add(group)
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
    addition = Put(following.tube, [task], atomic=True, owner=ownership_of_later(group.owner))
    result = put(state, addition, is_admitted=True)
    if isinstance(result, Refusal):
        group.refusal = result
    else:
        group.last_task_id = result.ids[0]
        state.signals.signal_ready(state.tubes[following.tube])


def forget_groups(state: QueueState) -> None:
    """Remove groups that ended long ago; called once per entry."""
    groups, limits = state.groups, state.limits
    for _ in range(limits.records_forgotten_max):
        first = groups.ended.first()
        if first is None or first[0] + limits.group_retention_ms > state.now_ms:
            return
        groups.remove(groups.by_name[first[-1]])
