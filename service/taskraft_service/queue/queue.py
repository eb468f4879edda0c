"""Implement the replicated state machine: apply entries, collect writes, answer queries.

A queue is the state of one replica and is used from one thread. Replicas that apply the same
entries have the same state, whichever tasks are in memory and whenever writes are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from taskraft_service.queue.clock import advance
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS, TubeDriver
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.dependencies import settle_dependents
from taskraft_service.queue.operations.execution import execute, execute_together, runs
from taskraft_service.queue.operations.groups import forget_groups, settle_groups, sweep_groups
from taskraft_service.queue.operations.registry import Command, Result
from taskraft_service.queue.operations.tubes import clear_away
from taskraft_service.queue.persistence.state_records import bare_task, collect, open_state
from taskraft_service.queue.reading.readers import QueueReaders
from taskraft_service.queue.state.queue_state import BEGINNING, CounterOrigin, Editor, unchanged
from taskraft_service.queue.state.read_ahead import read_ahead
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.transitions.endings import remove_surplus


class Queue(QueueReaders):
    """Hold the state machine of tubes, tasks, sessions, groups and schedules."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        new_task: Callable[[bytes], NewTask] = bare_task,
        editor: Editor = unchanged,
        drivers: Mapping[str, TubeDriver] = NO_DRIVERS,
        origin: CounterOrigin = BEGINNING,
    ) -> None:
        """Open the queue that ``store`` holds; an empty store gives an empty queue.

        Args:
            store: holds the state as of one applied index.
            limits: bounds of this node's queue.
            new_task: parses a stored TaskSpec, for tasks that the queue itself puts. Must be a
                pure function that is the same on all replicas.
            editor: changes the content of tasks. Must be a pure function that is the same on all
                replicas.
            drivers: installed tube drivers, by name.
            origin: initial values of the counters of an empty store.

        Raises:
            TubeDriverMissing: a tube needs a driver that is not installed. ``apply`` also
                raises this error for a command that creates such a tube, and the node stops.
        """
        super().__init__(open_state(store, limits, new_task, editor, drivers, origin))

    def apply(self, index: int, now_ms: int, commands: Sequence[Command]) -> list[Result]:
        """Apply one entry: fire deadlines up to ``now_ms``, then execute the commands in order.

        ``index`` must increase and ``now_ms`` must not decrease. Returns one result per command.
        After an exception the state is undefined and the queue must not be used any more.
        """
        state = self._state
        assert index > state.index, f"entry {index} after {state.index}"
        state.index = index
        stamp = state.stamp
        stamp.revision, stamp.place = index, 0
        stamp.at_ms = at_ms = max(now_ms + state.wall_offset_ms, state.event_floor_ms)
        stamp.ahead_ms = at_ms - now_ms
        groups, dependents = state.groups, state.dependents
        dependents_max = state.limits.dependents_per_entry_max
        surplus_max = state.limits.removals_per_entry_max
        self.applied_index, self.now_ms = index, now_ms
        advance(state, now_ms)
        if state.surplus:
            surplus_max -= remove_surplus(state, surplus_max)
        if dependents.first < dependents.following:
            dependents_max -= settle_dependents(state, dependents_max)
        if groups.complete:
            settle_groups(state)
        results: list[Result] = []
        for likeness, run in runs(commands):
            done = 0
            if likeness is not None and len(run) > 1:
                together = execute_together(state, run)
                results += together
                done = len(together)
            for command in run[done:] if done else run:
                results.append(execute(state, command))
                if state.surplus:
                    surplus_max -= remove_surplus(state, surplus_max)
                if dependents.first < dependents.following:
                    dependents_max -= settle_dependents(state, dependents_max)
                if groups.complete:
                    settle_groups(state)
        self._continue_long_operations(dependents_max, is_alone=not commands)
        self.wall_offset_ms = state.wall_offset_ms
        return results

    def _continue_long_operations(self, dependents_max: int, *, is_alone: bool) -> None:
        """Continue the operations that span several entries, after the commands of an entry.

        ``is_alone``: the entry has no commands, so more tasks may be removed.
        """
        state = self._state
        limits, dependents, failures = state.limits, state.dependents, state.failures
        if state.removals:
            clear_away(
                state, limits.removals_per_entry_max if is_alone else limits.removals_beside_max
            )
            settle_groups(state)
        if state.groups.sweeps:
            sweep_groups(state)
        has_endings = dependents.first < dependents.following
        if has_endings and settle_dependents(state, dependents_max):
            settle_groups(state)
        if state.groups.ended:
            forget_groups(state)
        if failures.first < failures.following:
            failures.forget_old(state.now_ms, limits)

    @property
    def changed_tasks(self) -> int:
        """Return the number of changed tasks that the next batch of writes covers."""
        return len(self._state.dirty_tasks)

    def collect_writes(self) -> Iterable[Write]:
        """Return the changes since the last call, to be written in one batch.

        Write the batch before the next call of any method, because this call evicts tasks and
        later calls read the evicted tasks from the store.
        """
        return collect(self._state)

    def read_ahead(self) -> None:
        """Prefetch tasks that takes will need soon; the replicated state does not change.

        Call after a batch of writes.
        """
        read_ahead(self._state)

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the leader must propose an entry without commands, or None."""
        state = self._state
        dependents = state.dependents
        is_under_way = state.removals or state.surplus or state.groups.sweeps
        if is_under_way or dependents.first < dependents.following:
            return state.now_ms
        timer = state.timers.least()
        return timer[0] if timer is not None else None
