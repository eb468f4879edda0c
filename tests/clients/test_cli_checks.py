"""A command line is checked before its first effect: a mistake changes neither cluster nor files.

The walk takes each command from the parser, and each line from the examples of its help, so that a
new command is part of the walk.
"""

import click
import pytest

from taskraft.cli.output_shape import unknown_field
from tests.clients.command_walk import (
    VERBS,
    declaration_of,
    invoke,
    lines_of,
    state_of,
    stock,
    with_option,
)
from tests.clients.test_cli_bad_input import bad_values, one_line
from tests.clients.test_cli_commands import ALL

CONNECTION = (("--target", "nonsense"), ("--ca", "/nonexistent"), ("--token-file", "/nonexistent"))
"""Options that the connection refuses."""
CHANGING = (
    *(("put",), ("ack",), ("kick",), ("delete",), ("apply",), ("import",)),
    *(("task", verb) for verb in ("restart", "update", "bury", "cancel", "move", "switch")),
    *(("task", verb) for verb in ("touch", "reject")),
    *(("tube", verb) for verb in ("update", "truncate", "drop")),
    *(("group", verb) for verb in ("start", "cancel", "set-end-task")),
    *(("schedule", verb) for verb in ("change", "pause", "delete")),
    *(("cluster", "settings"), ("bulk", "start")),
)
"""Commands whose examples change the stocked cluster."""
TOKEN = "8589934593"
"""Lease token in the examples of the commands for leases."""


@pytest.fixture
def client(taskraft, emails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stock(taskraft.client)
    return taskraft.client


def mistakes(command):
    """Yield one mistake for each option of a command that can be wrong."""
    yield ("--frobnicate",)
    names = {name for option in command.params for name in option.opts}
    if "--output" in names:
        yield "--output", "template={nope}"
    if "--target" in names:
        yield from CONNECTION
    for option in command.params:
        value = bad_values(option.type)
        if isinstance(option, click.Option) and value is not None and not option.is_eager:
            yield option.opts[-1], *[value] * option.nargs


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_a_line_with_a_bad_option_changes_nothing(client, path, tmp_path):
    before, files = state_of(client), sorted(tmp_path.iterdir())
    for option in mistakes(ALL[path]):
        for words in lines_of(path):
            if option in CONNECTION and "--list" in words:
                continue  # needs no cluster
            line = with_option(words, *option)
            done = invoke(line, path)
            assert (done.exit_code, done.stdout) == (2, ""), line
            assert one_line(done), done.stderr
            assert state_of(client) == before, line
            assert sorted(tmp_path.iterdir()) == files, line
        if "template" in option[-1]:
            assert "nope" in done.stderr, line


@pytest.mark.parametrize("path", CHANGING, ids=" ".join)
def test_the_walk_sees_the_effect_of_a_line_without_a_mistake(client, path):
    (held,) = client.tube("sums").list("state = TAKEN")
    before = state_of(client)
    for words in lines_of(path):
        line = [str(held.message.token) if word == TOKEN else word for word in words]
        done = invoke([*line, "--yes"] if declaration_of(path) else line, path)
        assert done.exit_code != 2, (line, done.output)
    assert state_of(client) != before


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("put emails -", '{"a": 1}\n' * 2_500 + "{oops\n"),
        ("import emails", '{"format": "taskraft.task.v2", "spec": {}}\n{oops\n'),
        ("apply -f -", "tubes: [{name: new}, {name: emails, kind: typo}]\n"),
        ("apply -f -", "tubes: [{name: new}, {name: emails, optoins: {}}]\n"),
        ("put emails x --header nonsense", ""),
        ("put emails x --depends-on nonsense", ""),
        ("tube create new --rate 1 --retry typo", ""),
        ("tube update emails --ttr 3s --reset typo", ""),
        ("conformance -- /nonexistent/program", ""),
    ],
)
def test_bad_input_changes_nothing(client, run, line, text):
    before = state_of(client)
    done = run(line, input=text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert one_line(done), done.stderr
    assert state_of(client) == before


@pytest.mark.parametrize(
    ("template", "unknown"),
    [
        ("{id} {spec.ttl_ms} {spec.headers.any} {failures.0.attempt}", None),
        ("{spec}", None),
        ("no field", None),
        ("{id} {nope}", "nope"),
        ("{spec.nope}", "spec.nope"),
        ("{id.nope}", "id.nope"),
        ("{failures.nope}", "failures.nope"),
        ("{failures.0.nope}", "failures.0.nope"),
        ("{}", ""),
    ],
)
def test_a_template_is_compared_with_the_fields_of_the_messages(template, unknown):
    assert unknown_field(f"template={template}", "task_pb2.Task") == unknown


def test_a_template_may_name_a_field_that_a_task_does_not_have(client, run):
    line = "delete emails 17 --yes -o 'template={count}{nope}'"
    assert "fields: continue_after_id, count" in run(line).stderr
    assert run("delete emails 17 --dry-run -o 'template={count} {sample.0.id}'").stdout == "1 17\n"
    assert run("delete emails 17 --dry-run -o 'template={deleted}'").exit_code == 2
    assert run("peek emails 3 -o 'template={id} {failure.message}.'").exit_code == 0
