"""Read the queue without changing it."""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final

from service.queue.commands import (
    AttachSession,
    Batch,
    Bury,
    Cancel,
    CloseSession,
    Delete,
    Kick,
    Move,
    Put,
    Refusal,
    Reject,
    Release,
    ReleaseAll,
    Restart,
    RunSchedule,
    Settle,
    Snatch,
    State,
    Switch,
    Touch,
    UpdateTasks,
    UpdateTube,
)
from service.queue.feed.partitions import low_and_high
from service.queue.keys import SESSION_TIMER
from service.queue.life_cycle import READY
from service.queue.operations.selection import named
from service.queue.shell_readers import ShellReaders
from service.queue.tasks.listing import NOTHING_LEFT, Listed, scan
from service.queue.tasks.task_codec import write_task
from service.queue.tubes.statistics import statistics_of, total_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from service.queue.commands import (
        ByIds,
        ByKeys,
        ClusterSettings,
        Command,
        SessionView,
        Settlement,
        TaskView,
        TubeView,
    )
    from service.queue.feed.partitions import Feed
    from service.queue.ledger import Ledger
    from service.queue.tasks.listing import Listing, Rest
    from service.queue.tasks.task import Task
    from service.queue.tubes.statistics import TubeStatistics
    from service.queue.tubes.tube import Tube


FORESEEN_DEPENDENTS_MAX: Final = 16
"""So many of those that wait for a task are looked at to foresee where its end makes one ready."""


