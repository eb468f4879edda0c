"""Offer the pipeline as commands: ``taskraft pipeline export|verify|report|doctor``.

What a command needs is imported when it runs, so that help and refusals come at once.
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
"""Where a development cluster listens."""
OWN_ERROR: Final = re.compile(r"taskraft_pipeline\.errors\.\w+: (.+)")
"""How an error of the data source looks within the traceback that Spark hands on."""

Command = TypeVar("Command", bound=Callable[..., None])


class PipelineGroup(click.Group):
    """The group: tells failures in one line."""

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
    """Return what an error of Spark is about; None if it is no error of Spark."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    own = OWN_ERROR.findall(str(error))
    return str(own[-1]) if own else str(error).partition("\n\nJVM stacktrace")[0]


def target_option(command: Command) -> Command:
    """Add the option that says which cluster."""
    return click.option(
        "-t",
        "--target",
        "--endpoints",
        "endpoints",
        envvar="TASKRAFT_TARGET",
        default=DEFAULT_TARGET,
        show_default=True,
        help="Nodes, host:port,host:port; they name the others.",
    )(command)


def spark_options(command: Command) -> Command:
    """Add the options that say where Spark runs."""
    for option in (
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark."),
        click.option(
            "--master",
            default="local[*,3]",
            show_default=True,
            help="Where Spark runs; taskraft-pipeline must be installed on the executors.",
        ),
    ):
        command = option(command)
    return command


def settings(conf: Sequence[str]) -> dict[str, str]:
    """Return the settings of Spark that were given."""
    found = {}
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"a setting is written KEY=VALUE, not {text!r}")
        found[key] = value
    return found


@click.group(cls=PipelineGroup, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Export the change feed with Spark, and report on it."""


@pipeline.command()
@target_option
@click.option(
    "--journal", "folder", required=True, help="Folder of the journal; made if it is missing."
)
@click.option("--follow", is_flag=True, help="Go on as the feed grows, until Ctrl-C.")
@click.option(
    "--interval", "interval_seconds", default=30, show_default=True, help="With --follow: seconds."
)
@click.option("--batch-events", default=500_000, show_default=True, help="Most events of a batch.")
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

    It may be killed at any moment and started again. Example:

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
    """Print that a batch was published."""
    click.echo(f"batch {progress.batch}: {progress.events:,} events")


@pipeline.command()
@click.argument("folder")
@click.option("--deep", is_flag=True, help="Read every file, too.")
def verify(folder: str, deep: bool) -> None:  # noqa: FBT001 - click passes flags like this
    """Prove that a journal holds every event of its range exactly once.

    Exits with 1 if it does not. Example:

        taskraft pipeline verify var/journal --deep
    """
    if not print_verdict(Path(folder), is_deep=deep):
        raise SystemExit(1)


def print_verdict(folder: Path, *, is_deep: bool) -> bool:
    """Print what a journal holds; return whether it is whole."""
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
@click.option("--journal", "folder", help="Report on this journal instead of a running cluster.")
@click.option(
    "--out", "--output", default="var/report", show_default=True, help="Folder for the report."
)
@click.option("--tubes", default="", help="Only these tubes, comma-separated.")
@spark_options
def report(
    endpoints: str,
    folder: str | None,
    out: str,
    tubes: str,
    master: str,
    conf: Sequence[str],
) -> None:
    """Report throughput, times, failures and attempts per tube, as tables and a picture.

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
@click.option("--journal", "folder", help="A journal to look at, too.")
def doctor(endpoints: str, folder: str | None) -> None:
    """Check Java, the versions, the nodes and the journal, and say what to do.

    Exits with 1 if something is wrong.
    """
    from taskraft_pipeline.doctor import examine

    findings = examine(endpoints, folder)
    for finding in findings:
        click.echo(f"{'ok ' if finding.is_well else 'BAD'}  {finding.subject}: {finding.text}")
    if not all(finding.is_well for finding in findings):
        raise SystemExit(1)
