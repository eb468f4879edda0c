"""The commands ``taskraft tube`` and ``taskraft stats``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final, cast

import click

from taskraft.cli.confirmation import Confirmation, destroys
from taskraft.cli.names import TUBE
from taskraft.cli.options import (
    SuggestingGroup,
    check_tubes,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output_shape import fields
from taskraft.cli.tube_settings import (
    RETRY,
    default_retry,
    retry_of,
    settings_of,
    settings_options,
)
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft import Client, Retry, Statistics, TubeInfo
    from taskraft._tube_settings import Kind
    from taskraft._tube_statistics import Rank

KINDS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl", "custom")
WORST_TUBES: Final = 20
"""Default number of tubes of `taskraft stats --worst`."""
TUBE_PREVIEW: Final = fields("dry_run", "tube", "count")


@click.group(cls=SuggestingGroup, epilog=examples("taskraft tube create emails --ttr 60s"))
def tube() -> None:
    """Create, change, list, truncate and drop tubes."""


@tube.command(
    epilog=examples("taskraft tube create emails --kind fifottl --ttr 60s --if-not-exists")
)
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="fifottl",
    show_default=True,
    help="Kind of the tube: its order, and the options that its tasks may have.",
)
@click.option("--driver", default="", help="Name of an installed driver, for the kind custom.")
@click.option(
    "--profile", default="", help="Defaults of another system: tarantool, xqueue, t15 or rsqueue."
)
@settings_options
@click.option(
    "--durability",
    type=click.Choice(("replicated", "temporary")),
    help="Storage of the tasks; temporary: only in the leader's memory.",
)
@click.option("--if-not-exists", is_flag=True, help="Accept an existing tube as it is.")
@click.option(
    "--ensure", is_flag=True, help="Bring the given options of an existing tube into force."
)
@output_option("tube_service_pb2.Tube")
@cluster_options
def create(  # noqa: PLR0913 - one argument for each option
    *,
    name: str,
    kind: Kind,
    if_not_exists: bool,
    ensure: bool,
    profile: str,
    output: str,
    target: str | None,
    timeout: float,
    **given: object,
) -> None:
    """Create the tube NAME."""
    driver, settings = str(given.pop("driver")), settings_of(given)
    with connect(target, timeout) as client, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if ensure:
            settings.update(retry_of(given, lambda: _policy_in_force(client, name, profile)))
            created = client.ensure_tube(name, kind, driver=driver, profile=profile, **settings)
        else:
            settings.update(retry_of(given, lambda: default_retry(profile)))
            created = client.create_tube(
                name,
                kind,
                driver=driver,
                if_not_exists=if_not_exists,
                profile=profile,
                **settings,
            )
    for warning in told:
        click.echo(f"warning: {warning.message}", err=True)
    _show([created], output)


@tube.command(
    epilog=examples(
        "taskraft tube update emails --ttr 2m --pause-takes",
        "taskraft tube update emails --resume-takes --reset ttr",
    )
)
@click.argument("name", type=TUBE)
@settings_options
@click.option(
    "--pause-puts/--resume-puts",
    "put_paused",
    default=None,
    help="Refuse puts, or accept them again.",
)
@click.option(
    "--pause-takes/--resume-takes",
    "take_paused",
    default=None,
    help="Stop takes, or allow them again.",
)
@click.option("--reset", multiple=True, metavar="OPTION", help="Set an option back to its default.")
@output_option("tube_service_pb2.Tube")
@cluster_options
def update(
    *,
    name: str,
    reset: tuple[str, ...],
    output: str,
    target: str | None,
    timeout: float,
    **given: object,
) -> None:
    """Change options of the tube NAME while it is in use, all or none."""
    named = [option.replace("-", "_") for option in reset]
    settings = settings_of(given)
    if not settings and not named and all(given[option] is None for option in RETRY):
        raise click.UsageError("Give at least one option to change.")
    with connect(target, timeout) as client:
        settings.update(retry_of(given, lambda: _policy_in_force(client, name)))
        try:
            changed = client.update_tube(name, reset=named, **settings)
        except TypeError as error:
            raise click.BadParameter(str(error), param_hint="--reset") from error
    _show([changed], output)


def _policy_in_force(client: Client, name: str, profile: str = "") -> Retry:
    """Return the retry policy of a tube, or the default policy of a missing tube."""
    for found in client.list_tubes([name]):
        return found.options.retry
    return default_retry(profile)


@tube.command(
    epilog=examples(
        "taskraft tube truncate emails --dry-run", "taskraft tube truncate emails --yes"
    )
)
@click.argument("name", type=TUBE)
@output_option("tube_service_pb2.TruncateTubeResponse", preview=TUBE_PREVIEW)
@destroys("Removed tasks cannot be restored.")
@cluster_options
def truncate(
    *, name: str, confirmation: Confirmation, output: str, target: str | None, timeout: float
) -> None:
    """Remove all tasks of the tube NAME."""
    from taskraft.cli.output import write
    from taskraft.v1 import tube_service_pb2

    with connect(target, timeout) as client:
        if not confirmation.allows(
            lambda: f"Remove all tasks of {name} with {_count(client, name)} tasks?",
            lambda: _preview(client, name, output),
        ):
            return
        removed = client.truncate_tube(name)
    if not write([tube_service_pb2.TruncateTubeResponse(tasks=removed)], output):
        click.echo(f"{name}  {removed} tasks removed")


@tube.command(epilog=examples("taskraft tube show emails", "taskraft tube show emails -o yaml"))
@click.argument("name", type=TUBE)
@watch_option
@output_option(("tube_service_pb2.Tube", {"statistics": "tube_service_pb2.TubeStatistics"}))
@cluster_options
def show(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Show the tube NAME with its options and counts."""
    from taskraft.cli.output import write_values
    from taskraft.cli.tube_details import print_details, value_of

    with connect(target, timeout) as client:
        answer = client.stats([name])
        found = client.list_tubes([name])
    check_tubes([name], (each.name for each in found if each.name == name))
    if not write_values([value_of(found[0], answer.tubes[0])], output):
        print_details(found[0], answer.tubes[0], answer.now_ms)


