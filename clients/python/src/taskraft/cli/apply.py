"""The commands ``taskraft apply`` and ``taskraft diff``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, ParamSpec

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft.cli.declared_changes import DeclaredChange

Params = ParamSpec("Params")


def file_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options for the files of `apply` and `diff`."""
    for option in (
        click.option(
            "--access-file",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Access file (TOML or JSON) of the principals; nodes read a changed file again.",
        ),
        click.option(
            "-f",
            "--file",
            type=click.File("r"),
            required=True,
            help='YAML file; "-": standard input.',
        ),
    ):
        command = option(command)
    return command


@click.command(
    epilog=examples(
        "taskraft apply -f - < tubes.yaml",
        "taskraft apply -f - --dry-run < tubes.yaml",
        "taskraft apply -f - --access-file access.json < cluster.yaml",
    )
)
@file_options
@click.option("--dry-run", is_flag=True, help="Change nothing; show the differences.")
@output_option(fields("kind", "name", "action", "differences"))
@cluster_options
def apply(
    *,
    file: IO[str],
    access_file: Path | None,
    dry_run: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Create or update the tubes, schedules and principals of a YAML file.

    Objects and options that the file does not name stay unchanged. The whole file is checked before
    the first change. Principals are written into an access file, because each node reads the rights
    from its own file. The output shows the changed fields as lines of YAML, the old value behind
    "-" and the new value behind "+".
    """
    from taskraft.cli.declared_changes import write_changes

    write_changes(_changes(file, access_file, target, timeout, is_applied=not dry_run), output)


@click.command(
    epilog=examples(
        "taskraft diff -f - < tubes.yaml",
        "taskraft diff -f - --access-file access.json < cluster.yaml",
    )
)
@file_options
@output_option(fields("kind", "name", "action", "differences"))
@cluster_options
def diff(
    *,
    file: IO[str],
    access_file: Path | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Show what `taskraft apply` would change; change nothing.

    Exit code 0: no differences; 1: differences. A failure without an exit code of its own has the
    exit code 2 here.
    """
    from taskraft.cli import failures
    from taskraft.cli.declared_changes import write_changes

    with failures.without_code_1():
        changes = _changes(file, access_file, target, timeout, is_applied=False)
        write_changes(changes, output)
    if any(change.action != "unchanged" for change in changes):
        sys.exit(1)


def _changes(
    file: IO[str], access_file: Path | None, target: str | None, timeout: float, *, is_applied: bool
) -> list[DeclaredChange]:
    """Compare a file with the cluster and the access file; apply the differences if asked."""
    from taskraft.cli.access_file import AccessFile
    from taskraft.cli.declarations import DeclarationFile, DeclarationPlan

    declared = DeclarationFile.load(file)
    if declared.principals and access_file is None:
        raise click.UsageError("The file has principals; give --access-file.")
    with declared.yaml.locating():
        rights = AccessFile(access_file, declared.principals) if access_file is not None else None
    changes: list[DeclaredChange] = []
    if declared.tubes or declared.schedules:
        with connect(target, timeout) as client:
            plan = DeclarationPlan(client, declared)
            if is_applied:
                plan.apply()
        changes += plan.changes
    if rights is not None:
        if is_applied:
            rights.save()
        changes += rights.changes
    return changes
