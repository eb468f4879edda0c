"""Progress of commands that take longer than a second, on a terminal."""

from __future__ import annotations

import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from rich.progress import Progress

T = TypeVar("T")
SILENT_SECONDS: Final = 1.0
"""Time before the progress is shown, in seconds."""


class WorkProgress:
    """Count, rate, and remaining time of a work, on standard error; a context manager.

    Nothing is shown for a work of less than a second, and without a terminal.

    Args:
        what: description of the work, for example "importing".
        total: expected count; None: not known.
        unit: what is counted: "tasks" or "bytes".
    """

    def __init__(self, what: str, total: int | None = None, unit: str = "tasks") -> None:
        self._lock = threading.Lock()
        self._done, self._began = 0, monotonic()
        self._what, self._total, self._unit = what, total, unit
        self._shown: Progress | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> WorkProgress:
        if sys.stderr.isatty():
            self._timer = threading.Timer(SILENT_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._shown is not None:
                self._shown.stop()

    def advance(self, count: int) -> None:
        """Add to the count; any thread may call this."""
        with self._lock:
            self._done += count
            if self._shown is not None:
                task = self._shown.task_ids[0]
                self._shown.update(task, completed=self._done, total=self._total, rate=self._rate())

    def expect(self, total: int) -> None:
        """Set the expected count, which is known only after the beginning."""
        self._total = total

    @property
    def is_possible(self) -> bool:
        """Whether the progress is shown if the work takes long."""
        return self._timer is not None

    def examined(self, part: float) -> None:
        """Estimate the expected count from the part of the work that is done, greater than 0."""
        with self._lock:
            self._total = max(round(self._done / part), self._done)
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], total=self._total)

    def _rate(self) -> str:
        from rich import filesize

        rate = self._done / max(monotonic() - self._began, 0.001)
        return f"{filesize.decimal(int(rate))}/s" if self._unit == "bytes" else f"{rate:,.0f}/s"

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn() if self._unit == "bytes" else MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        with self._lock:
            if self._timer is None:
                return  # the work ended at this moment
            progress.add_task(
                self._what, total=self._total, completed=self._done, rate=self._rate()
            )
            progress.start()
            self._shown = progress


def shown(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, and show the progress of the loop that uses them."""
    with WorkProgress(what, total) as progress:
        for item in items:
            yield item
            progress.advance(1)
