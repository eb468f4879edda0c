"""The commands ``taskraft pipeline export|verify|report|doctor``.

Each command imports its dependencies when it runs, so that help and usage errors are fast.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from taskraft_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_pipeline.journal.export import PublishedBatch

DEFAULT_TARGET: Final = "127.0.0.1:7401"
"""Address of a development cluster."""
OWN_ERROR: Final = re.compile(r"taskraft_pipeline\.errors\.\w+: (.+)")
"""Matches an error of the data source inside Spark's traceback."""

Command = TypeVar("Command", bound=Callable[..., None])


class PipelineGroup(click.Group):
    """The command group: prints failures in one line."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            raise click.ClickException(str(error)) from error
        except Exception as error:
            told = failure_text(error)
            if told is None:
                raise
            raise click.ClickException(told) from error


def failure_text(error: Exception) -> str | None:
    """Return the message of a Spark error; None for any other error."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    own = OWN_ERROR.findall(str(error))
    return str(own[-1]) if own else str(error).partition("\n\nJVM stacktrace")[0]


def target_option(command: Command) -> Command:
    """Add the option for the address of the cluster."""
    return click.option(
        "-t",
        "--target",
        "--endpoints",
        "endpoints",
        envvar="TASKRAFT_TARGET",
        default=DEFAULT_TARGET,
        show_default=True,
        help="Addresses of some nodes, host:port,host:port.",
    )(command)


def spark_options(command: Command) -> Command:
    """Add the options for the Spark session."""
    for option in (
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting."),
        click.option(
            "--master",
            default="local[*,3]",
            show_default=True,
            help="Spark master; taskraft-pipeline must be installed on the executors.",
        ),
    ):
        command = option(command)
    return command


def settings(conf: Sequence[str]) -> dict[str, str]:
    """Return the given Spark settings."""
    found = {}
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"a setting must have the form KEY=VALUE, not {text!r}")
        found[key] = value
    return found


@click.group(cls=PipelineGroup, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Export the change feed with Spark, and report on it."""


@pipeline.command()
@target_option
@click.option(
    "--journal", "folder", required=True, help="Folder of the journal; created if missing."
)
@click.option("--follow", is_flag=True, help="Continue as the feed grows, until Ctrl-C.")
@click.option(
    "--interval",
    "interval_seconds",
    default=30,
    show_default=True,
    help="Pause between batches with --follow, in seconds.",
)
@click.option(
    "--batch-events", default=500_000, show_default=True, help="Maximum number of events per batch."
)
@spark_options
def export(
    endpoints: str,
    folder: str,
    follow: bool,  # noqa: FBT001 - click passes flags like this
    interval_seconds: int,
    batch_events: int,
    master: str,
    conf: Sequence[str],
) -> None:
    """Append the feed to a journal of Parquet files, each event exactly once.

    The export can be killed at any time and started again. Example:

        taskraft pipeline export --journal var/journal
    """
    from taskraft_pipeline.journal import export as exporting
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.options import parse
    from taskraft_pipeline.spark_session import spark_session

    journal = Journal.at(folder)
    options = {"endpoints": endpoints, "maxEventsPerTrigger": str(batch_events)}
    with journal.locked():
        exporting.prepare(journal, parse(options))
        with spark_session("taskraft export", master, settings=settings(conf)) as spark:
            query = exporting.start(
                spark,
                journal,
                options,
                interval_ms=interval_seconds * 1_000 if follow else None,
                on_published=print_progress,
            )
            try:
                query.awaitTermination()
            except KeyboardInterrupt:
                query.stop()
    print_verdict(journal.root, is_deep=False)


def print_progress(progress: PublishedBatch) -> None:
    """Print the number of events of a published batch."""
    click.echo(f"batch {progress.batch}: {progress.events:,} events")


@pipeline.command()
@click.argument("folder")
@click.option("--deep", is_flag=True, help="Also read every file.")
def verify(folder: str, deep: bool) -> None:  # noqa: FBT001 - click passes flags like this
    """Check that a journal holds every event of its range exactly once.

    Exits with 1 if it does not. Example:

        taskraft pipeline verify var/journal --deep
    """
    if not print_verdict(Path(folder), is_deep=deep):
        raise SystemExit(1)


def print_verdict(folder: Path, *, is_deep: bool) -> bool:
    """Print the content of a journal; return whether it is complete."""
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.verify import verify as find_out

    verdict = find_out(Journal.at(folder), is_deep=is_deep)
    for note in verdict.notes:
        click.echo(f"note: {note}")
    for problem in verdict.problems:
        click.echo(f"problem: {problem}", err=True)
    found = "with problems" if verdict.problems else "every event exactly once"
    click.echo(
        f"{folder}: {verdict.events:,} events in {verdict.batches} batches of feed"
        f" {verdict.feed_id}: {found}"
    )
    return not verdict.problems


@pipeline.command()
@target_option
@click.option("--journal", "folder", help="Report on this journal, not on a running cluster.")
@click.option(
    "--out", "--output", default="var/report", show_default=True, help="Folder for the report."
)
@click.option("--tubes", default="", help="Only these tubes, separated by commas.")
@spark_options
def report(
    endpoints: str,
    folder: str | None,
    out: str,
    tubes: str,
    master: str,
    conf: Sequence[str],
) -> None:
    """Report throughput, times, failures and attempts per tube, as tables and charts.

    Example:
        taskraft pipeline report --out var/report
    """
    from taskraft_pipeline.report.make import report_from_feed, report_from_journal, write_report
    from taskraft_pipeline.report.tables import as_text
    from taskraft_pipeline.spark_session import spark_session

    wanted = tuple(tube.strip() for tube in tubes.split(",") if tube.strip())
    with spark_session("taskraft report", master, is_brief=True, settings=settings(conf)) as spark:
        if folder is None:
            found = report_from_feed(spark, endpoints, wanted)
        else:
            found = report_from_journal(spark, folder, wanted)
    click.echo(as_text(found))
    click.echo(f"report: {write_report(found, Path(out))}")


@pipeline.command()
@target_option
@click.option("--journal", "folder", help="Also check this journal.")
def doctor(endpoints: str, folder: str | None) -> None:
    """Check Java, versions, nodes and journal, and print what to do.

    Exits with 1 if a check fails.
    """
    from taskraft_pipeline.doctor import examine

    findings = examine(endpoints, folder)
    for finding in findings:
        click.echo(f"{'ok ' if finding.is_well else 'BAD'}  {finding.subject}: {finding.text}")
    if not all(finding.is_well for finding in findings):
        raise SystemExit(1)
