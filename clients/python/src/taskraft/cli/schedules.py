"""The command ``taskraft schedule``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from taskraft.cli.confirmation import Confirmation, destroys
from taskraft.cli.names import SCHEDULE, TUBE
from taskraft.cli.options import (
    DURATION,
    SuggestingGroup,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft import Schedule


@click.group(cls=SuggestingGroup, epilog=examples("taskraft schedule list"))
def schedule() -> None:
    """Create, show, list, change, pause and remove schedules."""


@schedule.command(
    epilog=examples(
        "taskraft schedule create nightly '30 2 * * *' reports all --time-zone Europe/Vienna"
    )
)
@click.argument("name")
@click.argument("cron")
@click.argument("tube", type=TUBE)
@click.argument("payload")
@click.option(
    "--time-zone", default="", help='Time zone, for example "Europe/Vienna"; default: UTC.'
)
@click.option(
    "--jitter", type=DURATION, default="0s", help="Maximum additional delay of each task."
)
@click.option(
    "--catch-up",
    type=click.Choice(("skip", "one", "all")),
    default="skip",
    show_default=True,
    help="Missed due times for which tasks are put.",
)
@click.option(
    "--overlap",
    type=click.Choice(("allow", "skip", "cancel_before")),
    default="allow",
    show_default=True,
    help="Action at a due time if the previous task has not ended.",
)
@output_option("schedule_service_pb2.Schedule")
@cluster_options
def create(  # noqa: PLR0913 - one argument for each option
    *,
    name: str,
    cron: str,
    tube: str,
    payload: str,
    time_zone: str,
    jitter: float,
    catch_up: Literal["skip", "one", "all"],
    overlap: Literal["allow", "skip", "cancel_before"],
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Put PAYLOAD into TUBE at the times of CRON.

    CRON is minute, hour, day, month and day of week, as in crontab(5).
    """
    with connect(target, timeout) as client:
        made = client.schedules.create(
            name,
            cron,
            client.tube(tube).task(payload),
            time_zone=time_zone,
            jitter=jitter,
            catch_up=catch_up,
            overlap=overlap,
        )
    _show([made], output)


@schedule.command("list", epilog=examples("taskraft schedule list -o jsonl"))
@watch_option
@output_option("schedule_service_pb2.Schedule")
@cluster_options
def list_schedules(*, output: str, target: str | None, timeout: float) -> None:
    """List schedules with their next times."""
    with connect(target, timeout) as client:
        found = client.schedules.list()
    _show(found, output)


@schedule.command(epilog=examples("taskraft schedule show nightly -o yaml"))
@click.argument("name", type=SCHEDULE)
@watch_option
@output_option("schedule_service_pb2.Schedule")
@cluster_options
def show(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Show the schedule NAME with its next time."""
    with connect(target, timeout) as client:
        found = client.schedules.get(name)
    _show([found], output)


@schedule.command(epilog=examples("taskraft schedule change nightly --cron '0 3 * * *'"))
@click.argument("name", type=SCHEDULE)
@click.option("--cron", help="New times: minute, hour, day, month and day of week.")
@click.option("--time-zone", help='New time zone, for example "Europe/Vienna".')
@click.option("--jitter", type=DURATION, help="New maximum additional delay of each task.")
@click.option(
    "--catch-up",
    type=click.Choice(("skip", "one", "all")),
    help="Missed due times for which tasks are put.",
)
@click.option(
    "--overlap",
    type=click.Choice(("allow", "skip", "cancel_before")),
    help="Action at a due time if the previous task has not ended.",
)
@output_option("schedule_service_pb2.Schedule")
@cluster_options
def change(
    *, name: str, output: str, target: str | None, timeout: float, **parts: str | float | None
) -> None:
    """Change parts of the schedule NAME; the other parts stay."""
    given: Any = {part: value for part, value in parts.items() if value is not None}
    if not given:
        raise click.UsageError("give at least one option to change")
    with connect(target, timeout) as client:
        changed = client.schedules.change(name, **given)
    _show([changed], output)


@schedule.command(epilog=examples("taskraft schedule pause nightly"))
@click.argument("name", type=SCHEDULE)
@output_option("schedule_service_pb2.Schedule")
@cluster_options
def pause(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Pause the schedule NAME, so that it puts no tasks."""
    _show([_set_paused(name, target, timeout, is_paused=True)], output)


@schedule.command(epilog=examples("taskraft schedule resume nightly"))
@click.argument("name", type=SCHEDULE)
@output_option("schedule_service_pb2.Schedule")
@cluster_options
def resume(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Resume the schedule NAME."""
    _show([_set_paused(name, target, timeout, is_paused=False)], output)


@schedule.command(epilog=examples("taskraft schedule delete nightly --yes"))
@click.argument("name", type=SCHEDULE)
@output_option(
    "schedule_service_pb2.DeleteScheduleResponse", preview="schedule_service_pb2.Schedule"
)
@destroys("A removed schedule must be created again.")
@cluster_options
def delete(
    *, name: str, confirmation: Confirmation, output: str, target: str | None, timeout: float
) -> None:
    """Remove the schedule NAME; tasks that it has already put stay."""
    from taskraft.cli.output import write
    from taskraft.v1 import schedule_service_pb2

    with connect(target, timeout) as client:
        if not confirmation.allows(
            lambda: f"Remove the schedule {client.schedules.get(name).name}?",
            lambda: _show([client.schedules.get(name)], output),
        ):
            return
        client.schedules.delete(name)
    if not write([schedule_service_pb2.DeleteScheduleResponse()], output):
        click.echo(f"{name}  deleted")


def _set_paused(name: str, target: str | None, timeout: float, *, is_paused: bool) -> Schedule:
    with connect(target, timeout) as client:
        return client.schedules.change(name, paused=is_paused)


def _show(schedules: Sequence[Schedule], output: str) -> None:
    from taskraft.cli.output import show_instant, write, write_table

    if write([each.message for each in schedules], output):
        return
    write_table(
        ("NAME", "CRON", "ZONE", "TUBE", "NEXT", "LAST", "LEFT OUT", "ERROR"),
        (
            (
                each.name,
                each.cron,
                each.time_zone or "UTC",
                each.tube,
                "paused" if each.paused else show_instant(each.next_ms),
                show_instant(each.last_ms),
                each.left_out,
                each.last_error.message if each.last_error else "",
            )
            for each in schedules
        ),
    )
