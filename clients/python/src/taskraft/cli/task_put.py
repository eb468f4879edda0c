"""The command ``taskraft task put``."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from taskraft.cli.app import load_app
from taskraft.cli.options import DURATION, examples, output_option
from taskraft.cli.put import PUT_SHAPE, show_put
from taskraft.cli.task_graph import task

if TYPE_CHECKING:
    from taskraft.worker import App
    from taskraft.worker.task import TaskFunction

__all__ = ["task"]


@task.command(
    epilog=examples("""taskraft task put mail.welcome --app shop:app --json '{"name": "Anna"}'""")
)
@click.argument("name")
@click.option(
    "--app",
    "reference",
    metavar="MODULE:APP",
    required=True,
    envvar="TASKRAFT_APP",
    show_envvar=True,
    help="App that declares the task.",
)
@click.option(
    "--json",
    "text",
    metavar="OBJECT",
    default="{}",
    show_default=True,
    help="Arguments by name, as a JSON object.",
)
@click.option("--priority", type=int, help="Priority; a lower number is more urgent.")
@click.option("--delay", type=DURATION, help="Time before the task can be taken.")
@click.option(
    "--ttl", type=DURATION, help="Time to live: remove the task if it is not finished by then."
)
@output_option(PUT_SHAPE)
def put(*, name: str, reference: str, text: str, output: str, **given: float | None) -> None:
    """Put a task of an app by its name, NAME.

    The arguments are checked against the signature of the task, and encoded by the codec of the
    app. The app chooses the cluster and the credentials, as for `taskraft worker`.
    """
    from taskraft.worker.errors import DecodeError, EncodeError

    app = load_app(reference)
    found = _task(app, name)
    options: Any = {option: value for option, value in given.items() if value is not None}
    try:
        arguments = _arguments(found, text)
        with app:
            handle = found.options(**options).put(**arguments)
    except (DecodeError, EncodeError) as error:
        raise click.BadParameter(str(error), param_hint="--json") from error
    if "on_conflict" in found.definition:
        options["on_conflict"] = found.definition["on_conflict"]
    show_put(handle.tube, [handle.id], output, options)


def _task(app: App, name: str) -> TaskFunction[..., Any]:
    found = app.tasks.get(name)
    if found is not None:
        return found
    similar = get_close_matches(name, app.tasks)
    hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
    raise click.UsageError(f"The app {app.name} has no task {name}.{hint}")


def _arguments(found: TaskFunction[..., Any], text: str) -> dict[str, Any]:
    """Return the arguments of a JSON object, with the types of the signature.

    Raises:
        EncodeError: an argument is missing or unknown.
        DecodeError: the text is no JSON object, or an argument has a wrong type.
        InvalidTask: JSON cannot represent the type of a parameter.
    """
    from taskraft._payload import JSON
    from taskraft.worker.codecs import codec_for
    from taskraft.worker.errors import DecodeError
    from taskraft.worker.payloads import Payloads

    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise DecodeError("expected an object with the arguments by name")
    signature = found.signature
    signature.arguments((), given)
    codec = found.payloads.codec
    if codec.content_type != JSON:
        codec = codec_for([*signature.types.values(), signature.returns])
    return Payloads(signature, "arguments", codec).decode(text.encode(), "")
