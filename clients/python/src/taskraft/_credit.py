"""Compute the credit that a subscription grants to the server; pure arithmetic.

The limit applies to all tasks that were sent and are not settled, except tasks whose handlers wait
for other tasks. Invariant: after a grant, counted tasks plus open grants do not exceed the limit.
The server never sends more than was granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from taskraft._arguments import whole_number
from taskraft._task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CREDIT_TASKS_MAX: Final = 100_000
"""Maximum open credit of the API, in tasks."""

CREDIT_BYTES_MAX: Final = (1 << 63) - 1

WAITING_HANDLERS_MAX: Final = 1_000
"""Maximum number of tasks that are excluded from the limit, so that a worker whose handlers wait
forever stops growing."""

Held = TypeVar("Held", bound=Task)


class Credit(Generic[Held]):
    """Holds the unsettled tasks, and computes the next grant."""

    def __init__(self, tasks_max: int, bytes_max: int = 0) -> None:
        """Set the limits.

        Args:
            tasks_max: maximum number of unsettled tasks.
            bytes_max: maximum payload bytes of all unsettled tasks; 0: no limit.
        """
        self.tasks_max: Final = whole_number("credit", tasks_max, 1, CREDIT_TASKS_MAX)
        """Maximum number of unsettled tasks."""
        self.withheld = 0
        """Number of tasks by which the limit is reduced for the moment."""
        self.is_due = False
        """True: the next grant has a message of its own, however small the grant is."""
        self._bytes_max = whole_number("credit_bytes", bytes_max, 0, CREDIT_BYTES_MAX)
        self._granted_tasks = 0
        self._granted_bytes = 0
        self._held_bytes = 0
        self._is_granted = False
        self.held: Final[dict[int, Held]] = {}
        """Unsettled tasks by lease token, in order of arrival."""
        self._waiting_handlers: dict[int, int] = {}
        """Number of waiting parts of a task's handler, by lease token."""
        self._waiting_bytes = 0
        self._settling: set[int] = set()

    def hold(self, task: Held, *, is_granted: bool = True) -> None:
        """Add a received task; `is_granted` is True if the task used up credit."""
        payload_bytes = len(task.payload)
        self.held[task.token] = task
        self._held_bytes += payload_bytes
        if is_granted:
            self._granted_tasks -= 1
            self._granted_bytes -= payload_bytes

    def drop(self, token: int) -> Held | None:
        """Remove a settled or lost task; return it if it was held."""
        task = self.held.pop(token, None)
        if task is not None:
            self._held_bytes -= len(task.payload)
            if self._waiting_handlers.pop(token, 0):
                self._waiting_bytes -= len(task.payload)
        return task

    def handler_waits(self, token: int) -> None:
        """Exclude a task from the limit while its handler waits; see `WAITING_HANDLERS_MAX`."""
        task = self.held.get(token)
        if task is None or len(self._waiting_handlers) >= WAITING_HANDLERS_MAX:
            return
        waiting = self._waiting_handlers.get(token, 0)
        self._waiting_handlers[token] = waiting + 1
        if not waiting:
            self._waiting_bytes += len(task.payload)

    def handler_resumes(self, token: int) -> None:
        """Count a task again after the last part of its handler has stopped waiting."""
        waiting = self._waiting_handlers.get(token, 0)
        if waiting > 1:
            self._waiting_handlers[token] = waiting - 1
        elif waiting:
            del self._waiting_handlers[token]
            self._waiting_bytes -= len(self.held[token].payload)

    @property
    def counted(self) -> int:
        """Number of unsettled tasks to which the limit applies."""
        return len(self.held) - len(self._waiting_handlers)

    @property
    def open_tasks(self) -> int:
        """Number of tasks that were granted and have not arrived."""
        return self._granted_tasks

    @property
    def is_worth_a_message(self) -> bool:
        """Whether the next grant of tasks has a message of its own."""
        return self._missing_tasks >= self._least_tasks

    @property
    def _missing_tasks(self) -> int:
        """Number of tasks that may be granted; negative if the limit was reduced after a grant."""
        return self.tasks_max - self.withheld - self.counted - self._granted_tasks

    @property
    def _least_tasks(self) -> int:
        """Minimum number of tasks for which a grant has a message of its own."""
        if self.is_due or self._waiting_handlers:
            return 1
        return (max(self.tasks_max - self.withheld, 1) + 1) // 2

    def settling(self, tokens: Sequence[int]) -> None:
        """Remove tasks whose settlement is being sent; the settlement carries the freed credit."""
        for token in tokens:
            if self.drop(token) is not None:
                self._settling.add(token)

    def settled(self, tokens: Sequence[int]) -> None:
        """Record that the settlements of tasks were answered, with any result."""
        self._settling.difference_update(tokens)

    def is_known(self, token: int) -> bool:
        """Return whether a lease is held or being settled."""
        return token in self.held or token in self._settling

    def postpone(self, by_ms: int) -> None:
        """Move the ends of the held leases, because the wall time was set ahead by `by_ms`."""
        for task in self.held.values():
            if task.message.lease_until_ms:
                task.message.lease_until_ms += by_ms
                task.message.since_ms += by_ms

    def expired(self, now_ms: int) -> list[Held]:
        """Remove and return the tasks whose leases expired before `now_ms`."""
        over = [task for task in self.held.values() if 0 < task.lease_until_ms < now_ms]
        for task in over:
            self.drop(task.token)
        return over

    def missing_from(self, tokens: Iterable[int]) -> list[Held]:
        """Remove and return the held tasks whose tokens are not in `tokens`."""
        known = set(tokens)
        gone = [task for token, task in self.held.items() if token not in known]
        for task in gone:
            self.drop(task.token)
        return gone

    def restart(self) -> None:
        """Reset the grants, because a new stream starts without credit."""
        self._granted_tasks = 0
        self._granted_bytes = 0
        self._is_granted = False

    def grant(self, *, is_convenient: bool) -> tuple[int, int] | None:
        """Return the tasks and bytes to grant now, or None if the grant can wait.

        Args:
            is_convenient: a message is sent anyway. Otherwise a grant gets its own message only
                when half of the limit, less the withheld tasks, is open, when a handler waits for
                other tasks, or when `is_due`.
        """
        tasks = self._missing_tasks
        held_bytes = self._held_bytes - self._waiting_bytes
        size_bytes = max(self._bytes_max - held_bytes - self._granted_bytes, 0)
        least_tasks = 1 if is_convenient else self._least_tasks
        least_bytes = (self._bytes_max + 1) // 2
        if tasks < least_tasks and not (self._bytes_max and size_bytes >= least_bytes):
            return None
        if self._bytes_max and not size_bytes and not self._is_granted:
            return None  # 0 bytes in the first grant of a stream would mean "no byte limit"
        self._is_granted = True
        self.is_due = False
        tasks = max(tasks, 0)
        self._granted_tasks += tasks
        self._granted_bytes += size_bytes
        return tasks, size_bytes if self._bytes_max else 0
