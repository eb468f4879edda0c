"""Read the parts of the queue that only the leader needs, such as schedules and awaited tasks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from taskraft_service.queue.entities.group import GroupView
from taskraft_service.queue.entities.id_layout import TEMPORARY_TASKS
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube_driver import (
    DriverFailed,
    TubeDriver,
    place_checked,
    refuse_checked,
)
from taskraft_service.queue.feed.feed_consumers import ConsumerView
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.put_plan import arrival_of
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.operations.selection import ByIds, ByKeys
from taskraft_service.queue.operations.sessions import CloseSession
from taskraft_service.queue.operations.settlements import Settle
from taskraft_service.queue.operations.tubes import refusal_to_drop
from taskraft_service.queue.operations.update_tube import UpdateTube, refusal_of_tube_update
from taskraft_service.queue.state.quarantines import Quarantines
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.schedule_registry import ScheduleView
from taskraft_service.queue.state.watch import TaskWatch


class LeaderReaders:
    """Queries for the leader's schedulers and waiting calls."""

    _state: QueueState

    # -------------------------------------------------------------------------------------- leases

    @property
    def lease_count(self) -> int:
        """Number of leases and sessions."""
        return len(self._state.leases) + len(self._state.sessions)

    @property
    def has_leases(self) -> bool:
        """Whether a task is TAKEN."""
        return bool(self._state.leases)

    def leases_ended_by(self, command: Command) -> int:
        """Return the number of existing leases and sessions that a command ends."""
        if isinstance(command, CloseSession):
            session = self._state.sessions.get(command.session_id)
            return 0 if session is None else 1 + len(session.held)
        if isinstance(command, Settle):
            leases = self._state.leases
            return sum(token in leases for one in command.settlements for token in one.tokens)
        return 0

    # ----------------------------------------------------------------------------------- schedules

    def schedules(self) -> list[ScheduleView]:
        """Return all schedules in order of their names."""
        return [schedule.view() for schedule in self._state.schedules]

    def schedule_names(self) -> list[str]:
        """Return the names of all schedules in order."""
        return self._state.schedules.names()

    def schedule_times(self) -> list[tuple[int, str]]:
        """Return ``ScheduleRegistry.due_times``."""
        return self._state.schedules.due_times()

    def schedule(self, name: str) -> ScheduleView | None:
        """Return a schedule, or None."""
        schedule = self._state.schedules.get(name)
        return schedule.view() if schedule is not None else None

    @property
    def has_news(self) -> bool:
        """Return whether the leader has changes to fetch.

        The changes are woken tubes, redefined tubes, changed schedules, and events of awaited
        tasks.
        """
        state = self._state
        news, watch = state.signals, state.watch
        return bool(
            news.woken
            or news.redefined
            or state.schedules.changed
            or watch.told
            or watch.ended
            or watch.emptied
        )

    def changed_schedules(self) -> Iterable[str]:
        """Return the names of the schedules that changed since the last call."""
        schedules = self._state.schedules
        changed, schedules.changed = schedules.changed, {}
        return changed

    @property
    def drivers(self) -> Mapping[str, TubeDriver]:
        """Return the installed tube drivers, by name."""
        return self._state.tubes.drivers

    def refusal_by_trial(self, command: Command) -> Refusal | None:
        """Return DRIVER_FAILED if a driver fails for a task of a put, alone or in a batch, or None.

        The leader tries the drivers before it proposes the command. If a driver fails in the trial,
        only the put is refused. A driver that fails only later, while an entry is applied, puts its
        tube into quarantine. The trial changes nothing. The trial uses the state that is applied
        now, so the driver's arguments may differ when the entry is applied.
        """
        state = self._state
        if not state.tubes.drivers or not isinstance(command, Put | ExecuteBatch):
            return None
        if command.request_id and state.requests.find(command.request_id) is not None:
            return None  # a repeated request gets the stored answer and runs no driver
        if isinstance(command, ExecuteBatch):
            refusals = (self.refusal_by_trial(operation) for operation in command.operations)
            return next((refusal for refusal in refusals if refusal is not None), None)
        return _refusal_of_put(state, command)

    @property
    def quarantines(self) -> Quarantines:
        """Return the failures of drivers while entries were applied."""
        return self._state.quarantines

    def quarantined_tubes(self) -> list[str]:
        """Return the names of the tubes in quarantine, in order of their failures."""
        tubes = self._state.tubes.by_number
        return [tubes[number].name for number in self._state.quarantines if number in tubes]

    # ---------------------------------------------------------------------------------- consumers

    def consumer_names(self) -> list[str]:
        """Return the names of the feed consumers in order, also of those that are expired."""
        return [consumer.name for consumer in self._state.consumers]

    def consumer(self, name: str) -> ConsumerView | None:
        """Return a feed consumer; None if it does not exist or is expired."""
        found = self._state.consumers.get(name)
        if found is None or found.expires_ms <= self._state.now_ms:
            return None
        return found.view()

    def consumers(self) -> list[ConsumerView]:
        """Return the feed consumers that are not expired, in order of their names."""
        views = map(self.consumer, self.consumer_names())
        return [view for view in views if view is not None]

    def held_back(self) -> Mapping[int, int]:
        """Return the first sequence number that a feed consumer needs, for each partition."""
        return self._state.consumers.held_back(self._state.now_ms)

    # ------------------------------------------------------------------------------- failed tasks

    def failed_task(self, tube: str, task_id: int) -> TaskView | None:
        """Return a deleted task that failed, without its content; None if there is none."""
        found = self._state.tubes.get(tube)
        return None if found is None else self._state.failures.of_task(found, task_id)

    def failed_tasks(self, tube: str, selector: ByIds | ByKeys) -> list[TaskView | None]:
        """Return, for each item of the selector, the deleted task if it failed, otherwise None."""
        if isinstance(selector, ByIds):
            return [self.failed_task(tube, task_id) for task_id in selector.ids]
        found = self._state.tubes.get(tube)
        if found is None:
            return [None] * len(selector.keys)
        failures = self._state.failures
        return [failures.of_key(found, key) for key in selector.keys]

    # -------------------------------------------------------------------------------------- groups

    def group(self, name: str) -> GroupView | None:
        """Return a group, or None."""
        group = self._state.groups.get(name)
        return group.view() if group is not None else None

    def group_names(self, states: Container[int]) -> list[str]:
        """Return the names of the groups in these states, in order."""
        groups = self._state.groups.by_name.values()
        return sorted(group.name for group in groups if group.state in states)

    def groups(self) -> list[GroupView]:
        """Return all groups in order of their names."""
        return [group.view() for group in self._state.groups]

    def woken_tubes(self) -> Iterable[str]:
        """Return the tubes that got ready tasks without a prediction since the last call."""
        return self._state.signals.fetch_woken()

    # ----------------------------------------------------------------------------- temporary tubes

    def temporary_tubes(self) -> Sequence[str]:
        """Return the names of the temporary tubes; this queue does not hold their tasks."""
        return tuple(self._state.tubes.temporary)

    def is_temporary(self, tube: str) -> bool:
        """Return whether a tube is temporary; False for an unknown tube."""
        return tube in self._state.tubes.temporary

    def redefined_tubes(self) -> Iterable[str]:
        """Return the temporary tubes that were created, changed or dropped since the last call."""
        return self._state.signals.fetch_redefined()

    def refusal_to_drop(self, name: str) -> Refusal | None:
        """Return why a tube cannot be dropped without force, or None."""
        tube = self._state.tubes.get(name)
        return refusal_to_drop(tube) if tube is not None else None

    def refusal_of_tube_update(self, command: UpdateTube) -> Refusal | None:
        """Return why a tube cannot get the options of an update, or None."""
        return refusal_of_tube_update(self._state, command)

    def remembers(self, request_id: str) -> bool:
        """Return whether the answer of a request with this id is remembered."""
        return self._state.requests.find(request_id) is not None

    # ---------------------------------------------------------------------------------------- room

    def has_room(self, name: str, tasks: int, payload_bytes: int) -> bool:
        """Return whether a tube has capacity for a put of this size; True for an unknown tube."""
        tube = self._state.tubes.get(name)
        return tube is None or tube.refusal_to_grow(tasks, payload_bytes) is None

    # ------------------------------------------------------------------------------- awaited tasks

    @property
    def watch(self) -> TaskWatch:
        """Return the watch, which records the events of awaited tasks."""
        return self._state.watch

    def tube_number(self, name: str) -> int | None:
        """Return the number of a tube, or None; truncating a tube changes its number."""
        tube = self._state.tubes.get(name)
        return tube.number if tube is not None else None

    def tube_name(self, number: int) -> str | None:
        """Return the name of the tube with a number, or None."""
        tube = self._state.tubes.by_number.get(number)
        return tube.name if tube is not None else None

    def task_in_cleanup(self, number: int, task_id: int) -> TaskView | None:
        """Return a task of a truncated or dropped tube, or None if the task is removed already.

        Args:
            number: the number that the tube had.
            task_id: the id of the task.
        """
        tube, next_id = self._state.removals.get(number, (None, 0))
        task = self._state.find(tube, task_id) if tube is not None and task_id >= next_id else None
        return task.view(self._state.small_body(task)) if task is not None else None

    def next_place(self, name: str) -> tuple[int, int] | None:
        """Return the number of a tube and its next task id; None for an unknown tube."""
        tube = self._state.tubes.get(name)
        return (tube.number, tube.next_id) if tube is not None else None

    def was_put(self, name: str, task_id: int) -> bool:
        """Return whether a tube has ever assigned this task id, under this or an earlier leader."""
        tube = self._state.tubes.get(name)
        least = TEMPORARY_TASKS if self._state.origin.task else 0
        return tube is not None and least < task_id < tube.next_id


def _refusal_of_put(state: QueueState, command: Put) -> Refusal | None:
    """Try the driver of a tube with the tasks of a put; see ``LeaderReaders.refusal_by_trial``."""
    tube = state.tubes.get(command.tube)
    if tube is None or tube.custom is None or tube.is_temporary:
        return None  # a temporary tube's tasks are in another queue, and its driver is tried there
    memory = tube.memory
    next_id = tube.next_id
    for item, task in enumerate(command.tasks):
        arrival = arrival_of(state, tube, task)
        try:
            if refuse_checked(tube.custom, arrival):
                continue
            memory = place_checked(tube.custom, replace(arrival, id=next_id), memory).memory
        except DriverFailed as error:
            return Refusal(
                Reason.DRIVER_FAILED,
                f"the driver {tube.driver!r} of the tube failed for item {item}: {error}; nothing"
                " was put; change the task, or install a corrected driver under a new name",
                {"tube": tube.name, "driver": tube.driver, "item": str(item)},
            )
        next_id += 1
    return None
