"""The commands of ``taskraft pipeline``.

Each command imports its dependencies when it runs, so that help and usage errors are fast.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.options import examples
from taskraft_pipeline.command_group import PipelineGroup
from taskraft_pipeline.command_options import settings, spark_options, target_option
from taskraft_pipeline.plan_commands import PLAN_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_pipeline.journal.batch_writer import PublishedBatch

FOLLOW_OUTAGE: Final = "7d"
"""Maximum time without an answer from any node, for an export that follows the feed: as long as
retention waits for the export by default."""
ONE_RUN_OUTAGE: Final = "1m"
"""Maximum time without an answer from any node, for an export that ends."""
BRIEF_EVENTS: Final = 200_000
"""Below this number of events, the start of Spark takes longer than its work."""
EXIT_PROBLEMS: Final = 1
EXIT_EMPTY: Final = 3
EXIT_NOT_READ: Final = 4
"""The manifests and the sizes of the files have no problem, but the files were not read."""


@click.group(
    cls=PipelineGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("taskraft pipeline export --journal var/journal"),
)
def pipeline() -> None:
    """Export the change feed with Spark, and report on it."""


@pipeline.command(
    epilog=examples("taskraft pipeline export --journal var/journal -o maxEventsPerTrigger=100000")
)
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
    "-o",
    "--option",
    "more",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the data source, for example maxOutage=2h; can be repeated.",
)
@spark_options
def export(
    endpoints: str,
    folder: str,
    follow: bool,  # noqa: FBT001 - click passes flags like this
    interval_seconds: int,
    more: Sequence[str],
    master: str,
    conf: Sequence[str],
) -> None:
    """Append the feed to a journal of Parquet files, each event exactly once.

    The export can be killed at any time and started again. The nodes keep events until they are in
    the journal: for consumerTtl (7d) after the last batch, up to the maximum size of the feed.
    With failOnDataLoss=false, a gap is recorded. With --follow, the export waits up to 7 days for
    nodes that do not answer (maxOutage), and says so.
    """
    from taskraft_pipeline.journal import export as exporting
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.outage_watch import OutageWatch, wait_for_end
    from taskraft_pipeline.query_progress import told_progress
    from taskraft_pipeline.spark_session import CONNECT, check_installation, spark_session

    if master.startswith(CONNECT):
        raise click.BadParameter("an export writes files beside its driver; run it on the server")
    journal = Journal.at(folder)
    tell = partial(click.echo, err=True)
    outage = FOLLOW_OUTAGE if follow else ONE_RUN_OUTAGE
    options = {"endpoints": endpoints, "maxOutage": outage, **settings(more)}
    parsed = exporting.export_options(options)
    check_installation(master)
    with journal.locked():
        unread = exporting.prepare(journal, parsed)
        click.echo(f"starting Spark to export {unread:,} events", err=True)
        begun_at = time.monotonic()
        is_small = unread < BRIEF_EVENTS
        with spark_session(
            "taskraft export",
            master,
            is_brief=is_small and not follow,
            is_endless=is_small and follow,
            settings=settings(conf),
        ) as spark:
            elapsed = time.monotonic() - begun_at
            click.echo(f"Spark started after {elapsed:.1f} s; the first batch follows", err=True)
            query = exporting.start(
                spark,
                journal,
                options,
                interval_ms=interval_seconds * 1_000 if follow else None,
                on_published=print_progress,
            )
            with told_progress(spark, tell):
                number = wait_for_end(query, OutageWatch(parsed, tell))
            if number and not follow:
                signal.raise_signal(number)
    if print_verdict(journal.root, is_deep=False) == EXIT_PROBLEMS:
        raise SystemExit(EXIT_PROBLEMS)


def print_progress(progress: PublishedBatch) -> None:
    """Print the number of events of a published batch."""
    lost = f", {progress.lost:,} lost to retention" if progress.lost else ""
    lag = f"{progress.lag:,} behind the feed"
    click.echo(f"batch {progress.batch}: {progress.events:,} events{lost}, {lag}")


@pipeline.command(epilog=examples("taskraft pipeline verify var/journal --deep"))
@click.argument("folder")
@click.option("--deep", is_flag=True, help="Also read every file.")
@click.option(
    "-t", "--target", help="Also check that the journal is of this cluster, host:port,host:port."
)
def verify(folder: str, deep: bool, target: str | None) -> None:  # noqa: FBT001 - click passes flags like this
    """Check that a journal has every event of its range exactly once.

    Exits with 0 only with --deep. Without --deep, the content of the files is not read, and the
    exit status is 4 if nothing else is wrong. Exits with 1 if the journal has problems, and with 3
    if it is empty.
    """
    raise SystemExit(print_verdict(Path(folder), is_deep=deep, target=target))


def print_verdict(folder: Path, *, is_deep: bool, target: str | None = None) -> int:
    """Print the content of a journal; return the exit status."""
    from taskraft_pipeline.feed import describe
    from taskraft_pipeline.feed_client import FeedClient
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.verify import feed_problems
    from taskraft_pipeline.journal.verify import verify as find_out
    from taskraft_pipeline.options import parse

    verdict = find_out(Journal.at(folder), is_deep=is_deep)
    if target is not None:
        options = parse({"endpoints": target, "maxOutage": ONE_RUN_OUTAGE})
        with FeedClient(options.endpoints, options) as client:
            verdict.problems += feed_problems(verdict, describe(client, is_linearizable=True))
    for note in verdict.notes:
        click.echo(f"note: {note}")
    for problem in verdict.problems:
        click.echo(f"problem: {problem}", err=True)
    click.echo(
        f"{folder}: {verdict.events:,} events in {verdict.batches} batches of feed"
        f" {verdict.feed_id}: {verdict.conclusion}"
    )
    if verdict.chain:
        click.echo(f"digest: {verdict.chain}")
    if verdict.problems:
        return EXIT_PROBLEMS
    if not verdict.batches:
        return EXIT_EMPTY
    return 0 if is_deep else EXIT_NOT_READ


@pipeline.command(epilog=examples("taskraft pipeline compact var/journal"))
@click.argument("folder")
@spark_options
def compact(folder: str, master: str, conf: Sequence[str]) -> None:
    """Merge the files of a journal into large files by date and tube.

    An export may run at the same time. Replaced files are deleted by a later run, 24 hours after
    their replacement.
    """
    from taskraft_pipeline.journal import compaction
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.spark_session import CONNECT, spark_session

    if master.startswith(CONNECT):
        raise click.BadParameter(
            "a compaction checks files beside its driver; run it on the server"
        )
    journal = Journal.at(folder)
    journal.start()
    with (
        journal.locked("compaction"),
        spark_session("taskraft compact", master, settings=settings(conf)) as spark,
    ):
        done = compaction.compact(spark, journal)
    click.echo(
        f"generation {done.generation}: {done.batches:,} new batches with {done.events:,} events,"
        f" {done.files:,} files; {done.deleted:,} replaced files deleted"
    )


@pipeline.command(
    epilog=examples("taskraft pipeline analyse var/journal --out var/tables --wait-target mail=5s")
)
@click.argument("folder")
@click.option(
    "--out", "--output", default="var/tables", show_default=True, help="Folder of the tables."
)
@click.option(
    "--wait-target",
    "wait_targets",
    multiple=True,
    metavar="[TUBE=]DURATION",
    help="Longest intended wait of a tube, or of all others (60s); can be repeated.",
)
@spark_options
def analyse(
    folder: str, out: str, wait_targets: Sequence[str], master: str, conf: Sequence[str]
) -> None:
    """Compute tables about queues from a journal: only the dates that have new events.

    Incidents and capacity refer to the targets of waits; other targets than before compute all
    dates again. docs/pipeline.md describes the tables and the views on them.
    """
    from taskraft_pipeline.analytics.analysis import analyse as compute
    from taskraft_pipeline.analytics.wait_targets import parse_wait_targets
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.spark_session import CONNECT, spark_session

    if master.startswith(CONNECT):
        raise click.BadParameter("the tables are written beside the driver; run it on the server")
    journal = Journal.at(folder)
    journal.start()
    targets = parse_wait_targets(wait_targets)
    with spark_session("taskraft analyse", master, settings=settings(conf)) as spark:
        done = compute(spark, journal, Path(out), targets)
    dates = ", ".join(done.dates) or "no new events"
    click.echo(f"{out}: {dates}; {done.events:,} events")


@pipeline.command(epilog=examples("taskraft pipeline erase var/journal emails 4711 4712"))
@click.argument("folder")
@click.argument("tube")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=int)
def erase(folder: str, tube: str, task_ids: Sequence[int]) -> None:
    """Remove the texts of tasks from a journal: sub-queue, session, type, failure and target.

    The events stay, so the journal still verifies. All batches must be compacted, and no export may
    run.
    """
    from taskraft_pipeline.journal import erasure
    from taskraft_pipeline.journal.journal import Journal

    journal = Journal.at(folder)
    journal.start()
    with journal.locked(), journal.locked("compaction"):
        events = erasure.erase(journal, tube, task_ids)
    click.echo(f"{events:,} events of {len(set(task_ids)):,} tasks changed")


@pipeline.command(epilog=examples("taskraft pipeline report --out var/report"))
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
    """Report throughput, times, failures and attempts per tube, as tables and charts."""
    from taskraft_pipeline.report.make import report_from_feed, report_from_journal, write_report
    from taskraft_pipeline.spark_session import spark_session

    wanted = tuple(tube.strip() for tube in tubes.split(",") if tube.strip())
    with spark_session("taskraft report", master, is_brief=True, settings=settings(conf)) as spark:
        if folder is None:
            found = report_from_feed(spark, endpoints, wanted)
        else:
            found = report_from_journal(spark, folder, wanted)
    written = write_report(found, Path(out))
    click.echo(written.text)
    click.echo(f"report: {written.page}")


@pipeline.command(epilog=examples("taskraft pipeline doctor --journal var/journal"))
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


for command in PLAN_COMMANDS:
    pipeline.add_command(command)
