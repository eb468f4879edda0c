"""Print a failure in one line and a hint in another, and choose the exit code."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from taskraft import catalogue, errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
UNAVAILABLE: Final = 5
TIMEOUT: Final = 6
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in shells."""
SIGNALED: Final = 128
"""Exit code after another signal that a command handles, plus the number of the signal."""

EXIT_CODES: Final[Mapping[str, int]] = {
    "INVALID_ARGUMENT": USAGE,
    "NOT_FOUND": NOT_FOUND,
    "ALREADY_EXISTS": CONFLICT,
    "FAILED_PRECONDITION": CONFLICT,
    "ABORTED": CONFLICT,
    "UNAVAILABLE": UNAVAILABLE,
    "RESOURCE_EXHAUSTED": UNAVAILABLE,
    "DEADLINE_EXCEEDED": TIMEOUT,
}
"""Exit code by gRPC status code; other codes exit with FAILED."""


def report(error: Exception) -> int | None:
    """Print a failure to standard error; return the exit code, None for a bug of this program."""
    if isinstance(error, errors.ItemsRefused):
        for position, refused in error.refused.items():
            click.echo(f"error: item {position}: {refused.reason}: {refused}", err=True)
        first = next(iter(error.refused.values()))
        _hint(first)
        return exit_code(first)
    if isinstance(error, errors.TaskraftError):
        violations = error.violations if isinstance(error, errors.InvalidField) else ()
        if not violations:
            click.echo(f"error: {error.reason}: {error}", err=True)
        for violation in violations:
            line = f"{error.reason}: {violation.field}: {violation.description}"
            click.echo(f"error: {line}", err=True)
        _hint(error)
        return exit_code(error)
    if isinstance(error, ValueError | RuntimeError):
        click.echo(f"error: {error}", err=True)
        return USAGE
    if isinstance(error, OSError) and error.errno != errno.EPIPE:  # click handles closed pipes
        click.echo(f"error: {error.strerror or error}", err=True)
        _discard_output()
        return FAILED
    return None


def report_usage(error: click.ClickException) -> int:
    """Print an error of click in one line, and a hint for wrong usage; return the exit code."""
    message = " ".join(error.format_message().split())
    click.echo(f"error: {message}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"hint:  see: {error.ctx.command_path} --help", err=True)
    return error.exit_code


@contextmanager
def without_code_1() -> Iterator[None]:
    """Report failures of the block with USAGE in place of FAILED.

    A command needs this if its exit code 1 is a result, as that of `diff`.
    """
    try:
        yield
    except (click.Abort, click.exceptions.Exit):
        raise
    except click.ClickException as error:
        raise click.exceptions.Exit(max(report_usage(error), USAGE)) from error
    except Exception as error:
        code = report(error)
        if code is None:
            raise
        raise click.exceptions.Exit(USAGE if code == FAILED else code) from error


def _discard_output() -> None:
    """Redirect stdout to /dev/null; otherwise Python's flush at exit fails with status 120."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def exit_code(error: errors.TaskraftError) -> int:
    """Return the exit code of a failure."""
    return EXIT_CODES.get(error.code, FAILED)


def _hint(error: errors.TaskraftError) -> None:
    row = catalogue.CATALOGUE.get(error.reason)
    hint = error.advice or (row.advice if row is not None else "")
    if hint:
        click.echo(f"hint:  {hint}", err=True)
