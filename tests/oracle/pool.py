"""Replay many traces at once: those that mostly sleep do not wait for each other."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.oracle.clusters import Host
from tests.oracle.replay import replay
from tests.oracle.trace import TraceUnreadable, read_trace

HOSTS: Final = 4
"""Nodes at once; each plays one trace at a time."""


def replay_all(paths: Iterable[Path], told: Callable[[Path, list[str]], None]) -> None:
    """Replay traces and tell of each how the service differs from it, as they end."""
    with ExitStack() as stack:
        hosts: queue.SimpleQueue[Host] = queue.SimpleQueue()
        pool = stack.enter_context(ThreadPoolExecutor(HOSTS))
        started = [pool.submit(_start, stack) for _ in range(HOSTS)]
        for one in started:
            hosts.put(one.result())
        ended: queue.SimpleQueue[tuple[Path, list[str]]] = queue.SimpleQueue()
        ordered = sorted(paths, key=_turn)
        for path in ordered:
            pool.submit(_replay_on_one, path, hosts, ended)
        for _ in ordered:
            told(*ended.get())


def _start(stack: ExitStack) -> Host:
    return stack.enter_context(Host())


def _turn(path: Path) -> int:
    """Return when it is a trace's turn: those that sleep first, those that keep a beat last.

    So a beat is not disturbed by nodes that start, or by traces that do not sleep at all.
    """
    try:
        trace = read_trace(path)
    except TraceUnreadable:
        return 0
    if trace.has_clock:
        return 3
    return 0 if trace.changes_nodes else 1 if trace.timed else 2


def _replay_on_one(
    path: Path,
    hosts: queue.SimpleQueue[Host],
    ended: queue.SimpleQueue[tuple[Path, list[str]]],
) -> None:
    host = hosts.get()
    found = ["not played"]
    try:
        found = replay(path, host)
    finally:
        hosts.put(host)
        ended.put((path, found))
