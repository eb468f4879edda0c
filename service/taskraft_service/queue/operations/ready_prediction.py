"""Collect the tubes in which an entry may make tasks ready, before the entry is applied.

The leader appends the takes of waiting consumers on these tubes to the same entry, so that a task
is committed and leased in one round of consensus. A tube predicted wrongly costs a take that finds
nothing. A tube that was not predicted costs one more round of consensus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.keys import SESSION_TIMER

DEPENDENTS_MAX: Final = 16
"""Maximum number of dependents of a task that are looked at to predict which become ready."""


class ReadyPrediction:
    """Tubes that may have new ready tasks, with upper bounds of how many.

    ``put`` has the exact number of tasks per tube of puts. For the tubes in ``names`` only the sum
    ``others`` is known.
    """

    __slots__ = ("names", "now_ms", "others", "put", "state")

    def __init__(self, state: QueueState, now_ms: int) -> None:
        """Begin with the tubes of the deadlines that are due at ``now_ms``."""
        self.state = state
        self.now_ms = now_ms
        self.put: dict[str, int] = {}
        self.names: set[str] = set()
        self.others = 1
        least = state.timers.least()
        if least is not None and least[0] <= now_ms:
            self.names.update(_tubes_due(state, now_ms))

    def add_put(self, tube: str, tasks: int) -> None:
        """Add tasks that are put into a tube."""
        self.put[tube] = self.put.get(tube, 0) + tasks

    def add(self, tubes: Iterable[str], tasks: int = 0) -> None:
        """Add tubes in which up to ``tasks`` tasks become ready, all tubes taken together."""
        self.names.update(tubes)
        self.others += tasks

    def counts(self) -> dict[str, int]:
        """Return the number of tasks by tube, in order of the names of the tubes.

        The fixed order decides the order of the appended takes.
        """
        put, others = self.put, self.others
        return {name: put.get(name, 0) or others for name in sorted(self.names.union(put))}


def predict_nothing(_prediction: ReadyPrediction, _command: object) -> None:
    """Add no tube: the command makes no task ready, or signals the tubes itself."""


def tubes_of_end(state: QueueState, tube: str) -> Iterator[str]:
    """Yield a tube if the end of one of its leases may let another task be taken."""
    found = state.tubes.get(tube)
    if found is not None and limits_leases(found):
        yield tube


def tubes_of_session(state: QueueState, session_id: str) -> Iterator[str]:
    """Yield the tubes to which the leases of a session return when the session ends."""
    session = state.sessions.get(session_id)
    for token in session.held if session is not None else ():
        yield from and_dead_letters(state.leases[token].tube)


def tubes_of_dependents(state: QueueState, task: QueueTask) -> Iterator[str]:
    """Yield the tubes of the tasks that depend on a task, of the first ``DEPENDENTS_MAX``."""
    for number, _ in state.dependents.first_of(task.extras.dependents, DEPENDENTS_MAX):
        tube = state.tubes.by_number.get(number)
        if tube is not None:
            yield tube.name


def limits_leases(tube: QueueTube) -> bool:
    """Return whether the number of leases in the tube, or in its sub-queues, is limited."""
    return tube.ready.counts_leases or tube.options.concurrency > 0


def and_dead_letters(tube: QueueTube) -> Iterator[str]:
    """Yield the name of a tube and of its dead-letter tube, if any."""
    yield tube.name
    if tube.options.dead_letter_tube:
        yield tube.options.dead_letter_tube


def _tubes_due(state: QueueState, now_ms: int) -> Iterator[str]:
    """Yield the tubes of the deadlines in memory that are due."""
    due = state.timers.in_memory_until((now_ms + 1,))
    for _, kind, tube_number, number in islice(due, state.limits.deadlines_per_entry_max):
        if kind == SESSION_TIMER:
            yield from tubes_of_session(state, state.sessions.by_number[number].id)
        elif tube_number in state.tubes.by_number:
            yield from and_dead_letters(state.tubes.by_number[tube_number])
