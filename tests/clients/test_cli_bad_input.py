"""Bad input of every command: one line, the right exit code, and no call that changes something."""

import pytest

from tests.clients.test_cli_commands import ALL

VERBS = sorted(
    path for path, command in ALL.items() if not hasattr(command, "commands") and path != ("token",)
)
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


def changes(cluster):
    return [name for name, _, _ in cluster.calls if name.startswith(CHANGES)]


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_an_unknown_option_is_one_line_and_changes_nothing(cluster, run, path):
    done = run(f"{' '.join(path)} --frobnicate")
    assert (done.exit_code, done.stdout) == (2, "")
    assert one_line(done), done.stderr
    assert not changes(cluster)


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_a_wrong_value_is_one_line_and_changes_nothing(cluster, run, path):
    if "timeout" not in {each.name for each in ALL[path].params}:
        pytest.skip("the command asks no cluster")
    done = run(f"{' '.join(path)} a b c d e f --timeout soon")
    assert (done.exit_code, done.stdout) == (2, "")
    assert one_line(done), done.stderr
    assert not changes(cluster)


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
        ("tube show typo", 3),
        ("feed tail typo -n 1", 3),
        ("task show emails 99", 3),
        ("stats -t nonsense", 2),
        ("stats --ca /nonexistent", 2),
    ],
)
def test_bad_values_of_single_commands_are_one_line(cluster, run, line, code):
    done = run(line)
    assert (done.exit_code, done.stdout) == (code, "")
    assert one_line(done), done.stderr
    assert not changes(cluster)
