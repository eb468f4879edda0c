"""The command ``taskraft apply``."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields


@click.command(
    epilog=examples(
        "taskraft apply -f - < tubes.yaml",
        "taskraft apply -f - --dry-run < tubes.yaml",
        "taskraft apply -f - --access-file access.json < cluster.yaml",
    )
)
@click.option(
    "-f", "--file", type=click.File("r"), required=True, help='YAML file; "-": standard input.'
)
@click.option(
    "--access-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Access file (TOML or JSON) that gets the principals; nodes read a changed file again.",
)
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
    from its own file.
    """
    from taskraft.cli.access_file import AccessFile
    from taskraft.cli.declarations import DeclarationFile, DeclarationPlan, print_change
    from taskraft.cli.output import write_values

    declared = DeclarationFile.load(file)
    if declared.principals and access_file is None:
        raise click.UsageError("The file has principals; give --access-file.")
    rights = AccessFile(access_file, declared.principals) if access_file is not None else None
    changes = []
    if declared.tubes or declared.schedules:
        with connect(target, timeout) as client:
            plan = DeclarationPlan(client, declared)
            if not dry_run:
                plan.apply()
        changes += plan.changes
    if rights is not None:
        if not dry_run:
            rights.save()
        changes += rights.changes
    if not write_values([each.value() for each in changes], output):
        for change in changes:
            print_change(change)
