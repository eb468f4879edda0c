"""Hold the mutable state that all operations share.

The state has the registries of tubes, sessions, groups and schedules, the leases, the timers, the
change feed, and the tasks in memory. The module checks nothing: operations check commands, and
``transitions.transition`` changes tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.ready_tasks import Offers
from taskraft_service.queue.entities.session import QueueSession, SessionRegistry
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.feed.change_feed import ChangeFeed, EntryStamp
from taskraft_service.queue.feed.feed_consumers import FeedConsumers
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.state.audit_table import AuditTable
from taskraft_service.queue.state.bulk_sweeps import BulkSweepRegistry
from taskraft_service.queue.state.cluster_version import ClusterVersionState
from taskraft_service.queue.state.content_work import ContentWork, Editor
from taskraft_service.queue.state.dependents import DependentsIndex
from taskraft_service.queue.state.entry_steps import EntrySteps
from taskraft_service.queue.state.failures import FailureTable
from taskraft_service.queue.state.group_registry import GroupRegistry
from taskraft_service.queue.state.lease_returns import UnfinishedReturns
from taskraft_service.queue.state.quarantines import Quarantines
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.state.schedule_registry import ScheduleRegistry
from taskraft_service.queue.state.tube_owners import TubeOwners
from taskraft_service.queue.state.tube_registry import TubeCleanup, TubeRegistry
from taskraft_service.queue.state.watch import TaskWatch
from taskraft_service.queue.state.working_set import WorkingSet
from taskraft_service.queue.store.idempotency import IdempotencyTable
from taskraft_service.queue.store.indexes import Timers, UniqueKeys
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.store.store import Store
from taskraft_service.queue.values import value


class LeaderSignals:
    """Names of tubes that the leader must look at."""

    __slots__ = ("redefined", "woken")

    def __init__(self) -> None:
        """Start without signals."""
        self.woken: dict[str, None] = {}
        self.redefined: dict[str, None] = {}

    def signal_ready(self, tube: QueueTube) -> None:
        """Record that a tube has ready tasks that the prediction for the entry does not cover.

        The leader predicts most new ready tasks and adds the takes to the same entry. The
        prediction covers neither the effect of entries in flight nor deadlines that are only in the
        store.
        """
        self.woken[tube.name] = None

    def signal_redefined(self, tube: QueueTube) -> None:
        """Record that a temporary tube was created, changed or dropped; ignore other tubes."""
        if tube.is_temporary:
            self.redefined[tube.name] = None

    def fetch_woken(self) -> Iterable[str]:
        """Return the tubes recorded by ``signal_ready`` since the last call."""
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
    """Lowest tube number, lease token and task id that a queue may assign.

    The replicated queue starts at 0. A queue of temporary tubes starts higher, so that each number
    shows its queue.
    """

    tube: int = 0
    token: int = 0
    task: int = 0


BEGINNING: Final = CounterOrigin()
"""Origin of the replicated queue."""


class QueueState(WorkingSet):
    """The mutable state that all operations share.

    ``index`` and ``now_ms`` belong to the entry that is being applied. All instants are in cluster
    time, except the times of schedules, which are in wall time.
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
        """Start empty; ``new_task`` parses a stored TaskSpec."""
        self.sessions = SessionRegistry()
        super().__init__(store, self.sessions.by_number)
        self.origin = origin
        self.limits = limits
        self.new_task = new_task
        self.index = 0
        self.now_ms = 0
        self.wall_offset_ms = 0
        """Wall time minus cluster time."""
        self.clock_epoch = 0
        """Term in which a leader last started the cluster time from the wall clocks."""
        self.clock_term = 0
        """Term of the leader that defines, or last defined, the cluster time."""
        self.event_floor_ms = 0
        """Minimum timestamp of later events; above wall time after wall time was set back."""
        self.cluster = ClusterVersionState()
        """The cluster version in force, and the planned one."""
        self.format = self.cluster.formats.state
        """Format in which the state is written."""
        self.stamp = EntryStamp(0, 0)
        self.repeated: dict[str, int] = {}
        """Revisions of earlier requests that commands of the entry repeat, by request id."""
        self.steps = EntrySteps()
        self.content = ContentWork(editor)
        self.lease_returns = UnfinishedReturns()
        self.token = origin.token
        self.leases: dict[int, QueueTask] = {}
        self.tubes = TubeRegistry(drivers, origin.tube)
        self.removals = TubeCleanup()
        self.surplus: dict[int, QueueTube] = {}
        """Tubes with more buried tasks than ``buried_max``, by number; not stored."""
        self.timers = Timers(store, limits, stored=False)
        self.void_timers: list[OrderKey] = []
        """Timers of removed tubes that were looked at; the next batch of writes deletes them.

        Otherwise a replica that has restarted would look at them again.
        """
        self.settings = ReplicatedSettings()
        self.feed = ChangeFeed(store, limits)
        self.requests = IdempotencyTable(store, limits)
        self.consumers = FeedConsumers()
        self.schedules = ScheduleRegistry()
        self.groups = GroupRegistry(store)
        self.dependents = DependentsIndex(store)
        self.unique_keys = UniqueKeys(store)
        self.failures = FailureTable(store)
        self.audit = AuditTable(store)
        self.bulk_sweeps = BulkSweepRegistry()
        self.quarantines = Quarantines()
        self.tube_owners = TubeOwners()
        self.signals = LeaderSignals()
        self.watch = TaskWatch(self.small_body)

    @property
    def wall_ms(self) -> int:
        """Return the wall time of the entry that is being applied, in ms since the Unix epoch."""
        return self.now_ms + self.wall_offset_ms

    @property
    def watcher(self) -> Callable[[QueueTask, TaskOutcome], None] | None:
        """Return the callback for tasks that end, are buried or report progress (outcome NONE).

        Returns None while no call waits for tasks. The callback does not affect the replicated
        state.
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

    def soon_needed(
        self, tube: QueueTube, offers: Offers, withdrawn: Sequence[OrderKey]
    ) -> QueueTask:
        """Return the READY task of the first of the withdrawn entries.

        Brings this task into memory, and, if there is memory left, the tasks of the other entries
        and of the next entries of ``offers``.
        """
        first = withdrawn[0][-1]
        task = tube.tasks.get(first)
        if task is None:
            if self.resident_bytes <= self.limits.resident_bytes_max:
                coming = offers.coming(self.limits.read_tasks_max)
                self.bring_all(tube, [entry[-1] for entry in (*withdrawn, *coming)])
            else:
                self.bring_all(tube, [first])
            task = tube.tasks.get(first)
        assert task is not None, f"tube {tube.number} has no task {first}"
        return task
