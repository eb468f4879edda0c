"""Ctrl-C ends each command with one empty line and exit code 130, and leaves no JVM behind.

SIGTERM ends each command with exit code 143, without a line.
"""

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
from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.offsets import Offset
from tests.pipeline.test_journal import publish_batch

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not java.is_sufficient(), reason=java.HINT),
]

ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
STARTING = "starting Spark to export 0 events\n"
WITH_SPARK = [
    name
    for name, command in pipeline.commands.items()
    if "master" in {option.name for option in command.params}
]
BATCHES = [
    ["export"],
    *(
        pytest.param([name for name in WITH_SPARK[first::3] if name != "export"],
                     marks=pytest.mark.nightly)
        for first in range(3)
    ),
]  # fmt: skip
"""All commands start Spark in one function, so one command is enough for each change. A JVM for
each other command and signal takes more than a minute of CPU time in sum."""
ASKING = {
    "export": "export --journal new -t {target}",
    "verify": "verify var/journal -t {target}",
    "report": "report -t {target}",
    "doctor": "doctor -t {target}",
    "dump": "dump plan -t {target}",
}
"""Commands that call the cluster, by their names."""
OF_NIGHT = {("report", signal.SIGTERM), ("dump", signal.SIGINT), ("dump", signal.SIGTERM)}
"""``report`` and ``dump`` start Spark before the call, so one of them with one signal is enough for
each change. A start takes 10 s of CPU time."""
ASKED = [
    pytest.param(name, *end, marks=[pytest.mark.nightly] * ((name, end[0]) in OF_NIGHT))
    for end in ENDS
    for name in ASKING
]
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


def send(number, process):
    """Send SIGINT to all processes of a command, as a terminal does, or SIGTERM to one process."""
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)


@pytest.mark.parametrize(("number", "code"), ENDS)
@pytest.mark.parametrize("names", BATCHES, ids=" ".join)
def test_a_signal_while_spark_starts_ends_a_command_without_a_jvm(
    names, number, code, folder, cluster
):
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
            send(number, process)
        # The output ends when the JVM has ended too, because the JVM has the same stdout.
        ends = {name: process.communicate(timeout=120) for name, process in processes.items()}
    codes = {name: process.returncode for name, process in processes.items()}
    assert codes == dict.fromkeys(names, code), ends
    printed = {errors.rpartition(STARTING)[2] for _, errors in ends.values()}
    assert printed == {"\n" * (number == signal.SIGINT)}, ends
    assert not list(folder.glob("java-of-*/taskraft-spark-*"))


@pytest.mark.parametrize(("name", "number", "code"), ASKED)
def test_a_signal_while_a_command_waits_for_the_cluster_prints_nothing(name, number, code, folder):
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        host, port = silent.getsockname()
        words = ASKING[name].format(target=f"{host}:{port}").split()
        process = started(stack, words, folder)
        wait_until_readable(silent, process)
        connection, _ = silent.accept()
        stack.callback(connection.close)
        send(number, process)
        output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (code, "\n" * (number == signal.SIGINT)), output


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_signal_ends_an_erasure_and_its_locks_without_a_jvm(number, code, folder):
    journal = Journal.at(folder / "var" / "journal")
    manifest = journal.generation_path(1)
    manifest.parent.mkdir(parents=True)
    os.mkfifo(manifest)  # a read of this file waits
    home, fifo = java_that_tells(folder)
    with ExitStack() as stack:
        stack.callback(os.close, fifo)
        process = started(stack, example_of("erase"), folder, JAVA_HOME=str(home))
        with manifest.open("wb"):  # opens when the command reads the file
            with pytest.raises(JournalRefused), journal.locked("compaction"):
                pytest.fail("the erasure does not hold its lock")
            send(number, process)
            output, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (code, "\n" * (number == signal.SIGINT)), output
        assert not select.select([fifo], [], [], 0)[0]
    with journal.locked(), journal.locked("compaction"):
        assert output == ""
