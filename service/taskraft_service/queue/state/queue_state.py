"""Hold the mutable state that all operations share.

The state has the registries of tubes, sessions, groups and schedules, the leases, the timers, the
change feed, and the tasks in memory. It has no rules: operations check, and
``transitions.transition`` changes tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.feed.change_feed import ChangeFeed, EntryStamp
from taskraft_service.queue.feed.feed_consumers import FeedConsumers
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.state.dependents import DependentsIndex
from taskraft_service.queue.state.failures import FailureTable
from taskraft_service.queue.state.group_registry import GroupRegistry
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.state.schedule_registry import ScheduleRegistry
from taskraft_service.queue.state.session_registry import SessionRegistry
from taskraft_service.queue.state.timers import Timers
from taskraft_service.queue.state.tube_registry import TubeCleanup, TubeRegistry
from taskraft_service.queue.state.watch import TaskWatch
from taskraft_service.queue.state.working_set import WorkingSet
from taskraft_service.queue.store.idempotency import IdempotencyTable
from taskraft_service.queue.store.store import Store
from taskraft_service.queue.store.task_indexes import UniqueKeys
from taskraft_service.queue.values import value


class Edited(NamedTuple):
    """The new content of a task, and the size of its payload."""

    body: bytes
    payload_bytes: int


Editor: TypeAlias = Callable[[bytes, bytes], Edited | Refusal]
"""Returns the content of a task with the changes of a client, or a refusal."""


def unchanged(body: bytes, changes: bytes) -> Edited | Refusal:
    """Raise an error: the editor of a queue without updates of content, as in tests."""
    raise AssertionError(f"no editor for {len(changes)} bytes of changes to {len(body)} bytes")


class LeaderSignals:
    """Names of tubes that the leader must look at."""

    __slots__ = ("redefined", "woken")

    def __init__(self) -> None:
        """Start empty."""
        self.woken: dict[str, None] = {}
        self.redefined: dict[str, None] = {}

    def signal_ready(self, tube: QueueTube) -> None:
        """Note that tasks of a tube can be taken now, which the entry's commands do not show.

        The leader predicts most such changes and adds the takes to the same entry. The prediction
        covers neither the effect of entries in flight nor deadlines that are only in the store.
        """
        self.woken[tube.name] = None

    def signal_redefined(self, tube: QueueTube) -> None:
        """Note that a temporary tube was created, changed or dropped; ignores other tubes."""
        if tube.is_temporary:
            self.redefined[tube.name] = None

    def fetch_woken(self) -> Iterable[str]:
        """Return the tubes noted by ``signal_ready`` since the last call."""
        woken = self.woken
        if woken:
            self.woken = {}
        return woken

    def fetch_redefined(self) -> Iterable[str]:
        """Return the temporary tubes whose definition changed since the last call."""
        redefined = self.redefined
        if redefined:
            self.redefined = {}
        return redefined


@value
class CounterOrigin:
    """The numbers of a tube, a lease token and a task id below which a queue assigns none.

    The replicated queue starts at 0. A queue of temporary tubes starts elsewhere, so that a number
    shows which queue it belongs to.
    """

    tube: int = 0
    token: int = 0
    task: int = 0


BEGINNING: Final = CounterOrigin()
"""Origin of the replicated queue."""


class QueueState(WorkingSet):
    """The mutable state that all operations share.

    ``index`` and ``now_ms`` are those of the entry that is being applied. All instants are in
    cluster time, except the times of schedules, which are in wall time.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        new_task: Callable[[bytes], NewTask],
        editor: Editor,
        drivers: Mapping[str, TubeDriver],
        origin: CounterOrigin,
    ) -> None:
        """Start empty; ``new_task`` makes a task of a stored TaskSpec."""
        self.sessions = SessionRegistry()
        super().__init__(store, self.sessions.by_number)
        self.origin = origin
        self.limits = limits
        self.new_task = new_task
        self.editor = editor
        self.index = 0
        self.now_ms = 0
        self.wall_offset_ms = 0
        """Wall time minus cluster time."""
        self.event_floor_ms = 0
        """No later event gets a lower timestamp; above wall time after a correction backwards."""
        self.stamp = EntryStamp(0, 0)
        self.token = origin.token
        self.leases: dict[int, QueueTask] = {}
        self.tubes = TubeRegistry(drivers, origin.tube)
        self.removals = TubeCleanup()
        self.surplus: dict[int, QueueTube] = {}
        """Tubes with more buried tasks than ``buried_max``, by number; not stored."""
        self.timers = Timers(store, limits, stored=False)
        self.settings = ReplicatedSettings()
        self.feed = ChangeFeed(store, limits)
        self.requests = IdempotencyTable(store, limits)
        self.consumers = FeedConsumers()
        self.schedules = ScheduleRegistry()
        self.groups = GroupRegistry(store)
        self.dependents = DependentsIndex(store)
        self.unique_keys = UniqueKeys(store)
        self.failures = FailureTable(store)
        self.signals = LeaderSignals()
        self.watch = TaskWatch(self.body)

    @property
    def wall_ms(self) -> int:
        """Return the wall time of the entry that is being applied."""
        return self.now_ms + self.wall_offset_ms

    @property
    def watcher(self) -> Callable[[QueueTask, TaskOutcome], None] | None:
        """Return the callback for tasks that end, are buried or progress (outcome NONE), or None.

        None: no call waits for tasks. The watcher does not affect the replicated state.
        """
        return self.watch.tell if self.watch.tubes else None

    def set_tube_timer(self, tube: QueueTube) -> None:
        """Set the timer at which the rates of a tube allow takes again."""
        self.tubes.touch(tube)
        self.timers.renew(tube)

    def set_session_timer(self, session: QueueSession) -> None:
        """Set the timer at which a session expires."""
        self.sessions.touch(session)
        self.timers.renew(session)
