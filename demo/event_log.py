"""Print events with the time since the start."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final


class EventLog:
    """Prints lines with the time since its creation; thread-safe."""

    def __init__(self) -> None:
        self._began_ns: Final = time.monotonic_ns()
        self._lock: Final = threading.Lock()

    def print_event(self, text: str) -> None:
        """Print one event with the time since the start."""
        elapsed_ms = (time.monotonic_ns() - self._began_ns) // 1_000_000
        with self._lock:
            print(f"{elapsed_ms / 1_000:7.1f} s  {text}", flush=True)

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines without a time."""
        with self._lock:
            print("\n" + "\n".join(lines), flush=True)
