"""Hold the state that all operations share.

The ledger has the registries of tubes, sessions, groups and so on, the leases and the timers, and,
as a working set, the tasks in memory. It decides nothing and does nothing: operations check, and
``tasks.transitions`` moves tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_service.queue.dependencies.dependents import Dependents
from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.feed.consumers import Consumers
from taskraft_service.queue.feed.partitions import Feed
from taskraft_service.queue.groups.registry import Groups
from taskraft_service.queue.news import News
from taskraft_service.queue.requests import Requests
from taskraft_service.queue.schedules.schedule import Schedules
from taskraft_service.queue.sessions.registry import Sessions
from taskraft_service.queue.tasks.failures import Failures
from taskraft_service.queue.tasks.unique_keys import UniqueKeys
from taskraft_service.queue.tasks.watch import Watch
from taskraft_service.queue.tasks.working_set import WorkingSet
from taskraft_service.queue.timers import Timers
from taskraft_service.queue.tubes.registry import Tubes
from taskraft_service.queue.tubes.removals import Removals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from taskraft_service.queue.driver import Driver
    from taskraft_service.queue.editor import Editor
    from taskraft_service.queue.entities.new_task import NewTask
    from taskraft_service.queue.entities.task_view import TaskOutcome
    from taskraft_service.queue.limits import Limits
    from taskraft_service.queue.origin import Origin
    from taskraft_service.queue.sessions.session import Session
    from taskraft_service.queue.store import Store
    from taskraft_service.queue.tasks.task import Task
    from taskraft_service.queue.tubes.tube import Tube


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
        self.sessions = Sessions()
        super().__init__(store, self.sessions.by_number)
        self.origin = origin
        self.limits = limits
        self.new_task = new_task
        self.editor = editor
        self.index = 0
        self.now_ms = 0
        self.place = 0
        """How many events the entry has made so far."""
        self.token = origin.token
        self.leases: dict[int, Task] = {}
        self.tubes = Tubes(drivers, origin.tube)
        self.removals = Removals()
        self.surplus: dict[int, Tube] = {}
        """Tubes with more buried tasks than they may have, by number; no part of the record."""
        self.timers = Timers(store, limits, stored=False)
        self.settings = ReplicatedSettings()
        self.feed = Feed(store, limits)
        self.requests = Requests(store, limits)
        self.consumers = Consumers()
        self.schedules = Schedules()
        self.groups = Groups(store)
        self.dependents = Dependents(store)
        self.unique_keys = UniqueKeys(store)
        self.failures = Failures(store)
        self.news = News()
        self.watch = Watch(self.body)

    @property
    def watcher(self) -> Callable[[Task, TaskOutcome], None] | None:
        """Return who is told of each task before it ends or is buried, and (NONE) of progress.

        None: nobody waits. It has no effect on the replicated state.
        """
        return self.watch.tell if self.watch.tubes else None

    def set_tube_timer(self, tube: Tube) -> None:
        """Give a tube the timer of the moment when its rate lets tasks be taken again."""
        self.tubes.touch(tube)
        self.timers.renew(tube)

    def set_session_timer(self, session: Session) -> None:
        """Give a session the timer of its end."""
        self.sessions.touch(session)
        self.timers.renew(session)
