"""The command ``taskraft explain``."""

from __future__ import annotations

import json

import click

from taskraft import catalogue
from taskraft.cli.failures import EXIT_CODES, FAILED, NOT_FOUND, tell
from taskraft.cli.options import examples, output_option
from taskraft.cli.output_shape import fields


@click.command(epilog=examples("taskraft explain LEASE_STALE"))
@click.argument("reason", required=False)
@output_option(fields("reason", "code", "meaning", "advice", "is_retried", "final_advice"))
def explain(*, reason: str | None, output: str) -> None:
    """Explain the error REASON: what happened and what to do.

    Without REASON, list all reasons.
    """
    from taskraft.cli.output import write_values

    if reason is None:
        _list(output)
        return
    row = catalogue.CATALOGUE.get(reason.upper())
    if row is None:
        tell(f"error: unknown reason {reason.upper()}")
        tell("hint:  `taskraft explain` lists all reasons.")
        click.get_current_context().exit(NOT_FOUND)
    if output == "json":
        click.echo(json.dumps(_value(row), indent=2))
        return
    if write_values([_value(row)], output):
        return
    click.echo(f"{row.reason}  ({row.code})")
    click.echo(f"  what      {row.meaning}")
    click.echo(f"  do        {row.advice}")
    click.echo(f"  client    {'retries by itself' if row.is_retried else 'raises'}")
    if row.final_advice:
        click.echo(f"  at last   {row.final_advice}")
    click.echo(f"  Python    taskraft.errors.{row.exception.__name__}")
    click.echo(f"  exit code {EXIT_CODES.get(row.code, FAILED)}")


def _list(output: str) -> None:
    from taskraft.cli.output import write_table, write_values

    rows = list(catalogue.CATALOGUE.values())
    if not write_values([_value(row) for row in rows], output):
        write_table(("REASON", "CODE", "MEANING"), ((r.reason, r.code, r.meaning) for r in rows))


def _value(row: catalogue.ErrorReason) -> dict[str, str | bool]:
    return {
        "reason": row.reason,
        "code": row.code,
        "meaning": row.meaning,
        "advice": row.advice,
        "is_retried": row.is_retried,
        "final_advice": row.final_advice,
    }
