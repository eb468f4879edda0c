"""Run a command for a task: payload on standard input, ids and headers in the environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import click

from taskraft._clock import monotonic
from taskraft._settlement import RESULT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from taskraft import TakenTask, Task
    from taskraft.cli.stop_signals import StopSignals

LOOK_SECONDS: Final = 0.2
"""Pause between two looks at the lease and at the signals, in seconds."""
DRAIN_SECONDS: Final = 1.0
"""Time for the rest of the output after the end of a command, in seconds. A process that the
command leaves in the background may hold its pipes open for longer."""
PIPE_BYTES: Final = 64 * 1024
ERROR_BYTES_MAX: Final = 4 * 1024
"""Limit of the kept end of the standard error."""
LINE_CHARACTERS_MAX: Final = 500
"""Limit of the line of the standard error in the reason of a failure."""


class CommandEnd(NamedTuple):
    """The end of a command."""

    status: int
    """Exit status; the negative number of a signal that has ended the command."""
    error_line: str = ""
    """Last line of the standard error that is not empty, at most 500 characters."""
    output: bytes = b""
    """Captured standard output, at most 1 MiB and one byte."""
    cause: str = ""
    """Why the command was told to end; empty: the command ended by itself."""

    @property
    def reason(self) -> str:
        """Reason of a failed attempt: the status, and the last line of the standard error."""
        if self.status < 0:
            with suppress(ValueError):
                return self._with_line(f"ended by {signal.Signals(-self.status).name}")
        return self._with_line(f"exit status {self.status}")

    def _with_line(self, text: str) -> str:
        return f"{text}: {self.error_line}" if self.error_line else text


def environment_of(task: Task, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: inherited variables, and those of the task.

    The header `trace-id` is the variable `TASKRAFT_HEADER_TRACE_ID`. A header whose value has a
    zero byte is left out, because a variable cannot hold a zero byte.
    """
    headers = {
        f"TASKRAFT_HEADER_{re.sub(r'[^A-Z0-9_]', '_', name.upper())}": os.fsdecode(value)
        for name, value in task.headers.items()
        if b"\0" not in value
    }
    return {
        **inherited,
        **headers,
        "TASKRAFT_TUBE": task.tube,
        "TASKRAFT_TASK_ID": str(task.id),
        "TASKRAFT_ATTEMPT": str(task.attempt),
    }


def last_line(text: bytes) -> str:
    """Return the last line that is not empty, shortened to 500 characters."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")[:LINE_CHARACTERS_MAX]


def stop_cause(task: TakenTask, stop: StopSignals) -> str:
    """Return why the command of a task must end; empty: the command may go on."""
    if stop.count:
        return f"stopped by {signal.Signals(stop.number).name}"
    if task.is_lost:
        return "the lease has ended"
    if task.is_cancel_requested:
        return "its cancellation was requested"
    return ""


def run_command(
    command: Sequence[str],
    task: TakenTask,
    stop: StopSignals,
    *,
    captures_output: bool,
    grace_seconds: float,
) -> CommandEnd:
    """Run a command for a task until the command ends, or until the task or a signal ends it.

    Args:
        command: program and arguments.
        task: task in progress; its payload is the standard input of the command.
        stop: signals that end the command; a second one ends the grace.
        captures_output: capture the standard output, which otherwise is that of this process.
        grace_seconds: time between SIGTERM and SIGKILL, in seconds.

    Raises:
        OSError: the command cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603 - the caller's own command
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if captures_output else None,
        stderr=subprocess.PIPE,
        env=environment_of(task, os.environ),
        process_group=0,  # Ctrl-C on a terminal must not reach the command before this process
    )
    try:
        return _followed(process, task, stop, grace_seconds)
    except BaseException:
        _send(process, signal.SIGKILL)
        raise


def _followed(
    process: subprocess.Popen[bytes], task: TakenTask, stop: StopSignals, grace_seconds: float
) -> CommandEnd:
    """Feed a process, and return its end."""
    errors, output, ended = bytearray(), bytearray(), threading.Event()

    def keep_error(part: bytes) -> None:
        click.echo(part, nl=False, err=True)
        errors.extend(part)
        del errors[:-ERROR_BYTES_MAX]

    def keep_output(part: bytes) -> None:
        output.extend(part[: RESULT_BYTES_MAX + 1 - len(output)])

    def wait() -> None:
        process.wait()
        ended.set()

    assert process.stdin is not None
    assert process.stderr is not None
    _started(_feed, process.stdin, task.payload)
    pumps = [_started(_pump, process.stderr, keep_error)]
    if process.stdout is not None:
        pumps.append(_started(_pump, process.stdout, keep_output))
    _started(wait)
    cause = ""
    while not cause and not ended.wait(LOOK_SECONDS):
        cause = stop_cause(task, stop)
    if cause:
        _end(process, ended, stop, grace_seconds)
    for pump in pumps:
        pump.join(DRAIN_SECONDS)
    return CommandEnd(process.returncode, last_line(bytes(errors)), bytes(output), cause)


def _end(
    process: subprocess.Popen[bytes],
    ended: threading.Event,
    stop: StopSignals,
    grace_seconds: float,
) -> None:
    """End a process with SIGTERM, and after the grace or a second signal with SIGKILL."""
    _send(process, signal.SIGTERM)
    deadline = monotonic() + grace_seconds
    while not ended.wait(LOOK_SECONDS) and stop.count < 2 and monotonic() < deadline:
        pass
    _send(process, signal.SIGKILL)  # also to processes of the group that outlive the command
    ended.wait()


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the processes of a command's group, if there are any left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _started(run: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    thread.start()
    return thread


def _feed(stream: IO[bytes], payload: bytes) -> None:
    """Write the payload; a command need not read all of its input."""
    with suppress(BrokenPipeError), stream:
        stream.write(payload)


def _pump(stream: IO[bytes], keep: Callable[[bytes], None]) -> None:
    """Pass on the output of a process as soon as the process has written it."""
    with stream:
        while part := os.read(stream.fileno(), PIPE_BYTES):
            keep(part)
