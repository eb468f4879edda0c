"""The command ``taskraft``: a group whose commands are imported on use.

``taskraft --help`` prints names and help lines from the tables below, so it imports click and
nothing else. Other distributions add commands through the entry-point group "taskraft.commands".
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from taskraft.cli.options import SuggestingGroup, examples, root_options

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY_POINTS: Final = "taskraft.commands"


class LazyCommand(NamedTuple):
    """A command that is not imported yet."""

    module: str
    """Name of the module in `taskraft.cli`."""
    attribute: str
    help: str
    """Line in the list of commands."""


class PluginCommand(NamedTuple):
    """A command that another distribution provides."""

    distribution: str
    help: str


COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "put": LazyCommand("put", "put", "Put a task, or one task per input line."),
    "take": LazyCommand("take", "take", "Take tasks and settle them."),
    "ack": LazyCommand("settle", "ack", "Acknowledge taken tasks."),
    "release": LazyCommand("settle", "release", "Release taken tasks."),
    "bury": LazyCommand("settle", "bury", "Bury taken tasks."),
    "kick": LazyCommand("tasks", "kick", "Make buried tasks READY again."),
    "delete": LazyCommand("tasks", "delete", "Remove tasks."),
    "peek": LazyCommand("tasks", "peek", "Show tasks without changing them."),
    "task": LazyCommand("task_put", "task", "List, show, put, explain, change and cancel tasks."),
    "tube": LazyCommand("tubes", "tube", "Create, change, list, truncate and drop tubes."),
    "stats": LazyCommand("tubes", "stats", "Count tasks per state."),
    "history": LazyCommand("history", "history", "Show the recent past of tubes as charts."),
    "failures": LazyCommand("failure_counts", "failures", "Count failures of attempts by cause."),
    "group": LazyCommand("groups", "group", "Create, show, start and cancel groups of tasks."),
    "schedule": LazyCommand("schedules", "schedule", "Create, list, pause and remove schedules."),
    "session": LazyCommand("sessions", "session", "List the sessions, and show one."),
    "cluster": LazyCommand("members", "cluster", "Show the cluster; change settings and members."),
    "bulk": LazyCommand("bulk", "bulk", "Change many tasks on the server, step by step."),
    "feed": LazyCommand("feed", "feed", "Follow the change feed."),
    "worker": LazyCommand("worker", "worker", "Run the tasks of an app."),
    "app": LazyCommand("app", "app", "List, check and apply the declarations of an app."),
    "outbox": LazyCommand("outbox", "outbox", "Create the table of an outbox, and put its rows."),
    "apply": LazyCommand("apply", "apply", "Create or update the declarations of a file."),
    "diff": LazyCommand("apply", "diff", "Show what an apply of a file would change."),
    "export": LazyCommand("transfer", "export", "Write the tasks of a tube as JSON lines."),
    "import": LazyCommand("transfer", "import_", "Put the tasks of an export."),
    "check": LazyCommand("check", "check", "Check the cluster or a tube for monitoring."),
    "conformance": LazyCommand("conformance", "conformance", "Judge a client program."),
    "doctor": LazyCommand("doctor", "doctor", "Examine the cluster, and advise."),
    "support-bundle": LazyCommand(
        "doctor", "support_bundle", "Write the state of the cluster into a file."
    ),
    "top": LazyCommand("top", "top", "Show tubes with rates, live."),
    "bench": LazyCommand("bench", "bench", "Measure puts, takes and acknowledgements."),
    "context": LazyCommand("context", "context", "Name clusters, and choose the one to use."),
    "completion": LazyCommand("completion", "completion", "Print a completion script for a shell."),
    "token": LazyCommand("token", "token", "Generate a token for a principal."),
    "explain": LazyCommand("explain", "explain", "Explain an error reason."),
}
PLUGIN_COMMANDS: Final[Mapping[str, PluginCommand]] = {
    "serve": PluginCommand("taskraft-server", "Run a node."),
    "dev": PluginCommand("taskraft-server", "Run a development cluster."),
    "snapshot": PluginCommand("taskraft-server", "Save, verify and restore snapshots."),
    "console": PluginCommand("taskraft-console", "Serve the web console."),
    "pipeline": PluginCommand("taskraft-pipeline", "Export the change feed and report with Spark."),
}
OWN_CLUSTER: Final[Mapping[str, str]] = {
    "worker": "the app chooses the cluster",
    "app": "the app chooses the cluster",
    "outbox": "the app chooses the cluster",
    "task put": "the app chooses the cluster",
    "serve": "the node has settings of its own",
    "dev": "the command starts a cluster of its own",
    "pipeline": "give the option after the command",
    "console": "give the option after the command",
}
"""Commands that ignore options of the root group, with the reason."""
NODE_COMMANDS: Final = ("serve", "dev")
"""Commands that run nodes: a node writes the lines of gRPC as records into its log."""


class RootGroup(SuggestingGroup):
    """The root group: finds commands, and turns exceptions into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, installed or not."""
        return [*COMMANDS, *PLUGIN_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command of this package, or load one of another distribution."""
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
            ctx.fail(
                f"'{cmd_name}' is part of another distribution; run: pip install '{distribution}'"
            )
        return None

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - passed on to click
    ) -> click.Context:
        """Parse the options of the root; print wrong usage in one line."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            from taskraft.cli import failures

            raise click.exceptions.Exit(failures.report_usage(error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse options before a command that would ignore them."""
        if args[0] not in NODE_COMMANDS:
            # gRPC reads the variable when it is imported. It would write lines about connections
            # between the lines of the command, which has an error message of its own.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        name, command, rest = super().resolve_command(ctx, args)
        words = name or ""
        if words not in OWN_CLUSTER:
            words = " ".join((words, *rest[:1]))
        if words in OWN_CLUSTER:
            for option in self.params:
                source = ctx.get_parameter_source(option.name or "")
                if source is ParameterSource.COMMANDLINE:
                    ctx.fail(
                        f"{option.opts[-1]} cannot stand before '{words}'; {OWN_CLUSTER[words]}."
                    )
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])
        with formatter.section("Commands of the server, of the console and of the pipeline"):
            formatter.write_dl([(name, foreign.help) for name, foreign in PLUGIN_COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; print a failure in one line and a hint in another."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
            raise
        except click.ClickException as error:
            from taskraft.cli import failures

            ctx.exit(failures.report_usage(error))
        except (KeyboardInterrupt, click.Abort):  # click turns Ctrl-C at a prompt into Abort
            from taskraft.cli import failures

            click.echo(err=True)  # start a new line after the ^C that a terminal shows
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
@root_options
def main() -> None:
    """Put, take and manage the tasks of a taskraft cluster.

    The cluster is that of --target, else of --context, else of the variables TASKRAFT_TARGET and
    TASKRAFT_CONTEXT, else of the current context, else 127.0.0.1:7401.
    The options of the cluster may stand before or after the command.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 unavailable, 6 timeout, 130
    Ctrl-C
    """
