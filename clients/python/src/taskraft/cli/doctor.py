"""The commands ``taskraft doctor`` and ``taskraft support-bundle``."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import Client
    from taskraft.cli.health import HealthFinding

REDACTED: Final = "(redacted)"
SECRET_FIELDS: Final = frozenset(("payload", "headers", "result", "unique_key", "owner"))
"""Fields that a support bundle does not contain."""


@click.command(epilog=examples("taskraft doctor", "taskraft doctor -o json"))
@output_option(fields("subject", "level", "detail", "advice"))
@cluster_options
def doctor(*, output: str, target: str | None, timeout: float) -> None:
    """Examine the connection, the leader, the members, clocks and versions, and advise.

    The exit code is 1 if there is a warning or worse. The API does not show the disk space of
    nodes; see the metrics of the nodes.
    """
    from taskraft.cli.health import worst
    from taskraft.cli.output import write_table, write_values

    findings = list(_examine(target, timeout))
    values = [{**each._asdict(), "level": each.level.name} for each in findings]
    if not write_values(values, output):
        write_table(
            ("LEVEL", "SUBJECT", "FINDING", "ADVICE"),
            ((each.level.name, each.subject, each.detail, each.advice) for each in findings),
        )
    if worst(findings):
        raise click.exceptions.Exit(1)


def _examine(target: str | None, timeout: float) -> Iterator[HealthFinding]:
    from taskraft import __version__, catalogue, errors
    from taskraft.cli.health import HealthFinding, Level, of_client_clock, of_cluster

    try:
        with connect(target, timeout) as client:
            info = client.server_info()
            yield HealthFinding(
                "connection", Level.OK, f"{info.node} answered, version {info.version}"
            )
            state = client.cluster_state()
            if state.leader_address and state.leader != state.node:
                state = client.cluster_state()  # this call goes to the leader
            yield from of_cluster(state)
            yield of_client_clock(client.stats().now_ms)
    except errors.TaskraftError as error:
        row = catalogue.CATALOGUE.get(error.reason)
        advice = error.advice or (row.advice if row else "")
        yield HealthFinding("connection", Level.CRITICAL, f"{error.reason}: {error}", advice)
        return
    same = info.version == __version__
    yield HealthFinding(
        "versions",
        Level.OK if same else Level.WARNING,
        f"client {__version__}, node {info.version}",
        "" if same else "use a client of the version of the nodes",
    )


@click.command("support-bundle", epilog=examples("taskraft support-bundle support.tar.gz"))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@output_option(fields("name", "files"))
@cluster_options
def support_bundle(*, file: Path, output: str, target: str | None, timeout: float) -> None:
    """Write the state of the cluster into FILE, a tar archive of JSON files, for a bug report.

    Payloads, headers, results, unique keys and owners are left out. Names of tubes and schedules,
    and addresses of nodes are not. FILE must not exist; only its owner can read it.
    """
    from taskraft.cli.output import write_values

    with connect(target, timeout) as client:
        contents = {name: redacted(value) for name, value in _contents(client)}
    contents["findings"] = [
        {**each._asdict(), "level": each.level.name} for each in _examine(target, timeout)
    ]
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error
    with (
        os.fdopen(descriptor, "wb") as opened,
        tarfile.open(fileobj=opened, mode="w:gz") as archive,
    ):
        for name, value in contents.items():
            data = json.dumps(value, indent=2, ensure_ascii=False).encode()
            entry = tarfile.TarInfo(f"taskraft-support/{name}.json")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    if not write_values([{"name": str(file), "files": sorted(contents)}], output):
        click.echo(f"{file}: {', '.join(sorted(contents))}")


def _contents(client: Client) -> Iterator[tuple[str, Any]]:
    """Yield the name and the JSON form of each part of the bundle."""
    from taskraft import __version__
    from taskraft.cli.output import to_value

    # `platform.platform` would start a process.
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "client", {"version": __version__, "python": sys.version, "system": system}
    yield "server_info", to_value(client.server_info())
    yield "cluster_state", to_value(client.cluster_state())
    yield "settings", to_value(client.configure())
    yield "sessions", [to_value(each) for each in client.list_sessions()]
    yield "tubes", [to_value(each.message) for each in client.list_tubes()]
    counts = client.stats(transitions=True)
    yield "statistics", [to_value(each.message) for each in counts.tubes]
    yield "schedules", [to_value(each.message) for each in client.schedules.list()]


def redacted(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value in which the contents of secret fields are replaced."""
    if isinstance(value, dict):
        return {
            name: REDACTED if name in SECRET_FIELDS and each else redacted(each)
            for name, each in value.items()
        }
    return [redacted(each) for each in value] if isinstance(value, list) else value
