"""The command ``taskraft console``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from taskraft.cli.options import DURATION, examples

if TYPE_CHECKING:
    from taskraft_console.signin.signin_settings import SignInSettings
    from taskraft_console.views.redaction_rules import RedactionRules


@click.command(epilog=examples("taskraft console --target 10.0.0.1:7401,10.0.0.2:7401"))
@click.option(
    "-t",
    "--target",
    envvar="TASKRAFT_TARGET",
    default="127.0.0.1:7401",
    show_default=True,
    help="Addresses of nodes, host:port,host:port.",
)
@click.option(
    "--listen",
    default="127.0.0.1:7400",
    show_default=True,
    envvar="TASKRAFT_CONSOLE_LISTEN",
    help="Address of the console, host:port; port 0 takes a free port.",
)
@click.option(
    "--base-path",
    default="",
    envvar="TASKRAFT_CONSOLE_BASE_PATH",
    help="Prefix of all paths behind a proxy, such as /taskraft.",
)
@click.option("--name", default="", help="Name of the cluster in the top bar.")
@click.option("--read-only", is_flag=True, help="Refuse each change.")
@click.option(
    "--payloads",
    type=click.Choice(["hidden", "full"]),
    default="hidden",
    show_default=True,
    help="Show payloads after a click, or at once.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="5s",
    show_default=True,
    help="Time limit of a call to the cluster, retries included.",
)
@click.option(
    "--sign-in",
    "signin_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="TASKRAFT_CONSOLE_SIGN_IN",
    help="TOML file that says how people sign in. Default: nobody signs in.",
)
@click.option(
    "--redact",
    "redaction_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="TASKRAFT_CONSOLE_REDACT",
    help="TOML file with the values of payloads and headers that no page shows.",
)
@click.option(
    "--trace-url",
    default="",
    envvar="TASKRAFT_CONSOLE_TRACE_URL",
    help="Address of a trace, such as https://traces.example/trace/{trace_id}.",
)
@click.option("--lifeline", is_flag=True, hidden=True, help="Stop when standard input ends.")
def console(  # noqa: PLR0913 - one argument for each option
    *,
    target: str,
    listen: str,
    base_path: str,
    name: str,
    read_only: bool,
    payloads: str,
    timeout: float,
    signin_file: Path | None,
    redaction_file: Path | None,
    trace_url: str,
    lifeline: bool,
) -> None:
    """Serve the web console of a cluster.

    Without a sign-in file, the console listens on loopback only, and calls the cluster with its own
    certificate or token. With a sign-in file, it calls the cluster as each person.

    Example: taskraft console --target 127.0.0.1:7401
    """
    from taskraft_console.console_server import serve_console  # noqa: PLC0415 - loads the server
    from taskraft_console.console_settings import (  # noqa: PLC0415 - see above
        ConsoleSettings,
        base_path_of,
        trace_url_of,
    )

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise click.BadParameter(f"{listen!r} is not host:port", param_hint="--listen")
    try:
        checked_trace_url = trace_url_of(trace_url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--trace-url") from error
    settings = ConsoleSettings(
        target=target,
        host=host.strip("[]"),
        port=int(port),
        base_path=base_path_of(base_path),
        name=name,
        read_only=read_only,
        payloads="full" if payloads == "full" else "hidden",
        timeout_seconds=timeout,
        signin=_signin_of(signin_file),
        redaction=_redaction_of(redaction_file),
        trace_url=checked_trace_url,
    )
    if not settings.is_loopback and settings.signin is None:
        raise click.UsageError(
            f"{host} is not a loopback address. Without sign-in, the console listens on loopback "
            "only; use 127.0.0.1, or --sign-in."
        )
    raise SystemExit(serve_console(settings, has_lifeline=lifeline))


def _signin_of(path: Path | None) -> SignInSettings | None:
    """Return the settings of a sign-in file.

    Raises:
        click.UsageError: the file is unusable.
    """
    if path is None:
        return None
    from taskraft_console.signin.signin_settings import (  # noqa: PLC0415 - loads pydantic
        SignInFileInvalid,
        read_signin,
    )

    try:
        return read_signin(path)
    except SignInFileInvalid as error:
        raise click.UsageError(str(error)) from error


def _redaction_of(path: Path | None) -> RedactionRules | None:
    """Return the rules of a redaction file.

    Raises:
        click.UsageError: the file is unusable.
    """
    if path is None:
        return None
    from taskraft_console.views.redaction_rules import (  # noqa: PLC0415 - loads pydantic
        RedactionFileInvalid,
        read_redaction,
    )

    try:
        return read_redaction(path)
    except RedactionFileInvalid as error:
        raise click.UsageError(str(error)) from error
