"""Replay many traces concurrently, because most traces mainly sleep."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from typing import Final, TypeAlias

from tests.oracle.clusters import Host
from tests.oracle.replay import replay
from tests.oracle.trace import TraceUnreadable, read_trace

SINGLE_HOSTS: Final = 3
"""Number of single-node hosts; each plays one trace at a time."""
PAIRED: Final = 2
"""Number of nodes of the host on which roles are switched."""

Ended: TypeAlias = queue.SimpleQueue[tuple[Path, list[str]]]


def replay_all(paths: Iterable[Path], report: Callable[[Path, list[str]], None]) -> None:
    """Replay traces, and report the differences of each trace as soon as it ends.

    Starting a node takes longer than most traces, so traces share nodes: one trace at a time, each
    on an empty queue.
    """
    turns = sorted((_turn(path), path) for path in paths)
    switching = [path for turn, path in turns if turn is Turn.SWITCHES_ROLES]
    others = [path for turn, path in turns if turn is not Turn.SWITCHES_ROLES]
    ended: Ended = queue.SimpleQueue()
    with ExitStack() as stack:
        for some, hosts, nodes in ((switching, 1, PAIRED), (others, SINGLE_HOSTS, 1)):
            pool = stack.enter_context(ThreadPoolExecutor(hosts))
            mine = threading.local()
            for path in some:
                pool.submit(_replay_on_own, path, stack, mine, nodes, ended)
        for _ in turns:
            report(*ended.get())


def _replay_on_own(
    path: Path, stack: ExitStack, mine: threading.local, nodes: int, ended: Ended
) -> None:
    """Replay a trace on the host of this thread, which the first trace starts."""
    found = ["not played"]
    try:
        if not hasattr(mine, "host"):
            mine.host = stack.enter_context(Host(nodes=nodes))
        found = replay(path, mine.host)
    except Exception as error:  # noqa: BLE001 - reported as a difference
        found = [f"not played: {type(error).__name__}: {error}"]
    finally:
        ended.put((path, found))


class Turn(IntEnum):
    """Order of traces: long ones first, timed ones last.

    A timed trace is then not delayed by nodes that start or by traces that never sleep.
    """

    SWITCHES_ROLES = 0
    RESTARTS = 1
    SLEEPS = 2
    RUNS = 3
    KEEPS_BEAT = 4


def _turn(path: Path) -> Turn:
    try:
        trace = read_trace(path)
    except TraceUnreadable:
        return Turn.RUNS
    if trace.has_clock:
        return Turn.KEEPS_BEAT
    if trace.changes_nodes:
        return Turn.SWITCHES_ROLES if trace.switches_roles else Turn.RESTARTS
    return Turn.SLEEPS if trace.timed else Turn.RUNS
