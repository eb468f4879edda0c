"""End a node with the program that started it, however that one ends.

The program keeps the writing end of a pipe whose reading end is the node's standard input, and
writes nothing. When it is gone, by SIGKILL too, the kernel closes the pipe: so no node is left
behind. There is no signal for this that both Linux and macOS have.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

_READ_BYTES: Final = 4096


@cache
def open_parent_pipe() -> int:
    """Return the reading end of a pipe that ends with this process: standard input for nodes."""
    reading, _ = os.pipe()  # neither is inherited unasked, and the writing end is never closed
    return reading


def stop_with_parent(torn: Callable[[], None]) -> None:
    """Call ``torn``, once, when standard input has ended."""
    loop, source = asyncio.get_running_loop(), sys.stdin.fileno()

    def look() -> None:
        if not os.read(source, _READ_BYTES):
            loop.remove_reader(source)
            torn()

    loop.add_reader(source, look)
