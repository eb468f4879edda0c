"""The commands of the command line: help, examples, suggestions, commands of other packages."""

import shlex
from importlib.metadata import EntryPoint

import click
import pytest

from taskraft import __version__, cli
from taskraft.cli import COMMANDS, PLUGIN_COMMANDS, main


def commands(names, group=main, path=()):
    """Yield the commands of a group with these names, and all commands below them, by path."""
    context = click.Context(group)
    for name in names:
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            below = command.list_commands(context)
            yield from commands(below, command, (*path, name))


ALL = dict(commands(COMMANDS))
"""The commands of this package."""
OTHERS = dict(commands(PLUGIN_COMMANDS))
"""The commands of the server, of the console and of the pipeline."""


def examples(command):
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("taskraft ")]


@pytest.mark.parametrize("path", ALL | OTHERS, ids=" ".join)
def test_every_help_has_an_example_of_the_command_that_parses(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("backup.snapshot").touch()  # the examples of `snapshot` name it
    found = examples((ALL | OTHERS)[path])
    assert found
    for example in found:
        words = shlex.split(example.partition(" < ")[0])[1:]
        assert tuple(words[: len(path)]) == path, "an example of another command"
        command, rest = main, words
        context = click.Context(main)
        while isinstance(command, click.Group):
            command, rest = command.get_command(context, rest[0]), rest[1:]
        command.make_context(path[-1], rest)  # Parsing raises UsageError if the example is wrong.


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_help_text_is_cut_off(path):
    command = ALL[path]
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [option.name for option in options if not option.help] == []
    if len(path) > 1:
        assert "..." not in command.get_short_help_str(64), (
            "longer than a list of commands can show"
        )


def test_a_mistyped_command_suggests_similar_commands(run):
    assert "Did you mean stats" in run("stat").output
    assert "Did you mean" not in run("xyzzy").output


NO_OUTPUT = {("completion",), ("worker",), ("export",), ("outbox", "ddl"), ("outbox", "relay")}
"""Commands that print a script, log lines, JSON lines for an import, and SQL."""
NO_CLUSTER = (
    {("explain",), ("token",), ("completion",), ("worker",), ("cluster", "recover")}
    | {("context", name) for name in ("add", "use", "list", "show", "remove")}
    | {("app", name) for name in ("list", "check", "apply")}
    | {("task", "put"), ("outbox", "ddl"), ("outbox", "relay")}
)
"""Commands without options of the cluster, because the app chooses the cluster, or because they ask
no cluster."""


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_that_asks_the_cluster_has_the_same_options(path):
    command = ALL[path]
    if isinstance(command, click.Group):
        return
    options = {name for parameter in command.params for name in parameter.opts}
    assert ("--output" in options) is (path not in NO_OUTPUT)
    if path not in NO_CLUSTER:
        assert {"--target", "--timeout"} <= options


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_a_group_and_of_its_commands_is_shown(run, path):
    done = run(f"{' '.join(path)} --help")
    assert done.exit_code == 0
    assert "Example" in done.stdout


def test_the_command_list_has_the_help_of_each_command(run):
    done = run("--help")
    assert done.exit_code == 0
    for name, lazy in COMMANDS.items():
        assert name in done.stdout
        assert lazy.help in done.stdout
        assert ALL[(name,)].get_short_help_str(100).rstrip(".").split()[0] == lazy.help.split()[0]
    assert "Exit codes" in done.stdout


def test_the_version_is_shown(run):
    assert run("--version").stdout == f"taskraft {__version__}\n"


# ------------------------------------------------------------------ commands of other packages


def test_a_command_of_another_distribution_is_found_by_its_entry_point(run, monkeypatch):
    entry = EntryPoint("greet", "tests.clients.greeting:greet", cli.ENTRY_POINTS)
    monkeypatch.setattr(
        cli,
        "entry_points",
        lambda *, group, name: [entry] if (group, name) == (cli.ENTRY_POINTS, "greet") else [],
    )
    assert run("greet --name you").stdout == "hello you\n"


@pytest.mark.parametrize(
    ("name", "distribution"),
    [("serve", "taskraft-server"), ("dev", "taskraft-server"), ("pipeline", "taskraft-pipeline")],
)
def test_a_command_that_is_not_installed_says_what_to_install(run, monkeypatch, name, distribution):
    monkeypatch.setattr(cli, "entry_points", lambda **_: [])
    done = run(name)
    assert done.exit_code == 2
    assert f"pip install '{distribution}'\n" in done.stderr


def test_an_unknown_command_is_a_usage_error(run):
    assert run("frobnicate").exit_code == 2
