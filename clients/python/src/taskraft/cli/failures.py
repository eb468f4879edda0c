"""Print a failure in one line and a hint in another, and choose the exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from taskraft import catalogue, errors
from taskraft.cli.terminal_text import terminal_text

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

LINE_HEAD_CHARACTERS: Final = 1_500
LINE_TAIL_CHARACTERS: Final = 500
"""Parts of a longer line that are printed."""
_LINE_END: Final = re.compile(r"\s*\n\s*")

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


def tell(text: str) -> None:
    """Print one line to standard error, without control characters and without a long middle."""
    line = terminal_text(_LINE_END.sub(" ", text.strip()))
    if len(line) > LINE_HEAD_CHARACTERS + LINE_TAIL_CHARACTERS:
        line = f"{line[:LINE_HEAD_CHARACTERS]}…{line[-LINE_TAIL_CHARACTERS:]}"
    click.echo(line, err=True)


def report(error: Exception) -> int | None:
    """Print a failure to standard error; return the exit code, None for a bug of this program."""
    if isinstance(error, errors.ItemsRefused):
        for position, refused in error.refused.items():
            tell(f"error: item {position}: {refused.reason}: {refused}")
        first = next(iter(error.refused.values()))
        _hint(first)
        return exit_code(first)
    if isinstance(error, errors.TaskraftError):
        violations = error.violations if isinstance(error, errors.InvalidField) else ()
        if not violations:
            tell(f"error: {error.reason}: {error}")
        for violation in violations:
            line = f"{error.reason}: {violation.field}: {violation.description}"
            tell(f"error: {line}")
        _hint(error)
        return exit_code(error)
    if isinstance(error, UnicodeDecodeError):
        tell(f"error: the input is not UTF-8 text: {error}")
        return USAGE
    if isinstance(error, ValueError | RuntimeError):
        tell(f"error: {error}")
        return USAGE
    if isinstance(error, OSError) and error.errno != errno.EPIPE:  # click handles closed pipes
        place = f"{error.filename}: " if error.filename else ""
        tell(f"error: {place}{error.strerror or error}")
        _discard_output()
        return FAILED
    return None


def report_usage(error: click.ClickException) -> int:
    """Print an error of click in one line, and a hint for wrong usage; return the exit code."""
    tell(f"error: {error.format_message()}")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        tell(f"hint:  see: {error.ctx.command_path} --help")
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
        tell(f"hint:  {hint}")
