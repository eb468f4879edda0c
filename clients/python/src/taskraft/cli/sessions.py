"""The command ``taskraft session``: what consumers hold, what they wait for, and where they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.names import SESSION
from taskraft.cli.options import (
    SuggestingGroup,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output_shape import Shape
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from taskraft import Task
    from taskraft.v1.session_service_pb2 import Session

SHOWN: Final[Shape] = (
    "session_service_pb2.Session",
    {"consumers": None, "leases": None},
)
"""A session with its consumers and the tasks that it holds."""


@click.group(cls=SuggestingGroup, epilog=examples("taskraft session list"))
def session() -> None:
    """List the sessions, and show one."""


@session.command("list", epilog=examples("taskraft session list -o json"))
@watch_option
@output_option("session_service_pb2.Session")
@cluster_options
def list_sessions(*, output: str, target: str | None, timeout: float) -> None:
    """List the sessions, their processes and their numbers of tasks.

    The list shows only the first characters of each session id, because a full session id lets
    anyone act for that session.
    """
    from taskraft.cli.output import show_duration, write, write_table

    with connect(target, timeout) as client:
        found = client.list_sessions()
    if write(found, output):
        return
    rows = [
        (
            each.session_id,
            each.name,
            each.labels.get("host", "-"),
            each.labels.get("pid", "-"),
            each.owner or "-",
            each.taken,
            show_duration(each.ttr_ms),
        )
        for each in found
    ]
    write_table(("SESSION", "NAME", "HOST", "PID", "OWNER", "TAKEN", "TTR"), rows)


@session.command(epilog=examples("taskraft session show 3f2a9c01"))
@click.argument("session_id", metavar="SESSION", type=SESSION)
@watch_option
@output_option(SHOWN)
@cluster_options
def show(*, session_id: str, output: str, target: str | None, timeout: float) -> None:
    """Show what a session waits for and which tasks it holds.

    SESSION is the id of the session, or its first 8 characters as `taskraft session list` shows
    them.
    """
    from taskraft.cli.consumer_table import write_consumers
    from taskraft.cli.output import to_value, write_values

    with connect(target, timeout) as client:
        found = client.session(session_id)
        consumers = client.consumers(session=session_id)
        leases = client.list_leases(session_id)
    value = {
        **to_value(found),
        "consumers": [to_value(each) for each in consumers],
        "leases": [to_value(each.message) for each in leases],
    }
    if write_values([value], output):
        return
    _print_details(found)
    if consumers:
        click.echo()
        write_consumers(consumers)
    if leases:
        click.echo()
        _write_leases(leases)


def _print_details(found: Session) -> None:
    from taskraft.cli.terminal_text import terminal_text

    for name, value in _attributes(found):
        click.echo(f"{terminal_text(name):<16} {terminal_text(value)}")


def _attributes(found: Session) -> Iterator[tuple[str, str]]:
    from taskraft.cli.output import show_duration, show_instant

    yield "session", found.session_id
    yield "name", found.name or "-"
    yield "owner", found.owner or "-"
    yield "opened", show_instant(found.created_ms)
    yield "ttr", show_duration(found.ttr_ms)
    yield "expires", show_instant(found.expires_ms) if found.expires_ms else "with its stream"
    yield "tasks taken", str(found.taken)
    for name, value in sorted(found.labels.items()):
        yield f"label {name}", value


def _write_leases(leases: Sequence[Task]) -> None:
    from taskraft.cli.output import show_instant, write_table

    rows = [
        (
            str(each),
            each.attempt,
            show_instant(each.message.since_ms),
            show_instant(each.lease_until_ms) if each.lease_until_ms else "with the session",
            each.token,
        )
        for each in leases
    ]
    write_table(("ID", "ATTEMPT", "TAKEN", "LEASE UNTIL", "TOKEN"), rows)
