"""Hold the contents of temporary tubes: the queue's core once more, on a store in memory.

It is the same core as that of the replicated queue, so tasks, leases, deadlines, statistics and
waiting work alike. There is no log, so each command is applied at once, and no change feed.
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
"""Changes are brought to the store when so many tasks, or about so many bytes, are concerned."""
RESERVE_SHARE: Final = 8
"""One part in so many above the bound is left to whatever is not a put, so that work can go on."""
LIMITS: Final = Limits(requests_max=100_000, resident_bytes_max=16 * 1024 * 1024)
"""Other bounds than the replicated queue's where disks would have to do with memory."""


class MemoryQueue:
    """A queue that is lost with the process.

    Args:
        origin: from where it counts.
        bytes_max: what it may take of the memory; puts beyond it are refused.
        drivers: the kinds of tubes that others have written, by name.
    """

    def __init__(
        self, origin: CounterOrigin, bytes_max: int, drivers: Mapping[str, TubeDriver]
    ) -> None:
        self._store = MemoryStore()
        self._bytes_max = bytes_max
        self._fresh_bytes = 0
        """About what was added since the last collect."""
        self.queue = Queue(self._store, LIMITS, new_task, edit_body, drivers, origin)

    @property
    def memory_bytes(self) -> int:
        """About how much memory the contents take."""
        return self._store.memory_bytes + self._fresh_bytes

    def apply(self, now_ms: int, commands: Sequence[Command]) -> list[Result]:
        """Do commands at a time, deadlines first; one result for each.

        A command for which there is no memory is refused.
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
        results = queue.apply(queue.applied_index + 1, max(now_ms, queue.now_ms), commands)
        self._fresh_bytes += sum(growth_bytes(command) for command in commands)
        if queue.changed_tasks >= COLLECT_TASKS or self._fresh_bytes >= COLLECT_BYTES:
            self._collect()
        return results

    def _collect(self) -> None:
        self._store.write(self.queue.collect_writes())
        self.queue.read_ahead()
        self._fresh_bytes = 0

    def _without_room(self, command: Command) -> Refusal | None:
        """Return why there is no memory for what a command may bring, or None."""
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
            f"the temporary tubes of this node would take more than {most} bytes of memory",
            {"limit": "temporary_bytes_max", "value": str(self._bytes_max)},
        )


def _puts(command: Command) -> bool:
    """Tell whether a command has new tasks, alone or in a batch."""
    if isinstance(command, ExecuteBatch):
        return any(map(_puts, command.operations))
    return isinstance(command, Put)


def growth_bytes(command: Command) -> int:
    """Return the upper bound of the bytes that a command adds."""
    return DEFINITIONS[type(command)].growth_bytes(command)
