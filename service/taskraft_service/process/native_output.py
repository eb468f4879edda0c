"""Convert the stderr output of native code into log records.

gRPC's C core writes the bytes of peers to file descriptor 2, for example the debug text of a
GOAWAY frame, with its line breaks. A peer could therefore write lines that look like records of
this process. Descriptor 2 is therefore replaced by a pipe: a thread reads the pipe and logs each
line as the escaped text of a record. Only the log and the crash report of Python write to the real
stderr.

The pipe never blocks its writers: output that does not fit is lost. A crash inside native code may
lose its last lines; Python's crash report (faulthandler) goes to the real stderr directly.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import structlog

from taskraft_service.record_budget import RecordBudget

LINE_BYTES_MAX: Final = 4_096
"""Maximum size of the text in one record; a longer line becomes several records."""
BURST_LINES: Final = 200
LINES_PER_SECOND: Final = 20.0
"""Maximum rate of records; the next record has the number of lines that were left out."""
_READ_BYTES: Final = 65_536
_STDERR: Final = 2
_LEVELS: Final = {"I": logging.INFO, "W": logging.WARNING}
_SEVERITY: Final = re.compile(r"([IWEF])\d{4} ")
"""Start of a line of Google's logging library: severity, month and day."""

log: Final = structlog.get_logger(__name__)


class OutputRecords:
    """Splits bytes into lines and logs each line as one record.

    Args:
        seconds: clock of the rate limit.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._budget = RecordBudget(BURST_LINES, LINES_PER_SECOND, seconds)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Log the complete lines of the received bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._log(line)
        while len(self._rest) > LINE_BYTES_MAX:
            self._log(self._rest[:LINE_BYTES_MAX])
            self._rest = self._rest[LINE_BYTES_MAX:]

    def end(self) -> None:
        """Log an incomplete last line."""
        rest, self._rest = self._rest, b""
        self._log(rest)

    def _log(self, line: bytes) -> None:
        for start in range(0, len(line), LINE_BYTES_MAX):
            suppressed = self._budget.take()
            if suppressed is None:
                continue
            text = line[start : start + LINE_BYTES_MAX].decode(errors="backslashreplace")
            severity = _SEVERITY.match(text)
            level = _LEVELS.get(severity[1], logging.ERROR) if severity else logging.WARNING
            more = {"suppressed": suppressed} if suppressed else {}
            log.log(level, "output on stderr", text=text, **more)


class _PythonOutput(io.TextIOBase):
    """Replaces ``sys.stderr``: logs the output of Python code as records, without the pipe."""

    def __init__(self) -> None:
        super().__init__()
        self._records = OutputRecords()
        self._lock = threading.RLock()

    def writable(self) -> bool:
        """Return True, because the stream can be written."""
        return True

    def write(self, text: str, /) -> int:
        """Log the complete lines of a text."""
        with self._lock:
            self._records.feed(text.encode(errors="backslashreplace"))
        return len(text)


@contextmanager
def captured_output() -> Iterator[TextIO]:
    """Capture descriptor 2 and ``sys.stderr``; yield the real stderr.

    Log handlers must write to the yielded stream. The exit of the context logs all output and
    restores the real stderr.
    """
    _open_stderr_if_closed()
    if sys.stderr is not None:
        sys.stderr.flush()
    real = os.dup(_STDERR)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.dup2(writing, _STDERR, inheritable=True)
    os.close(writing)
    before, raises_before = sys.stderr, logging.raiseExceptions
    # A handler that fails to write would report its error to sys.stderr, which is itself a log.
    logging.raiseExceptions = False
    sys.stderr = _PythonOutput()
    thread = threading.Thread(target=_read, args=(reading,), name="native-output", daemon=True)
    thread.start()
    with os.fdopen(real, "w", encoding="utf-8", errors="backslashreplace") as stream:
        faulthandler.enable(stream)
        try:
            yield stream
        finally:
            faulthandler.disable()
            sys.stderr = before
            os.dup2(real, _STDERR)  # closes the last write end, unless a child process has one
            thread.join(timeout=1.0)
            logging.raiseExceptions = raises_before


def _open_stderr_if_closed() -> None:
    """Open descriptor 2 if the process was started without it.

    Otherwise the next opened file, for example the Raft log, would get number 2, and native code
    would write into that file.
    """
    try:
        os.fstat(_STDERR)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != _STDERR:
            os.dup2(nowhere, _STDERR)
            os.close(nowhere)


def _read(descriptor: int) -> None:
    records = OutputRecords()
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while data := pipe.read(_READ_BYTES):
            records.feed(data)
        records.end()
