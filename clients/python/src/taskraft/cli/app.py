"""The commands ``taskraft app``: list, check and apply the declarations of an app."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import click

from taskraft.cli.confirmation import WITH_PRUNE, Confirmation, destroys
from taskraft.cli.options import SuggestingGroup, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft.worker import App
    from taskraft.worker.deployment import Change


@click.group(cls=SuggestingGroup, epilog=examples("taskraft app apply shop.tasks:app"))
def app() -> None:
    """List, check and apply the declarations of an app.

    The app chooses the cluster and the credentials, as for `taskraft worker`.
    """


@app.command("list", epilog=examples("taskraft app list shop.tasks:app"))
@click.argument("reference", metavar="MODULE:APP")
@output_option(fields("name", "tube", "pool", "cron"))
def list_(*, reference: str, output: str) -> None:
    """List tasks, with tube, pool and schedule.

    The command needs no cluster.
    """
    from taskraft.cli.output import write_values

    loaded = load_app(reference)
    values = [
        {
            "name": name,
            "tube": task.tube,
            "pool": task.pool,
            "cron": task.schedule[0] if task.schedule is not None else "",
        }
        for name, task in sorted(loaded.tasks.items())
    ]
    if not write_values(values, output):
        list_tasks(loaded)


@app.command(epilog=examples("taskraft app check shop.tasks:app"))
@click.argument("reference", metavar="MODULE:APP")
@output_option(fields("tube", "type"))
def check(*, reference: str, output: str) -> None:
    """List types of READY tasks that the app lacks.

    Such tasks wait until a worker knows their type. Exit code 1 if there are any.
    """
    from taskraft.cli.output import write_values

    loaded = load_app(reference)
    with loaded:
        unknown = loaded.unknown_types()
    if not write_values([found._asdict() for found in unknown], output):
        for found in unknown:
            click.echo(f"{found.tube}  {found.type or '(no type)'}")
    if unknown:
        sys.exit(1)


@app.command(
    epilog=examples(
        "taskraft app apply shop.tasks:app", "taskraft app apply shop.tasks:app --prune --yes"
    )
)
@click.argument("reference", metavar="MODULE:APP")
@click.option(
    "--prune", is_flag=True, help="Also delete the app's schedules that it does not declare."
)
@output_option(fields("action", "kind", "name"))
@destroys("Deleted schedules must be created again.", only=WITH_PRUNE)
def apply(*, reference: str, prune: bool, confirmation: Confirmation, output: str) -> None:
    """Bring declared tubes and schedules into force.

    Without --prune, schedules that the app no longer declares stay, and are named. Tubes are never
    deleted. Changes of the options of a tube are made, and not listed. Run the command once per
    deployment. Workers only create what is missing.
    """
    from taskraft.cli.terminal_text import terminal_text

    confirmation.check_input()
    loaded = load_app(reference)
    with loaded:
        planned = loaded.apply(prune=True, dry_run=True)
        gone = [change.name for change in planned if change.action == "deleted"]
        if not prune:
            planned = [change for change in planned if change.action != "deleted"]
        if not confirmation.only_if(gone).allows(
            lambda: terminal_text(f"Delete the schedules {', '.join(gone)}?"),
            lambda: _write_changes(planned, output, "would be "),
        ):
            return
        changes = loaded.apply(prune=prune)
    _write_changes(changes, output)
    if gone and not prune:
        names = terminal_text(", ".join(gone))
        click.echo(f"not declared any more, and not deleted without --prune: {names}", err=True)


def _write_changes(changes: Sequence[Change], output: str, tense: str = "") -> None:
    from taskraft.cli.output import write_values
    from taskraft.cli.terminal_text import terminal_text

    if not write_values([change._asdict() for change in changes], output):
        for change in changes:
            click.echo(terminal_text(f"{change.kind} {change.name} {tense}{change.action}"))


def list_tasks(app: App) -> None:
    """Print one line per task."""
    for name, task in sorted(app.tasks.items()):
        cron = "" if task.schedule is None else f"  cron {task.schedule[0]}"
        click.echo(f"{name}  {task.tube}  {task.pool}{cron}")


def load_app(reference: str) -> App:
    """Import an app named like "shop.tasks:app"; modules of the working directory are found.

    Raises:
        click.UsageError: the app cannot be imported.
    """
    from taskraft.worker import App

    found = load_global(reference, "an app like shop.tasks:app")
    if not isinstance(found, App):
        raise click.UsageError(f"{reference} is not an App but {type(found).__name__}")
    return found


def load_global(reference: str, expected: str) -> object:
    """Import a global of a module; modules of the working directory are found.

    Args:
        reference: module and name, such as "shop.tasks:app".
        expected: end of the error text for another form, such as "an app like shop.tasks:app".

    Raises:
        click.UsageError: the global cannot be imported.
    """
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise click.UsageError(f"{reference!r} does not name {expected}")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError) as error:
        raise click.UsageError(f"cannot import {reference}: {error}") from error
