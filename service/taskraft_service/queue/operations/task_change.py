"""Change the tasks that a command selects.

A command alone changes or refuses each task on its own. A batch changes all its tasks or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal, at_item
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.operations.batch_draft import BatchDraft
from taskraft_service.queue.operations.selection import ByFilter, Selector, change_each, named
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.updating import TaskUpdate, growth


class SelectsTasks(Protocol):
    """A command that selects tasks of a tube, or finds the tasks in another way (no selector)."""

    @property
    def tube(self) -> str:
        """The name of the tube."""

    @property
    def selector(self) -> Selector | None:
        """The selector."""


C = TypeVar("C", bound=SelectsTasks)


def nothing_refused(*_: object) -> None:
    """Return None: nothing is refused."""


@dataclass(frozen=True, slots=True)
class TaskChange(Generic[C]):
    """The checks and the effect of a command on each task that it selects.

    Args:
        states: returns the states of the tasks that a filter selects.
        apply: changes a checked task; returns False if the task already is as wanted.
        refusal: returns why a task cannot be changed, or None; neither keys nor capacity count.
        refusal_of_all: returns why the command can change no task of a tube, or None.
        claim: adds the keys and the capacity that the change of a task needs or frees to a draft;
            returns why the task cannot have its key, or None.
        is_bounded: whether a key or the capacity can refuse the change of a task.
    """

    states: Callable[[C], Collection[State]]
    apply: Callable[[QueueState, QueueTask, C], bool]
    refusal: Callable[[QueueState, QueueTask, C], Refusal | None] = nothing_refused
    refusal_of_all: Callable[[QueueState, QueueTube, C], Refusal | None] = nothing_refused
    claim: Callable[[BatchDraft, QueueTask, C], Refusal | None] = nothing_refused
    is_bounded: bool = False


def change_selected(change: TaskChange[C], state: QueueState, command: C) -> CountResult | Refusal:
    """Change the selected tasks one by one; a refusal concerns one task only."""
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    refusal = change.refusal_of_all(state, tube, command)
    if refusal is not None:
        return refusal

    def change_one(task: QueueTask) -> bool | Refusal:
        refusal = change.refusal(state, task, command)
        if refusal is None and change.is_bounded:
            draft = BatchDraft(state)
            refusal = change.claim(draft, task, command) or draft.room.refusal()
        return refusal or change.apply(state, task, command)

    assert command.selector is not None
    return change_each(state, tube, command.selector, change.states(command), change_one)


class UpdatesTask(Protocol):
    """A command that may update its tasks."""

    @property
    def update(self) -> TaskUpdate | None:
        """The update; None: none."""


def claim_growth(draft: BatchDraft, task: QueueTask, command: UpdatesTask) -> None:
    """Add the bytes to a draft that the update of a task adds to its tube."""
    if task.tube.has_capacity:
        draft.room.add(task.tube, 0, growth(draft.state, task, command.update))


def check_selected(change: TaskChange[C], draft: BatchDraft, command: C) -> Refusal | None:
    """Add the change of all selected tasks to the draft of a batch; return why it cannot, or None.

    The capacity is checked for the whole draft later.
    """
    state, selector = draft.state, command.selector
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    if selector is None or isinstance(selector, ByFilter):
        text = "an operation of a batch must select its tasks by id or key"
        return Refusal(Reason.INVALID_FIELD, text, {"field": "selector"})
    refusal = change.refusal_of_all(state, tube, command)
    if refusal is None:
        refusal = draft.keys.refusal_to_name(tube, selector)
    if refusal is not None:
        return refusal
    for item, task in enumerate(named(state, tube, selector)):
        refusal = task if isinstance(task, Refusal) else _claim(change, draft, task, command)
        if refusal is not None:
            return at_item(item, refusal)
    return None


def _claim(change: TaskChange[C], draft: BatchDraft, task: QueueTask, command: C) -> Refusal | None:
    return (
        draft.tasks.name(task)
        or change.refusal(draft.state, task, command)
        or change.claim(draft, task, command)
    )


def apply_selected(change: TaskChange[C], draft: BatchDraft, command: C) -> CountResult:
    """Change the selected tasks of a checked operation of a batch."""
    state, selector = draft.state, command.selector
    assert selector is not None
    return change_each(
        state,
        state.tubes[command.tube],
        selector,
        (),
        lambda task: change.apply(state, task, command),
    )
