"""Tune the memory of the process: Python's garbage collector and the allocator of glibc."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

MMAP_THRESHOLD_BYTES: Final = 256 * 1024
"""Minimum size of blocks that are allocated with mmap and returned to the system when freed.

By default, glibc raises this threshold to up to 32 MiB when such a block is freed. Large requests
are then allocated on the heap, and glibc does not return the gaps in the heap: after a burst of
puts of 1 MiB, nodes kept 1 GiB.
"""
COLLECTOR_THRESHOLDS: Final = (5_000, 2, 8_000)
"""Thresholds of the garbage collector for its three generations.

The first number is the number of new objects before a collection of the youngest generation. Each
other number is the number of collections of a generation before a collection of the next older
generation. A collection of the middle generation visits at most 20 000 objects, in about 5 ms.
Each object that stays is visited once in each generation, so smaller numbers cost little more.
"""
_M_MMAP_THRESHOLD: Final = -3
"""Parameter of mallopt(3); setting it also switches the automatic raise off."""


def return_freed_memory() -> bool:
    """Fix the threshold of large blocks; return False where the C library has no mallopt."""
    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)  # other C libraries, such as musl, lack it
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES))


def spare_the_collector() -> None:
    """Make the garbage collector scan new objects only, instead of all live tasks each time.

    Also switches the collector on, which is off while a node loads its modules.

    With the default thresholds, collections took a tenth of the CPU and paused the event loop for
    up to 90 ms while tasks were taken in batches of 100; now they take less than a hundredth.
    """
    gc.collect()
    # The objects built so far live until the process exits.
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    gc.enable()
