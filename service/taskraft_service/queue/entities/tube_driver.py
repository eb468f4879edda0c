"""State what a driver is: a kind of tube that somebody else has written.

A driver decides in which order the ready tasks of its tubes are taken, and which tasks it takes in.
Everything else (leases, delays, retries, statistics, the feed) is as in other tubes. It runs on
every replica when an entry is applied, so it must be pure: equal arguments give equal answers, on
every machine and in every process. No clock, no randomness, no ``hash``, no order of sets, nothing
global.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from taskraft_service.queue.entities.instants import shown
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.values import value

RANK_MIN: Final = -(1 << 63)
RANK_MAX: Final = (1 << 63) - 1
MEMORY_BYTES_MAX: Final = 64 * 1024
"""What a driver may remember for one tube; it is written whenever the tube is."""


@value
class ArrivingTask:
    """A task that comes to the ready ones of a tube: what a driver may know of it.

    Args:
        id: grows with the puts; 0 when a put is only being judged.
        priority: as given, or the tube's.
        type: kind of work.
        payload_bytes: size of the payload.
        attempt: how often it has been taken.
        created_ms: when it was put.
        expire_at_ms: when its time to live ends; 0: never.
        now_ms: the cluster's clock.
    """

    id: int
    priority: int
    type: str
    payload_bytes: int
    attempt: int
    created_ms: int
    expire_at_ms: int
    now_ms: int


@value
class Placement:
    """Where a task stands: lower ranks are taken first, equal ones in order of their ids.

    ``memory`` is handed to the driver again with the next task of the tube.
    """

    rank: int
    memory: bytes


class TubeDriver(Protocol):
    """A kind of tube.

    Another ``version`` is another driver: the old one may place no task.
    """

    @property
    def name(self) -> str:
        """Return the name under which tubes ask for it."""

    @property
    def version(self) -> int:
        """Return its version, from 1; to be raised with every change of what it answers."""

    def refuse(self, arrival: ArrivingTask) -> str:
        """Return why a task cannot be put, as a sentence for people; empty: it can."""

    def place(self, arrival: ArrivingTask, memory: bytes) -> Placement:
        """Return where a task stands that becomes ready, or is changed while it is.

        ``memory`` is what the last call for this tube returned; empty at first.
        """


def arriving_task(task: QueueTask, now_ms: int) -> ArrivingTask:
    """Return what a driver may know of a task."""
    return ArrivingTask(
        task.id,
        task.priority,
        task.type,
        task.payload_bytes,
        task.attempt,
        task.created_ms,
        shown(task.expire_at_ms),
        now_ms,
    )


NO_DRIVERS: Final[Mapping[str, TubeDriver]] = {}


class TubeDriverMissing(Exception):
    """A tube needs a driver that this node does not have; the text says which."""


def driver_of(drivers: Mapping[str, TubeDriver], tube: str, name: str, version: int) -> TubeDriver:
    """Return the driver of a tube.

    Raises:
        TubeDriverMissing: this node has none of this name and version: it cannot go on.
    """
    found = drivers.get(name)
    if found is None or found.version != version:
        installed = ", ".join(f"{one.name} {one.version}" for _, one in sorted(drivers.items()))
        raise TubeDriverMissing(
            f"tube {tube!r} needs the driver {name!r} in version {version};"
            f" installed here: {installed or 'none'}"
        )
    return found
