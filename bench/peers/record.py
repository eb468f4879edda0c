"""Record the starts of handlers in a worker; imported by the tasks of all compared frameworks.

The environment variables `PEER_TASKS` and `PEER_RESULT` give the number of tasks, and the file to
which the process writes the record after the last task.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_expected = int(os.environ.get("PEER_TASKS", "0"))
_result = os.environ.get("PEER_RESULT", "")
_starts: list[tuple[int, int]] = []
_cpu_ns_first = 0


def note(sent_ns: int, start_ns: int = 0) -> None:
    """Note when a handler started, 0: now; `sent_ns` is the time of the put."""
    global _cpu_ns_first  # noqa: PLW0603 - a handler has no object of its own
    if not _starts:
        _cpu_ns_first = time.process_time_ns()
    _starts.append((start_ns or time.monotonic_ns(), sent_ns))
    if len(_starts) == _expected:
        _write()


def _write() -> None:
    began = [start for start, _ in _starts]
    record = {
        "seconds": (max(began) - min(began)) / 1e9,
        "cpu_seconds": (time.process_time_ns() - _cpu_ns_first) / 1e9,
        "latencies_ms": [(start - sent) / 1e6 for start, sent in sorted(_starts, key=_sent)],
    }
    unfinished = Path(f"{_result}.part")
    unfinished.write_text(json.dumps(record))
    unfinished.rename(_result)


def _sent(start: tuple[int, int]) -> int:
    return start[1]
