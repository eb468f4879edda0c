"""The interface of a tube driver: a kind of tube that is installed as a plugin.

A driver decides the order of the ready tasks of its tubes, and which tasks the tubes accept.
Everything else (leases, delays, retries, statistics, the feed) works as in other tubes. A driver
runs on every replica when an entry is applied, so it must be pure: equal arguments give equal
answers on every machine and in every process. It must not use a clock, randomness, ``hash``, the
order of sets, or global state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from taskraft_service.queue.values import value

RANK_MIN: Final = -(1 << 63)
RANK_MAX: Final = (1 << 63) - 1
MEMORY_BYTES_MAX: Final = 64 * 1024
"""Maximum memory of a driver per tube, in bytes; it is written with every change of the tube."""


@value
class ArrivingTask:
    """A task that becomes READY, as a driver sees it.

    Args:
        id: grows with each put; 0 while a put is only checked.
        priority: priority of the task, or the default of the tube.
        type: kind of work.
        payload_bytes: size of the payload.
        attempt: number of attempts so far.
        created_ms: instant of the put.
        expire_at_ms: instant at which the time to live ends; 0: never.
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
    """Rank of a task: lower ranks come first, equal ranks in order of the ids.

    ``memory`` is passed to the driver with the next task of the tube.
    """

    rank: int
    memory: bytes


class TubeDriver(Protocol):
    """A kind of tube; a driver with another ``version`` counts as another driver."""

    @property
    def name(self) -> str:
        """Name by which tubes refer to the driver."""

    @property
    def version(self) -> int:
        """Version, from 1; raise it with every change of the answers."""

    def refuse(self, arrival: ArrivingTask) -> str:
        """Return why a task cannot be put, as a sentence; empty if it can be put."""

    def place(self, arrival: ArrivingTask, memory: bytes) -> Placement:
        """Return the rank of a task that becomes READY, or that changes while READY.

        ``memory`` is what the last call for this tube returned; empty at first.
        """


NO_DRIVERS: Final[Mapping[str, TubeDriver]] = {}


class TubeDriverMissing(Exception):
    """A tube needs a driver that is not installed on this node; the text names it."""


def driver_of(drivers: Mapping[str, TubeDriver], tube: str, name: str, version: int) -> TubeDriver:
    """Return the driver of a tube.

    Raises:
        TubeDriverMissing: no driver of this name and version is installed; the node must stop.
    """
    found = drivers.get(name)
    if found is None or found.version != version:
        installed = ", ".join(f"{one.name} {one.version}" for _, one in sorted(drivers.items()))
        raise TubeDriverMissing(
            f"tube {tube!r} needs the driver {name!r} in version {version};"
            f" installed here: {installed or 'none'}"
        )
    return found
