"""The option ``--watch`` of commands that show something."""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, ParamSpec

import click

from taskraft.cli.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

Params = ParamSpec("Params")


def watch_option(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add options that repeat a command until Ctrl-C.

    On a terminal, each output replaces the one before. Elsewhere the outputs follow each other.
    """

    @functools.wraps(command)
    def repeat(*args: Params.args, **options: Params.kwargs) -> None:
        watch, interval = bool(options.pop("watch")), float(str(options.pop("interval")))
        if watch and not interval > 0:
            raise click.BadParameter("the interval must be longer than 0", param_hint="--interval")
        pause = threading.Event()
        while True:
            if watch and sys.stdout.isatty():
                click.clear()
            command(*args, **options)
            if not watch:
                return
            sys.stdout.flush()
            pause.wait(interval)

    return click.option("-w", "--watch", is_flag=True, help="Repeat the command until Ctrl-C.")(
        click.option(
            "--interval",
            type=DURATION,
            default="2s",
            show_default=True,
            help="Time between two repetitions of --watch.",
        )(repeat)
    )
