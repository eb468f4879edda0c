"""The commands ``taskraft check``: one line with figures and an exit code for monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

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

    from taskraft.cli.figures import Figure
    from taskraft.cli.health import HealthFinding, Level, Threshold

PROMETHEUS: Final = "prometheus"
"""Output format: the figures as metrics in the Prometheus text format."""
check_output = output_option(
    fields("name", "findings"),
    also={PROMETHEUS: "metrics for the textfile collector of the Prometheus node exporter"},
)


@click.group(cls=SuggestingGroup, epilog=examples("taskraft check cluster"))
def check() -> None:
    """Check the cluster or a tube for monitoring.

    The line and the exit codes are those of monitoring plugins: text, "|" and performance data; 0
    OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """


@check.command(
    epilog=examples(
        "taskraft check cluster --clock-warning 100ms", "taskraft check cluster -o prometheus"
    )
)
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
@check_output
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
    from taskraft.cli import figures
    from taskraft.cli.health import HealthFinding, Level, Threshold, of_cluster

    lag = _threshold("lag", lag_warning, lag_critical)
    clock = _threshold("clock", clock_warning, clock_critical)
    try:
        with connect(target, timeout) as client:
            state = client.cluster_state()
            if state.leader_address and state.leader != state.node:
                state = client.cluster_state()  # this call goes to the leader
    except errors.TaskraftError as error:
        _end([HealthFinding("cluster", Level.CRITICAL, f"{error.reason}: {error}")], output)
    clock_ms = Threshold(clock_warning * 1_000, clock_critical * 1_000)
    measured = [*figures.of_cluster(state, lag, clock)]
    _end(list(of_cluster(state, lag, clock_ms)), output, measured)


@check.command(
    epilog=examples(
        "taskraft check tube emails --backlog-warning 1000 --age-critical 10m",
        "taskraft check tube emails -o prometheus",
    )
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
@check_output
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
    from taskraft.cli import figures
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
        _end([HealthFinding(name, Level.UNKNOWN, f"{error.reason}: {error}")], output, tube=name)
    found = [each for each in answer.tubes if each.tube == name]
    if not found:
        missing = errors.TubeNotFound.named(name)
        finding = HealthFinding(name, Level.UNKNOWN, f"{missing.reason}: {missing}")
        _end([finding], output, tube=name)
    measured = [*figures.of_tube(found[0], answer.now_ms, **limits)]
    _end(list(of_tube(found[0], answer.now_ms, **limits)), output, measured, tube=name)


def _threshold(name: str, warning: float | None, critical: float | None) -> Threshold:
    from taskraft.cli.health import Threshold

    if warning is not None and critical is not None and warning > critical:
        raise click.UsageError(f"--{name}-warning must not be above --{name}-critical.")
    return Threshold(warning, critical)


def _end(
    findings: Sequence[HealthFinding],
    output: str,
    figures: Sequence[Figure] = (),
    *,
    tube: str | None = None,
) -> NoReturn:
    """Print the result, and end with the exit code.

    Args:
        findings: findings of the check; the line has the worst ones.
        output: output format.
        figures: measured values; none if the check could not measure.
        tube: checked tube; None: the cluster.
    """
    from taskraft.cli.figures import exposition, of_level
    from taskraft.cli.health import worst
    from taskraft.cli.output import write_values

    level = worst(findings)
    value = {
        "name": level.name,
        "findings": [{**each._asdict(), "level": each.level.name} for each in findings],
    }
    if output == PROMETHEUS:
        click.echo(exposition((of_level(level, tube), *figures)))
    elif not write_values([value], output):
        click.echo(_line(level, findings, figures))
    raise click.exceptions.Exit(level)


def _line(level: Level, findings: Sequence[HealthFinding], figures: Sequence[Figure]) -> str:
    """Return the line of a monitoring plugin; "|" separates the text from the figures."""
    from taskraft.cli.terminal_text import terminal_text

    told = [each for each in findings if each.level] or findings
    text = f"{level.name}: " + "; ".join(f"{one.subject}: {one.detail}" for one in told)
    text = terminal_text(text).replace("|", "/")
    data = " ".join(terminal_text(each.performance_data()) for each in figures)
    return f"{text} | {data}" if data else text
