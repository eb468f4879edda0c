"""Read the parts of the queue that only the leader needs, such as schedules and awaited tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from taskraft_service.queue.entities.group import GroupView
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.feed.feed_consumers import ConsumerView
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.operations.selection import ByIds, ByKeys
from taskraft_service.queue.operations.sessions import CloseSession
from taskraft_service.queue.operations.settlements import Settle
from taskraft_service.queue.operations.tubes import refusal_to_drop
from taskraft_service.queue.operations.update_tube import UpdateTube, refusal_of_tube_update
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.schedule_registry import ScheduleView
from taskraft_service.queue.state.watch import TaskWatch


class LeaderReaders:
    """Answer the queries of the leader's schedulers and waiting calls."""

    _state: QueueState

    # -------------------------------------------------------------------------------------- leases

    @property
    def lease_count(self) -> int:
        """Number of leases and sessions."""
        return len(self._state.leases) + len(self._state.sessions)

    def leases_ended_by(self, command: Command) -> int:
        """Return how many existing leases and sessions a command ends."""
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

    def schedule(self, name: str) -> ScheduleView | None:
        """Return a schedule, or None."""
        schedule = self._state.schedules.get(name)
        return schedule.view() if schedule is not None else None

    @property
    def has_news(self) -> bool:
        """Return whether there are changes that the leader has not fetched yet.

        The changes are woken tubes, redefined tubes, changed schedules, and awaited tasks.
        """
        state = self._state
        news, watch = state.signals, state.watch
        return bool(
            news.woken or news.redefined or state.schedules.changed or watch.told or watch.ended
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

    # ---------------------------------------------------------------------------------- consumers

    def consumers(self) -> list[ConsumerView]:
        """Return the feed consumers within their idle TTL, in order of their names."""
        state = self._state
        return [one.view() for one in state.consumers if not one.is_idle(state.now_ms)]

    def held_back(self) -> Mapping[int, int]:
        """Return by partition the sequence number of the first event that a feed consumer needs."""
        return self._state.consumers.held_back(self._state.now_ms)

    # ------------------------------------------------------------------------------- failed tasks

    def failed_task(self, tube: str, task_id: int) -> TaskView | None:
        """Return a deleted task that failed, with outcome and failure, without content; or None."""
        found = self._state.tubes.get(tube)
        return None if found is None else self._state.failures.of_task(found, task_id)

    def failed_tasks(self, tube: str, selector: ByIds | ByKeys) -> list[TaskView | None]:
        """Return for each item of the selector the deleted task that failed, or None."""
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

    def groups(self) -> list[GroupView]:
        """Return all groups in order of their names."""
        return [group.view() for group in self._state.groups]

    def woken_tubes(self) -> Iterable[str]:
        """Return the tubes with new ready tasks that no command predicted, since the last call."""
        return self._state.signals.fetch_woken()

    # ----------------------------------------------------------------------------- temporary tubes

    def temporary_tubes(self) -> Sequence[str]:
        """Return the names of the temporary tubes; this queue does not hold their tasks."""
        return tuple(self._state.tubes.temporary)

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
        """Return whether a put of this size fits into a tube; true for an unknown tube."""
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

    def next_place(self, name: str) -> tuple[int, int] | None:
        """Return the number of a tube and the id of its next task; None for an unknown tube."""
        tube = self._state.tubes.get(name)
        return (tube.number, tube.next_id) if tube is not None else None
