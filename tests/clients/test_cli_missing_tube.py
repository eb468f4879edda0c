"""One wording for a tube that does not exist, in all commands that name a tube."""

import click
import pytest

from taskraft.cli.failures import NOT_FOUND
from taskraft.cli.names import TUBE
from tests.clients.command_walk import VERBS, invoke, lines_of, stock, with_option
from tests.clients.test_cli_commands import ALL

MISSING = "nowhere"
ERROR = f"error: TUBE_NOT_FOUND: no tube is called '{MISSING}'"
HINT = (
    "hint:  Check the name with `taskraft tube list`, or create the tube with `taskraft tube "
    "create`."
)
LATER = {
    (("schedule", "create"), "tube"),
    (("tube", "create"), "dead_letter_tube"),
    (("tube", "update"), "dead_letter_tube"),
}
"""Parameters with the name of a tube that may be created later."""
NAMING = [
    (path, parameter.name)
    for path in VERBS
    for parameter in ALL[path].params
    if parameter.type is TUBE and (path, parameter.name) not in LATER
]
MOVE = ["bulk", "start", "move", "mail", "--to", MISSING, "--yes"]


@pytest.fixture
def client(taskraft, emails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stock(taskraft.client)
    return taskraft.client


def lines_with(path, name):
    """Yield the examples of a command with a missing tube in one parameter."""
    (parameter,) = (one for one in ALL[path].params if one.name == name)
    for words in lines_of(path):
        given = ALL[path].make_context(path[-1], words[len(path) :]).params[name]
        values = given if isinstance(given, tuple) else (given,)
        if any(value in words for value in values):
            yield [MISSING if word in values else word for word in words]
        elif isinstance(parameter, click.Option):
            yield with_option(words, parameter.opts[-1], MISSING)
        else:
            yield [*words, MISSING]


@pytest.mark.parametrize(("path", "name"), NAMING)
def test_a_command_tells_of_a_missing_tube_in_the_same_words(client, path, name):
    lines = [MOVE] if (path, name) == (("bulk", "start"), "to") else [*lines_with(path, name)]
    for line in lines:
        if line == ["take", MISSING]:
            continue  # asks what to do with each task, so it needs a terminal
        done = invoke(["true" if word == "./send-mail" else word for word in line], path)
        assert done.exit_code == NOT_FOUND, line
        if "prometheus" in line:
            assert done.stdout.endswith(f'taskraft_check_tube_level{{tube="{MISSING}"}} 3\n')
        elif path == ("check", "tube"):  # prints one line, for monitoring
            assert done.stdout == f"UNKNOWN: {MISSING}: {ERROR.removeprefix('error: ')}\n"
        else:
            assert (done.stdout, done.stderr.splitlines()[-2:]) == ("", [ERROR, HINT]), line


def test_each_parameter_for_a_tube_is_known():
    named = {"tube", "tubes", "to", "dead_letter_tube"}
    found = {
        (path, parameter.name)
        for path in VERBS
        for parameter in ALL[path].params
        if parameter.name in named
        and path != ("worker",)
        and not isinstance(parameter.type, click.Choice)
    }
    assert found <= {*NAMING, *LATER}, "without the type of a tube, which completes names"
    assert {path for path in VERBS if path[0] == "tube"} - {("tube", "create")} <= {
        path for path, _ in NAMING
    }


def test_a_pattern_without_tubes_is_no_error(client, run):
    assert run(f"tube list '{MISSING}*' -o json").stdout == "[]\n"
    assert run(f"stats '{MISSING}*' -o json").stdout == "[]\n"
