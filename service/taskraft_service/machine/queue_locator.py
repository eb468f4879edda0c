"""Find the queue, replicated or temporary, that holds the tasks of a tube.

Tube definitions, sessions, groups, schedules, the change feed and the tasks of most tubes are
replicated. The tasks of temporary tubes are in a second queue, which only the leader has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from taskraft_service.queue.entities.id_layout import (
    TEMPORARY_TUBES,
    first_temporary,
)
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.session import SessionView
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.queue_state import CounterOrigin
from taskraft_service.queue.state.tube_statistics import TubeStatistics


def origin_of(term: int) -> CounterOrigin:
    """Return the lowest ids of a leadership's temporary tubes, disjoint from earlier ids."""
    first = first_temporary(term)
    return CounterOrigin(tube=TEMPORARY_TUBES, token=first, task=first)


class QueueLocator:
    """The queues of this node.

    Args:
        replicated: returns the replicated queue; installing a snapshot replaces it.
    """

    def __init__(self, replicated: Callable[[], Queue]) -> None:
        self._replicated = replicated
        self._temporary: Queue | None = None

    def set_temporary(self, temporary: Queue | None) -> None:
        """Set the queue of the temporary tubes; None: this node has no temporary tubes."""
        self._temporary = temporary

    # ------------------------------------------------------------------------------ which queue

    @property
    def holds_temporary(self) -> bool:
        """Return whether this node holds the tasks of temporary tubes."""
        return self._temporary is not None

    @property
    def replicated(self) -> Queue:
        """The queue that all nodes have."""
        return self._replicated()

    @property
    def all(self) -> Sequence[Queue]:
        """The queues of this node that hold tasks."""
        temporary = self._temporary
        return (self._replicated(),) if temporary is None else (self._replicated(), temporary)

    def queue_of(self, tube: str) -> Queue:
        """Return the queue that holds a tube's tasks; the replicated queue for an unknown tube."""
        temporary = self._temporary
        if temporary is not None and temporary.tube_number(tube) is not None:
            return temporary
        return self._replicated()

    def is_logged(self, tube: str) -> bool:
        """Return whether the tasks of a tube are replicated."""
        return self.queue_of(tube) is self._replicated()

    def queue_of_number(self, number: int) -> Queue:
        """Return the queue that holds the tasks of the tube with this number."""
        temporary = self._temporary
        if temporary is not None and number > TEMPORARY_TUBES:
            return temporary
        return self._replicated()

    def ready_count(self, tube: str) -> int:
        """Return the number of tasks that a take from a tube could lease now; unknown tube: 0."""
        return self.queue_of(tube).ready_count(tube)

    def tube_names(self) -> Sequence[str]:
        """Return the names of all tubes in order, of temporary tubes as well."""
        return self._replicated().tube_names()

    # ------------------------------------------------------------------------------ over all

    @property
    def now_ms(self) -> int:
        """The highest clock of the queues of this node, in ms."""
        return max(queue.now_ms for queue in self.all)

    def statistics(self, names: Iterable[str]) -> list[TubeStatistics]:
        """Return the statistics of some tubes; unknown tubes are left out."""
        return [counts for name in names for counts in self.queue_of(name).statistics((name,))]

    def total_statistics(self, names: Sequence[str] | None) -> TubeStatistics:
        """Return the sum of the statistics of some tubes, or of all tubes (None).

        The sum over all tubes takes constant time, because the definitions of temporary tubes in
        the replicated queue count nothing.
        """
        replicated, temporary = self._replicated(), self._temporary
        if temporary is None:
            return replicated.total_statistics(names)
        if names is None:
            return replicated.total_statistics().plus(temporary.total_statistics())
        parts: dict[bool, list[str]] = {True: [], False: []}
        for name in names:
            parts[self.is_logged(name)].append(name)
        logged = replicated.total_statistics(parts[True])
        return logged.plus(temporary.total_statistics(parts[False]))

    def refusal_by_trial(self, command: Command) -> Refusal | None:
        """Return why the driver of a tube fails for the tasks of a put, or None; see ``Queue``."""
        refusals = (queue.refusal_by_trial(command) for queue in self.all)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def quarantined_tubes(self) -> list[str]:
        """Return the names of the tubes whose driver failed."""
        return [name for queue in self.all for name in queue.quarantined_tubes()]

    def task_counts(self) -> dict[str, Sequence[int]]:
        """Return the number of tasks per state for each tube; fast even for many tubes."""
        counts = self._replicated().task_counts()
        if self._temporary is not None:
            counts.update(self._temporary.task_counts())
        return counts

    def operation_totals(self, names: Sequence[str]) -> dict[str, int]:
        """Return the number of operations so far for each named tube that exists."""
        totals = self._replicated().operation_totals(names)
        if self._temporary is not None:
            totals.update(self._temporary.operation_totals(names))
        return totals

    def oldest_ready_ms(self, names: Sequence[str]) -> dict[str, int]:
        """Return ``Queue.oldest_ready_ms`` of the named tubes, replicated and temporary ones."""
        instants = self._replicated().oldest_ready_ms(names)
        if self._temporary is not None:
            instants.update(self._temporary.oldest_ready_ms(names))
        return instants

    def state_counts(self, names: Sequence[str], state: int) -> dict[str, int]:
        """Return the number of tasks in a state for each named tube that exists."""
        counts = self._replicated().state_counts(names, state)
        if self._temporary is not None:
            counts.update(self._temporary.state_counts(names, state))
        return counts

    def changed_since(self, names: Sequence[str], index: int) -> list[str]:
        """Return the named tubes that changed after an entry, and all that are temporary."""
        changed = self._replicated().changed_since(names, index)
        return [name for name in names if name in changed or not self.is_logged(name)]

    def buried_count(self, tube: str) -> int:
        """Return the number of BURIED tasks of a tube; 0 for an unknown tube."""
        return sum(counts.states[State.BURIED] for counts in self.statistics((tube,)))

    def session_owners(self) -> list[str]:
        """Return the principals with sessions."""
        return self._replicated().session_owners()

    def session_ids_of(self, owner: str) -> list[str]:
        """Return the ids of the sessions of a principal."""
        return self._replicated().session_ids_of(owner)

    def lease_tokens(self, session_id: str) -> list[int]:
        """Return the leases that a session holds, in order of their tokens.

        Each queue gives them in order, and tokens of temporary tubes are above all others.
        """
        return [token for queue in self.all for token in queue.lease_tokens(session_id)]

    def holds_lease(self, session_id: str) -> bool:
        """Return whether a session holds a lease."""
        return any(queue.holds_lease(session_id) for queue in self.all)

    def cancelled(self, session_id: str, tokens_max: int) -> list[int]:
        """Return the leases of a session whose holders are asked to stop, at most ``tokens_max``.

        The leases in temporary tubes come last.
        """
        tokens: list[int] = []
        for queue in self.all:
            tokens += queue.cancelled(session_id, tokens_max - len(tokens))
        return tokens

    def strange_leases(
        self, tokens: Iterable[int], may_take: Callable[[str], bool], owns: Callable[[str], bool]
    ) -> frozenset[int]:
        """Return the tokens without a lease, and the tokens of other principals; see ``Queue``."""
        strange = frozenset(tokens)
        for queue in self.all:
            strange = queue.strange_leases(strange, may_take, owns)
        return strange

    def session(self, session_id: str) -> SessionView | None:
        """Return a session with its leases in all queues, or None."""
        view = self._replicated().session(session_id)
        return None if view is None else self.with_temporary_leases((view,))[0]

    def leased(self, tokens: Sequence[int]) -> list[TaskView]:
        """Return the tasks of some leases, in order of the tokens; without those that ended."""
        found = [view for queue in self.all for view in queue.leased(tokens)]
        return sorted(found, key=attrgetter("token"))

    def with_temporary_leases(self, sessions: Sequence[SessionView]) -> list[SessionView]:
        """Return replicated sessions with their leases in temporary tubes added."""
        temporary = self._temporary
        if temporary is None:
            return list(sessions)
        own = (temporary.session(view.session_id) for view in sessions)
        return [
            view if there is None else replace(view, taken=view.taken + there.taken)
            for view, there in zip(sessions, own, strict=True)
        ]
