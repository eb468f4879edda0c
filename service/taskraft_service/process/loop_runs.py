"""Count long runs of the event loop by CPU time, and name the callbacks that ran.

A run is one callback of the event loop: one step of a coroutine, a timer, or a socket that became
ready. All other callbacks wait until a run ends, so long runs delay calls and heartbeats. A run is
measured in CPU time of the loop's thread, without the collection of garbage: neither the load of
the machine nor a slow disk makes a run long.

The CPU clock is a call of the operating system, about 0.5 us. It is read only when 1 ms of real
time has passed since the last reading, so the CPU time of a run is exact to 1 ms.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from asyncio import events
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from taskraft_service.api.rpc.endpoint import running_method

log: Final = structlog.get_logger(__name__)

LONG_SECONDS: Final = 0.010
"""CPU seconds of a run that is counted."""
VERY_LONG_SECONDS: Final = 0.100
"""CPU seconds of a run that is also logged."""
RESOLUTION_SECONDS: Final = 0.001
PLACES_MAX: Final = 200
"""Maximum number of places that are counted by name; the others are counted together."""
LOGGED_EVERY_SECONDS: Final = 1.0
"""Minimum time between two log lines about runs."""


class Place(NamedTuple):
    """The function of a callback, or the coroutine of a task and the method of its call."""

    name: str
    method: str = ""


OTHER_PLACES: Final = Place("other")


_RUN: Final = "_run"
"""The method of a handle that runs its callback."""


def place_of(handle: asyncio.Handle) -> Place:
    """Return the function or the coroutine that a handle of the event loop runs."""
    callback: Any = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine: Any = owner.get_coro()
        context: Context | None = getattr(handle, "_context", None)
        method = context.get(running_method, "") if context is not None else ""
        return Place(getattr(coroutine, "__qualname__", type(coroutine).__name__), method)
    while isinstance(callback, partial):
        callback = callback.func
    return Place(getattr(callback, "__qualname__", type(callback).__name__))


class LoopRuns:
    """The numbers of long runs of one event loop, by place.

    Args:
        cpu_seconds: CPU clock of the calling thread.
        real_seconds: a monotonic clock.
    """

    def __init__(
        self,
        cpu_seconds: Callable[[], float] = time.thread_time,
        real_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._real_seconds = real_seconds
        self._cpu_read = 0.0
        self._real_read = 0.0
        self._collected = 0.0
        """CPU seconds of collections since the CPU clock was last read."""
        self._collection_began = 0.0
        self._logged_at = -LOGGED_EVERY_SECONDS
        self._thread = 0
        self._running: asyncio.Handle | None = None
        self._long: dict[Place, int] = {}
        self._very_long: dict[Place, int] = {}
        self.longest_seconds = 0.0
        """CPU seconds of the longest run since the start."""

    @property
    def long(self) -> Mapping[Place, int]:
        """The numbers of runs above 10 ms."""
        return self._long

    @property
    def very_long(self) -> Mapping[Place, int]:
        """The numbers of runs above 100 ms."""
        return self._very_long

    def running(self) -> Place | None:
        """Return the place that the event loop runs now, or ran last; for other threads."""
        handle = self._running
        return None if handle is None else place_of(handle)

    def _read_clock(self, handle: asyncio.Handle, now: float) -> None:
        """Count the run that has ended, if it was long; ``now`` is the real time."""
        self._real_read = now
        cpu = self._cpu_seconds()
        used = cpu - self._cpu_read - self._collected
        self._cpu_read, self._collected = cpu, 0.0
        if used >= LONG_SECONDS:
            self._count(place_of(handle), used, now)

    def _count(self, place: Place, used: float, now: float) -> None:
        self.longest_seconds = max(self.longest_seconds, used)
        _increment(self._long, place)
        if used >= VERY_LONG_SECONDS:
            _increment(self._very_long, place)
            if now - self._logged_at >= LOGGED_EVERY_SECONDS:
                self._logged_at = now
                log.warning(
                    "a run of the event loop took long",
                    place=place.name,
                    method=place.method,
                    cpu_ms=round(used * 1000),
                )

    def _note_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_began = self._cpu_seconds()
        else:
            self._collected += self._cpu_seconds() - self._collection_began

    def watch(self) -> Callable[[], None]:
        """Count the runs of the loop of this thread; return a function that ends this.

        asyncio has no hook for callbacks, so the method that runs a handle is replaced.
        """
        self._thread = threading.get_ident()
        self._cpu_read, self._real_read = self._cpu_seconds(), self._real_seconds()
        run: Callable[[events.Handle], None] = getattr(events.Handle, _RUN)
        thread, get_ident = self._thread, threading.get_ident
        real_seconds = self._real_seconds

        def counted(handle: events.Handle) -> None:
            if get_ident() != thread:
                run(handle)
                return
            self._running = handle
            run(handle)
            now = real_seconds()
            if now - self._real_read >= RESOLUTION_SECONDS:
                self._read_clock(handle, now)

        setattr(events.Handle, _RUN, counted)
        gc.callbacks.append(self._note_collection)

        def stop() -> None:
            setattr(events.Handle, _RUN, run)
            gc.callbacks.remove(self._note_collection)

        return stop


def _increment(counts: dict[Place, int], place: Place) -> None:
    if place not in counts and len(counts) >= PLACES_MAX:
        place = OTHER_PLACES
    counts[place] = counts.get(place, 0) + 1
