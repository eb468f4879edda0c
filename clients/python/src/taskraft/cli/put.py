"""The command ``taskraft put``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.names import GROUP, TUBE
from taskraft.cli.options import (
    DURATION,
    client_id_option,
    cluster_options,
    connect,
    examples,
    given_client_id,
    output_option,
)
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from taskraft import PutOptions

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
PUT_SHAPE: Final = fields("tube", "id", "state")
"""Shape of the output of a put; only the server knows the state of some tasks."""


@click.command(
    epilog=examples(
        'taskraft put emails \'{"to": "a@b.c"}\' --delay 10s --priority 5',
        "taskraft put emails - --client-id mailing-7 < emails.ndjson",
        "taskraft put invoices 'order 7' --depends-on orders/7",
        "taskraft put orders 'order 7' --client-id shop --request-id order-7",
    )
)
@click.argument("tube", type=TUBE)
@click.argument("payload", required=False)
@click.option("--priority", type=int, help="Priority; a lower number is more urgent.")
@click.option("--delay", type=DURATION, help="Time before the task can be taken.")
@click.option(
    "--ttl", type=DURATION, help="Time to live: remove the task if it is not finished by then."
)
@click.option("--ttr", type=DURATION, help="Time to run: maximum duration of a lease.")
@click.option(
    "--key", multiple=True, help="Unique key; repeat the option for a key of several parts."
)
@click.option(
    "--on-conflict",
    type=click.Choice(("fail", "return_existing", "restart_if_finished", "replace_if_waiting")),
    help="Action if the key is in use; default: fail.",
)
@click.option("--type", help="Type of the work.")
@click.option("--subqueue", help="Sub-queue, for tubes of kind utube and utubettl.")
@click.option("--group", type=GROUP, help="Group of the task; it is HELD until the group starts.")
@click.option(
    "--depends-on",
    multiple=True,
    metavar="TUBE/ID",
    help="Keep the task HELD until this task is acknowledged.",
)
@click.option(
    "--on-dependency-failure",
    type=click.Choice(("cancel", "run")),
    help="Action if a dependency fails; default: cancel.",
)
@click.option(
    "--position", type=click.Choice(("front", "back")), help="Before or behind all READY tasks."
)
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Header of the task.")
@click.option(
    "--request-id",
    help='Idempotency key, for example "order-4711": the same command puts one task.',
)
@client_id_option
@output_option(PUT_SHAPE)
@cluster_options
def put(
    *,
    tube: str,
    payload: str | None,
    output: str,
    target: str | None,
    timeout: float,
    header: tuple[str, ...],
    request_id: str | None,
    **given: object,
) -> None:
    """Put a task into TUBE.

    PAYLOAD is the payload. With "-", each input line is a JSON value and becomes one task; all
    lines of a file are checked before the first put. With --client-id, a second run with the same
    file within ten minutes puts no line twice. Without PAYLOAD, the whole input is the payload of
    one task.
    """
    options = _options(header, given)
    if payload == "-":
        if request_id is not None:
            raise click.UsageError("--request-id needs one PAYLOAD; lines become many messages.")
        options.setdefault("content_type", JSON)
        _put_lines(tube, options, output, target, timeout)
        return
    content = _content(payload)
    options["content_type"] = content_type_of(content)
    with connect(target, timeout) as client:
        task_id = client.tube(tube).put(content, request_id=request_id, **options)
    show_put(tube, [task_id], output, options)


def _options(header: tuple[str, ...], given: dict[str, object]) -> PutOptions:
    """Return the given options as client options."""
    chosen: PutOptions = {}
    for name, value in given.items():
        if value is not None and value != ():
            chosen[name] = value  # type: ignore[literal-required]  # the options are named alike
    if header:
        pairs = [each.partition("=") for each in header]
        for name, equals, _ in pairs:
            if not name or not equals:
                raise click.BadParameter(
                    'a header must have the form "NAME=VALUE"', param_hint="--header"
                )
        chosen["headers"] = {name: value for name, _, value in pairs}
    return chosen


def _content(payload: str | None) -> bytes:
    if payload is not None:
        return payload.encode()
    if sys.stdin.isatty():
        raise click.UsageError("PAYLOAD is missing; give it as an argument or on standard input.")
    return sys.stdin.buffer.read()


def content_type_of(content: bytes) -> str:
    """Return the media type of a payload: JSON, text, or none."""
    try:
        json.loads(content.decode())
    except UnicodeDecodeError:
        return ""
    except ValueError:
        return TEXT
    return JSON


def _put_lines(
    tube: str, options: PutOptions, output: str, target: str | None, timeout: float
) -> None:
    from taskraft.cli.put_lines import check_lines, put_lines

    check_lines()
    with connect(target, timeout) as client:
        task_ids = put_lines(client.tube(tube), options, given_client_id())
    show_put(tube, task_ids, output, options)


def show_put(tube: str, task_ids: list[int], output: str, options: PutOptions) -> None:
    """Print the tasks that were put with these options."""
    from taskraft.cli.output import write
    from taskraft.v1 import task_pb2

    state = task_pb2.Task.DELAYED if options.get("delay") else task_pb2.Task.READY
    if not options.keys().isdisjoint(("group", "on_conflict", "depends_on")):
        state = task_pb2.Task.STATE_UNSPECIFIED  # only the server knows the state
    tasks = [task_pb2.Task(tube=tube, id=task_id, state=state) for task_id in task_ids]
    if write(tasks, output, only=("tube", "id", "state") if state else ("tube", "id")):
        return
    if len(tasks) > 10:
        click.echo(f"{tube}/{task_ids[0]} to {tube}/{task_ids[-1]}: {len(tasks)} tasks")
        return
    shown = f"  {task_pb2.Task.State.Name(state)}" if state else ""
    for task in tasks:
        click.echo(f"{tube}/{task.id}{shown}")
