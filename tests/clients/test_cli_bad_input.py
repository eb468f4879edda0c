"""Bad input of every command: one line, the right exit code, and no call that changes something."""

import errno
import sys

import click
import pytest
from click.testing import CliRunner

from taskraft.cli import main, task_process
from taskraft.cli.options import DURATION, OUTPUT
from tests.clients.test_cli_commands import ALL, OTHERS

TREE = ALL | OTHERS
VERBS = sorted(path for path, command in TREE.items() if not isinstance(command, click.Group))


def bad_values(kind):
    """Return a value that a type of click refuses; None if the type accepts every text."""
    if isinstance(kind, click.Choice):
        return "typo"
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType, type(DURATION))):
        return "soon"
    if isinstance(kind, type(OUTPUT)):
        return "typo"
    if isinstance(kind, click.Path) and kind.exists:
        return "/nonexistent/file"
    return None


def bad_lines():
    """Yield a command line for each parameter of each command that can be wrong, and for others."""
    for path in VERBS:
        command = TREE[path]
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        needed = [one for one in arguments if one.required]
        good = {one.name: accepted(one) for one in needed}
        yield [*path, *good.values(), "--frobnicate"]
        if all(one.nargs == 1 for one in arguments):
            yield [*path, *good.values(), *["surplus"] * (len(arguments) - len(needed) + 1)]
        if needed:
            yield [*path]
        for one in command.params:
            value = bad_values(one.type)
            if value is None or one.is_eager:
                continue
            if isinstance(one, click.Option):
                yield [*path, *good.values(), one.opts[-1], *[value] * one.nargs]
            elif one in needed:
                yield [*path, *(good | {one.name: value}).values()]


def accepted(argument):
    """Return a value that the type of an argument accepts."""
    kind = argument.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    return __file__ if isinstance(kind, click.Path) and kind.exists else "1"


LINES = list(bad_lines())
CHANGES = ("Put", "Take", "Settle", "Kick", "Bury", "Delete", "Update", "Restart", "Move", "Cancel")
CHANGES += (
    "Create",
    "Drop",
    "Truncate",
    "Start",
    "Configure",
    "Add",
    "Promote",
    "Remove",
    "Transfer",
)


def one_line(done):
    """Return whether the error is one line, with at most a hint below it, and nothing on stdout."""
    first, *rest = done.stderr.splitlines()
    return first.startswith("error: ") and all(each.startswith("hint:  ") for each in rest)


def changes(calls):
    return [name for name, _, _ in calls.calls if name.startswith(CHANGES)]


def test_the_lines_cover_every_command_of_the_tree():
    assert {tuple(line[: len(path)]) for path in VERBS for line in LINES} >= set(VERBS)
    assert len(LINES) > 4 * len(VERBS)


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_wrong_word_is_one_line_and_changes_nothing(calls, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, line)
    assert (done.exit_code, done.stdout) == (2, "")
    assert one_line(done), done.stderr
    assert not changes(calls)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("put", 2),
        ("--timeout soon stats", 2),
        ("--frobnicate", 2),
        ("frobnicate", 2),
        ("tube create x --kind typo", 2),
        ("task list emails --limit 0", 2),
        ("peek emails seventeen", 2),
        ("stats typo", 3),
        ("stats emails -n 5", 2),
        ("tube show typo", 3),
        ("feed tail typo -n 1", 3),
        ("task show emails 99", 3),
        ("stats -t nonsense", 2),
        ("stats --ca /nonexistent", 2),
    ],
)
def test_bad_values_of_single_commands_are_one_line(calls, run, line, code):
    done = run(line)
    assert (done.exit_code, done.stdout) == (code, "")
    assert one_line(done), done.stderr
    assert not changes(calls)


@pytest.mark.parametrize(
    ("line", "given", "text"),
    [
        ("import emails FILE", b"\xc8 ", "the input is not UTF-8 text: "),
        ("apply -f FILE", b"\xc8 ", "FILE: not YAML: "),
        ("apply -f -", b"[" * 50_000, "<stdin>: not YAML: maximum recursion"),
        ("apply -f -", b"tubes: [{name: a, ttr: 2026-13-45}]", "<stdin>: not YAML: month must"),
        ("delete - --yes", b"emails/" + b"1" * 50, "is not a valid id of a task"),
        ("task show emails 9223372036854775808", b"", "is not a valid id of a task"),
        ("task show emails 1_0", b"", "'1_0' is not a valid id of a task"),
        ("ack 9223372036854775808", b"", "is not a lease token"),
        ("ack \u0661\u0662", b"", "is not a lease token"),
    ],
)
def test_malformed_bytes_and_numbers_are_named(calls, run, tmp_path, line, given, text):
    path = tmp_path / "FILE"
    path.write_bytes(given)
    done = run(line.replace("FILE", str(path)), input=given)
    assert (done.exit_code, done.stdout, text in done.stderr) == (2, "", True), done.stderr
    assert one_line(done), done.stderr
    assert not changes(calls)


def test_a_failure_of_the_system_names_its_file(run, emails, monkeypatch):
    def refused(*_arguments, **_options):
        raise OSError(errno.ENOEXEC, "Exec format error", "./send-mail")

    monkeypatch.setattr(task_process, "run_command", refused)
    emails.put("a")
    done = run(f"take emails --exec {sys.executable}")
    assert (done.exit_code, done.stderr) == (1, "error: ./send-mail: Exec format error\n")
