"""The commands ``taskraft ack``, ``release`` and ``bury``: settle leases by their tokens."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from taskraft.cli.options import DURATION, cluster_options, connect, examples, output_option
from taskraft.cli.task_names import STANDARD_INPUT, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from taskraft._settlement import Settlement

    Command = Callable[..., None]

RULE: Final = 'With "-", each line of the input is a token.'


def tokens_argument(command: Command) -> Command:
    """Add the argument for lease tokens, or "-" for the input; the command gets `tokens`."""

    @functools.wraps(command)
    def with_tokens(*, token: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - one type for each option
        command(tokens=_tokens(token), **options)

    with_tokens.__doc__ = f"{(command.__doc__ or '').rstrip()}\n\n    {RULE}\n    "
    return click.argument("token", nargs=-1, required=True)(with_tokens)


def _tokens(words: tuple[str, ...]) -> tuple[int, ...]:
    """Return the tokens of the arguments, or of the lines of the input, each once.

    Raises:
        click.UsageError: a token is malformed, or there is none.
    """
    if STANDARD_INPUT in words:
        if len(words) > 1:
            raise click.UsageError('Give no further tokens with "-", which reads them all.')
        words = tuple(line.strip() for line in sys.stdin if line.strip())
        if not words:
            raise click.UsageError("The input names no token.")
    return tuple(dict.fromkeys(map(_token, words)))


def _token(text: str) -> int:
    found = whole_number(text)
    if found is None:
        raise click.UsageError(f"'{text}' is not a lease token.")
    return found


@click.command(epilog=examples("taskraft ack 8589934593 --result '{\"sent\": true}'"))
@tokens_argument
@click.option("--result", help="Result, stored with the task if the task is kept.")
@click.option("--payload", help="New payload of the task, if the task is kept.")
@output_option("task_service_pb2.Settlement")
@cluster_options
def ack(
    *,
    tokens: tuple[int, ...],
    result: str | None,
    payload: str | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Acknowledge the tasks with these lease tokens."""
    from taskraft import _settlement

    action = _settlement.ack(result, payload=None if payload is None else payload.encode())
    settle_leases(tokens, action, "acked", {}, output, target, timeout)


@click.command(epilog=examples('taskraft release 8589934593 --delay 30s --reason "SMTP is down"'))
@tokens_argument
@click.option(
    "--delay", type=DURATION, help="Delay before the tasks are READY; default: the retry policy."
)
@click.option("--reason", help="Reason of the failure.")
@output_option("task_service_pb2.Settlement")
@cluster_options
def release(
    *,
    tokens: tuple[int, ...],
    delay: float | None,
    reason: str | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Release the tasks with these lease tokens."""
    from taskraft import _settlement

    action = _settlement.release(delay, reason=reason)
    settle_leases(tokens, action, "released", _RELEASED, output, target, timeout)


@click.command(epilog=examples('taskraft bury 8589934593 --reason "no such address"'))
@tokens_argument
@click.option("--reason", default="", help="Reason of the failure.")
@output_option("task_service_pb2.Settlement")
@cluster_options
def bury(
    *, tokens: tuple[int, ...], reason: str, output: str, target: str | None, timeout: float
) -> None:
    """Bury the tasks with these lease tokens."""
    from taskraft import _settlement

    settle_leases(tokens, _settlement.bury(reason), "buried", {}, output, target, timeout)


_RELEASED: Final = {
    "BURIED_OUT": "BURIED, because no attempts are left",
    "FAILED": "removed, or moved to the dead-letter tube, because no attempts are left",
    "DELETED": "removed, because its cancellation was requested",
}
"""Text for the end of a released task without a next attempt, by outcome."""


def settle_leases(
    tokens: tuple[int, ...],
    action: Settlement,
    done: str,
    ends: Mapping[str, str],
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Settle leases, and print what became of each task.

    Args:
        tokens: lease tokens.
        action: a settlement without tokens.
        done: the settlement as a participle, for example "released".
        ends: texts for tasks without a next attempt, by outcome.
        output: output format.
        target: addresses of nodes.
        timeout: time limit of the call, in seconds.
    """
    from taskraft.cli.output import write
    from taskraft.v1 import task_service_pb2

    with connect(target, timeout) as client:
        given_up = client.settle(tokens, action)
    settled = task_service_pb2.Settlement()
    settled.CopyFrom(action)
    settled.tokens.extend(tokens)
    if not write([settled], output):
        for token in tokens:
            click.echo(f"token {token}  {ends.get(given_up.get(token, ''), done)}")
