"""Read the clock by which the client measures waits and deadlines."""

from __future__ import annotations

import asyncio
import time


def monotonic() -> float:
    """Return the time of the running event loop, in seconds; outside of a loop `time.monotonic`.

    Both clocks are equal, unless the loop has a virtual clock (`taskraft.testing`). The pauses and
    timeouts of asyncio follow the clock of the loop, so deadlines must follow it too.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
