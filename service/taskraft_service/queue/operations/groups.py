"""The commands on task groups: create, start, cancel, and replace the end task."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.group import (
    GroupState,
    GroupTask,
    GroupView,
    TaskGroup,
    wrong_state,
)
from taskraft_service.queue.entities.ownership import EVERYBODY, Ownership
from taskraft_service.queue.entities.quotas import share_refusal, total_refusal
from taskraft_service.queue.entities.refusal import Reason, Refusal, together
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    predict_nothing,
    replicated,
    shown_answer,
)
from taskraft_service.queue.operations.group_steps import settle_groups, start_sweep
from taskraft_service.queue.operations.put_plan import refusal_of_stored
from taskraft_service.queue.state.group_registry import JOINABLE
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target
from taskraft_service.queue.store.fields import Text
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
        owner: owner of the group.
    """

    name: str
    end_task: GroupTask | None = None
    abort_task: GroupTask | None = None
    only_if_processed: bool = False
    request_id: str = ""
    request_hash: int = 0
    owner: Ownership = EVERYBODY


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
    owner: Ownership = EVERYBODY


@value
class SetEndTask:
    """Replace the end task and the abort task of a group that has neither ended nor been cancelled.

    Answer: ``GroupResult``.

    The arguments are those of ``CreateGroup``; a task that is None is removed.
    """

    name: str
    end_task: GroupTask | None = None
    abort_task: GroupTask | None = None
    only_if_processed: bool = False
    request_id: str = ""
    request_hash: int = 0
    owner: Ownership = EVERYBODY


@value
class GroupResult:
    """The group as it is now."""

    group: GroupView


def create_group(state: QueueState, command: CreateGroup) -> GroupResult | Refusal:
    """Create a group; at the maximum number of groups, remove the group that ended first.

    At the maximum of its owner, that is the first of the owner.
    """
    groups = state.groups
    if groups.get(command.name) is not None:
        text = f"a group named {command.name!r} exists"
        return Refusal(Reason.GROUP_EXISTS, text, {"group": command.name})
    oldest = _group_to_forget(state, command.owner.principal)
    if isinstance(oldest, Refusal):
        return oldest
    wrong = _refusal_of_group_tasks(state, command, "group.")
    if wrong is not None:
        return wrong
    if oldest is not None:
        groups.remove(oldest)
    groups.number += 1
    group = TaskGroup(groups.number, command.name, state.now_ms, command.owner.principal)
    _set_group_tasks(group, command)
    groups.add(group)
    return GroupResult(group.view())


def _group_to_forget(state: QueueState, owner: str) -> TaskGroup | Refusal | None:
    """Return the group to remove for a new group of a principal; None: there is room.

    Return a refusal if no group has ended.
    """
    groups, limits = state.groups, state.limits
    what, advice = "unfinished groups", "wait until one ends"
    if groups.owned.of(owner) >= limits.groups_share_max:
        first = groups.ended.first_of(owner)
        refusal = share_refusal("groups_share_max", limits.groups_share_max, what, owner, advice)
    elif len(groups) >= limits.groups_max:
        first = groups.ended.first()
        refusal = total_refusal("groups_max", limits.groups_max, what, advice)
    else:
        return None
    return refusal if first is None else groups.by_name[first[-1]]


def set_end_task(state: QueueState, command: SetEndTask) -> GroupResult | Refusal:
    """Replace the tasks that the group puts at its end."""
    group = _find_own(state, command)
    if isinstance(group, Refusal):
        return group
    if group.state not in JOINABLE:
        return wrong_state(group)
    wrong = _refusal_of_group_tasks(state, command, "")
    if wrong is not None:
        return wrong
    _set_group_tasks(group, command)
    state.groups.touch(group)
    return GroupResult(group.view())


def _find_own(state: QueueState, command: SetEndTask | CancelGroup) -> TaskGroup | Refusal:
    """Return the group of a command, or a refusal if it is missing or of another principal."""
    group = state.groups.find(command.name)
    if isinstance(group, Refusal):
        return group
    return command.owner.refusal_to_change(group.owner, f"group {group.name!r}") or group


def _set_group_tasks(group: TaskGroup, command: CreateGroup | SetEndTask) -> None:
    group.end_task = command.end_task
    group.abort_task = command.abort_task
    group.only_if_processed = command.only_if_processed


def _refusal_of_group_tasks(
    state: QueueState, command: CreateGroup | SetEndTask, prefix: str
) -> Refusal | None:
    """Return why a command's end task or abort task is unsuitable, or None.

    ``prefix`` stands before the names of the fields in the violations.
    """
    return together(
        [
            refusal
            for field, following in (
                ("end_task", command.end_task),
                ("abort_task", command.abort_task),
            )
            if following is not None
            and (refusal := _refusal_of_group_task(state, following, prefix + field)) is not None
        ]
    )


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
        start_sweep(state, group)
        settle_groups(state)
    elif group.state is not GroupState.STARTED:
        return wrong_state(group)
    return GroupResult(group.view())


def cancel_group(state: QueueState, command: CancelGroup) -> GroupResult | Refusal:
    """Remove the waiting tasks; a second cancellation can revoke the remaining leases."""
    group = _find_own(state, command)
    if isinstance(group, Refusal):
        return group
    if group.state is GroupState.ENDED:
        return wrong_state(group)
    if group.state is not GroupState.CANCELLED or (command.revoke and not group.has_ended):
        group.state = GroupState.CANCELLED
        group.revoke = command.revoke
        start_sweep(state, group)
        settle_groups(state)
    return GroupResult(group.view())


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
    CommandDefinition(
        SetEndTask, set_end_task, predict=predict_nothing, side=replicated, answer=_ANSWER
    ),
)
