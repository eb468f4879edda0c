"""The commands ``taskraft check``: one line and an exit code for monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import click

from taskraft.cli.names import TUBE
from taskraft.cli.options import (
    DURATION,
    SuggestingGroup,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft.cli.health import HealthFinding, Threshold


@click.group(cls=SuggestingGroup, epilog=examples("taskraft check cluster"))
def check() -> None:
    """Check the cluster or a tube for monitoring.

    The exit codes are those of monitoring plugins: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """


@check.command(epilog=examples("taskraft check cluster --clock-warning 100ms"))
@click.option(
    "--lag-warning",
    type=int,
    default=10_000,
    show_default=True,
    help="Warn if a member lacks more log entries.",
)
@click.option(
    "--lag-critical",
    type=int,
    default=100_000,
    show_default=True,
    help="Critical number of log entries that a member lacks.",
)
@click.option(
    "--clock-warning",
    type=DURATION,
    default="250ms",
    show_default=True,
    help="Warn if a clock deviates by more.",
)
@click.option(
    "--clock-critical",
    type=DURATION,
    default="1s",
    show_default=True,
    help="Critical deviation of a clock.",
)
@output_option(fields("name", "findings"))
@cluster_options
def cluster(
    *,
    lag_warning: int,
    lag_critical: int,
    clock_warning: float,
    clock_critical: float,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Check the leader, the members, their logs and their clocks."""
    from taskraft import errors
    from taskraft.cli.health import HealthFinding, Level, of_cluster

    lag = _threshold("lag", lag_warning, lag_critical)
    clock = _threshold("clock", clock_warning * 1_000, clock_critical * 1_000)
    try:
        with connect(target, timeout) as client:
            state = client.cluster_state()
            if state.leader_address and state.leader != state.node:
                state = client.cluster_state()  # this call goes to the leader
    except errors.TaskraftError as error:
        _end([HealthFinding("cluster", Level.CRITICAL, f"{error.reason}: {error}")], output)
    _end(list(of_cluster(state, lag, clock)), output)


@check.command(
    epilog=examples("taskraft check tube emails --backlog-warning 1000 --age-critical 10m")
)
@click.argument("name", type=TUBE)
@click.option("--backlog-warning", type=int, help="Warn above this number of READY tasks.")
@click.option("--backlog-critical", type=int, help="Critical number of READY tasks.")
@click.option("--age-warning", type=DURATION, help="Warn above this age of the oldest READY task.")
@click.option("--age-critical", type=DURATION, help="Critical age of the oldest READY task.")
@click.option(
    "--buried-warning",
    type=int,
    default=0,
    show_default=True,
    help="Warn above this number of BURIED tasks.",
)
@click.option("--buried-critical", type=int, help="Critical number of BURIED tasks.")
@output_option(fields("name", "findings"))
@cluster_options
def tube(  # noqa: PLR0913 - one argument for each option
    *,
    name: str,
    backlog_warning: int | None,
    backlog_critical: int | None,
    age_warning: float | None,
    age_critical: float | None,
    buried_warning: int | None,
    buried_critical: int | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Check the backlog, the oldest READY task and the BURIED tasks.

    A value above a limit is a warning, or critical.
    """
    from taskraft import errors
    from taskraft.cli.health import HealthFinding, Level, of_tube

    limits = {
        "backlog": _threshold("backlog", backlog_warning, backlog_critical),
        "age_seconds": _threshold("age", age_warning, age_critical),
        "buried": _threshold("buried", buried_warning, buried_critical),
    }
    try:
        with connect(target, timeout) as client:
            answer = client.stats([name])
    except errors.TaskraftError as error:
        _end([HealthFinding(name, Level.UNKNOWN, f"{error.reason}: {error}")], output)
    found = [each for each in answer.tubes if each.tube == name]
    if not found:
        _end([HealthFinding(name, Level.UNKNOWN, "the tube does not exist")], output)
    _end(list(of_tube(found[0], answer.now_ms, **limits)), output)


def _threshold(name: str, warning: float | None, critical: float | None) -> Threshold:
    from taskraft.cli.health import Threshold

    if warning is not None and critical is not None and warning > critical:
        raise click.UsageError(f"--{name}-warning must not be above --{name}-critical.")
    return Threshold(warning, critical)


def _end(findings: Sequence[HealthFinding], output: str) -> NoReturn:
    """Print one line with the worst findings first, and end with the exit code."""
    from taskraft.cli.health import worst
    from taskraft.cli.output import write_values

    level = worst(findings)
    value = {
        "name": level.name,
        "findings": [{**each._asdict(), "level": each.level.name} for each in findings],
    }
    if not write_values([value], output):
        told = [each for each in findings if each.level] or findings
        click.echo(f"{level.name}: " + "; ".join(f"{one.subject}: {one.detail}" for one in told))
    raise click.exceptions.Exit(level)
