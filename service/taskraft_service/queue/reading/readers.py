"""Read the queue without changing its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from taskraft_service.queue.entities.bulk_sweep import BulkSweep
from taskraft_service.queue.entities.filter import Filter
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.session import SessionView
from taskraft_service.queue.entities.task_state import READY, State
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_options import TubeView
from taskraft_service.queue.feed.change_feed import ChangeFeed
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.registry import Command, predict_ready_tubes
from taskraft_service.queue.operations.selection import ByIds, ByKeys, named
from taskraft_service.queue.persistence.state_records import digest_of
from taskraft_service.queue.reading.leader_readers import LeaderReaders
from taskraft_service.queue.reading.task_listing import (
    NOTHING_LEFT,
    Counted,
    Listed,
    Listing,
    Rest,
    Window,
    count,
    scan,
)
from taskraft_service.queue.state.audit_table import AuditRecord
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.state.tube_statistics import (
    TubeStatistics,
    statistics_of,
    total_statistics,
)
from taskraft_service.queue.store.indexes import SetMember


class QueueReaders(LeaderReaders):
    """Queries about the queue, as of the last applied entry.

    Most results are immutable values.
    """

    def __init__(self, state: QueueState) -> None:
        """Read from ``state``."""
        self._state = state
        self.applied_index = state.index
        """Index of the last applied entry."""
        self.now_ms = state.now_ms
        """The queue's clock: timestamp of the last applied entry."""
        self.cluster = state.cluster
        """The cluster version in force, and the planned one."""
        self.has_old_format = state.format != state.cluster.formats.state
        """Whether the store must be converted, because the cluster version was raised."""
        self.open_bulk_sweeps = state.bulk_sweeps.open
        """The bulk sweeps that run or wait, by number."""
        self.wall_offset_ms = state.wall_offset_ms
        """Wall time minus cluster time; an instant in cluster time plus this offset is in wall
        time."""

    @property
    def clock_epoch(self) -> int:
        """Return the term in which a leader last started the cluster time from wall clocks."""
        return self._state.clock_epoch

    @property
    def clock_term(self) -> int:
        """Return the term of the last leader whose Startup is applied."""
        return self._state.clock_term

    @property
    def limits(self) -> Limits:
        """Return the limits of the queue."""
        return self._state.limits

    @property
    def tube_count(self) -> int:
        """Return the number of tubes."""
        return len(self._state.tubes)

    @property
    def settings(self) -> ReplicatedSettings:
        """Return the replicated settings of the cluster."""
        return self._state.settings

    @property
    def feed(self) -> ChangeFeed:
        """Return the change feed."""
        return self._state.feed

    def bulk_sweep(self, number: int) -> BulkSweep | None:
        """Return a bulk sweep; read it before the next entry is applied."""
        return self._state.bulk_sweeps.get(number)

    def bulk_sweeps(self) -> list[BulkSweep]:
        """Return all bulk sweeps, newest first; read them before the next entry is applied."""
        return list(self._state.bulk_sweeps)[::-1]

    def running_bulk_sweeps(self) -> list[BulkSweep]:
        """Return the bulk sweeps that change tasks now."""
        return self._state.bulk_sweeps.running()

    def audit_records(self, before: int) -> Iterator[tuple[int, AuditRecord]]:
        """Yield the acts with numbers below ``before``, newest first."""
        audit = self._state.audit
        for number in range(min(before, audit.following) - 1, audit.first - 1, -1):
            yield number, audit.record(number)

    # --------------------------------------------------------------------------------------- tasks

    def get_tasks(
        self, tube: str, ids: Sequence[int], *, large: bool = True
    ) -> list[TaskView | None]:
        """Return the tasks with the given ids, in the same order; None for each missing task.

        ``large`` False: a task with a large payload has no content.
        """
        found = self._state.tubes.get(tube)
        if found is None:
            return [None] * len(ids)
        body = self._state.body if large else self._state.small_body
        tasks = (self._state.find(found, task_id) for task_id in ids)
        return [task.view(body(task)) if task is not None else None for task in tasks]

    def content_bytes(self, tube: str, selector: ByIds | ByKeys) -> int:
        """Return the size of the payloads and results of the selected tasks of a tube."""
        tasks = named(self._state, self._state.tubes[tube], selector)
        return sum([task.content_bytes for task in tasks if not isinstance(task, Refusal)])

    def leased_bytes(self, tokens: Iterable[int]) -> int:
        """Return the size of the payloads and results of the tasks of some leases."""
        leases = self._state.leases
        return sum([leases[token].content_bytes for token in tokens if token in leases])

    def dependents(
        self, tube: str, task_id: int, after: SetMember, tasks_max: int, bytes_max: int
    ) -> list[tuple[SetMember, TaskView]]:
        """Return the next tasks that wait for a task, each with its member of the set, in order.

        Args:
            tube: name of the tube of the task.
            task_id: id of the task.
            after: member behind which the tasks come; FIRST: from the first.
            tasks_max: maximum number of tasks.
            bytes_max: content with which the result ends early; the last task may exceed it.
        """
        state = self._state
        found = state.tubes.get(tube)
        task = state.find(found, task_id) if found is not None else None
        if task is None or not task.extras.dependents:
            return []
        members = islice(state.dependents.members.after(task.extras.dependents, after), tasks_max)
        waiting: list[tuple[SetMember, TaskView]] = []
        for member in members:
            other = state.tubes.by_number.get(member[0])
            dependent = state.find(other, member[1]) if other is not None else None
            if dependent is not None:  # None: its tube was truncated or dropped
                waiting.append((member, self._view(dependent)))
                bytes_max -= dependent.payload_bytes
            if bytes_max <= 0:
                break
        return waiting

    def select_tasks(
        self, tube: str, selector: ByIds | ByKeys, *, large: bool = True
    ) -> list[TaskView | Refusal]:
        """Return the selected tasks of an existing tube in order; a Refusal for a missing task.

        ``large`` False: a task with a large payload has no content.
        """
        body = self._state.body if large else self._state.small_body
        tasks = named(self._state, self._state.tubes[tube], selector)
        return [task if isinstance(task, Refusal) else task.view(body(task)) for task in tasks]

    def list_tasks(
        self, tube: str, states: Collection[State], after_id: int, limit: int
    ) -> list[TaskView]:
        """Return up to ``limit`` tasks with ids above ``after_id``, in order of their ids.

        Empty ``states`` select all states. The time is proportional to the number of scanned tasks.
        """
        found = self._state.tubes.get(tube)
        if found is None:
            return []
        tasks = self._state.tasks(found, after_id)
        wanted = (task for task in tasks if not states or task.state in states)
        return [self._view(task) for task in islice(wanted, limit)]

    def scan_tasks(self, tube: str, listing: Listing, rest: Rest) -> Listed:
        """Return the next part of a list of tasks, and the rest of the list."""
        found = self._state.tubes.get(tube)
        if found is None:
            return Listed([], NOTHING_LEFT)
        return scan(self._state, found, listing, rest)

    def count_tasks(
        self, tube: str, chosen: Filter | None, now_ms: int, scan_max: int, window: Window
    ) -> Counted:
        """Count the matching tasks of a part of a tube; ``now_ms`` is for filters on ages."""
        found = self._state.tubes.get(tube)
        if found is None:
            return Counted(0, 0, NOTHING_LEFT)
        return count(self._state, found, chosen, now_ms, scan_max, window)

    @property
    def last_token(self) -> int:
        """Lease token of the last take; tokens grow with each take."""
        return self._state.token

    def last_id(self, tube: str) -> int:
        """Return the greatest task id assigned in a tube; 0 if there is no task id or no tube."""
        found = self._state.tubes.get(tube)
        return found.next_id - 1 if found is not None else 0

    def lease(self, token: int) -> TaskView | None:
        """Return the task of a valid lease, or None."""
        task = self._state.leases.get(token)
        return self._view(task) if task is not None else None

    def strange_leases(
        self,
        tokens: Iterable[int],
        may_take: Callable[[str], bool],
        owns: Callable[[str], bool],
    ) -> frozenset[int]:
        """Return the tokens that are leases of other callers, or no leases at all.

        The owner of a lease is the owner of its session, or the principal that has taken the task
        without a session; a lease that was taken without access control and without a session has
        no owner. ``may_take`` returns whether the caller may take from the named tube. ``owns``
        returns whether the caller owns what belongs to the given owner. Both are called once for
        each pair of a tube and an owner.
        """
        leases = self._state.leases
        known: dict[tuple[QueueTube, str | None], bool] = {}
        strange: list[int] = []
        for token in tokens:
            task = leases.get(token)
            if task is None:
                strange.append(token)
                continue
            session = task.session
            owner = (task.taker or None) if session is None else session.owner
            key = (task.tube, owner)
            is_own = known.get(key)
            if is_own is None:
                is_own = may_take(task.tube.name) and (owner is None or owns(owner))
                known[key] = is_own
            if not is_own:
                strange.append(token)
        return frozenset(strange)

    def _view(self, task: QueueTask) -> TaskView:
        return task.view(self._state.body(task))

    # ----------------------------------------------------------------------------- tubes, sessions

    def tubes(self) -> list[TubeView]:
        """Return all tubes in order of their names."""
        return [tube.view() for _, tube in sorted(self._state.tubes.items())]

    def tube_names(self) -> Sequence[str]:
        """Return the names of all tubes in order, without building views."""
        return self._state.tubes.names()

    def tube(self, name: str) -> TubeView | None:
        """Return a tube, or None."""
        tube = self._state.tubes.get(name)
        return tube.view() if tube is not None else None

    def statistics(self, names: Iterable[str]) -> list[TubeStatistics]:
        """Return the statistics of the named tubes; unknown tubes are left out."""
        tubes = self._state.tubes
        return [
            statistics_of(name, tubes[name].counters, tubes[name].ages.oldest_ms)
            for name in names
            if name in tubes
        ]

    def task_counts(self) -> dict[str, Sequence[int]]:
        """Return for each tube the number of tasks by state, without building statistics."""
        return {name: tube.counters.states for name, tube in self._state.tubes.items()}

    def operation_totals(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of operations so far for each named tube that exists.

        Builds no statistics.
        """
        tubes = self._state.tubes
        return {name: sum(tubes[name].counters.calls) for name in names if name in tubes}

    def state_counts(self, names: Iterable[str], state: int) -> dict[str, int]:
        """Return the number of tasks in a state for each named tube that exists."""
        tubes = self._state.tubes
        return {name: tubes[name].counters.states[state] for name in names if name in tubes}

    def changed_since(self, names: Iterable[str], index: int) -> set[str]:
        """Return the named tubes that changed after an entry, and some that changed before."""
        known = self._state.tubes
        tubes = [known[name] for name in names if name in known]
        return {tube.name for tube in tubes if tube.dirty or tube.written_at > index}

    def oldest_ready_ms(self, names: Iterable[str]) -> dict[str, int]:
        """Return since when the oldest task of each named tube with READY tasks is READY.

        Builds no statistics.
        """
        tubes = self._state.tubes
        ages = {name: tubes[name].ages.oldest_ms for name in names if name in tubes}
        return {name: since_ms for name, since_ms in ages.items() if since_ms}

    def total_statistics(self, names: Iterable[str] | None = None) -> TubeStatistics:
        """Return the summed statistics of the named tubes; unknown tubes are left out.

        None selects all tubes, in constant time.
        """
        if names is None:
            return self._state.tubes.totals.statistics()
        known = self._state.tubes
        return total_statistics([known[name] for name in names if name in known])

    def session(self, session_id: str) -> SessionView | None:
        """Return a session, or None."""
        session = self._state.sessions.get(session_id)
        return session.view() if session is not None else None

    @property
    def session_count(self) -> int:
        """Number of sessions."""
        return len(self._state.sessions)

    def sessions(self) -> list[SessionView]:
        """Return all sessions in order of their ids."""
        return [session.view() for _, session in sorted(self._state.sessions.items())]

    def session_owners(self) -> list[str]:
        """Return the principals with sessions; the empty name: sessions without a principal."""
        return list(self._state.sessions.by_owner)

    def session_ids_of(self, owner: str) -> list[str]:
        """Return the ids of the sessions of a principal."""
        return list(self._state.sessions.by_owner.get(owner, ()))

    def lease_tokens(self, session_id: str) -> list[int]:
        """Return the leases of a session in take order; empty for an unknown session."""
        session = self._state.sessions.get(session_id)
        return [] if session is None else list(session.held)

    def session_ids(self) -> list[str]:
        """Return the ids of all sessions, in no order."""
        return list(self._state.sessions)

    def leased(self, tokens: Iterable[int]) -> list[TaskView]:
        """Return the tasks of some leases; leases that have ended are left out."""
        leases = self._state.leases
        return [self._view(leases[token]) for token in tokens if token in leases]

    def holds_lease(self, session_id: str) -> bool:
        """Return whether a session holds a lease; False for an unknown session."""
        session = self._state.sessions.get(session_id)
        return session is not None and bool(session.held)

    def cancelled(self, session_id: str, tokens_max: int) -> list[int]:
        """Return at most ``tokens_max`` leases with a cancellation request, the earliest first.

        After a restart of the node, the leases from before are in take order.
        """
        session = self._state.sessions.get(session_id)
        return [] if session is None else list(islice(session.cancelled, tokens_max))

    # ----------------------------------------------------------------------------------- readiness

    def has_ready(self, tube: str) -> bool:
        """Return in constant time whether a take without a filter would find a task in a tube.

        An expired task counts until the next entry fires its TTL timer.
        """
        found = self._state.tubes.get(tube)
        if found is None or found.options.take_paused or found.quarantined_at:
            return False
        if found.ready.least() is None:
            return False
        return found.takeable(self._state.now_ms) != 0

    def ready_count(self, tube: str) -> int:
        """Estimate how many tasks a take from a tube can find; at least 1 if there is a task.

        In a tube with sub-queues, return the number of sub-queues that offer a task.
        """
        if not self.has_ready(tube):
            return 0
        found = self._state.tubes[tube]
        offered = found.ready.offered(found.counters.states[READY])
        takeable = found.takeable(self._state.now_ms)
        return offered if takeable is None else min(offered, takeable)

    def ready_tubes(self) -> list[str]:
        """Return the names of the tubes for which ``has_ready`` is true, in no particular order."""
        return [name for name in self._state.tubes if self.has_ready(name)]

    def could_be_ready(self, commands: Iterable[Command], now_ms: int) -> set[str]:
        """Return the names of the tubes in which an entry may make tasks ready."""
        return set(predict_ready_tubes(self._state, commands, now_ms))

    def predict_ready_tubes(self, commands: Iterable[Command], now_ms: int) -> dict[str, int]:
        """Return the number of tasks that an entry may make ready, by tube name."""
        return predict_ready_tubes(self._state, commands, now_ms)

    def digest(self) -> bytes:
        """Return a hash of the whole state (see ``digest_of``)."""
        return digest_of(self._state)
