"""Run the consumer processes and keep their records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

STOP_TIMEOUT_S: Final = 40
"""Maximum time for consumers to stop; an acknowledgement may be waiting for a new leader."""


class ConsumerFailed(Exception):
    """A consumer did not start, or ended with an error."""


class ConsumerProcesses:
    """Context manager that runs some consumer processes."""

    def __init__(self, count: int, target: str, folder: Path) -> None:
        self._target: Final = target
        self._names: Final = [f"c{number}" for number in range(1, count + 1)]
        self._folder: Final = folder
        self._processes: dict[str, subprocess.Popen[str]] = {}

    @property
    def records(self) -> Sequence[Path]:
        """Record files of all consumers."""
        return [self._folder / f"{name}.jsonl" for name in self._names]

    def stop(self) -> None:
        """Let every consumer finish its taken tasks, and wait until all have ended.

        Raises:
            ConsumerFailed: a consumer ended with an error, now or earlier.
        """
        for process in self._processes.values():
            process.terminate()
        statuses = {name: process.wait(STOP_TIMEOUT_S) for name, process in self._processes.items()}
        if failed := [
            f"{name} with status {status}" for name, status in statuses.items() if status
        ]:
            raise ConsumerFailed(f"consumers failed: {', '.join(failed)}; see {self._folder}")

    def _start(self, name: str) -> None:
        arguments = ("--name", name, "--target", self._target)
        records = ("--records", str(self._folder / f"{name}.jsonl"))
        with (self._folder / f"{name}.log").open("w") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "demo.consumer", *arguments, *records],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        """Start all consumers and wait until each is ready.

        Raises:
            ConsumerFailed: a consumer did not start.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in self._names:
            self._start(name)
        for name, process in self._processes.items():
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                self._kill()
                raise ConsumerFailed(f"{name} did not start; see {self._folder / name}.log")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the remaining processes."""
        self._kill()

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
