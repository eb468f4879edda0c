"""Define the interface of tube drivers, which are kinds of tubes installed as plugins.

A driver decides the order of the ready tasks of its tubes, and which tasks the tubes accept.
Everything else (leases, delays, retries, statistics, the feed) works as in other tubes. A driver
runs on every replica when an entry is applied, so it must be pure: equal arguments give equal
answers on every machine and in every process. It must not use a clock, randomness, ``hash``, the
order of sets, or global state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Protocol

from taskraft_service.queue.values import value

RANK_MIN: Final = -(1 << 63)
RANK_MAX: Final = (1 << 63) - 1
MEMORY_BYTES_MAX: Final = 64 * 1024
"""Maximum memory of a driver per tube, in bytes; written with every change of the tube."""


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
    """A kind of tube; two versions of a driver count as different drivers."""

    @property
    def name(self) -> str:
        """Name by which tubes refer to the driver."""

    @property
    def version(self) -> int:
        """Version, from 1; increase it with every change of the answers."""

    def refuse(self, arrival: ArrivingTask) -> str:
        """Return why a task cannot be put, as a sentence; empty if it can be put."""

    def place(self, arrival: ArrivingTask, memory: bytes) -> Placement:
        """Return the rank of a task that becomes READY, or that changes while READY.

        ``memory`` is the value that the last call for this tube returned; empty at first.
        """


class DriverHook(IntEnum):
    """A method of a driver."""

    REFUSE = 1
    PLACE = 2


class DriverFailed(Exception):
    """A driver raised an exception or returned a value outside the limits; see the text."""


def refuse_checked(driver: TubeDriver, arrival: ArrivingTask) -> str:
    """Return why a driver does not accept a task; empty: the driver accepts the task.

    Raises:
        DriverFailed: the driver raised an exception, or returned no text.
    """
    try:
        why: object = driver.refuse(arrival)
    except Exception as error:  # foreign code may raise anything
        raise DriverFailed(f"refuse raised {_shown(error)}") from error
    if not isinstance(why, str):
        raise DriverFailed(f"refuse returned {type(why).__name__}, not a text")
    return why


def place_checked(driver: TubeDriver, arrival: ArrivingTask, memory: bytes) -> Placement:
    """Return the rank of a task and the new memory of the tube.

    Raises:
        DriverFailed: the driver raised an exception, or returned a value outside the limits.
    """
    try:
        placement = driver.place(arrival, memory)
        rank: object = placement.rank
        new_memory: object = placement.memory
    except Exception as error:  # foreign code may raise anything
        raise DriverFailed(f"place raised {_shown(error)}") from error
    if not isinstance(rank, int) or not RANK_MIN <= rank <= RANK_MAX:
        raise DriverFailed(f"place returned the rank {rank!r:.40}, not a signed 64-bit integer")
    if not isinstance(new_memory, bytes):
        raise DriverFailed(
            f"place returned a memory of type {type(new_memory).__name__}, not bytes"
        )
    if len(new_memory) > MEMORY_BYTES_MAX:
        most = MEMORY_BYTES_MAX
        raise DriverFailed(f"place returned {len(new_memory)} bytes of memory, more than {most}")
    return placement


def _shown(error: Exception) -> str:
    """Return the type and the text of an exception, in up to 200 characters."""
    return f"{type(error).__name__}: {error}"[:200]


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
