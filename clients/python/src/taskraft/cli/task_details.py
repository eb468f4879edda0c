"""Print one task with all its attributes, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.output import (
    show_duration,
    show_instant,
    show_payload,
    show_retry,
    write_table,
)
from taskraft.cli.terminal_text import terminal_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import Task

RESULT_CHARACTERS_MAX: Final = 1_000


def print_details(task: Task) -> None:
    """Print the attributes of a task that are set, and a table of its last failures."""
    for name, value in _attributes(task):
        if value not in ("", "-"):
            click.echo(f"{name:<16} {terminal_text(value)}")
    failures = task.failures
    if failures:
        click.echo()
        write_table(
            ("ATTEMPT", "FAILED AT", "FAILURE"),
            ((one.attempt, show_instant(one.at_ms), str(one)) for one in failures),
        )


def _attributes(task: Task) -> Iterator[tuple[str, str]]:
    message, spec = task.message, task.message.spec
    yield "id", str(task)
    yield "state", f"{task.state} since {show_instant(message.since_ms)}"
    yield "outcome", task.outcome
    yield "type", spec.type
    yield "key", " ".join(spec.unique_key)
    yield "subqueue", spec.subqueue
    yield "group", spec.group
    yield "priority", str(task.priority)
    yield "attempts", f"{task.attempt}, {task.failed_attempts} failed"
    yield "retry", show_retry(task.retry) if task.retry else "policy of the tube"
    yield "put", show_instant(message.created_ms)
    yield "ready at", show_instant(message.visible_at_ms)
    yield "lease until", show_instant(message.lease_until_ms)
    yield "time to run", show_duration(message.ttr_ms) if message.ttr_ms else ""
    yield "expires", show_instant(message.expire_at_ms)
    yield "kept until", show_instant(message.retain_until_ms)
    yield "waits for", " ".join(task.waits_for)
    yield "origin", f"{message.origin.tube}/{message.origin.task_id}" if message.origin.tube else ""
    yield "payload", show_payload(task.payload, RESULT_CHARACTERS_MAX)
    yield "result", show_payload(task.result, RESULT_CHARACTERS_MAX)
    yield "last failure", task.failure
