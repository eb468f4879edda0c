"""Options that all commands share: cluster, credentials and output format."""

from __future__ import annotations

import functools
import os
import re
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec

import click
from click.core import ParameterSource

from taskraft._durations import seconds
from taskraft.cli.context_name import CONTEXT
from taskraft.cli.output_shape import TEMPLATE, names_of, unknown_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from click.shell_completion import CompletionItem
    from grpc import ChannelCredentials

    from taskraft import Client
from taskraft.cli.output_shape import Shape

Params = ParamSpec("Params")

FORMATS: Final = ("table", "wide", "json", "jsonl", "yaml", "name")
OUTPUT_HELP: Final = (
    "Output format: table, wide, json, jsonl, yaml, name, or template=TEXT with fields in braces, "
    "such as '{name} {options.ttr_ms}'. JSON uses the field names of the API; ids, tokens, "
    "revisions, priorities, sequence numbers, log positions and fingerprints are strings, other "
    "numbers are numbers."
)
_ACCESS: Final = "taskraft.access."
"""Prefix of the context keys that hold the paths of credential files."""
_ACCESS_FILES: Final = (
    (
        "token-file",
        "token_file",
        "File with the token; alternative: TASKRAFT_TOKEN.",
    ),
    ("cert-key", "key", "Private key of the certificate, PEM."),
    ("cert", "cert", "Client certificate, PEM."),
    ("ca", "ca", "CAs of the nodes' certificates, PEM."),
)
"""Options for credentials files: flag, name of the credential, help."""
_CLIENT_ID: Final = "taskraft.client_id"
"""Context key of the client_id."""
_ROOT: Final = "taskraft.root."
"""Prefix of the context keys that hold the options given before the command."""
ROOT_TIMEOUT: Final = f"{_ROOT}timeout"


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


