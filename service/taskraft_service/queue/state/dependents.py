"""Know who waits for the end of which task, and the ends that not all of them have heard of.

The first task that waits for another one founds a numbered set, whose number the other one carries;
so it stays the same where that one is moved to another tube. When the task ends, its set
becomes an ending: endings are told in order, a bounded number of tasks per entry. A task that
begins anew afterwards has no set. All of it is in the store; memory has what is not yet there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.task_view import TaskOutcome
from taskraft_service.queue.store.keys import DEPENDENT, ENDING, ending_key, prefix_stop
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.store.task_sets import FIRST, SetMember, TaskSetIndex
from taskraft_service.queue.values import value

_meta: Final = Struct(">QQQ")
_record: Final = Struct(">QBQIQ")
"""Set, outcome, task, and the last member that has heard of it: tube and task; its tube follows."""


@value
class TaskEnding:
    """A task has ended for which others wait.

    Args:
        number: of the set of those that wait.
        outcome: how it ended.
        tube: name of the tube where it was.
        id: which task it was.
        told: the last member of the set that has heard of it, in order.
    """

    number: int
    outcome: TaskOutcome
    tube: str
    id: int
    told: SetMember = FIRST


class DependentsIndex:
    """The sets of tasks that wait, and the endings, ``first`` to before ``following`` by number."""

    __slots__ = ("_fresh", "_store", "first", "following", "members", "number")

    def __init__(self, store: Store) -> None:
        """Begin with what the store has; ``restore_meta`` says how much."""
        self._store = store
        self._fresh: dict[int, TaskEnding | None] = {}
        """Endings that the store does not have like this; None: told to all."""
        self.members = TaskSetIndex(store, DEPENDENT)
        self.number = 0
        self.first = 0
        self.following = 0

    def new_set(self) -> int:
        """Return the number of a set without members."""
        self.number += 1
        return self.number

    def leave(self, task: QueueTask) -> None:
        """Forget that a task waits: it is gone."""
        waiting = task.extras.waiting
        assert waiting is not None
        for awaited in waiting.open:
            self.members.discard(awaited.number, (task.tube.number, task.id))

    def first_of(self, number: int, tasks_max: int) -> Sequence[SetMember]:
        """Return some of the tasks of a set, the first in order."""
        return list(islice(self.members.after(number, FIRST), tasks_max))

    # ------------------------------------------------------------------------------- the endings

    @property
    def has_endings(self) -> bool:
        """Tell whether somebody is still to hear of an ending."""
        return self.first < self.following

    def ended(self, task: QueueTask, outcome: TaskOutcome) -> None:
        """Note that a task with a set ends; it has none from then on."""
        self._fresh[self.following] = TaskEnding(
            task.extras.dependents, outcome, task.tube.name, task.id
        )
        self.following += 1
        task.extras = replace(task.extras, dependents=0)

    def oldest(self) -> TaskEnding:
        """Return the first of the endings."""
        assert self.has_endings
        ending = self._fresh.get(self.first)
        if ending is None:
            record = self._store.get(ending_key(self.first))
            assert record is not None, f"there is no ending {self.first}"
            ending = _read(record)
        return ending

    def untold(self, ending: TaskEnding, tasks_max: int) -> Sequence[SetMember]:
        """Return some of those that have not heard of an ending, the first in order."""
        return list(islice(self.members.after(ending.number, ending.told), tasks_max))

    def tell(self, ending: TaskEnding, members: Sequence[SetMember]) -> None:
        """Note that some more hear of the oldest ending; they wait for that no more."""
        self._strike_out(ending, members)
        self._fresh[self.first] = replace(ending, told=members[-1])

    def tell_last(self, ending: TaskEnding, members: Sequence[SetMember]) -> None:
        """Note that the last ones hear of the oldest ending, and forget it."""
        self._strike_out(ending, members)
        self._fresh[self.first] = None
        self.first += 1

    def _strike_out(self, ending: TaskEnding, members: Sequence[SetMember]) -> None:
        for member in members:
            self.members.discard(ending.number, member)

    # ------------------------------------------------------------------------------- the store

    def collect(self, writes: list[Write]) -> None:
        """Append what the store does not have yet to ``writes``."""
        for serial, ending in self._fresh.items():
            writes.append((ending_key(serial), None if ending is None else _write(ending)))
        self._fresh.clear()
        self.members.collect(writes)

    def meta(self) -> bytes:
        """Return the part of the meta record that is about dependents."""
        return _meta.pack(self.number, self.first, self.following)

    def restore_meta(self, record: bytes, at: int) -> int:
        """Take that part over; return where it ends."""
        self.number, self.first, self.following = _meta.unpack_from(record, at)
        return at + _meta.size

    def digest_parts(self) -> Iterator[bytes]:
        """Yield everything that replicas must agree on."""
        yield self.meta()
        known = dict(self._store.scan(ENDING, prefix_stop(ENDING)))
        known |= {
            ending_key(serial): b"" if ending is None else _write(ending)
            for serial, ending in self._fresh.items()
        }
        yield from (key + record for key, record in sorted(known.items()) if record)
        yield from self.members.keys()


def _write(ending: TaskEnding) -> bytes:
    head = _record.pack(ending.number, ending.outcome, ending.id, *ending.told)
    return head + ending.tube.encode()


def _read(record: bytes) -> TaskEnding:
    number, outcome, task_id, *told = _record.unpack_from(record)
    tube = record[_record.size :].decode()
    return TaskEnding(number, TaskOutcome(outcome), tube, task_id, (told[0], told[1]))
