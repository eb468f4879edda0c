"""Hold the state that all operations share, and the moves that they are made of.

The ledger knows every tube, session, lease and timer, and, as a working set, which tasks are in
memory. It decides nothing: operations check, the ledger moves. Every move keeps the
orders, the timers, the leases, the counters and the feed in step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from service.queue.commands import ClusterSettings, Outcome, Reason, Refusal, State, TubeKind
from service.queue.dependencies.dependents import Dependents
from service.queue.driver import (
    MEMORY_BYTES_MAX,
    RANK_MAX,
    RANK_MIN,
    arrival_of,
    driver_of,
)
from service.queue.feed.consumers import Consumers
from service.queue.feed.event import emit
from service.queue.feed.partitions import Feed
from service.queue.groups.registry import Groups
from service.queue.instants import NEVER_MS
from service.queue.life_cycle import BURIED, DELAYED, GONE, READY, TAKEN, EventKind
from service.queue.requests import Requests
from service.queue.schedules.schedule import Schedules
from service.queue.tasks.endings import end
from service.queue.tasks.failures import Failures
from service.queue.tasks.unique_keys import UniqueKeys
from service.queue.tasks.watch import Watch
from service.queue.tasks.working_set import WorkingSet
from service.queue.timers import Timers
from service.queue.tubes.temporary import is_temporary
from service.queue.tubes.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from service.queue.commands import NewTask
    from service.queue.driver import Driver
    from service.queue.editor import Editor
    from service.queue.limits import Limits
    from service.queue.origin import Origin
    from service.queue.sessions.session import Session
    from service.queue.store import Store
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube


class Ledger(WorkingSet):
    """The shared state. Instants and positions are those of the entry that is being applied."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        new_task: Callable[[bytes], NewTask],
        editor: Editor,
        drivers: Mapping[str, Driver],
        origin: Origin,
    ) -> None:
        """Begin with nothing; ``new_task`` makes a task of a stored TaskSpec."""
        super().__init__(store)
        self.origin = origin
        self.limits = limits
        self.new_task = new_task
        self.editor = editor
        self.drivers = drivers
        self.index = 0
        self.now_ms = 0
        self.place = 0
        self.token = origin.token
        self.tube_number = origin.tube
        self.session_number = 0
        self.tubes: dict[str, Tube] = {}
        self.tubes_by_number: dict[int, Tube] = {}
        self.totals = Totals(self.tubes_by_number)
        self.removals: dict[int, tuple[Tube, int]] = {}
        """Content of truncated and dropped tubes that is to be cleared away, from an id on."""
        self.surplus: dict[int, Tube] = {}
        """Tubes with more buried tasks than they may have, by number; no part of the record."""
        self.sessions: dict[str, Session] = {}
        self.leases: dict[int, Task] = {}
        self.timers = Timers(store, limits, stored=False)
        self.settings = ClusterSettings()
        self.feed = Feed(store, limits)
        self.requests = Requests(store, limits)
        self.consumers = Consumers()
        self.schedules = Schedules()
        self.groups = Groups(store)
        self.dependents = Dependents(store)
        self.woken: dict[str, None] = {}
        """Tubes in which tasks can be taken now that no command told of; for the shell to fetch."""
        self.temporary: dict[str, None] = {}
        """Tubes whose contents are kept elsewhere."""
        self.redefined: dict[str, None] = {}
        """Those of them that were created, changed or dropped; for the shell to fetch."""
        self.unique_keys = UniqueKeys(store)
        self.failures = Failures(store)
        self.dirty_tubes: list[Tube] = []
        self.used_tubes: list[Tube] = []
        self.cleared_tubes: list[int] = []
        self.dirty_sessions: list[Session] = []
        self.ended_sessions: list[Session] = []
        self.ended_tubes: list[Tube] = []
        self.watch = Watch(self.body)

    @property
    def watcher(self) -> Callable[[Task, Outcome], None] | None:
        """Return who is told of each task before it ends or is buried, and (NONE) of progress.

        None: nobody waits. It has no effect on the replicated state.
        """
        return self.watch.tell if self.watch.tubes else None

    # ------------------------------------------------------------------------------------ finding

    def tube(self, name: str) -> Tube | Refusal:
        """Return a tube, or say that there is none."""
        tube = self.tubes.get(name)
        if tube is None:
            return Refusal(Reason.TUBE_NOT_FOUND, f"no tube is called {name!r}", {"tube": name})
        return tube

    def session(self, session_id: str) -> Session | Refusal:
        """Return a session, or say that there is none."""
        session = self.sessions.get(session_id)
        if session is None:
            return Refusal(Reason.SESSION_NOT_FOUND, "no such session, or not any more")
        return session

    # ------------------------------------------------------------------------------------ changing

    def wake(self, tube: Tube) -> None:
        """Note that tasks of a tube may be taken now, which the entry's commands do not tell.

        The shell foresees most of it and takes in the same entry; but it looks at the state before
        entries that are on their way, and at those deadlines only that are in memory.
        """
        self.woken[tube.name] = None

    def add_tube(self, tube: Tube) -> None:
        """Bring a new tube within reach."""
        self.admit(tube)
        self.totals.add(tube)
        self.touch_tube(tube)
        self.note_definition(tube)

    def admit(self, tube: Tube) -> None:
        """Know a tube by name and number, and give one of kind CUSTOM its driver.

        Raises:
            DriverMissing: this node does not have it.
        """
        if tube.kind is TubeKind.CUSTOM:
            tube.custom = driver_of(self.drivers, tube.name, tube.driver, tube.driver_version)
        self.tubes[tube.name] = tube
        self.tubes_by_number[tube.number] = tube
        if is_temporary(tube):
            self.temporary[tube.name] = None

    def note_definition(self, tube: Tube) -> None:
        """Note that the options of a tube are new, where its contents are kept elsewhere."""
        if is_temporary(tube):
            self.redefined[tube.name] = None

    def line_up(self, task: Task) -> None:
        """Let the driver of its tube say where a task stands that becomes ready."""
        tube = task.tube
        assert tube.custom is not None
        placement = tube.custom.place(arrival_of(task, self.now_ms), tube.memory)
        rank, memory = placement.rank, placement.memory
        assert RANK_MIN <= rank <= RANK_MAX, f"driver {tube.driver!r}: rank {rank}"
        assert len(memory) <= MEMORY_BYTES_MAX, f"driver {tube.driver!r}: {len(memory)} bytes"
        lane, _, task_id = task.order
        task.order = (lane, rank, task_id)
        tube.memory = memory

    def remove_tube(self, tube: Tube) -> None:
        """Take a tube out of reach."""
        del self.tubes[tube.name]
        del self.tubes_by_number[tube.number]
        self.totals.remove(tube)
        self.temporary.pop(tube.name, None)
        self.ended_tubes.append(tube)
        self.surplus.pop(tube.number, None)
        self.note_definition(tube)
        self.timers.cancel(tube)

    def remove_session(self, session: Session, *, uncounted: bool = False) -> None:
        """Forget a session that holds nothing any more."""
        self.watch.tell_session(session.id, uncounted=uncounted)
        self.timers.cancel(session)
        del self.sessions[session.id]
        del self.sessions_by_number[session.number]
        self.ended_sessions.append(session)

    def touch_tube(self, tube: Tube) -> None:
        """Note that a tube differs from its record."""
        if not tube.dirty:
            tube.dirty = True
            self.dirty_tubes.append(tube)

    def touch_session(self, session: Session) -> None:
        """Note that a session differs from its record."""
        if not session.dirty:
            session.dirty = True
            self.dirty_sessions.append(session)

    def move(
        self,
        task: Task,
        kind: EventKind,
        state: State,
        reason: str = "",
        outcome: Outcome = Outcome.NONE,
    ) -> None:
        """Bring a task to a state, with everything that follows from it.

        The caller has set what the state needs (deadlines, order, token and session of a taken
        task) and may set more afterwards that no index depends on. A task that leaves TAKEN loses
        its lease here. One whose holder was asked to stop does not come back: it ends. ``outcome``:
        how it ends or is buried by that, for the feed.
        """
        before = task.state
        if task.extras.cancel_requested and state in (READY, DELAYED):
            end(self, task, kind, Outcome.DELETED, reason=reason)
            return
        self.touch_task(task)
        emit(self, (task,), kind, before, state, reason, outcome)
        self.touch_tube(task.tube)
        if before is not state or kind is not EventKind.UPDATE:
            self._wait(task, before, state)
        gone_bytes = -task.payload_bytes if state is GONE else 0
        task.tube.counters.count(kind, before, state, 1, gone_bytes)
        if before is TAKEN:
            self.end_lease(task)
        elif before is DELAYED and state is not DELAYED:
            task.visible_at_ms = NEVER_MS
        task.state = state
        if state is GONE:
            self.forget(task)
        elif state is READY:
            if task.tube.custom is not None:
                self.line_up(task)
            task.tube.ready.add(task)
        elif state is BURIED:
            task.tube.buried.add(task.buried_order)
        self.timers.renew(task)
        if task.extras.group:
            self.groups.moved(task, kind, before, state)

    def _wait(self, task: Task, before: State, state: State) -> None:
        """Begin to count how long a task is in a state; a change of its content goes on with it."""
        ages = task.tube.ages
        if before is READY:
            ages.left(task.since_ms)
        if state is READY:
            ages.came(self.now_ms)
            self.totals.note_ready(task.tube)
        task.since_ms = self.now_ms

    def welcome(self, task: Task, kind: EventKind, reason: str) -> None:
        """Take a new task into its tube, in its state."""
        tube, state = task.tube, task.state
        tube.tasks[task.id] = task
        self.dirty_tasks.append(task)
        self.resident_bytes += len(task.body or b"")
        emit(self, (task,), kind, GONE, state, reason)
        self.touch_tube(tube)
        tube.counters.count(kind, GONE, state, 1, task.payload_bytes)
        if state is READY:
            tube.ages.came(self.now_ms)
            self.totals.note_ready(tube)
            if tube.custom is not None:
                self.line_up(task)
            tube.ready.add(task)
        self.timers.renew(task)
        if task.extras.group:
            self.groups.came(task)

    def leave_order(self, task: Task) -> None:
        """Take a task out of the order that it is in, before its order or state changes."""
        if task.state is READY:
            task.tube.ready.discard(task)
        elif task.state is BURIED:
            task.tube.buried.discard(task.buried_order)

    def end_lease(self, task: Task) -> None:
        """Make a taken task's token stale, and let its sub-queue give another."""
        ready = task.tube.ready
        if ready.counts_leases:
            ready.free((task,))
        self.leases.pop(task.token, None)  # an acknowledgement has taken it out already
        if task.session is not None:
            del task.session.held[task.token]
            task.session = None
        task.token = 0
        task.lease_until_ms = NEVER_MS
        if task.extras.cancel_requested:
            task.extras = replace(task.extras, cancel_requested=False)

    def set_tube_timer(self, tube: Tube) -> None:
        """Give a tube the timer of the moment when its rate lets tasks be taken again."""
        self.touch_tube(tube)
        self.timers.renew(tube)

    def set_session_timer(self, session: Session) -> None:
        """Give a session the timer of its end."""
        self.touch_session(session)
        self.timers.renew(session)

    def forget(self, task: Task) -> None:
        """Let go of a task that is gone; if the store knows it, it stays until the next batch."""
        key = task.extras.unique_key
        if key:
            self.unique_keys.free(task.tube.number, key, task.id)
        if task.extras.waiting is not None:
            self.dependents.leave(task)
        if task.written is None:
            del task.tube.tasks[task.id]
        if task.body:
            self.resident_bytes -= len(task.body)
            task.body = None
