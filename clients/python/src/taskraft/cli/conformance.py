"""The command ``taskraft conformance``."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from taskraft.conformance.suite import Verdict


@click.command(
    epilog=examples("taskraft conformance -- ./my-client", "taskraft conformance --list"),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@click.option("--case", "cases", multiple=True, help="Run only this case; repeatable.")
@click.option("--list", "lists", is_flag=True, help="List the cases; needs no cluster.")
@output_option(fields("name", "rule", "ok", "violation", "skipped"))
@cluster_options
def conformance(
    *,
    command: tuple[str, ...],
    cases: tuple[str, ...],
    lists: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Judge a client program in any language.

    The suite starts COMMAND once for each case and sends commands as JSON lines; see
    docs/languages.md. Use a cluster without other work, such as that of `taskraft dev`: the suite
    changes its leader. The exit code is 1 if the program breaks a rule.
    """
    from taskraft.cli.output import write_table, write_values
    from taskraft.conformance.cases import CASES

    known = [case.__name__ for case in CASES]
    unknown = [case for case in cases if case not in known]
    if unknown:
        raise click.UsageError(f"there is no case {unknown[0]!r}; see --list")
    if lists:
        rows = [(case.__name__, " ".join((case.__doc__ or "").split())) for case in CASES]
        if not write_values([{"name": name, "rule": rule} for name, rule in rows], output):
            write_table(("CASE", "RULE"), rows)
        return
    if not command:
        raise click.UsageError("give the command that starts the client program")
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no program {command[0]}")
    verdicts = _run(command, cases, target, timeout)
    if not write_values([_value(verdict) for verdict in verdicts], output):
        write_table(
            ("CASE", "VERDICT"),
            ((verdict.name, _shown(verdict)) for verdict in verdicts),
        )
    if any(verdict.violation for verdict in verdicts):
        raise click.exceptions.Exit(1)


def _run(
    command: tuple[str, ...], cases: tuple[str, ...], target: str | None, timeout: float
) -> list[Verdict]:
    """Run the cases against all members of the cluster."""
    from taskraft.conformance.suite import run_cases

    with connect(target, timeout) as client:
        addresses = [member.address for member in client.cluster_state().members]
        return list(run_cases(command, addresses, client, cases))


def _shown(verdict: Verdict) -> str:
    if verdict.skipped:
        return f"skipped: {verdict.skipped}"
    return verdict.violation or "ok"


def _value(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "rule": verdict.rule,
        "ok": not verdict.violation,
        "violation": verdict.violation,
        "skipped": verdict.skipped,
    }
