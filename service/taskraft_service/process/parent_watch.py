"""Stop the node when its parent process exits, for whatever reason.

The parent keeps the write end of a pipe and writes nothing; the read end is the node's standard
input. When the parent exits, also by SIGKILL, the kernel closes the pipe, so no node is left
behind. No signal does this on both Linux and macOS.
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
    """Return the read end of a pipe that closes when this process exits: stdin for nodes."""
    reading, _ = os.pipe()  # not inherited by default; the write end is never closed
    return reading


def stop_with_parent(torn: Callable[[], None]) -> None:
    """Call ``torn`` once, when standard input reaches its end-of-file."""
    loop, source = asyncio.get_running_loop(), sys.stdin.fileno()

    def look() -> None:
        if not os.read(source, _READ_BYTES):
            loop.remove_reader(source)
            torn()

    loop.add_reader(source, look)
