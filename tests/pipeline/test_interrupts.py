"""Ctrl-C ends each command with one empty line and exit code 130, and leaves no JVM behind."""

import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest

from taskraft_pipeline import java
from taskraft_pipeline.cli import pipeline
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.offsets import Offset
from tests.pipeline.test_journal import publish_batch

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not java.is_sufficient(), reason=java.HINT),
]

INTERRUPTED = 130
TERMINATED = 143
STARTING = "starting Spark to export 0 events\n"
WITH_SPARK = [
    name
    for name, command in pipeline.commands.items()
    if "master" in {option.name for option in command.params}
]
BATCHES = [WITH_SPARK[first::3] for first in range(3)]
ASKING = {
    "export": "export --journal new -t {target}",
    "verify": "verify var/journal -t {target}",
    "report": "report -t {target}",
    "dump": "dump plan -t {target}",
    "doctor": "doctor -t {target}",
}
"""Commands that call the cluster, by their names."""
JAVA = """#!/bin/sh
case "$*" in *-version*) ;; *) echo started > {fifo} ;; esac
exec {java} "$@"
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a journal, as the examples name it."""
    journal = Journal.at(tmp_path / "var" / "journal")
    journal.create(Offset("feed-1", {0: 0}))
    publish_batch(journal, 0, {0: range(10)}, {0: 10})
    return tmp_path


def started(stack, words, folder, **environment):
    """Start a command in a session of its own, as a shell does; return its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "taskraft", "pipeline", *words],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    stack.callback(kill, process)
    return process


def wait_until_readable(source, process):
    """Wait for input from a command; fail if the command ends without input."""
    while not select.select([source], [], [], 0.1)[0]:
        assert process.poll() is None, process.communicate()


def kill(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def java_that_tells(folder):
    """Return a home of Java whose program writes a line into a FIFO; the FIFO, opened to read."""
    fifo, program = folder / "fifo", folder / "java" / "bin" / "java"
    os.mkfifo(fifo)
    program.parent.mkdir(parents=True)
    program.write_text(JAVA.format(fifo=fifo, java=shutil.which("java")))
    program.chmod(0o700)
    return folder / "java", os.open(fifo, os.O_RDWR)


def example_of(name):
    """Return the words of the last example of a command."""
    line = re.findall(r"^ +taskraft pipeline (.+)$", pipeline.commands[name].epilog, re.MULTILINE)
    return shlex.split(line[-1])


@pytest.mark.parametrize("names", BATCHES, ids=" ".join)
def test_ctrl_c_while_spark_starts_ends_with_130_and_without_a_jvm(names, folder, cluster):
    cluster.feed.feed_id = "feed-1"
    cluster.feed.partitions = {0: cluster.feed.partitions[0][:10]}
    with ExitStack() as stack:
        processes = {}
        for name in names:
            place = folder / f"java-of-{name}"
            place.mkdir()
            home, fifo = java_that_tells(place)
            stack.callback(os.close, fifo)
            process = started(
                stack,
                example_of(name),
                folder,
                JAVA_HOME=str(home),
                TASKRAFT_TARGET=cluster.endpoints,
                TMPDIR=str(place),
            )
            processes[name] = process
            wait_until_readable(fifo, process)
            os.killpg(process.pid, signal.SIGINT)
        # The output ends when the JVM has ended too, because the JVM has the same stdout.
        ends = {name: process.communicate(timeout=120) for name, process in processes.items()}
    codes = {name: process.returncode for name, process in processes.items()}
    assert codes == dict.fromkeys(names, INTERRUPTED), ends
    assert {errors.rpartition(STARTING)[2] for _, errors in ends.values()} == {"\n"}, ends
    assert not list(folder.glob("java-of-*/taskraft-spark-*"))


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)]
)
def test_a_signal_while_a_command_waits_for_the_cluster_prints_nothing(name, number, code, folder):
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        host, port = silent.getsockname()
        words = ASKING[name].format(target=f"{host}:{port}").split()
        process = started(stack, words, folder)
        wait_until_readable(silent, process)
        connection, _ = silent.accept()
        stack.callback(connection.close)
        # A terminal sends SIGINT to all processes of a command; a supervisor sends SIGTERM to one.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (code, "\n" * (number == signal.SIGINT)), output
