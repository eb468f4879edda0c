"""Tubes and tasks of the model: their answers, and the order of tasks.

Times are milliseconds since the start of a trace; None means never.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.oracle.trace import Json

CALLS: Final = (
    "ack",
    "bury",
    "delay",
    "delete",
    "kick",
    "put",
    "release",
    "take",
    "touch",
    "ttl",
    "ttr",
)
STATES: Final = ("READY", "TAKEN", "DELAYED", "BURIED")
TIMED_KINDS: Final = ("fifottl", "limfifottl", "utubettl")
SUBQUEUE_KINDS: Final = ("utube", "utubettl")
KINDS: Final = ("fifo", "utube", *TIMED_KINDS)
FOREVER_SECONDS: Final = 100 * 365 * 86_400
MILLISECONDS: Final = 1000


class Refusal(Exception):
    """A refused operation; the text is the error class of the traces."""


@dataclass(slots=True)
class Task:
    """A task; times in milliseconds, None means no limit."""

    name: str
    number: int
    data: Json
    subqueue: str
    priority: int
    created_at: int
    ttl_ms: int | None
    ttr_ms: int | None
    state: str = "READY"
    due_at: int | None = None
    owner: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Return the sort key of the task among waiting tasks."""
        return self.priority, self.number

    @property
    def ends_at(self) -> int | None:
        """Return the time at which the TTL of the task ends."""
        return later(self.created_at, self.ttl_ms)

    def answer(self, state: str | None = None) -> Json:
        """Return the task in the form of an operation's answer."""
        return {
            "task": self.name, "id": self.number, "state": state or self.state, "data": self.data,
        }  # fmt: skip


@dataclass(slots=True)
class Tube:
    """A tube with its tasks by id, and the handles of its waiting calls in FIFO order."""

    kind: str
    options: Mapping[str, Json]
    tasks: dict[int, Task] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    done: int = 0
    waiting: list[str] = field(default_factory=list)

    def blocks(self, task: Task) -> bool:
        """Return whether the sub-queue of a task has a TAKEN task."""
        return self.kind in SUBQUEUE_KINDS and any(
            other.state == "TAKEN" and other.subqueue == task.subqueue
            for other in self.tasks.values()
        )

    def first(self, state: str) -> Task | None:
        """Return the first task in a state that may be taken or kicked."""
        found = [task for task in self.tasks.values() if task.state == state]
        if state == "READY":
            found = [task for task in found if not self.blocks(task)]
        return min(found, key=lambda task: task.order, default=None)

    def statistics(self) -> Json:
        """Return the counts of tasks by state and of operations."""
        counts = Counter(task.state for task in self.tasks.values())
        tasks = {state.lower(): counts[state] for state in STATES}
        return {
            "tasks": {**tasks, "done": self.done, "total": len(self.tasks)},
            "calls": {name: self.calls[name] for name in CALLS},
        }


def text_of(name: Json) -> str:
    return name if isinstance(name, str) else json.dumps(name)


def later(at: int, more: int | None) -> int | None:
    return None if more is None else at + more


def exact(seconds: float) -> int:
    return round(max(seconds, 0) * MILLISECONDS)


def milliseconds(seconds: float) -> int | None:
    return None if seconds >= FOREVER_SECONDS else exact(seconds)


def seconds_of(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / MILLISECONDS
