"""Options that all commands share: cluster, credentials and output format."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, ParamSpec

import click

from taskraft._durations import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft import Client

Params = ParamSpec("Params")

FORMATS: Final = ("table", "json", "jsonl")
_ACCESS: Final = "taskraft.access."
"""Prefix of the context keys that hold the paths of credential files."""


class DurationType(click.ParamType[float]):
    """A duration such as 250ms, 10s, 5m or 1h30m; a plain number means seconds."""

    name = "duration"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the duration in seconds."""
        try:
            return seconds(value, "a duration")
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = DurationType()


class SuggestingGroup(click.Group):
    """A group that suggests similar commands for a mistyped name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an unknown name lists similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            similar = get_close_matches(args[0], self.list_commands(ctx))
            if not similar:
                raise
            ctx.fail(f"{error.message} Did you mean {' or '.join(similar)}?")


def examples(*lines: str) -> str:
    """Return the examples section of a command's help; a test parses each line."""
    title = "Example" if len(lines) == 1 else "Examples"
    return "\n".join(("\b", f"{title}:", *(f"  {line}" for line in lines)))


def cluster_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options for the target, the timeout and the credentials."""
    for option in (
        _access_option(
            "token-file", "token_file", "File with the token; alternative: TASKRAFT_TOKEN."
        ),
        _access_option("cert-key", "key", "Private key of the certificate, PEM."),
        _access_option("cert", "cert", "Client certificate, PEM."),
        _access_option("ca", "ca", "CAs of the nodes' certificates, PEM."),
        click.option(
            "--timeout",
            type=DURATION,
            default="10s",
            show_default=True,
            help="Time limit of the call, retries included.",
        ),
        click.option(
            "-t",
            "--target",
            envvar="TASKRAFT_TARGET",
            help="Addresses of nodes, host:port,host:port.",
        ),
    ):
        command = option(command)
    return command


def _access_option(
    flag: str, name: str, text: str
) -> Callable[[Callable[Params, None]], Callable[Params, None]]:
    """Return an option for a credentials file; `connect` reads its value.

    There is no option for a token itself, because other users can read command lines.
    """

    def register(ctx: click.Context, _option: click.Parameter, path: str | None) -> None:
        if path is not None:
            ctx.meta[_ACCESS + name] = path

    return click.option(
        f"--{flag}",
        type=click.Path(dir_okay=False),
        envvar=f"TASKRAFT_{name.upper()}",
        expose_value=False,
        callback=register,
        help=text,
    )


def output_option(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the option for the output format."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Output format; JSON uses the field names of the API.",
    )(command)


def connect(target: str | None, timeout: float) -> Client:
    """Return a client; export traces if the environment requests it."""
    from taskraft import Client, tracing
    from taskraft.credentials import CredentialsUnusable, channel_credentials

    tracing.configure_from_environment("taskraft-cli")
    meta = click.get_current_context().meta
    files = {name: meta.get(_ACCESS + name, "") for name in ("ca", "cert", "key", "token_file")}
    try:
        credentials = channel_credentials(
            ca=files["ca"], cert=files["cert"], key=files["key"], token_file=files["token_file"]
        )
    except CredentialsUnusable as error:
        raise click.UsageError(str(error)) from error
    return Client(target, timeout=timeout, name="taskraft-cli", credentials=credentials)
