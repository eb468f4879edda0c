"""Create, truncate and drop tubes, and delete their old content in bounded steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Final

from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.option_checks import refusal_of_options
from taskraft_service.queue.entities.quotas import share_refusal, total_refusal
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal, first_of
from taskraft_service.queue.entities.task_state import FINISHED, TAKEN, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions, TubeView
from taskraft_service.queue.entities.tube_profiles import PROFILES
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    predict_nothing,
    replicated,
    shown_answer,
    side_of_name,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_dead_letter_tube
from taskraft_service.queue.state.tube_registry import emptied_tube, new_tube
from taskraft_service.queue.store.fields import Number, Text
from taskraft_service.queue.transitions.transition import transition
from taskraft_service.queue.values import value


@value
class CreateTube:
    """Create a tube.

    Answer: ``TubeResult``.
    """

    name: str
    kind: TubeKind
    options: TubeOptions
    if_not_exists: bool = False
    request_id: str = ""
    request_hash: int = 0
    profile: str = ""
    driver: str = ""
    driver_version: int = 0
    owner: str = ""
    """Principal that creates the tube; empty: access control is off."""


@value
class DropTube:
    """Remove a tube and its tasks.

    Answer: ``CountResult``.
    """

    name: str
    force: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class TruncateTube:
    """Remove all tasks of a tube.

    Answer: ``CountResult``.
    """

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class TubeResult:
    """The tube as it is now; ``existed``: the command did not create the tube."""

    tube: TubeView
    existed: bool = False


def create_tube(state: QueueState, command: CreateTube) -> TubeResult | Refusal:
    """Create a tube; with ``if_not_exists``, return an existing tube."""
    existing = state.tubes.get(command.name)
    if existing is not None:
        if command.if_not_exists:
            return TubeResult(existing.view(), existed=True)
        return Refusal(
            Reason.TUBE_EXISTS, f"a tube named {command.name!r} exists", {"tube": command.name}
        )
    refusal = _refusal(state, command)
    if refusal is not None:
        return refusal
    state.tubes.number += 1
    view = TubeView(
        command.name,
        command.kind,
        command.options,
        state.now_ms,
        command.profile,
        command.driver,
        command.driver_version,
    )
    tube = new_tube(state.tubes.number, view, state.store, state.limits)
    tube.next_id = state.origin.task + 1
    state.tubes.add(tube)
    state.tube_owners.add(tube.number, command.owner)
    state.signals.signal_redefined(tube)
    return TubeResult(tube.view())


def _refusal(state: QueueState, command: CreateTube) -> Refusal | None:
    """Return why a tube cannot be created, or None."""
    profile = PROFILES.get(command.profile)
    if profile is None:
        return Refusal(
            Reason.INVALID_FIELD,
            f"there is no profile {command.profile!r}",
            {"field": "profile"},
        )
    name, kind, options, path = command.name, command.kind, command.options, "tube.options"
    found = (
        refusal_of_options(name, kind, options, path, needs_capacity=profile.needs_capacity),
        refusal_of_dead_letter_tube(state, options, path),
    )
    refusals = [refusal for refusal in found if refusal is not None]
    if refusals:
        return first_of(refusals)
    limits, advice = state.limits, "drop unused tubes"
    if len(state.tubes) >= limits.tubes_max:
        return total_refusal("tubes_max", limits.tubes_max, "tubes", advice)
    most, owner = limits.tubes_share_max, command.owner
    if state.tube_owners.counts.of(owner) >= most:
        return share_refusal("tubes_share_max", most, "tubes", owner, advice)
    return None


def drop_tube(state: QueueState, command: DropTube) -> CountResult | Refusal:
    """Remove a tube with its tasks; refused while tasks are taken, unless forced."""
    tube = state.tubes.find(command.name)
    if isinstance(tube, Refusal):
        return tube
    refusal = None if command.force else refusal_to_drop(tube)
    if refusal is not None:
        return refusal
    count = sum(tube.counters.states)
    _retire(state, tube)
    return CountResult(count)


def refusal_to_drop(tube: QueueTube) -> Refusal | None:
    """Return why a tube cannot be dropped without force, or None."""
    taken = tube.counters.states[TAKEN]
    if not taken:
        return None
    return Refusal(
        Reason.TUBE_BUSY,
        f"{taken} tasks are taken; settle them or use force",
        {"taken": str(taken)},
    )


def truncate_tube(state: QueueState, command: TruncateTube) -> CountResult | Refusal:
    """Remove all tasks of a tube; leases of taken tasks become stale.

    The records of failed tasks are removed too, because the tube gets a new number.
    """
    tube = state.tubes.find(command.name)
    if isinstance(tube, Refusal):
        return tube
    count = sum(tube.counters.states)
    state.tubes.number += 1
    emptied = emptied_tube(tube, state.tubes.number, state.store, state.limits)
    owner = state.tube_owners.of(tube.number)
    _retire(state, tube)
    state.tubes.add(emptied)
    state.tube_owners.add(emptied.number, owner)
    state.signals.signal_redefined(emptied)
    state.set_tube_timer(emptied)
    return CountResult(count)


def _retire(state: QueueState, tube: QueueTube) -> None:
    """Detach the content and the leases of a tube; later entries delete and evict the content.

    The leases end at once: no call finds them, and they do not count for their sessions. Each
    lease takes about 60 ns.
    """
    state.watch.tell_emptied(tube.number)
    state.tubes.remove(tube)
    state.tube_owners.remove(tube.number)
    state.surplus.pop(tube.number, None)
    state.signals.signal_redefined(tube)
    state.timers.cancel(tube)
    for token, task in tube.leases.items():
        del state.leases[token]
        if task.session is not None:
            del task.session.held[token]
            task.session.cancelled.pop(token, None)
    tube.leases.clear()
    state.retired.append(tube)
    state.removals.add(tube)


def _fate(task: QueueTask) -> TaskOutcome:
    """Return the outcome of a task that is removed with its tube; NONE if it has already ended."""
    return TaskOutcome.NONE if task.state in FINISHED else TaskOutcome.DELETED


def clear_away(state: QueueState) -> None:
    """Remove the next tasks of truncated and dropped tubes, oldest tube first, by id.

    Each removal appends an event with the data that the task had at the time of the truncation.
    Records and order entries are deleted as ranges when all tasks of a tube are removed.
    """
    tasks_max = state.steps.room
    while tasks_max > 0 and state.removals:
        number = next(iter(state.removals))
        tube, next_id = state.removals[number]
        tasks = list(islice(state.tasks(tube, next_id - 1), tasks_max + 1))
        is_last = len(tasks) <= tasks_max
        tasks = tasks[:tasks_max]
        tell = state.watcher
        for task in tasks:
            if tell is not None:
                tell(task, TaskOutcome.DELETED)
            state.touch_task(task)
            if task.session and task.session.number not in state.sessions.by_number:
                task.session = None
            outcome = _fate(task)
            if task.extras.group:
                task.extras = replace(task.extras, outcome=TaskOutcome.DELETED)
            if task.extras.dependents:
                state.dependents.ended(task, TaskOutcome.DELETED)
            transition(state, tube, (task,), Operation.TRUNCATE, outcome=outcome)
        if is_last:
            state.removals.finish(number)
        else:
            state.removals.go_on(number, tasks[-1].id + 1)
        tasks_max -= len(tasks)
        state.steps.left -= len(tasks)


def _show(state: QueueState, name: str, *, existed: bool) -> TubeResult | Refusal:
    tube = state.tubes.find(name)
    return tube if isinstance(tube, Refusal) else TubeResult(tube.view(), existed)


TUBE_ANSWER: Final = shown_answer(
    6, _show, Number("existed", "?"), Text("name", of="tube.name", to_end=True)
)
TUBE_ITEMS: Final = 5
"""Number of items that stand for the creation, the drop or the truncation of a tube, each of which
costs about as much as the put of so many tasks."""


def _items(_command: CreateTube | DropTube | TruncateTube) -> int:
    return TUBE_ITEMS


DEFINITIONS: Final = (
    CommandDefinition(
        CreateTube,
        create_tube,
        predict=predict_nothing,
        side=replicated,
        answer=TUBE_ANSWER,
        items=_items,
    ),
    CommandDefinition(
        DropTube,
        drop_tube,
        predict=predict_nothing,
        side=replicated,
        answer=COUNT_ANSWER,
        items=_items,
    ),
    CommandDefinition(
        TruncateTube,
        truncate_tube,
        predict=predict_nothing,
        side=side_of_name,
        answer=COUNT_ANSWER,
        items=_items,
    ),
)
