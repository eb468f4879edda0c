"""Describe the machine of a measurement and its load."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

SYNC_SAMPLES: Final = 100
SYNC_BYTES: Final = 4_096

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
"""Unit of the times in /proc."""
CPU_CLOCK_OF_PROCESS: Final = 2
"""Kind of a Linux clock whose id holds a process id: the CPU time by the scheduler, in ns."""


@dataclass(slots=True, frozen=True)
class Machine:
    """Facts that a reader needs to compare two results."""

    cores: int
    processor: str
    kernel: str
    python: str
    grpcio: str
    commit: str
    is_modified: bool
    """Whether the work tree differs from the commit."""
    memory_mib: int
    fdatasync_p50_us: int
    """Median time of fdatasync in µs, for a preallocated file in the data folder of the nodes."""


def output_of(*command: str) -> str:
    """Return the output of a program; empty if the program fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def processor_name() -> str:
    """Return the processor's name as the kernel reports it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def measure_sync_us(folder: Path) -> int:
    """Return the median time in µs of writing 4 KiB to a preallocated file and ``fdatasync``."""
    with tempfile.TemporaryFile(dir=folder) as file:
        number = file.fileno()
        os.posix_fallocate(number, 0, SYNC_SAMPLES * SYNC_BYTES)
        os.fsync(number)
        durations = []
        for place in range(SYNC_SAMPLES):
            os.pwrite(number, os.urandom(SYNC_BYTES), place * SYNC_BYTES)
            began = time.perf_counter_ns()
            os.fdatasync(number)
            durations.append(time.perf_counter_ns() - began)
    return round(median(durations) / 1_000)


def describe(folder: Path) -> Machine:
    """Return the facts about this machine; ``folder`` is a folder on the disk to measure."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        processor=processor_name(),
        kernel=platform.release(),
        python=platform.python_version(),
        grpcio=version("grpcio"),
        commit=output_of("git", "rev-parse", "--short", "HEAD"),
        is_modified=bool(output_of("git", "status", "--porcelain", "--untracked-files=no")),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024 // 1024,
        fdatasync_p50_us=measure_sync_us(folder),
    )


@dataclass(slots=True, frozen=True)
class CpuTimes:
    """CPU time of the whole machine since its start, in ticks."""

    busy: int
    idle: int
    steal: int
    """CPU time that the hypervisor withheld while this machine wanted to run."""

    @classmethod
    def now(cls) -> CpuTimes:
        """Read the counters of the kernel."""
        fields = [int(text) for text in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        user, nice, system, idle, waiting, interrupt, soft, steal = fields[:8]
        return cls(user + nice + system + interrupt + soft, idle + waiting, steal)


def process_cpu_ns(pid: int) -> int:
    """Return the CPU time that a process has used in ns, ended threads included; Linux only."""
    return time.clock_gettime_ns((~pid << 3) | CPU_CLOCK_OF_PROCESS)


def process_ticks(pid: int) -> int:
    """Return the CPU time of all threads of a process, in ticks."""
    # The name in parentheses may hold spaces; the fields after it do not.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def descendants_ticks(without: Collection[int] = ()) -> int:
    """Return the CPU time of this process and of all processes below it, in ticks.

    Args:
        without: ids of processes to leave out, with the processes below them.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(stat.parent.name))
    waiting, ticks = [os.getpid()], 0
    while waiting:
        pid = waiting.pop()
        with suppress(OSError):
            ticks += process_ticks(pid)
        waiting += [child for child in children[pid] if child not in without]
    return ticks


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
