"""The command ``taskraft group``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import click

from taskraft.cli.confirmation import Confirmation, destroys
from taskraft.cli.names import GROUP
from taskraft.cli.options import (
    SuggestingGroup,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output_shape import fields
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskraft import Client, Group, PlannedTask
    from taskraft._groups import GroupState


CANCEL_PREVIEW: Final = fields("dry_run", "name", "count")


@click.group(cls=SuggestingGroup, epilog=examples("taskraft group show book-1"))
def group() -> None:
    """Create, show, list, start and cancel groups of tasks."""


F = TypeVar("F", bound="Callable[..., object]")


def _end_options(command: F) -> F:
    """Add the options for the tasks that a group puts at its end."""
    for option in (
        click.option(
            "--only-if-processed", is_flag=True, help="Put the end task only if no task has failed."
        ),
        click.option(
            "--abort",
            nargs=2,
            metavar="TUBE PAYLOAD",
            help="Task to put instead if the group is cancelled.",
        ),
        click.option(
            "--end",
            nargs=2,
            metavar="TUBE PAYLOAD",
            help="Task to put when all tasks of the group have ended.",
        ),
    ):
        command = option(command)
    return command


def _planned(client: Client, task: tuple[str, str] | None) -> PlannedTask | None:
    return None if task is None else client.tube(task[0]).task(task[1])


@group.command(epilog=examples("taskraft group create book-1 --end books bind"))
@click.argument("name")
@_end_options
@output_option("group_service_pb2.Group")
@cluster_options
def create(
    *,
    name: str,
    end: tuple[str, str] | None,
    abort: tuple[str, str] | None,
    only_if_processed: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Create the group NAME.

    Tasks that are put with --group are HELD until the group is started.
    """
    with connect(target, timeout) as client:
        created = client.groups.create(
            name,
            end_task=_planned(client, end),
            abort_task=_planned(client, abort),
            only_if_processed=only_if_processed,
        )
    _show([created], output)


@group.command(
    "set-end-task", epilog=examples("taskraft group set-end-task book-1 --end books bind")
)
@click.argument("name", type=GROUP)
@_end_options
@output_option("group_service_pb2.Group")
@cluster_options
def set_end_task(
    *,
    name: str,
    end: tuple[str, str] | None,
    abort: tuple[str, str] | None,
    only_if_processed: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Replace the end task and the abort task of the group NAME.

    A task that is not given is removed.
    """
    with connect(target, timeout) as client:
        changed = client.groups.set_end_task(
            name,
            end_task=_planned(client, end),
            abort_task=_planned(client, abort),
            only_if_processed=only_if_processed,
        )
    _show([changed], output)


@group.command("list", epilog=examples("taskraft group list 'book-*' --state STARTED"))
@click.argument("patterns", type=GROUP, nargs=-1, metavar="[PATTERN]...")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(("HELD", "STARTED", "ENDED", "CANCELLED"), case_sensitive=False),
    help="Only groups in this state; repeatable.",
)
@watch_option
@output_option("group_service_pb2.Group")
@cluster_options
def list_groups(
    *,
    patterns: tuple[str, ...],
    states: tuple[GroupState, ...],
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """List groups with the outcomes of their tasks.

    In a PATTERN, "*" matches any characters.
    """
    with connect(target, timeout) as client:
        found = client.groups.list(*patterns, states=states)
    _show(found, output)


@group.command(epilog=examples("taskraft group show book-1"))
@click.argument("name", type=GROUP)
@watch_option
@output_option("group_service_pb2.Group")
@cluster_options
def show(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Show the group NAME with the outcomes of its tasks."""
    with connect(target, timeout) as client:
        found = client.groups.get(name)
    _show([found], output)


@group.command(epilog=examples("taskraft group start book-1"))
@click.argument("name", type=GROUP)
@output_option("group_service_pb2.Group")
@cluster_options
def start(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Start the group NAME, so that its HELD tasks can become READY."""
    with connect(target, timeout) as client:
        started = client.groups.start(name)
    _show([started], output)


@group.command(epilog=examples("taskraft group cancel book-1 --revoke --yes"))
@click.argument("name", type=GROUP)
@click.option("--revoke", is_flag=True, help="Also remove TAKEN tasks.")
@output_option("group_service_pb2.Group", preview=CANCEL_PREVIEW)
@destroys("Removed tasks cannot be restored.")
@cluster_options
def cancel(
    *,
    name: str,
    revoke: bool,
    confirmation: Confirmation,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Remove the tasks of the group NAME that have no holder.

    The holders of the other tasks are asked to stop.
    """
    with connect(target, timeout) as client:
        if not confirmation.allows(
            lambda: f"Cancel the group {name} with {client.groups.get(name).open} open tasks?",
            lambda: _preview(client.groups.get(name), output),
        ):
            return
        cancelled = client.groups.cancel(name, revoke=revoke)
    _show([cancelled], output)


def _preview(found: Group, output: str) -> None:
    """Print how many tasks a cancellation would end."""
    from taskraft.cli.output import write_values

    if not write_values([{"dry_run": True, "name": found.name, "count": found.open}], output):
        click.echo(f"{found.name}  {found.open} open tasks would be removed, or asked to stop")


def _show(groups: Sequence[Group], output: str) -> None:
    from taskraft.cli.output import write, write_table

    if write([each.message for each in groups], output):
        return
    write_table(
        ("NAME", "STATE", "OPEN", "PROCESSED", "FAILED", "CANCELLED", "ERROR"),
        (
            (
                each.name,
                each.state,
                each.open,
                each.processed,
                each.failed,
                each.cancelled,
                each.last_error.message if each.last_error else "",
            )
            for each in groups
        ),
    )