class SizeType(click.ParamType[int]):
    """A size such as 500MiB, 2GiB or 64KiB; a plain number means bytes."""

    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the size in bytes."""
        found = re.fullmatch(r"(\d+) ?(|KiB|MiB|GiB)", str(value))
        if found is None:
            self.fail(f"a size must look like 500MiB, 2GiB or 4096, not {value!r}", param, ctx)
        return int(found[1]) << ("", "KiB", "MiB", "GiB").index(found[2]) * 10


SIZE: Final = SizeType()


class OutputType(click.ParamType[str]):
    """An output format: one of FORMATS, or "template=TEXT".

    Args:
        also: further formats of a command.
    """

    name = "format"

    def __init__(self, *also: str) -> None:
        self._formats: Final = (*FORMATS, *also)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the output format of a text."""
        if value in self._formats or value.startswith(TEMPLATE):
            return value
        known = ", ".join(self._formats)
        return self.fail(f"{value!r} is not one of {known}, template=TEXT", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the formats that begin with the incomplete word."""
        from click.shell_completion import CompletionItem

        del ctx, param
        return [
            CompletionItem(each)
            for each in (*self._formats, TEMPLATE)
            if each.startswith(incomplete)
        ]


OUTPUT: Final = OutputType()


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
            if not similar or args[0] in similar:
                raise
            ctx.fail(f"{error.message} Did you mean {' or '.join(similar)}?")


class ExtensibleGroup(SuggestingGroup):
    """A group to which other distributions add commands through an entry-point group.

    Args:
        entry_points: name of the entry-point group.
        options: see `click.Group`.
    """

    def __init__(self, *, entry_points: str, **options: Any) -> None:  # noqa: ANN401 - passed on to click
        super().__init__(**options)
        self._entry_points = entry_points

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the own commands and of the commands of other distributions."""
        others = entry_points(group=self._entry_points)
        return sorted({*super().list_commands(ctx), *(entry.name for entry in others)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return an own command, or load one of another distribution."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in entry_points(group=self._entry_points, name=cmd_name):
            loaded = entry.load()
            assert isinstance(loaded, click.Command), f"{entry.value} is no click command"
            return loaded
        return None


raw_option = click.option(
    "--raw", is_flag=True, help="Print only the payloads, unchanged, a newline after each."
)


def examples(*lines: str) -> str:
    """Return the examples section of a command's help; a test parses each line."""
    title = "Example" if len(lines) == 1 else "Examples"
    return "\n".join(("\b", f"{title}:", *(f"  {line}" for line in lines)))


def root_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options of `cluster_options` to the root group, for all of its commands.

    An option of the command overrides the root's; the root's overrides the environment.
    """

    def keep(ctx: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None:
            ctx.meta[f"{_ROOT}{option.name}"] = value

    command = _access_files(command)
    for option in (
        click.option(
            "--timeout",
            type=DURATION,
            expose_value=False,
            callback=keep,
            help="Time limit of the call, retries included.  [default: 10s]",
        ),
        click.option(
            "-t",
            "--target",
            expose_value=False,
            callback=keep,
            help="Addresses of nodes, host:port,host:port.",
        ),
        click.option(
            "--context",
            type=CONTEXT,
            expose_value=False,
            callback=keep,
            help="Context that names the cluster, see `taskraft context`.",
        ),
    ):
        command = option(command)
    return command


def cluster_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options for the target, the context, the timeout and the credentials."""

    def keep(ctx: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None:
            ctx.meta[f"{_ROOT}{option.name}"] = value

    command = _access_files(command)
    for option in (
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
            help="Addresses of nodes, host:port,host:port.",
        ),
        click.option(
            "--context",
            type=CONTEXT,
            expose_value=False,
            callback=keep,
            help="Context that names the cluster, see `taskraft context`.",
        ),
    ):
        command = option(command)
    return command


def _access_files(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options for the credentials files."""
    for flag, name, text in _ACCESS_FILES:
        command = _access_option(flag, name, text)(command)
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
        expose_value=False,
        callback=register,
        help=text,
    )


def output_option(
    shape: Shape,
    *,
    preview: Shape | None = None,
    default: str = "table",
    also: Mapping[str, str] | None = None,
) -> Callable[[Callable[Params, None]], Callable[Params, None]]:
    """Return an option for the output format of a command.

    A template is checked before the command runs, so that a mistake has no effect.

    Args:
        shape: the fields of the objects that the command prints.
        preview: the fields of the objects that the command prints with --dry-run; None: the same.
        default: format without the option.
        also: further formats with their explanations; the command writes them itself.
    """
    kind = OutputType(*also) if also else OUTPUT
    texts = (OUTPUT_HELP, *(f"{name}: {text}." for name, text in (also or {}).items()))

    def add(command: Callable[Params, None]) -> Callable[Params, None]:
        @functools.wraps(command)
        def checked(*args: Params.args, **options: Params.kwargs) -> None:
            is_preview = options.get("dry_run") and preview is not None
            printed = preview if is_preview and preview is not None else shape
            _check_template(str(options["output"]), printed)
            command(*args, **options)

        checked.shapes = (shape, preview)  # type: ignore[attr-defined]  # tests compare the outputs
        return click.option(
            "-o", "--output", type=kind, default=default, show_default=True, help=" ".join(texts)
        )(checked)

    return add


def _check_template(output: str, shape: Shape) -> None:
    """Check that a template names fields of the objects that a command prints.

    Raises:
        click.BadParameter: the template names something else.
    """
    path = unknown_field(output, shape)
    if path is not None:
        known = ", ".join(sorted(names_of(shape))) or "none"
        raise click.BadParameter(
            f"the template names {{{path}}}, which is not a field; fields: {known}",
            param_hint="--output",
        )


def check_tubes(names: Iterable[str], found: Iterable[str]) -> None:
    """Raise an error for the first name without a tube.

    Raises:
        TubeNotFound: a tube does not exist.
    """
    from taskraft import errors

    for name in sorted(set(names).difference(found)):
        raise errors.TubeNotFound.named(name)


def client_id_option(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the option for the scope of a request id; `connect` reads its value."""

    def register(ctx: click.Context, _option: click.Parameter, client_id: str) -> None:
        ctx.meta[_CLIENT_ID] = client_id

    return click.option(
        "--client-id",
        default="",
        expose_value=False,
        callback=register,
        help="Name of the application that chose the request id; keeps its request ids apart from "
        "those of other applications.",
    )(command)


def given_client_id() -> str:
    """Return the value of --client-id; empty if the option was not given."""
    client_id: str = click.get_current_context().meta.get(_CLIENT_ID, "")
    return client_id


def _cluster(target: str | None) -> tuple[str | None, ChannelCredentials | Literal[False] | None]:
    """Return addresses and credentials of the cluster that the options or the context choose.

    A context is used whole: its credentials are never sent to another target, and credentials of
    the environment are never sent to the target of a context.
    """
    from taskraft.cli.context_file import NAME_VARIABLE, ContextFile
    from taskraft.credentials import channel_credentials, credentials_of

    meta = click.get_current_context().meta
    files = {name: meta[_ACCESS + name] for _, name, _ in _ACCESS_FILES if _ACCESS + name in meta}
    target = target or meta.get(f"{_ROOT}target")
    name = meta.get(f"{_ROOT}context", "")
    if target and name:
        raise click.UsageError("Give either --target or --context.")
    target = target or (None if name else os.environ.get("TASKRAFT_TARGET"))
    if target:
        return target, channel_credentials(**files)
    contexts = ContextFile.load()
    name = name or os.environ.get(NAME_VARIABLE) or contexts.current
    if not name:
        return None, channel_credentials(**files)
    chosen = contexts.find(name)
    access = chosen.access()
    if "token_file" in files:
        access.pop("token", None)
    return chosen.target, credentials_of(access | files) or False


def connect(target: str | None, timeout: float) -> Client:
    """Return a client; export traces if the environment requests it."""
    from taskraft import Client, tracing
    from taskraft.credentials import CredentialsUnusable

    tracing.configure_from_environment("taskraft-cli")
    context = click.get_current_context()
    meta = context.meta
    if context.get_parameter_source("timeout") is not ParameterSource.COMMANDLINE:
        timeout = meta.get(ROOT_TIMEOUT, timeout)
    try:
        target, credentials = _cluster(target)
    except CredentialsUnusable as error:
        raise click.UsageError(str(error)) from error
    return Client(
        target,
        timeout=timeout,
        name="taskraft-cli",
        client_id=meta.get(_CLIENT_ID, ""),
        credentials=credentials,
    )
