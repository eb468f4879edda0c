"""``taskraft tube`` and ``taskraft stats``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from taskraft.cli.options import DURATION, cluster_options, connect, examples, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft import Retry, TubeSettings
    from taskraft._tubes import Kind
    from taskraft.v1 import tube_service_pb2

KINDS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


@click.group(epilog=examples("taskraft tube create emails --ttr 60s"))
def tube() -> None:
    """Create, list and drop tubes."""


@tube.command(
    epilog=examples("taskraft tube create emails --kind fifottl --ttr 60s --if-not-exists")
)
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), default="fifottl", show_default=True)
@click.option("--priority", type=int, help="Priority of tasks that name none.")
@click.option("--delay", type=DURATION, help="Delay of tasks that name none.")
@click.option("--ttl", type=DURATION, help="Time to live of tasks that name none.")
@click.option("--ttr", type=DURATION, help="Time to run of tasks that name none.")
@click.option("--capacity-tasks", type=click.IntRange(1), help="At most so many tasks.")
@click.option("--capacity-bytes", type=click.IntRange(1), help="At most so many bytes of payload.")
@click.option("--concurrency", type=click.IntRange(1), help="At most so many taken at once.")
@click.option("--rate-per-second", type=click.IntRange(1), help="At most so many takes a second.")
@click.option("--rate-burst", type=click.IntRange(1), help="So many takes at once after a pause.")
@click.option("--attempts-max", type=click.IntRange(1), help="A task is taken so often at most.")
@click.option("--backoff", type=DURATION, help="Delay before the second attempt; then it doubles.")
@click.option(
    "--exhausted",
    type=click.Choice(("bury", "dead_letter", "remove")),
    help="What becomes of a task whose attempts are used up.",
)
@click.option("--on-ack", type=click.Choice(("remove", "keep", "retain")))
@click.option("--retain", type=DURATION, help="How long finished tasks are kept.")
@click.option("--dead-letter-tube", help="Where exhausted and rejected tasks go.")
@click.option("--if-not-exists", is_flag=True, help="Be content with an existing tube.")
@output_option
@cluster_options
def create(
    *,
    name: str,
    kind: Kind,
    if_not_exists: bool,
    output: str,
    target: str | None,
    timeout: float,
    **given: object,
) -> None:
    """Create the tube NAME."""
    settings: TubeSettings = {}
    retry = {name: given.pop(name) for name in ("attempts_max", "backoff", "exhausted")}
    if any(value is not None for value in retry.values()):
        settings["retry"] = _retry(**retry)
    for option, value in given.items():
        if value is not None:
            settings[option] = value  # type: ignore[literal-required]  # the options are named alike
    with connect(target, timeout) as client:
        created = client.create_tube(name, kind, if_not_exists=if_not_exists, **settings)
    _show([created], output)


def _retry(**given: object) -> Retry:
    """Return the retry policy that the options describe."""
    from taskraft import Retry  # noqa: PLC0415

    named = {name: value for name, value in given.items() if value is not None}
    return Retry(**named)  # type: ignore[arg-type]  # the options are named alike


@tube.command("list", epilog=examples("taskraft tube list 'mail*' -o jsonl"))
@click.argument("names", metavar="[PATTERN]...", nargs=-1)
@output_option
@cluster_options
def list_tubes(*, names: tuple[str, ...], output: str, target: str | None, timeout: float) -> None:
    """List tubes, or those whose names fit a PATTERN with "*"."""
    with connect(target, timeout) as client:
        tubes = client.list_tubes(names)
    _show(tubes, output)


@tube.command(epilog=examples("taskraft tube drop emails --yes"))
@click.argument("name")
@click.option("--force", is_flag=True, help="Also when tasks are taken or consumers wait.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@cluster_options
def drop(
    *,
    name: str,
    force: bool,
    yes: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Remove the tube NAME with its tasks."""
    from taskraft.cli.output import write  # noqa: PLC0415
    from taskraft.v1 import tube_service_pb2  # noqa: PLC0415

    with connect(target, timeout) as client:
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("The input is no terminal: say --yes.")
            tasks = client.tube(name).stats().tasks.total
            click.confirm(f"Drop {name} with {tasks} tasks?", abort=True, err=True)
        dropped = client.drop_tube(name, force=force)
    if not write([tube_service_pb2.DropTubeResponse(tasks=dropped)], output):
        click.echo(f"{name}  dropped with {dropped} tasks")


@click.command(epilog=examples("taskraft stats emails"))
@click.argument("tubes", metavar="[TUBE]...", nargs=-1)
@output_option
@cluster_options
def stats(*, tubes: tuple[str, ...], output: str, target: str | None, timeout: float) -> None:
    """Count the tasks of tubes by state."""
    from taskraft import errors  # noqa: PLC0415
    from taskraft.cli.output import show_duration, write, write_table  # noqa: PLC0415

    with connect(target, timeout) as client:
        answer = client.stats(tubes)
    missing = set(tubes) - {each.tube for each in answer.tubes}
    for name in sorted(name for name in missing if "*" not in name):
        raise errors.TubeNotFound(f'no tube has the name "{name}"')
    if write(list(answer.tubes), output):
        return
    write_table(
        ("TUBE", "READY", "DELAYED", "TAKEN", "BURIED", "DONE", "TOTAL", "OLDEST", "WAITING"),
        (
            (
                each.tube,
                each.tasks.ready,
                each.tasks.delayed,
                each.tasks.taken,
                each.tasks.buried,
                each.tasks.done + each.tasks.zombie,
                each.tasks.total,
                show_duration(max(answer.now_ms - each.oldest_ready_ms, 0))
                if each.oldest_ready_ms
                else "-",
                each.waiting,
            )
            for each in answer.tubes
        ),
    )


def _show(tubes: Sequence[tube_service_pb2.Tube], output: str) -> None:
    from taskraft.cli.output import show_duration, write, write_table  # noqa: PLC0415
    from taskraft.v1 import tube_service_pb2 as pb  # noqa: PLC0415

    if write(tubes, output):
        return

    def limit(value_ms: int, *, is_set: bool) -> str:
        return show_duration(value_ms) if is_set else "-"

    write_table(
        ("NAME", "KIND", "PRIORITY", "DELAY", "TTL", "TTR"),
        (
            (
                each.name,
                pb.Tube.Kind.Name(each.kind),
                each.options.priority,
                limit(each.options.delay_ms, is_set=bool(each.options.delay_ms)),
                limit(each.options.ttl_ms, is_set=each.options.HasField("ttl_ms")),
                limit(each.options.ttr_ms, is_set=each.options.HasField("ttr_ms")),
            )
            for each in tubes
        ),
    )