class Readers(ShellReaders):
    """What can be asked of a queue. Answers are values, valid as of the last applied entry."""

    def __init__(self, ledger: Ledger) -> None:
        """Read from a ledger."""
        self._ledger = ledger

    @property
    def applied_index(self) -> int:
        """Return the index of the last applied entry."""
        return self._ledger.index

    @property
    def now_ms(self) -> int:
        """Return the queue's clock: the stamp of the last applied entry."""
        return self._ledger.now_ms

    @property
    def settings(self) -> ClusterSettings:
        """Return what the cluster has been told."""
        return self._ledger.settings

    @property
    def feed(self) -> Feed:
        """Return the change feed."""
        return self._ledger.feed

    # --------------------------------------------------------------------------------------- tasks

    def get_tasks(self, tube: str, ids: Sequence[int]) -> list[TaskView | None]:
        """Return chosen tasks, None where there is none; an unknown tube has none."""
        found = self._ledger.tubes.get(tube)
        if found is None:
            return [None] * len(ids)
        tasks = (self._ledger.find(found, task_id) for task_id in ids)
        return [self._view(task) if task is not None else None for task in tasks]

    def select_tasks(self, tube: str, selector: ByIds | ByKeys) -> list[TaskView | Refusal]:
        """Return chosen tasks of a tube that exists, in order, or why there is none."""
        tasks = named(self._ledger, self._ledger.tubes[tube], selector)
        return [task if isinstance(task, Refusal) else self._view(task) for task in tasks]

    def list_tasks(
        self, tube: str, states: Collection[State], after_id: int, limit: int
    ) -> list[TaskView]:
        """Return up to ``limit`` tasks with ids above one, in order; any state if none is given.

        Takes time in proportion to the tasks that it passes.
        """
        found = self._ledger.tubes.get(tube)
        if found is None:
            return []
        tasks = self._ledger.tasks(found, after_id)
        wanted = (task for task in tasks if not states or task.state in states)
        return [self._view(task) for task in islice(wanted, limit)]

    def scan_tasks(self, tube: str, listing: Listing, rest: Rest) -> Listed:
        """Return some of the tasks of what is left of a list, and what is left then."""
        found = self._ledger.tubes.get(tube)
        if found is None:
            return Listed([], NOTHING_LEFT)
        return scan(self._ledger, found, listing, rest)

    def last_id(self, tube: str) -> int:
        """Return the greatest id that a tube has given so far; 0: none, or no such tube."""
        found = self._ledger.tubes.get(tube)
        return found.next_id - 1 if found is not None else 0

    def lease(self, token: int) -> TaskView | None:
        """Return the task of a valid lease, or None."""
        task = self._ledger.leases.get(token)
        return self._view(task) if task is not None else None

    def strange_leases(
        self,
        tokens: Iterable[int],
        may_take: Callable[[str], bool],
        owns: Callable[[str], bool],
    ) -> frozenset[int]:
        """Return the tokens that are no valid leases, or leases of others.

        ``may_take`` is asked once for each tube, ``owns`` for each owner of a session.
        """
        leases = self._ledger.leases
        known: dict[tuple[Tube, str | None], bool] = {}
        strange: list[int] = []
        for token in tokens:
            task = leases.get(token)
            if task is None:
                strange.append(token)
                continue
            session = task.session
            key = (task.tube, None if session is None else session.owner)
            is_own = known.get(key)
            if is_own is None:
                is_own = may_take(task.tube.name) and (session is None or owns(session.owner))
                known[key] = is_own
            if not is_own:
                strange.append(token)
        return frozenset(strange)

    def _view(self, task: Task) -> TaskView:
        return task.view(self._ledger.body(task))

    # ----------------------------------------------------------------------------- tubes, sessions

    def tubes(self) -> list[TubeView]:
        """Return all tubes in order of their names."""
        return [tube.view() for _, tube in sorted(self._ledger.tubes.items())]

    def tube_names(self) -> list[str]:
        """Return the names of all tubes in order; cheap for very many tubes."""
        return sorted(self._ledger.tubes)

    def tube(self, name: str) -> TubeView | None:
        """Return a tube, or None."""
        tube = self._ledger.tubes.get(name)
        return tube.view() if tube is not None else None

    def statistics(self, names: Iterable[str]) -> list[TubeStatistics]:
        """Return the counts of some tubes; unknown ones are left out."""
        tubes = self._ledger.tubes
        return [
            statistics_of(name, tubes[name].counters, tubes[name].ages.oldest_ms)
            for name in names
            if name in tubes
        ]

    def task_counts(self) -> dict[str, Sequence[int]]:
        """Return the numbers of tasks by state, for each tube; cheap for very many tubes."""
        return {name: tube.counters.states for name, tube in self._ledger.tubes.items()}

    def total_statistics(self, names: Iterable[str] | None = None) -> TubeStatistics:
        """Return the counts of some tubes together, or of all; unknown ones are left out.

        Of all, whatever their number, at once.
        """
        if names is None:
            return self._ledger.totals.statistics()
        known = self._ledger.tubes
        return total_statistics([known[name] for name in names if name in known])

    def session(self, session_id: str) -> SessionView | None:
        """Return a session, or None."""
        session = self._ledger.sessions.get(session_id)
        return session.view() if session is not None else None

    def sessions(self) -> list[SessionView]:
        """Return all sessions in order of their ids."""
        return [session.view() for _, session in sorted(self._ledger.sessions.items())]

    def held(self, session_id: str) -> list[TaskView]:
        """Return what a session holds, in order of the takes; nothing for an unknown one."""
        session = self._ledger.sessions.get(session_id)
        if session is None:
            return []
        return [self._view(task) for task in session.held.values()]

    def cancelled(self, session_id: str) -> list[int]:
        """Return the leases of a session whose holder is asked to stop, in order of the takes."""
        session = self._ledger.sessions.get(session_id)
        if session is None:
            return []
        return [token for token, task in session.held.items() if task.extras.cancel_requested]

    # ----------------------------------------------------------------------------------- readiness

    def has_ready(self, tube: str) -> bool:
        """Tell in constant time whether a take without a filter from a tube would find something.

        A task whose time to live has just ended counts until the next entry.
        """
        found = self._ledger.tubes.get(tube)
        if found is None or found.options.take_paused or found.ready.least() is None:
            return False
        return found.takeable(self._ledger.now_ms) != 0

    def ready_count(self, tube: str) -> int:
        """Return about how many tasks a take from a tube could find; at least 1 if any.

        In a tube with sub-queues that is the number of those that have one to give.
        """
        if not self.has_ready(tube):
            return 0
        found = self._ledger.tubes[tube]
        offered = found.ready.offered(found.counters.states[READY])
        takeable = found.takeable(self._ledger.now_ms)
        return offered if takeable is None else min(offered, takeable)

    def ready_tubes(self) -> list[str]:
        """Return the names of the tubes that have something to take, in no order."""
        return [name for name in self._ledger.tubes if self.has_ready(name)]

    def could_be_ready(self, commands: Iterable[Command], now_ms: int) -> set[str]:
        """Return the names of the tubes in which an entry may make tasks ready.

        Too many rather than too few: the proposer appends takes for them to the same entry. Looks
        at the commands and at the deadlines that are due at ``now_ms``.
        """
        names: set[str] = set()
        for command in _single(commands):
            match command:
                case (
                    Put(tube)
                    | Kick(tube)
                    | ReleaseAll(tube)
                    | UpdateTube(tube)
                    | Snatch(tube)
                    | Restart(tube)
                    | Switch(tube)
                    | UpdateTasks(tube)
                ):
                    names.add(tube)
                case Delete(tube) | Bury(tube) | Cancel(tube):
                    # A taken task, or the first of its sub-queue, may make way for another.
                    found = self._ledger.tubes.get(tube)
                    if found is not None and _makes_way(found):
                        names.add(tube)
                case Move(tube, move_to=move_to):
                    names.update(self._tubes_moved(tube, move_to))
                case Settle(settlements):
                    names.update(self._tubes_settled(settlements))
                case RunSchedule(name):
                    schedule = self._ledger.schedules.get(name)
                    if schedule is not None:
                        tubes = (schedule.options.tube, schedule.last_tube)
                        names.update(tube for tube in tubes if tube)
                case CloseSession(session_id) | AttachSession(session_id, False):
                    names.update(self._tubes_held(session_id))
                case _:
                    pass
        names.update(self._tubes_due(now_ms))
        return names

    def _tubes_moved(self, tube: str, move_to: str) -> Iterator[str]:
        """Yield where a move may make tasks ready: what goes may have stood before others.

        Dead letters that go back wake their tubes themselves.
        """
        found = self._ledger.tubes.get(tube)
        if found is not None and _makes_way(found):
            yield tube
        if move_to:
            yield move_to

    def _tubes_due(self, now_ms: int) -> Iterator[str]:
        """Yield the names of the tubes that due deadlines are about, as far as memory knows."""
        ledger = self._ledger
        least = ledger.timers.least()
        if least is None or least[0] > now_ms:
            return
        due = ledger.timers.in_memory_until((now_ms + 1,))
        for _, kind, tube_number, number in islice(due, ledger.limits.deadlines_per_entry_max):
            if kind == SESSION_TIMER:
                yield from self._tubes_held(ledger.sessions_by_number[number].id)
            elif tube_number in ledger.tubes_by_number:
                yield from _and_dead_letters(ledger.tubes_by_number[tube_number])

    def _tubes_settled(self, settlements: Sequence[Settlement]) -> Iterator[str]:
        """Yield the tubes of leases whose end may make a task ready: itself, or the next one."""
        leases = self._ledger.leases
        for settlement in settlements:
            if isinstance(settlement, Touch):
                continue
            is_given_back = isinstance(settlement, (Release, Reject))
            if isinstance(settlement, Release) and settlement.move_to:
                yield settlement.move_to
            for token in settlement.tokens:
                task = leases.get(token)
                if task is None:
                    continue
                if task.extras.dependents:
                    yield from self._tubes_of_dependents(task)
                if is_given_back:
                    yield from _and_dead_letters(task.tube)
                elif _makes_way(task.tube):
                    yield task.tube.name

    def _tubes_of_dependents(self, task: Task) -> Iterator[str]:
        """Yield the tubes of those that wait for a task, as far as they are few."""
        dependents = self._ledger.dependents
        for number, _ in dependents.first_of(task.extras.dependents, FORESEEN_DEPENDENTS_MAX):
            tube = self._ledger.tubes_by_number.get(number)
            if tube is not None:
                yield tube.name

    def _tubes_held(self, session_id: str) -> Iterator[str]:
        session = self._ledger.sessions.get(session_id)
        for task in session.held.values() if session is not None else ():
            yield from _and_dead_letters(task.tube)

    # -------------------------------------------------------------------------------------- digest

    def digest(self) -> bytes:
        """Return a hash of the whole state; equal on all replicas that have applied the same index.

        Reads everything, also the backlog and the events: for tests and for comparing replicas.
        """
        ledger = self._ledger
        whole = blake2b(digest_size=16)
        for part in self._digest_parts():
            whole.update(len(part).to_bytes(4, "big"))
            whole.update(part)
        for partition, (low, high) in enumerate(low_and_high(ledger.feed)):
            for seq, event in ledger.feed.events(partition, low, high):
                whole.update(repr((partition, seq, *event)).encode())
        return whole.digest()

    def _digest_parts(self) -> Iterator[bytes]:
        ledger = self._ledger
        numbers = (ledger.index, ledger.now_ms, ledger.token, ledger.tube_number)
        yield repr((numbers, ledger.session_number, ledger.feed.feed_id)).encode()
        yield repr(low_and_high(ledger.feed)).encode()
        for number, (tube, next_id) in ledger.removals.items():
            yield repr((number, tube.name, next_id)).encode()
            for task in ledger.tasks(tube, next_id - 1):
                # Not the record: it may name a session that has ended since, and memory does not.
                yield repr((task.id, task.state, task.attempt)).encode()
        for _, tube in sorted(ledger.tubes.items()):
            yield tube.record()
            yield from tube.subqueue_rates.digest_parts(ledger.now_ms)
            for task in ledger.tasks(tube):
                yield task.id.to_bytes(8, "big") + write_task(task)
                yield ledger.body(task)
        for _, session in sorted(ledger.sessions.items()):
            yield session.record()
            yield repr(list(session.held)).encode()
        yield repr(list(ledger.leases)).encode()
        yield from ledger.failures.digest_parts()
        yield from (consumer.record() for consumer in ledger.consumers)
        yield from (schedule.record() for schedule in ledger.schedules)
        yield from ledger.groups.digest_parts()
        yield from ledger.dependents.digest_parts()
        for place, task_id in ledger.unique_keys.items():
            yield place + task_id.to_bytes(8, "big")
        yield ledger.requests.record()
        for request_id, answer in sorted(ledger.requests.items()):
            yield request_id.encode() + answer


def _makes_way(tube: Tube) -> bool:
    """Tell whether the end of a lease may let another task of the tube be taken."""
    return tube.ready.counts_leases or tube.options.concurrency > 0


def _and_dead_letters(tube: Tube) -> Iterator[str]:
    """Yield the names of the tubes where a task goes whose lease ends."""
    yield tube.name
    if tube.options.dead_letter_tube:
        yield tube.options.dead_letter_tube


def _single(commands: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands, and in place of a batch its operations."""
    for command in commands:
        if isinstance(command, Batch):
            yield from command.operations
        else:
            yield command
