"""The option ``--watch`` of commands that show something."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec

import click

from taskraft.cli.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

Params = ParamSpec("Params")


@contextmanager
def _interrupts_noted() -> Iterator[threading.Event]:
    """Return an event that Ctrl-C sets; Ctrl-C also raises KeyboardInterrupt.

    CPython drops the exception if Ctrl-C arrives during a finalizer or a callback of a weak
    reference, and would print the exception on standard error.
    """
    interrupted = threading.Event()
    report = sys.unraisablehook

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    def report_others(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            report(dropped)

    before = signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = report_others
    try:
        yield interrupted
    finally:
        sys.unraisablehook = report
        signal.signal(signal.SIGINT, before)


def watch_option(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add options that repeat a command until Ctrl-C.

    On a terminal, each output replaces the one before. Elsewhere the outputs follow each other.
    """

    @functools.wraps(command)
    def repeat(*args: Params.args, **options: Params.kwargs) -> None:
        watch, interval = bool(options.pop("watch")), float(str(options.pop("interval")))
        if not watch:
            command(*args, **options)
            return
        if not interval > 0:
            raise click.BadParameter("the interval must be longer than 0", param_hint="--interval")
        with _interrupts_noted() as interrupted:
            while not interrupted.is_set():
                if sys.stdout.isatty():
                    click.clear()
                command(*args, **options)
                sys.stdout.flush()
                interrupted.wait(interval)
        raise KeyboardInterrupt

    return click.option("-w", "--watch", is_flag=True, help="Repeat the command until Ctrl-C.")(
        click.option(
            "--interval",
            type=DURATION,
            default="2s",
            show_default=True,
            help="Time between two repetitions of --watch.",
        )(repeat)
    )
