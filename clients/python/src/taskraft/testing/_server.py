"""Load the node in memory from the distribution of the server."""

# ruff: noqa: PLC0415 - the server, with its libraries, may be missing

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from taskraft._task_stream import TaskStream
from taskraft.testing._memory_network import MemoryHeartbeats
from taskraft.testing.errors import ServerMissing

if TYPE_CHECKING:
    from taskraft.testing._virtual_time import VirtualTime
    from taskraft_service.memory_node.memory_node import MemoryNode

EXACT_TIMER_MS_MAX: Final = 1_000_000_000_000
"""Maximum delay of a timer of the node; timers need no checks, because there is one clock."""


@contextmanager
def quiet_server() -> Iterator[None]:
    """Print only errors of the server, unless the code under test has configured structlog.

    Raises:
        ServerMissing: the distribution `taskraft-server` is not installed.
    """
    if find_spec("taskraft_service") is None:
        raise ServerMissing(
            "taskraft.testing runs the code of the server in memory; install it with "
            "pip install 'taskraft[testing]'"
        )
    import structlog

    if structlog.is_configured():
        yield
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.reset_defaults()


def memory_node(time: VirtualTime, start_ms: int, *, auto_create_tubes: bool) -> MemoryNode:
    """Return a node with a virtual clock; `start_ms` is the time of day at 0."""
    from taskraft_service.clock.cluster_clock import NodeClocks
    from taskraft_service.memory_node.memory_node import HEARTBEAT_TIMER, MemoryNode

    def monotonic_ms() -> int:
        return round(time.time() * 1_000)

    heartbeats = (HEARTBEAT_TIMER, TaskStream.wake, MemoryHeartbeats.send)
    clocks = NodeClocks(monotonic_ms, lambda: start_ms + monotonic_ms(), EXACT_TIMER_MS_MAX)
    node = MemoryNode(clocks, auto_create_tubes=auto_create_tubes)

    def is_postponed(timer: asyncio.TimerHandle) -> bool:
        called = getattr(timer._callback, "__func__", None)  # type: ignore[attr-defined]  # noqa: SLF001 - the loop is ours
        return called in heartbeats and not node.has_leases

    # While no task is TAKEN, heartbeats keep nothing alive that is needed. Without them, the clock
    # moves over days at once.
    time.is_postponed = is_postponed
    return node
