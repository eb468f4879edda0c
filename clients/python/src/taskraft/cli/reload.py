"""Run a worker in a process of its own, and restart the process when its code changes."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from watchfiles import PythonFilter, watch

POLL_MS: Final = 100
"""Interval in ms at which the state of the process is checked while no file changes."""

log = logging.getLogger("taskraft.worker")


class Reloader:
    """Restarts a command whenever a Python file below a folder changes, until a signal.

    The first signal drains the process, and the second one ends it at once. The process has a
    session of its own, so that Ctrl-C in a terminal reaches it once.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """Store the command, and the folder to watch."""
        self._command: Final = command
        self._folder: Final = folder
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_end_logged = False

    def run(self) -> int:
        """Run until a signal, and return the exit status of the last process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        try:
            self._restart_on_changes()
            return 0 if self._process is None else self._process.wait()
        finally:
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _restart_on_changes(self) -> None:
        # The first timeout starts the process: from then on, no change is missed.
        for changes in watch(
            self._folder,
            watch_filter=PythonFilter(),
            stop_event=self._stopping,
            rust_timeout=POLL_MS,
            yield_on_timeout=True,
        ):
            if self._process is None:
                self._start()
            elif changes:
                names = sorted({Path(path).name for _, path in changes})
                log.info("changed: %s; restarting the worker", ", ".join(names))
                self._process.terminate()
                self._process.wait()
                if not self._stopping.is_set():
                    self._start()
            else:
                self._log_end(self._process)

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603 - this program again
        self._is_end_logged = False
        if self._stopping.is_set():  # the signal came before the process
            self._process.terminate()

    def _log_end(self, process: subprocess.Popen[bytes]) -> None:
        """Log once that the process has ended by itself."""
        if not self._is_end_logged and (status := process.poll()) is not None:
            self._is_end_logged = True
            log.warning("the worker ended with status %d; waiting for a change", status)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()
        if self._process is not None:
            self._process.terminate()


def run_reloading(arguments: Sequence[str]) -> int:
    """Run `taskraft` with these arguments, and restart it when a file here changes."""
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # hides a record for each change
    command = [sys.executable, "-c", "from taskraft.cli import main; main()", *arguments]
    return Reloader(command, Path.cwd()).run()
