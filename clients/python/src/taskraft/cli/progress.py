"""Show the progress of a long command on a terminal, after its first second."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
SILENT_SECONDS: Final = 1.0
"""Time before the progress is shown, in seconds."""


def shown(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield the items; show their number, the rate, and the remaining time if the total is known.

    Args:
        items: items to pass on.
        what: description of the work, for example "importing".
        total: number of items; None: not known.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    bar = progress.add_task(what, total=total, rate="")
    began, is_shown = monotonic(), False
    try:
        for number, item in enumerate(items, start=1):
            yield item
            passed = monotonic() - began
            if passed < SILENT_SECONDS:
                continue
            if not is_shown:
                progress.start()
                is_shown = True
            progress.update(bar, completed=number, rate=f"{number / passed:,.0f}/s")
    finally:
        if is_shown:
            progress.stop()
