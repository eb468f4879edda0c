"""Run a member's storage work in virtual time, in order, one item at a time."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from taskraft_replication.effects import StorageWork
from tests.sim.disk import Crashed, SimDisk
from tests.sim.schedule import Event

T = TypeVar("T")

SYNC_US = (100, 3000)

_Work = tuple[Callable[[], object], Callable[[object], None]]


class Process(Protocol):
    """The member, as its storage thread uses it."""

    is_running: bool

    def later(self, delay_us: int, name: str, run: Callable[[], None]) -> Event: ...

    def failed(self, error: OSError) -> None: ...

    def crashed(self) -> None: ...

    def pump(self) -> None: ...


class StorageThread:
    """The simulated counterpart of ``taskraft_replication.node.storage_worker``."""

    def __init__(self, process: Process, disk: SimDisk, rng: Random) -> None:
        self.sync_us = SYNC_US
        """Range of the duration of one item of work."""
        self.is_whole = True
        """Whether each write since the start was reported. A write that was interrupted, or is done
        on a hung disk, may have replaced entries that the member still counts as stored."""
        self._process = process
        self._disk = disk
        self._rng = rng
        self._work: deque[_Work] = deque()
        self._crash_within = 0
        """Number of disk operations after which the process ends; 0: no crash is planned."""
        self.progress = StorageWork()
        """The finished work since the last start."""
        self._is_hung = False
        self._held: Callable[[], None] | None = None
        """The work that continues when the disk answers again."""

    def begin_life(self) -> None:
        self._work.clear()
        self._crash_within = 0
        self.is_whole = True
        self.progress = StorageWork()
        self._is_hung = False
        self._held = None

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._work.append((work, then))  # type: ignore[arg-type]  # the pair agrees on T
        self.progress.requested += 1
        if len(self._work) == 1:
            self._begin()

    def crash_soon(self) -> None:
        """End the process during the next item of work, or right after it."""
        self._crash_within = self._rng.randrange(1, 8)

    def hang(self) -> None:
        """Hang: finish no work until ``answer`` is called."""
        self._is_hung = True

    def answer(self) -> None:
        """End a hang, and continue the pending work."""
        self._is_hung = False
        held, self._held = self._held, None
        if held is not None and self._process.is_running:
            self._process.later(0, "answer", held)

    def mend(self) -> None:
        """End all faults of this thread."""
        self.sync_us = SYNC_US
        self._crash_within = 0
        self.answer()

    def _begin(self) -> None:
        self._process.later(self._rng.randint(*self.sync_us), "store", self._end)

    def _end(self) -> None:
        work, then = self._work[0]
        if self._is_hung and self._rng.random() < 0.5:
            self._held = self._end
            return
        if self._crash_within:
            self._crash(work)
            return
        try:
            result = work()
        except OSError as error:
            self.is_whole = False
            self._process.failed(error)
            return
        if self._is_hung:
            # The content is durable already, but the sync does not return.
            self.is_whole = False
            self._held = partial(self._finish, then, result)
        else:
            self._finish(then, result)

    def _finish(self, then: Callable[[object], None], result: object) -> None:
        self.is_whole = True
        self._work.popleft()
        self.progress.finished += 1
        if self._work:
            self._begin()
        then(result)
        if self._process.is_running:
            self._process.pump()

    def _crash(self, work: Callable[[], object]) -> None:
        """Do a part of the work; no reply reports the part as durable."""
        self.is_whole = False
        self._disk.crash_at = self._disk.operations + self._crash_within
        with contextlib.suppress(Crashed, OSError):
            work()
        self._process.crashed()
