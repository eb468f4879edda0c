"""Count how many tasks the server may still send; pure arithmetic.

The limit holds for everything that has been sent and is not settled, but for what is lent: tasks
whose handlers wait for other tasks. Invariant: when credit is granted, the tasks held and not lent
and those still granted are together no more than the limit; the server never sends above the grant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from taskraft._arguments import whole_number
from taskraft._task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CREDIT_TASKS_MAX: Final = 100_000
"""The contract's limit of open credit."""

CREDIT_BYTES_MAX: Final = (1 << 63) - 1

WAITING_HANDLERS_MAX: Final = 1_000
"""So many tasks may be lent at once: a worker whose tasks wait for ever grows no further."""

Held = TypeVar("Held", bound=Task)


class Credit(Generic[Held]):
    """Hold the tasks that are not settled, and say what to grant next."""

    def __init__(self, tasks_max: int, bytes_max: int = 0) -> None:
        """Take the limits.

        Args:
            tasks_max: So many tasks may be held at once.
            bytes_max: So many bytes of payload may be held at once; 0 without limit.
        """
        self.tasks_max: Final = whole_number("credit", tasks_max, 1, CREDIT_TASKS_MAX)
        """So many tasks may be held at once."""
        self._bytes_max = whole_number("credit_bytes", bytes_max, 0, CREDIT_BYTES_MAX)
        self._granted_tasks = 0
        self._granted_bytes = 0
        self._held_bytes = 0
        self._is_granted = False
        self.held: Final[dict[int, Held]] = {}
        """The tasks by their lease tokens, in order of their arrival."""
        self._waiting_handlers: dict[int, int] = {}
        """How many parts of a task's handler wait, by its token."""
        self._waiting_bytes = 0
        self._settling: set[int] = set()

    def hold(self, task: Held, *, is_granted: bool = True) -> None:
        """Note a task that came; `is_granted` tells whether it used up credit."""
        payload_bytes = len(task.payload)
        self.held[task.token] = task
        self._held_bytes += payload_bytes
        if is_granted:
            self._granted_tasks -= 1
            self._granted_bytes -= payload_bytes

    def drop(self, token: int) -> Held | None:
        """Note that a task is settled or lost; return it if it was held."""
        task = self.held.pop(token, None)
        if task is not None:
            self._held_bytes -= len(task.payload)
            if self._waiting_handlers.pop(token, 0):
                self._waiting_bytes -= len(task.payload)
        return task

    def handler_waits(self, token: int) -> None:
        """Let the server send another task in place of one whose handler waits."""
        task = self.held.get(token)
        if task is None or len(self._waiting_handlers) >= WAITING_HANDLERS_MAX:
            return
        waiting = self._waiting_handlers.get(token, 0)
        self._waiting_handlers[token] = waiting + 1
        if not waiting:
            self._waiting_bytes += len(task.payload)

    def handler_resumes(self, token: int) -> None:
        """Count a task again, when the last part of its handler has ended to wait."""
        waiting = self._waiting_handlers.get(token, 0)
        if waiting > 1:
            self._waiting_handlers[token] = waiting - 1
        elif waiting:
            del self._waiting_handlers[token]
            self._waiting_bytes -= len(self.held[token].payload)

    def settling(self, tokens: Sequence[int]) -> None:
        """Note that tasks are being settled: their credit travels with their settlement."""
        for token in tokens:
            if self.drop(token) is not None:
                self._settling.add(token)

    def settled(self, tokens: Sequence[int]) -> None:
        """Note that the settlements of tasks were answered, whatever the answer."""
        self._settling.difference_update(tokens)

    def is_known(self, token: int) -> bool:
        """Return whether a lease is held, or is being settled."""
        return token in self.held or token in self._settling

    def expired(self, now_ms: int) -> list[Held]:
        """Drop and return the tasks whose leases ended by themselves before `now_ms`."""
        over = [task for task in self.held.values() if 0 < task.lease_until_ms < now_ms]
        for task in over:
            self.drop(task.token)
        return over

    def missing_from(self, tokens: Iterable[int]) -> list[Held]:
        """Drop and return the held tasks whose leases are not among `tokens`."""
        known = set(tokens)
        gone = [task for token, task in self.held.items() if token not in known]
        for task in gone:
            self.drop(task.token)
        return gone

    def restart(self) -> None:
        """Note that a new stream begins, on which nothing is granted."""
        self._granted_tasks = 0
        self._granted_bytes = 0
        self._is_granted = False

    def grant(self, *, is_convenient: bool) -> tuple[int, int] | None:
        """Return what to grant now, tasks and bytes, or None when it can wait.

        Args:
            is_convenient: A message leaves anyhow. Otherwise a grant is worth a message of its own
                when half of the limit is open, or when somebody waits for what it would bring.
        """
        tasks = self.tasks_max - len(self.held) + len(self._waiting_handlers) - self._granted_tasks
        held_bytes = self._held_bytes - self._waiting_bytes
        size_bytes = max(self._bytes_max - held_bytes - self._granted_bytes, 0)
        least_tasks = 1 if is_convenient or self._waiting_handlers else (self.tasks_max + 1) // 2
        least_bytes = (self._bytes_max + 1) // 2
        if tasks < least_tasks and not (self._bytes_max and size_bytes >= least_bytes):
            return None
        if self._bytes_max and not size_bytes and not self._is_granted:
            return None  # without bytes in the first grant of a stream they would not be limited
        self._is_granted = True
        tasks = max(tasks, 0)
        self._granted_tasks += tasks
        self._granted_bytes += size_bytes
        return tasks, size_bytes if self._bytes_max else 0
