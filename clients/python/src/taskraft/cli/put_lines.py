"""Put each line of the standard input as a task: ``taskraft put TUBE -``.

With --client-id, the lines of a file are put in parts whose request ids follow from the name of the
file and the place of the part. So a second run puts nothing twice, and a changed file is refused.
The cluster remembers the ids of requests for at least ten minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click

from taskraft import errors
from taskraft.cli.progress import WorkProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taskraft import PutOptions, Tube

T = TypeVar("T")
LINES_AT_ONCE: Final = 4_000
"""Lines that are put before they count as put; the client sends them in several messages."""
PART_LINES: Final = 1_000
PART_BYTES: Final = 1 << 20
"""Maximum number and size of the lines with one request id."""
NAME_DIGITS: Final = 16


class InputLine(NamedTuple):
    """A line that is not empty."""

    number: int
    payload: bytes
    end: int
    """Size of the input up to the end of the line, in bytes."""


def put_lines(tube: Tube, options: PutOptions, client_id: str) -> list[int]:
    """Put the lines of the input, and return the ids; an interrupted run says how far it came.

    Raises:
        ValueError: a line is not JSON.
        click.ClickException: the file has changed since it was put with this client_id.
    """
    file = _input_file() if client_id else ""
    done: list[int] = []
    with count_told(done), WorkProgress("putting") as progress:
        lines = _counted(progress)
        if file:
            _put_parts(tube, lines, options, file, done)
        else:
            while some := [line.payload for line in islice(lines, LINES_AT_ONCE)]:
                done += tube.put_many(some, **options)
    return done


def _put_parts(
    tube: Tube, lines: Iterator[InputLine], options: PutOptions, file: str, done: list[int]
) -> None:
    """Put the lines of a file in parts, each with all its lines or none."""
    name = hashlib.sha256(os.fsencode(file)).hexdigest()[:NAME_DIGITS]
    for place, part in enumerate(parts(lines, lambda line: len(line.payload)), start=1):
        try:
            done += tube.put_atomic(
                [line.payload for line in part], request_id=f"{name}-{place}", **options
            )
        except errors.RequestIdReused:
            raise click.ClickException(
                f"lines {part[0].number} to {part[-1].number} were put before with another content"
                f" or with other options: {file} has changed; choose another --client-id"
            ) from None


def parts(items: Iterator[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists; `size_of` returns the payload bytes of an item."""
    part: list[T] = []
    size = 0
    for item in items:
        if part and (len(part) == PART_LINES or size + size_of(item) > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += size_of(item)
    if part:
        yield part


@contextmanager
def count_told(done: list[int]) -> Iterator[None]:
    """Tell the number of tasks that were put if not all were put."""
    try:
        yield
    except BaseException:
        click.echo(f"at least {len(done)} tasks were put", err=True)
        raise


def check_lines() -> None:
    """Check all lines of a file, and return to its start; the lines of a pipe come only once.

    Raises:
        ValueError: a line is not JSON.
    """
    if sys.stdin.buffer.seekable():
        start = sys.stdin.buffer.tell()
        for _ in _json_lines():
            pass
        sys.stdin.buffer.seek(start)


def _counted(progress: WorkProgress) -> Iterator[InputLine]:
    """Yield the lines, and count them.

    The remaining time follows from the size of the input, if the input is a file.
    """
    size = _input_bytes() if progress.is_possible else 0
    for line in _json_lines():
        yield line
        progress.advance(1)
        if size:
            progress.examined(min(line.end / size, 1))


def _json_lines() -> Iterator[InputLine]:
    """Yield the lines that are not empty.

    Raises:
        ValueError: a line is not JSON.
    """
    end = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        end += len(line)
        trimmed = line.strip()
        if not trimmed:
            continue
        try:
            json.loads(trimmed)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} of the input is not JSON: {error}") from None
        yield InputLine(number, trimmed, end)


def _input_bytes() -> int:
    """Return the size of the standard input; 0 if it is no file."""
    try:
        found = os.fstat(sys.stdin.fileno())
    except OSError:  # the input of a test
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _input_file() -> str:
    """Return the name of the file that is the standard input; empty if the input is no file.

    The name is the path where the system tells it (Linux), otherwise device and number of the file.
    """
    if not _input_bytes():
        return ""
    descriptor = sys.stdin.fileno()
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        found = os.fstat(descriptor)
        return f"file {found.st_ino} of device {found.st_dev}"
