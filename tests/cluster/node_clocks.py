"""Set the clocks of node processes, even while they run, which no node setting can do.

Python imports ``sitecustomize`` before a program. This module writes a ``sitecustomize`` that adds
an offset, which may grow with time, to each reading of a clock. The test writes the offsets into a
file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from struct import Struct

from tools.local_node import Node

HOUR_MS = 3_600_000

_SHIFTS = Struct("<qqqq")
_CODE = """
import mmap, os, struct, time

_file = open(os.environ["TEST_CLOCK_SHIFTS"], "rb")
_shifts = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)
_wall_ns, _clock_ns = time.time_ns, time.clock_gettime_ns


def _shift_ns(place):
    shifts = struct.unpack_from("<qqqq", _shifts, 0)
    since_ns, per_mille = shifts[2:]
    gained_ns = (_clock_ns(time.CLOCK_BOOTTIME) - since_ns) * per_mille // 1_000
    return shifts[place] * 1_000_000 + gained_ns


def _time_ns():
    return _wall_ns() + _shift_ns(0)


def _clock_gettime_ns(clock):
    return _clock_ns(clock) + (_shift_ns(1) if clock == time.CLOCK_BOOTTIME else 0)


time.time_ns, time.clock_gettime_ns = _time_ns, _clock_gettime_ns
"""


class NodeClocks:
    """The clocks of one node; create it before the node starts."""

    def __init__(self, node: Node) -> None:
        self.node = node
        folder = node.folder / "clocks"
        folder.mkdir(parents=True)
        (folder / "sitecustomize.py").write_text(_CODE)
        self._file = folder / "shifts"
        self._wall_ms = self._slept_ms = 0
        self._fast_since_ns = self._fast_per_mille = 0
        self._write()
        path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
        clocks = {"PYTHONPATH": path, "TEST_CLOCK_SHIFTS": str(self._file)}
        node.environment = {**node.environment, **clocks}

    def set_wall(self, ahead_ms: int) -> None:
        """Set the offset of the node's wall clock; a running node sees a jump."""
        self._wall_ms = ahead_ms
        self._write()

    def let_pass(self, slept_ms: int) -> None:
        """Advance all clocks, as if the machine had been suspended."""
        self._slept_ms += slept_ms
        self._wall_ms += slept_ms
        self._write()

    def run_fast(self, per_mille: int) -> None:
        """Let all clocks of the node run fast by this rate from now on; 0: at the right rate."""
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        gained_ns = (now_ns - self._fast_since_ns) * self._fast_per_mille // 1_000
        gained_ms = gained_ns // 1_000_000 + bool(self._fast_per_mille)  # a clock never goes back
        self._fast_since_ns, self._fast_per_mille = now_ns, per_mille
        self.let_pass(gained_ms)

    def _write(self) -> None:
        """Change the file in place, because the node has it mapped."""
        shifts = _SHIFTS.pack(
            self._wall_ms, self._slept_ms, self._fast_since_ns, self._fast_per_mille
        )
        if not self._file.exists():
            Path(self._file).write_bytes(shifts)
            return
        with self._file.open("r+b") as file:
            file.write(shifts)
