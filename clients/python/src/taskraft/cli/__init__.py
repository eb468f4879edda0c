"""The command ``taskraft``: a group whose commands are imported when they are used.

``taskraft --help`` shows names and one line each from the tables below, so that it imports click
and nothing else. RootGroup of other distributions come by the entry-point group
``taskraft.commands``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from taskraft.cli.options import SuggestingGroup, examples

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY_POINTS: Final = "taskraft.commands"


class LazyCommand(NamedTuple):
    """A command that is not imported yet."""

    module: str
    """Module below `taskraft.cli`."""
    attribute: str
    help: str
    """One line for the list of commands."""


class PluginCommand(NamedTuple):
    """A command that another distribution brings."""

    distribution: str
    help: str


COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "put": LazyCommand("put", "put", "Put a task, or one task for each line of the input."),
    "take": LazyCommand("take", "take", "Take tasks and settle them."),
    "ack": LazyCommand("settle", "ack", "Finish taken tasks."),
    "release": LazyCommand("settle", "release", "Give taken tasks back."),
    "bury": LazyCommand("settle", "bury", "Take taken tasks out of circulation."),
    "kick": LazyCommand("tasks", "kick", "Make buried tasks ready again."),
    "delete": LazyCommand("tasks", "delete", "Remove tasks."),
    "peek": LazyCommand("tasks", "peek", "Show tasks without changing them."),
    "task": LazyCommand(
        "moves", "task", "List tasks, wait for them, restart, move and cancel them."
    ),
    "tube": LazyCommand("tubes", "tube", "Create, change, list, empty and drop tubes."),
    "stats": LazyCommand("tubes", "stats", "Count tasks by state."),
    "group": LazyCommand("groups", "group", "Create, show, start and cancel groups of tasks."),
    "schedule": LazyCommand("schedules", "schedule", "Create, list, pause and remove schedules."),
    "cluster": LazyCommand("cluster", "cluster", "Show the cluster, and change its members."),
    "feed": LazyCommand("feed", "feed", "Follow the change feed."),
    "token": LazyCommand("token", "token", "Draw a token for a principal."),
    "explain": LazyCommand("explain", "explain", "Explain an error."),
}
PLUGIN_COMMANDS: Final[Mapping[str, PluginCommand]] = {
    "serve": PluginCommand("taskraft-server", "Run a node."),
    "dev": PluginCommand("taskraft-server", "Run a cluster for development."),
    "pipeline": PluginCommand("taskraft-pipeline", "Export and report with Spark."),
}


class RootGroup(SuggestingGroup):
    """The group: finds commands, and turns failures into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, installed or not."""
        return [*COMMANDS, *PLUGIN_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command of ours, or load one of another distribution."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is not None:
            command = getattr(import_module(f"taskraft.cli.{lazy.module}"), lazy.attribute)
            assert isinstance(command, click.Command)
            return command
        for entry in entry_points(group=ENTRY_POINTS, name=cmd_name):
            loaded = entry.load()
            assert isinstance(loaded, click.Command), f"{entry.value} is no click command"
            return loaded
        if cmd_name in PLUGIN_COMMANDS:
            distribution = PLUGIN_COMMANDS[cmd_name].distribution
            ctx.fail(f"'{cmd_name}' comes with another distribution: pip install '{distribution}'")
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("RootGroup"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])
        with formatter.section("RootGroup of the server and of the pipeline"):
            formatter.write_dl([(name, foreign.help) for name, foreign in PLUGIN_COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; tell what went wrong in one line, and what to do in another."""
        try:
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except click.ClickException:
            raise
        except KeyboardInterrupt:
            from taskraft.cli import failures

            click.echo(err=True)  # below the ^C of a terminal
            ctx.exit(failures.INTERRUPTED)
        except Exception as error:
            from taskraft.cli import failures

            code = failures.report(error)
            if code is None:
                raise
            ctx.exit(code)


def _show_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click calls it
    if value and not ctx.resilient_parsing:
        from taskraft import __version__

        click.echo(f"taskraft {__version__}")
        ctx.exit()


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples('taskraft put emails \'{"to": "a@b.c"}\''),
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def main() -> None:
    """Put, take and look after the tasks of a taskraft cluster.

    The cluster is found by --target, by the variable TASKRAFT_TARGET, or at 127.0.0.1:7401.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 unavailable, 6 timeout,
    130 Ctrl-C
    """
