"""``taskraft group``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option

if TYPE_CHECKING:
    from taskraft.v1 import group_service_pb2


@click.group(epilog=examples("taskraft group show book-1"))
def group() -> None:
    """Show, start and cancel groups of tasks."""


@group.command(epilog=examples("taskraft group show book-1"))
@click.argument("name")
@output_option
@cluster_options
def show(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Show the group NAME: how many of its tasks are open, and what became of the others."""
    with connect(target, timeout) as client:
        found = client.groups.get(name)
    _show(found, output)


@group.command(epilog=examples("taskraft group start book-1"))
@click.argument("name")
@output_option
@cluster_options
def start(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Let the tasks of the group NAME go."""
    with connect(target, timeout) as client:
        started = client.groups.start(name)
    _show(started, output)


@group.command(epilog=examples("taskraft group cancel book-1 --revoke"))
@click.argument("name")
@click.option("--revoke", is_flag=True, help="Remove taken tasks too.")
@output_option
@cluster_options
def cancel(*, name: str, revoke: bool, output: str, target: str | None, timeout: float) -> None:
    """Remove the waiting tasks of the group NAME; ask the holders of the others to stop."""
    with connect(target, timeout) as client:
        cancelled = client.groups.cancel(name, revoke=revoke)
    _show(cancelled, output)


def _show(found: group_service_pb2.Group, output: str) -> None:
    from taskraft.cli.output import write, write_table  # noqa: PLC0415
    from taskraft.v1 import group_service_pb2 as pb  # noqa: PLC0415

    if write([found], output):
        return
    write_table(
        ("NAME", "STATE", "OPEN", "PROCESSED", "FAILED", "CANCELLED", "ERROR"),
        [
            (
                found.name,
                pb.Group.State.Name(found.state),
                found.open,
                found.processed,
                found.failed,
                found.cancelled,
                found.last_error.message,
            )
        ],
    )
