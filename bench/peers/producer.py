"""Put tasks at a rate, or as fast as possible."""

from __future__ import annotations

import time
from collections.abc import Callable


def put_all(put: Callable[[int], object], tasks: int, rate: float) -> None:
    """Put tasks one by one; `rate` is tasks per second, 0: no limit."""
    began = time.monotonic_ns()
    for number in range(tasks):
        if rate:
            due = began + int(number / rate * 1e9)
            time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        put(time.monotonic_ns())