@tube.command(epilog=examples("taskraft tube consumers emails"))
@click.argument("name", type=TUBE)
@watch_option
@output_option("tube_service_pb2.WaitingConsumer")
@cluster_options
def consumers(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Show the consumers that wait on the tube NAME."""
    from taskraft.cli.consumer_table import write_consumers
    from taskraft.cli.output import write

    with connect(target, timeout) as client:
        found = client.consumers(name)
    if write(found, output):
        return
    write_consumers(found)


@tube.command("list", epilog=examples("taskraft tube list 'mail*' -o jsonl"))
@click.argument("names", metavar="[PATTERN]...", type=TUBE, nargs=-1)
@watch_option
@output_option("tube_service_pb2.Tube")
@cluster_options
def list_tubes(*, names: tuple[str, ...], output: str, target: str | None, timeout: float) -> None:
    """List all tubes, or those whose names match a PATTERN with "*"."""
    with connect(target, timeout) as client:
        tubes = client.list_tubes(names)
    check_tubes((name for name in names if "*" not in name), (each.name for each in tubes))
    _show(tubes, output)


@tube.command(epilog=examples("taskraft tube drop emails --yes"))
@click.argument("name", type=TUBE)
@click.option(
    "--force", is_flag=True, help="Drop the tube even if it has TAKEN tasks or waiting consumers."
)
@output_option("tube_service_pb2.DropTubeResponse", preview=TUBE_PREVIEW)
@destroys("Removed tasks cannot be restored.")
@cluster_options
def drop(
    *,
    name: str,
    force: bool,
    confirmation: Confirmation,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Remove the tube NAME with its tasks."""
    from taskraft.cli.output import write
    from taskraft.v1 import tube_service_pb2

    with connect(target, timeout) as client:
        if not confirmation.allows(
            lambda: f"Drop {name} with {_count(client, name)} tasks?",
            lambda: _preview(client, name, output),
        ):
            return
        dropped = client.drop_tube(name, force=force)
    if not write([tube_service_pb2.DropTubeResponse(tasks=dropped)], output):
        click.echo(f"{name}  dropped with {dropped} tasks")


def _preview(client: Client, name: str, output: str) -> None:
    """Print how many tasks a truncation or a drop would remove."""
    from taskraft.cli.output import write_values

    count = _count(client, name)
    if not write_values([{"dry_run": True, "tube": name, "count": count}], output):
        click.echo(f"{name}  {count} tasks would be removed")


def _count(client: Client, name: str) -> int:
    return client.tube(name).stats().tasks.total


def _counts(
    client: Client, tubes: tuple[str, ...], worst: str | None, limit: int | None
) -> Statistics:
    """Return the counts of the named tubes, or of the worst of them."""
    if worst is None:
        return client.stats(tubes)
    rank = cast("Rank", worst.replace("-", "_"))
    return client.worst_tubes(rank, limit or WORST_TUBES, tubes=tubes)


@click.command(epilog=examples("taskraft stats emails", "taskraft stats --worst buried -n 5"))
@click.argument("tubes", metavar="[TUBE]...", type=TUBE, nargs=-1)
@click.option(
    "--worst",
    type=click.Choice(("ready", "buried", "oldest-ready")),
    help="Only the first tubes by rank, the worst first.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1_000),
    help=f"Number of tubes with --worst; default: {WORST_TUBES}.",
)
@watch_option
@output_option("tube_service_pb2.TubeStatistics")
@cluster_options
def stats(
    *,
    tubes: tuple[str, ...],
    worst: str | None,
    limit: int | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Count the tasks of tubes per state; FAILED counts failed attempts."""
    from taskraft.cli.output import TABLES, show_duration, show_retry, write, write_table

    if limit is not None and worst is None:
        raise click.UsageError("--limit needs --worst.")
    with connect(target, timeout) as client:
        answer = _counts(client, tubes, worst, limit)
        shown = [each.tube for each in answer.tubes]
        known = [each.name for each in client.list_tubes(tubes)] if worst and tubes else shown
        wanted = shown if worst else tubes  # a request names at most 1 000 tubes
        listed = client.list_tubes(wanted) if shown and output in TABLES else []
        retries = {each.name: show_retry(each.options.retry) for each in listed}
    check_tubes((name for name in tubes if "*" not in name), known)
    if write([each.message for each in answer.tubes], output):
        return
    write_table(
        (
            "TUBE",
            "READY",
            "DELAYED",
            "HELD",
            "TAKEN",
            "BURIED",
            "FAILED",
            "DONE",
            "ZOMBIE",
            "TOTAL",
            "OLDEST",
            "WAITING",
            "RETRY",
        ),
        (
            (
                each.tube,
                each.tasks.ready,
                each.tasks.delayed,
                each.tasks.held,
                each.tasks.taken,
                each.tasks.buried,
                each.calls.fail,
                each.tasks.done,
                each.tasks.zombie,
                each.tasks.total,
                show_duration(max(answer.now_ms - each.oldest_ready_ms, 0))
                if each.oldest_ready_ms
                else "-",
                each.waiting,
                retries.get(each.tube, "-"),
            )
            for each in answer.tubes
        ),
    )


def _show(tubes: Sequence[TubeInfo], output: str) -> None:
    from taskraft.cli.output import show_duration, show_retry, write, write_table

    if write([each.message for each in tubes], output):
        return

    def limit(value_ms: int | None) -> str:
        return "-" if value_ms is None else show_duration(value_ms)

    is_wide = output == "wide"
    write_table(
        ("NAME", "KIND", "PRIORITY", "DELAY", "TTL", "TTR", "RETRY", *(_WIDE if is_wide else ())),
        (
            (
                each.name,
                each.kind.upper(),
                each.options.priority,
                limit(each.options.delay_ms or None),
                limit(each.options.ttl_ms),
                limit(each.options.ttr_ms),
                show_retry(each.options.retry),
                *(_wide_columns(each) if is_wide else ()),
            )
            for each in tubes
        ),
    )


_WIDE: Final = ("PAUSED", "CONCURRENCY", "CAPACITY", "DEAD LETTERS", "DURABILITY", "PROFILE")


def _wide_columns(tube: TubeInfo) -> tuple[object, ...]:
    options = tube.options
    paused = [name for name in ("put", "take") if getattr(options, f"{name}_paused")]
    return (
        ",".join(paused) or "-",
        options.concurrency or "-",
        options.capacity_tasks or "-",
        options.dead_letter_tube or "-",
        options.durability,
        tube.profile or "-",
    )
