"""The commands ``taskraft apply`` and ``taskraft diff``."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, ParamSpec

import click

from taskraft.cli.confirmation import WITH_PRUNE, Confirmation, destroys
from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taskraft.cli.access_file import AccessFile
    from taskraft.cli.declarations import DeclarationPlan
    from taskraft.cli.declared_changes import DeclaredChange

Params = ParamSpec("Params")


def declaration_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options of `apply` and `diff` that choose the objects to compare."""
    for option in (
        click.option(
            "--prune",
            is_flag=True,
            help="Also delete the objects that the file does not name, of the kinds that it has.",
        ),
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
        "taskraft apply -f - --prune --yes < tubes.yaml",
    )
)
@declaration_options
@output_option(fields("kind", "name", "action", "differences"))
@destroys("Deleted objects must be created again.", only=WITH_PRUNE)
@cluster_options
def apply(
    *,
    file: IO[str],
    access_file: Path | None,
    prune: bool,
    confirmation: Confirmation,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Create or update the tubes, schedules and principals of a YAML file.

    Objects and options that the file does not name stay unchanged. The whole file is checked before
    the first change. Principals are written into an access file, because each node reads the rights
    from its own file. The output shows the changed fields as lines of YAML, the old value behind
    "-" and the new value behind "+".

    With --prune, objects that the file does not name are deleted if the file has the key of their
    kind ("tubes", "schedules", "principals") with a value, which may be empty. If a tube to delete
    has tasks or waiting consumers, or is the tube of a schedule or of dead letters, nothing is
    changed. Schedules of apps stay, see `taskraft app apply --prune`.
    """
    from taskraft.cli.declared_changes import write_changes
    from taskraft.cli.terminal_text import terminal_text

    confirmation.check_input()
    with _compared(file, access_file, target, timeout, prune=prune) as comparison:
        changes = comparison.changes
        deleted = [f"{each.kind} {each.name}" for each in changes if each.action == "delete"]
        if not confirmation.only_if(deleted).allows(
            lambda: f"Delete {terminal_text(', '.join(deleted))}?",
            lambda: write_changes(changes, output),
        ):
            return
        comparison.apply()
    write_changes(changes, output)


@click.command(
    epilog=examples(
        "taskraft diff -f - < tubes.yaml",
        "taskraft diff -f - --access-file access.json < cluster.yaml",
    )
)
@declaration_options
@output_option(fields("kind", "name", "action", "differences"))
@cluster_options
def diff(
    *,
    file: IO[str],
    access_file: Path | None,
    prune: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Show what `taskraft apply` would change; change nothing.

    Exit code 0: no differences; 1: differences; 2 or more: failure.
    """
    from taskraft.cli import failures
    from taskraft.cli.declared_changes import write_changes

    with (
        failures.without_code_1(),
        _compared(file, access_file, target, timeout, prune=prune) as comparison,
    ):
        write_changes(comparison.changes, output)
    if any(change.action != "unchanged" for change in comparison.changes):
        sys.exit(1)


class Comparison(NamedTuple):
    """A file of declarations, compared with the cluster and with the access file."""

    plan: DeclarationPlan | None
    """None: the file has nothing for the cluster, which is then not called."""
    rights: AccessFile | None

    @property
    def changes(self) -> list[DeclaredChange]:
        """The objects of the file, and those to delete."""
        return [change for part in self if part is not None for change in part.changes]

    def apply(self) -> None:
        """Change the cluster, then the access file, which is written beside its place before."""
        with nullcontext() if self.rights is None else self.rights.replaced():
            if self.plan is not None:
                self.plan.apply()


@contextmanager
def _compared(
    file: IO[str], access_file: Path | None, target: str | None, timeout: float, *, prune: bool
) -> Iterator[Comparison]:
    """Check a file, and compare it with the cluster and the access file."""
    from taskraft.cli.access_file import AccessFile
    from taskraft.cli.declarations import KINDS, DeclarationFile, DeclarationPlan

    declared = DeclarationFile.load(file)
    prunes_principals = prune and "principals" in declared.kinds
    if (declared.principals or prunes_principals) and access_file is None:
        raise click.UsageError("The file has principals; give --access-file.")
    rights = None
    if access_file is not None:
        with declared.yaml.locating():
            rights = AccessFile(access_file, declared.principals, prune=prunes_principals)
    if not (declared.tubes or declared.schedules or (prune and declared.kinds.intersection(KINDS))):
        yield Comparison(None, rights)
        return
    with connect(target, timeout) as client:
        yield Comparison(DeclarationPlan(client, declared, prune=prune), rights)
