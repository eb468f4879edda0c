"""Hold the state that all operations share.

The ledger has the registries of tubes, sessions, groups and so on, the leases and the timers, and,
as a working set, the tasks in memory. It decides nothing and does nothing: operations check, and
``transitions.transition`` moves tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from taskraft_service.queue.entities.editor import Editor
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.task_view import TaskOutcome
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.feed.change_feed import ChangeFeed
from taskraft_service.queue.feed.event import EntryStamp
from taskraft_service.queue.feed.feed_consumers import FeedConsumers
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.state.dependents import DependentsIndex
from taskraft_service.queue.state.failures import FailureTable
from taskraft_service.queue.state.group_registry import GroupRegistry
from taskraft_service.queue.state.leader_signals import LeaderSignals
from taskraft_service.queue.state.schedule_registry import ScheduleRegistry
from taskraft_service.queue.state.session_registry import SessionRegistry
from taskraft_service.queue.state.timers import Timers
from taskraft_service.queue.state.tube_cleanup import TubeCleanup
from taskraft_service.queue.state.tube_registry import TubeRegistry
from taskraft_service.queue.state.watch import TaskWatch
from taskraft_service.queue.state.working_set import WorkingSet
from taskraft_service.queue.store.idempotency import IdempotencyTable
from taskraft_service.queue.store.store import Store
from taskraft_service.queue.store.unique_keys import UniqueKeys
from taskraft_service.queue.values import value


@value
class CounterOrigin:
    """Numbers that count as given before the first one: of a tube, of a lease, of a task."""

    tube: int = 0
    token: int = 0
    task: int = 0


BEGINNING: Final = CounterOrigin()
"""Where the replicated queue counts from."""


class QueueState(WorkingSet):
    """The shared state.

    Instants and positions are those of the entry that is being applied.
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
        """Begin with nothing; ``new_task`` makes a task of a stored TaskSpec."""
        self.sessions = SessionRegistry()
        super().__init__(store, self.sessions.by_number)
        self.origin = origin
        self.limits = limits
        self.new_task = new_task
        self.editor = editor
        self.index = 0
        self.now_ms = 0
        self.stamp = EntryStamp(0, 0)
        self.token = origin.token
        self.leases: dict[int, QueueTask] = {}
        self.tubes = TubeRegistry(drivers, origin.tube)
        self.removals = TubeCleanup()
        self.surplus: dict[int, QueueTube] = {}
        """Tubes with more buried tasks than they may have, by number; no part of the record."""
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
        self.news = LeaderSignals()
        self.watch = TaskWatch(self.body)

    @property
    def watcher(self) -> Callable[[QueueTask, TaskOutcome], None] | None:
        """Return who is told of each task before it ends or is buried, and (NONE) of progress.

        None: nobody waits. It has no effect on the replicated state.
        """
        return self.watch.tell if self.watch.tubes else None

    def set_tube_timer(self, tube: QueueTube) -> None:
        """Give a tube the timer of the moment when its rate lets tasks be taken again."""
        self.tubes.touch(tube)
        self.timers.renew(tube)

    def set_session_timer(self, session: QueueSession) -> None:
        """Give a session the timer of its end."""
        self.sessions.touch(session)
        self.timers.renew(session)
