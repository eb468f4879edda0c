"""Index the dependents of each task, and the ended tasks whose dependents were not notified yet.

A buried task has ended for its dependents.

The first dependent of a task creates a numbered set, and the task stores the number. The set
therefore stays the same when the task is moved to another tube. When the task ends or is buried, a
``TaskEnding`` refers to the set. Endings are processed in order, and each entry notifies a bounded
number of dependents. A task that is restarted or kicked afterwards has no set. All sets and endings
are in the store; memory holds only changes that are not written yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Text
from taskraft_service.queue.store.indexes import FIRST, SetMember, TaskSetIndex, set_member
from taskraft_service.queue.store.keys import DEPENDENT, ENDING, ending_key, prefix_stop
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value


@value
class TaskEnding:
    """The end or burial of a task that other tasks depend on.

    Args:
        number: the set of its dependents.
        outcome: outcome of the task; BURIED_OUT for a burial.
        tube: name of its tube.
        id: its task id.
        told: the last dependent, in order, that was notified.
    """

    number: int
    outcome: TaskOutcome
    tube: str
    id: int
    told: SetMember = FIRST


class DependentsIndex:
    """The sets of dependents; and the endings, numbered from ``first`` to before ``following``."""

    __slots__ = ("_fresh", "_store", "first", "following", "members", "number")

    def __init__(self, store: Store) -> None:
        """Use the sets and endings in ``store``; ``restore`` sets the numbers."""
        self._store = store
        self._fresh: dict[int, TaskEnding | None] = {}
        """Endings that differ from the store; None: all dependents were notified."""
        self.members = TaskSetIndex(store, DEPENDENT)
        self.number = 0
        self.first = 0
        self.following = 0

    def new_set(self) -> int:
        """Return the number of a new, empty set."""
        self.number += 1
        return self.number

    def leave(self, task: QueueTask) -> None:
        """Remove a deleted task from the sets of all tasks that it depends on."""
        waiting = task.extras.waiting
        assert waiting is not None
        for awaited in waiting.open:
            self.members.discard(awaited.number, (task.tube.number, task.id))

    def first_of(self, number: int, tasks_max: int) -> Sequence[SetMember]:
        """Return the first dependents of a set, in order."""
        return list(islice(self.members.after(number, FIRST), tasks_max))

    # ------------------------------------------------------------------------------- the endings

    @property
    def has_endings(self) -> bool:
        """Return whether dependents remain to be notified of an ending."""
        return self.first < self.following

    def ended(self, task: QueueTask, outcome: TaskOutcome) -> None:
        """Create an ending that takes over the task's set of dependents; the task keeps no set."""
        self._fresh[self.following] = TaskEnding(
            task.extras.dependents, outcome, task.tube.name, task.id
        )
        self.following += 1
        task.extras = replace(task.extras, dependents=0)

    def oldest(self) -> TaskEnding:
        """Return the oldest ending that is not processed yet."""
        assert self.has_endings
        ending = self._fresh.get(self.first)
        if ending is None:
            record = self._store.get(ending_key(self.first))
            assert record is not None, f"there is no ending {self.first}"
            ending, _ = ENDING_RECORD.read(record)
        return ending

    def untold(self, ending: TaskEnding, tasks_max: int) -> Sequence[SetMember]:
        """Return the next dependents that were not notified of an ending, in order."""
        return list(islice(self.members.after(ending.number, ending.told), tasks_max))

    def tell(self, ending: TaskEnding, members: Sequence[SetMember]) -> None:
        """Record the notification of dependents of the first ending; remove them from its set."""
        self._strike_out(ending, members)
        self._fresh[self.first] = replace(ending, told=members[-1])

    def tell_last(self, ending: TaskEnding, members: Sequence[SetMember]) -> None:
        """Record that the last dependents of the first ending were notified; delete the ending."""
        self._strike_out(ending, members)
        self._fresh[self.first] = None
        self.first += 1

    def _strike_out(self, ending: TaskEnding, members: Sequence[SetMember]) -> None:
        for member in members:
            self.members.discard(ending.number, member)

    # ------------------------------------------------------------------------------- the store

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        for serial, ending in self._fresh.items():
            writes.append(
                (ending_key(serial), None if ending is None else ENDING_RECORD.write(ending))
            )
        self._fresh.clear()
        self.members.collect(writes)

    def restore(self, number: int, first: int, following: int) -> None:
        """Set the numbers from the meta record."""
        self.number, self.first, self.following = number, first, following

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the state that must be equal on all replicas."""
        yield DEPENDENTS_NUMBERS.write(self)
        known = dict(self._store.scan(ENDING, prefix_stop(ENDING)))
        known |= {
            ending_key(serial): b"" if ending is None else ENDING_RECORD.write(ending)
            for serial, ending in self._fresh.items()
        }
        yield from (key + record for key, record in sorted(known.items()) if record)
        yield from self.members.keys()


ENDING_RECORD: Final = FieldTable(
    TaskEnding,
    Number("number", "Q"),
    Number("outcome", "B", TaskOutcome),
    Number("id", "Q"),
    Number("told.tube", "I", of="told[0]"),
    Number("told.task_id", "Q", of="told[1]"),
    Text("tube", to_end=True),
    parts={"told": set_member},
)
DEPENDENTS_NUMBERS: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict, Number("number", "Q"), Number("first", "Q"), Number("following", "Q")
)
