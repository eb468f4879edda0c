"""Ctrl-C, prompts and progress of the command line, in processes of their own."""

import inspect
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest

from taskraft.cli.progress import WorkProgress
from tests.clients.test_cli_commands import ALL

pytestmark = pytest.mark.real_time

INTERRUPTED = 130
INPUTS = {
    ("diff",): "tubes: [{name: emails}]\n",
    ("import",): '{"format": "taskraft.task.v2", "state": "READY", "spec": {"payload": "YQ=="}}\n',
}
"""Standard input of commands that read their input before they call the cluster."""
CALLING = {
    inspect.unwrap(command.callback).__module__: path
    for path, command in ALL.items()
    if not hasattr(command, "commands")
    and "timeout" in {option.name for option in command.params}
    and path != ("conformance",)  # runs a program, which calls the cluster
}
"""A command that calls the cluster, by its module."""
BATCHES = [[*CALLING.values()][first::2] for first in range(2)]


def example_of(path):
    """Return the words of the last example of a command."""
    line = re.findall(r"^ +taskraft (.+)$", ALL[path].epilog, re.MULTILINE)[-1]
    return [word for word in shlex.split(line.partition(" < ")[0]) if word != "--dry-run"]


def connected_of(stack, path, folder):
    """Start a command against a server that never answers; return its process and connection."""
    silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    silent.settimeout(0.1)
    host, port = silent.getsockname()
    command = [sys.executable, "-m", "taskraft", *example_of(path), "-t", f"{host}:{port}"]
    process = subprocess.Popen(
        [*command, "--timeout", "1h"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    process.stdin.write(INPUTS.get(path, ""))
    process.stdin.close()
    process.stdin = None
    return process, silent


def accepted(path, process, silent):
    """Return the connection of a command; fail if the command ends without a call."""
    while process.poll() is None:
        with suppress(TimeoutError):
            return silent.accept()[0]
    return pytest.fail(f"{path} calls nothing: {process.communicate()}")


@pytest.mark.parametrize("paths", BATCHES, ids=lambda paths: " ".join(paths[0]))
def test_ctrl_c_ends_every_command_that_calls_the_cluster_with_130(paths, tmp_path):
    with ExitStack() as stack:
        started = {path: connected_of(stack, path, tmp_path) for path in paths}
        for path, (process, silent) in started.items():
            stack.enter_context(accepted(path, process, silent))
        for process, _ in started.values():
            process.send_signal(signal.SIGINT)
        ends = {path: process.communicate(timeout=60) for path, (process, _) in started.items()}
        codes = {path: process.returncode for path, (process, _) in started.items()}
    assert codes == dict.fromkeys(paths, INTERRUPTED), ends
    assert {errors for _, errors in ends.values()} == {"\n"}


def interrupt(child):
    """Send SIGINT until a program ends: a signal just before a blocking read has no effect."""
    ended = None
    while ended is None:
        child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            ended = child.wait(1)


def on_terminal(line, cluster, prompt, answer):
    """Run a command on a terminal, answer its prompt, and return the exit code and the text."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "taskraft", *shlex.split(line), "-t", cluster.target]
    child = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    seen = b""
    while prompt.encode() not in seen:
        seen += os.read(controller, 1_000)
    if answer == "ctrl-c":
        interrupt(child)
    else:
        os.write(controller, answer.encode() + b"\n")
    try:
        while part := os.read(controller, 1_000):
            seen += part
    except OSError:  # the child has closed its end
        pass
    os.close(controller)
    return child.wait(20), seen.decode()


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("tube drop emails", "Drop emails with 2 tasks?"),
        ("delete emails --where 'id > 0'", "Remove 2 tasks of emails?"),
        ("delete emails 1 2", "Remove 2 tasks of emails?"),
        ("task cancel emails --where 'id > 0'", "Cancel 2 tasks of emails?"),
        ("task cancel emails 1", "Cancel 1 task of emails?"),
        ("cluster remove memory", "Remove the member memory permanently?"),
    ],
)
@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [("n", 1, "error: nothing was changed"), ("ctrl-c", INTERRUPTED, "")],
)
def test_a_prompt_that_is_not_confirmed_changes_nothing(
    cluster, blocking_client, line, prompt, answer, code, text
):
    blocking_client.tube("emails").put_many(["a", "b"])
    cluster.calls.clear()
    ended, seen = on_terminal(line, cluster, prompt, answer)
    assert (ended, text in seen) == (code, True), seen
    assert "error" in seen or not text
    changes = ("Drop", "Delete", "Cancel", "Remove")
    assert [name for name, _, _ in cluster.calls if name.startswith(changes)] == []


def test_progress_is_shown_on_a_terminal_after_a_second(monkeypatch):
    monkeypatch.setattr("taskraft.cli.progress.SILENT_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with WorkProgress("measuring", 10) as progress:
        progress._timer.join(20)
        progress.advance(4)
        (task,) = progress._shown.tasks
        assert (task.description, task.completed, task.total) == ("measuring", 4, 10)
        assert task.fields["rate"].endswith("/s")


def test_the_expected_count_follows_from_the_examined_part(monkeypatch):
    monkeypatch.setattr("taskraft.cli.progress.SILENT_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with WorkProgress("kicking") as progress:
        progress._timer.join(20)
        progress.advance(10)
        progress.examined(0.25)
        (task,) = progress._shown.tasks
        assert (task.completed, task.total) == (10, 40)


def test_short_work_and_work_without_a_terminal_show_nothing(monkeypatch):
    with WorkProgress("measuring") as progress:
        progress.advance(1)
    assert progress._shown is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with WorkProgress("measuring") as progress:
        progress.advance(1)
    assert progress._shown is None
