"""Hold the contents of temporary tubes in a second instance of the queue, on a store in memory.

Tasks, leases, deadlines, statistics and waiting work as in the replicated queue. There is no log,
so each command is applied at once, and there is no change feed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from taskraft_service.command_codecs.put import new_task
from taskraft_service.entries.body_editor import edit_body
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import DEFINITIONS, Command, Result
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.queue_state import CounterOrigin
from taskraft_service.storage.memory import MemoryStore

COLLECT_TASKS: Final = 1_000
COLLECT_BYTES: Final = 4 * 1024 * 1024
"""Changes are written to the store after this many tasks or approximately this many bytes."""
RESERVE_SHARE: Final = 8
"""Commands other than puts may exceed the memory limit by the limit divided by this number."""
LIMITS: Final = Limits(requests_max=100_000, resident_bytes_max=16 * 1024 * 1024)
"""Limits that differ from the replicated queue, because everything is in memory."""


class MemoryQueue:
    """A queue that is lost when the process ends.

    Args:
        origin: lowest tube numbers, task ids and lease tokens.
        bytes_max: maximum memory in bytes; puts beyond it are refused.
        drivers: installed tube drivers by name.
    """

    def __init__(
        self, origin: CounterOrigin, bytes_max: int, drivers: Mapping[str, TubeDriver]
    ) -> None:
        self._store = MemoryStore()
        self._bytes_max = bytes_max
        self._fresh_bytes = 0
        """Approximate bytes that were added since the last collect."""
        self.queue = Queue(self._store, LIMITS, new_task, edit_body, drivers, origin)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the contents, in bytes."""
        return self._store.memory_bytes + self._fresh_bytes

    def highest_number(self) -> int:
        """Return the highest task id or lease token that the queue has assigned."""
        queue = self.queue
        return max((queue.last_token, *map(queue.last_id, queue.tube_names())))

    def apply(self, now_ms: int, commands: Sequence[Command]) -> list[Result]:
        """Fire due deadlines, then apply the commands; return one result per command.

        A command that would exceed the memory limit is refused.
        """
        results: list[Result] = []
        for command in commands:
            refusal = self._without_room(command)
            results.append(refusal or self._apply(now_ms, (command,))[0])
        if not commands:
            self._apply(now_ms, ())
        return results

    def _apply(self, now_ms: int, commands: Sequence[Command]) -> Sequence[Result]:
        queue = self.queue
        if queue.ahead:
            queue.read_ahead()
        results = queue.apply(queue.applied_index + 1, max(now_ms, queue.now_ms), commands)
        self._fresh_bytes += sum(growth_bytes(command) for command in commands)
        changed, _ = queue.unwritten_tasks
        if changed >= COLLECT_TASKS or self._fresh_bytes >= COLLECT_BYTES:
            self._collect()
        return results

    def _collect(self) -> None:
        self._store.write(self.queue.collect_writes())
        self.queue.look_ahead()
        self._fresh_bytes = 0

    def _without_room(self, command: Command) -> Refusal | None:
        """Return why a command would exceed the memory limit, or None."""
        growth = growth_bytes(command)
        if not growth:
            return None
        most = self._bytes_max
        if not _puts(command):
            most += most // RESERVE_SHARE
        if self.memory_bytes + growth > most and self._fresh_bytes:
            self._collect()
        if self.memory_bytes + growth <= most:
            return None
        return Refusal(
            Reason.LIMIT_REACHED,
            f"temporary tubes may use {most} bytes of memory; retry when tasks have ended",
            {"limit": "temporary_bytes_max", "value": str(self._bytes_max)},
        )


def _puts(command: Command) -> bool:
    """Return whether a command puts tasks, alone or in a batch."""
    if isinstance(command, ExecuteBatch):
        return any(map(_puts, command.operations))
    return isinstance(command, Put)


def growth_bytes(command: Command) -> int:
    """Return the upper bound of the bytes that a command adds."""
    return DEFINITIONS[type(command)].growth_bytes(command)
