"""The command ``taskraft apply``."""

from __future__ import annotations

from typing import IO

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option


@click.command(
    epilog=examples(
        "taskraft apply -f - < tubes.yaml", "taskraft apply -f - --dry-run < tubes.yaml"
    )
)
@click.option("-f", "--file", type=click.File("r"), required=True, help='YAML file; "-": input.')
@click.option("--dry-run", is_flag=True, help="Change nothing; show the differences.")
@output_option
@cluster_options
def apply(*, file: IO[str], dry_run: bool, output: str, target: str | None, timeout: float) -> None:
    """Create or update the tubes and schedules of a YAML file.

    Tubes, schedules and options that the file does not name stay unchanged. The whole file is
    checked before the first change.
    """
    from taskraft.cli.declarations import DeclarationFile, DeclarationPlan, print_change
    from taskraft.cli.output import write_values

    declared = DeclarationFile.load(file)
    with connect(target, timeout) as client:
        plan = DeclarationPlan(client, declared)
        if not dry_run:
            plan.apply()
    if not write_values([each.value() for each in plan.changes], output):
        for change in plan.changes:
            print_change(change)
