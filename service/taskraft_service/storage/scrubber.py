"""Read all stored files again in the background, so that damage is found before a call reads it.

A pass runs on a thread of its own, in steps of about a millisecond. After each step the thread
pauses, so that it uses at most ``CPU_SHARE_MAX`` of a core and reads at most ``BYTES_PER_SECOND``.
The steps are short because a step of plain Python holds the interpreter, and with it the event
loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from taskraft_replication.damage import Damage, DamageListener
from taskraft_replication.errors import FormatUnknown, LogDamaged
from taskraft_replication.storage.checked_file import number_of, read_checked, write_checked
from taskraft_replication.storage.filesystem import DiskFileSystem

log: Final = structlog.get_logger(__name__)

CPU_SHARE_MAX: Final = 0.015
"""Maximum share of one core; the rest up to two percent is for the pauses themselves."""
BYTES_PER_SECOND: Final = 32 << 20
PAUSE_SECONDS_MIN: Final = 0.005
"""Minimum pause, in seconds; shorter pauses are added up until they reach it."""
FIRST_PASS_MS_MAX: Final = 60_000
"""Maximum time between the start of a node and its first pass, if an earlier pass is unknown."""
PROGRESS_FILE: Final = "scrub"

Steps = Callable[[], Iterator[int | Damage]]
"""Starts to check one part of the data directory; see ``log_scrub``."""


@dataclass(slots=True, frozen=True)
class ScrubProgress:
    """Results of the scrubber so far; replaced as a whole, so that any thread can read it."""

    bytes_read: int = 0
    """Bytes read since the start of the process."""
    passes: int = 0
    """Complete passes since the start of the process."""
    finished_ms: int = 0
    """Wall time at the end of the last complete pass, also of an earlier process; 0: none."""
    damage: tuple[Damage, ...] = ()
    """Damage found since the start of the process, one item for each file."""


class Scrubber:
    """Checks the data directory periodically, from `start` to `stop`.

    Args:
        data_dir: the data directory; a small file in it keeps the time of the last pass.
        parts: start the checks of the parts of the directory.
        period_ms: time from the end of one pass to the start of the next pass.
        wall_ms: reads the wall clock, which orders passes of different processes.
        listener: receives damage.
        call_soon: calls a function on the event loop.
    """

    def __init__(
        self,
        data_dir: Path,
        parts: Iterable[Steps],
        period_ms: int,
        wall_ms: Callable[[], int],
        listener: DamageListener,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._fs = DiskFileSystem(data_dir)
        self._parts = tuple(parts)
        self._period_ms = period_ms
        self._wall_ms = wall_ms
        self._listener = listener
        self._call_soon = call_soon
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrubber", daemon=True)
        self.progress = ScrubProgress(finished_ms=self._read_finished())

    def age_ms(self) -> int | None:
        """Return the time since the end of the last complete pass; None: there was none."""
        finished_ms = self.progress.finished_ms
        return max(0, self._wall_ms() - finished_ms) if finished_ms else None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after its step; a thread that waits for the disk ends later."""
        self._stopped.set()

    def _run(self) -> None:
        wait_ms = self._first_wait_ms()
        while not self._stopped.wait(wait_ms / 1000):
            try:
                self.run_pass()
            except OSError as error:
                log.warning("the scrub ends early; the next pass begins again", reason=str(error))
            wait_ms = self._period_ms

    def _first_wait_ms(self) -> int:
        """Return the time until the first pass; at most a period if the clock was set back."""
        age_ms = self.age_ms()
        soon_ms = min(FIRST_PASS_MS_MAX, self._period_ms)
        return soon_ms if age_ms is None else max(soon_ms, self._period_ms - age_ms)

    def run_pass(self) -> None:
        """Check everything once, at the bounded rate; stop early if ``stop`` is called.

        Raises:
            OSError: a file could not be read for a reason that is no damage.
        """
        pause = Pause(self._stopped.wait)
        for part in self._parts:
            for step in part():
                if isinstance(step, Damage):
                    self._report(step)
                else:
                    progress = self.progress
                    self.progress = replace(progress, bytes_read=progress.bytes_read + step)
                    pause.after(step)
                if self._stopped.is_set():
                    return
        finished_ms = self._wall_ms()
        progress = self.progress
        self.progress = replace(progress, passes=progress.passes + 1, finished_ms=finished_ms)
        try:
            write_checked(self._fs, PROGRESS_FILE, {"finished_ms": finished_ms})
        except OSError as error:
            # The disk may be full. The next start then repeats the pass, and nothing else is lost.
            log.warning("time of the scrub not stored", reason=str(error))

    def _report(self, damage: Damage) -> None:
        progress = self.progress
        if any(damage.file == known.file for known in progress.damage):
            return
        self.progress = replace(progress, damage=(*progress.damage, damage))
        self._call_soon(lambda: self._listener.damage_found(damage))

    def _read_finished(self) -> int:
        """Return the stored end of the last pass; 0 if it is unknown."""
        if not self._fs.exists(PROGRESS_FILE):
            return 0
        try:
            return number_of(read_checked(self._fs, PROGRESS_FILE), "finished_ms")
        except (LogDamaged, FormatUnknown) as error:
            log.warning("time of the last scrub is unreadable", reason=str(error))
            return 0


class Pause:
    """Bounds the CPU time and the bytes per second of the calling thread.

    Args:
        wait: waits for a number of seconds.
        cpu_share: maximum share of one core.
    """

    def __init__(self, wait: Callable[[float], object], cpu_share: float = CPU_SHARE_MAX) -> None:
        self._wait = wait
        self._cpu_share = cpu_share
        self._cpu = time.thread_time()
        self._owed = 0.0
        """Seconds of pause that the steps since the last pause require."""

    def after(self, step_bytes: int) -> None:
        """Pause after a step that has read some bytes."""
        cpu = time.thread_time()
        used, self._cpu = cpu - self._cpu, cpu
        self._owed += max(used / self._cpu_share, step_bytes / BYTES_PER_SECOND)
        if self._owed >= PAUSE_SECONDS_MIN:
            self._wait(self._owed)
            self._owed = 0.0
