"""Show the queue to the waiters and to the proposer: what is ready, what an entry may make ready.

The state machine's queue is replaced when a snapshot is installed, so it is asked for each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.machine.contents import Contents
from service.machine.state_machine import QueueMachine
from service.queue.commands import (
    Batch,
    ByFilter,
    ByIds,
    Command,
    Kick,
    Move,
    Put,
    Restart,
    Selector,
    Settle,
    Snatch,
    Switch,
    Touch,
    UpdateTasks,
)


class QueueBoard:
    """Satisfies ``waiters.Board`` and ``proposer.Core``."""

    def __init__(self, machine: QueueMachine, contents: Contents) -> None:
        self._machine = machine
        self._contents = contents

    def ready(self, tube: str) -> int:
        """Return how many tasks of a tube could be taken now."""
        return self._contents.of(tube).ready_count(tube)

    def is_logged(self, tube: str) -> bool:
        """Tell whether takes from a tube go into the log."""
        return self._contents.is_logged(tube)

    def names(self) -> Sequence[str]:
        """Return the names of all tubes."""
        return [tube.name for tube in self._machine.queue.tubes()]

    def expect(self, data: bytes, now_ms: int, commands: Sequence[Command]) -> None:
        """Keep the commands of an entry until it is applied."""
        self._machine.expect(data, now_ms, commands)

    def next_deadline_ms(self) -> int | None:
        """Return when the clock must move next."""
        return self._machine.queue.next_deadline_ms()

    def feeds(self, commands: Sequence[Command], now_ms: int) -> Mapping[str, int]:
        """Return how many tasks an entry may make ready by tube: too many rather than too few."""
        put: dict[str, int] = {}
        others = 1
        for command in commands:
            if isinstance(command, Put):
                put[command.tube] = put.get(command.tube, 0) + len(command.tasks)
            elif isinstance(command, Kick):
                others += max(command.count, at_most(command.selector))
            elif isinstance(command, Move | Snatch | Restart | Switch | UpdateTasks):
                others += at_most(command.selector)
            elif isinstance(command, Settle):
                others += sum(
                    len(settlement.tokens)
                    for settlement in command.settlements
                    if not isinstance(settlement, Touch)
                )
            elif isinstance(command, Batch):
                for tube, tasks in self.feeds(command.operations, now_ms).items():
                    put[tube] = put.get(tube, 0) + tasks
        names = self._machine.queue.could_be_ready(commands, now_ms)
        # In a fixed order: it decides the order of the takes.
        return {name: put.get(name, 0) or others for name in sorted(names)}


def at_most(selector: Selector | None) -> int:
    """Return how many tasks a selector may name."""
    if selector is None:
        return 0
    if isinstance(selector, ByFilter):
        return selector.tasks_max
    return len(selector.ids if isinstance(selector, ByIds) else selector.keys)
