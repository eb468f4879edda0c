"""The end of real worker processes at each phase, as PID 1 and not."""

import os
import select
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from taskraft import Client

pytestmark = [pytest.mark.real_time, pytest.mark.cluster]

MODULE = """
import asyncio, ctypes, multiprocessing, os, re, signal, threading, time
from taskraft.worker import App

if os.environ.get("BLOCKED_IMPORT"):
    print("importing", flush=True)
    threading.Event().wait()
app = App("test", defaults={"tube": os.environ["TUBE"]})

@app.lifespan
async def around(_app):
    if multiprocessing.parent_process() is not None:
        yield
        return
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin, "hup")
    print("up", os.getpid(), flush=True)
    if os.environ.get("SLOW_LIFESPAN"):
        await asyncio.Event().wait()
    try:
        yield
    finally:
        print("down", flush=True)

def begin(name):
    print("began", name, flush=True)

@app.task(name="slow")
async def slow() -> None:
    begin("slow")
    await asyncio.to_thread(input)

@app.task(name="hang")
async def hang() -> None:
    begin("hang")
    await asyncio.Event().wait()

@app.task(name="deaf_coroutine")
async def deaf_coroutine() -> None:
    begin("deaf_coroutine")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@app.task(name="blocked_in_python")
async def blocked_in_python() -> None:
    begin("blocked_in_python")
    threading.Event().wait()

@app.task(name="blocked_in_c")
async def blocked_in_c() -> None:
    mutex = ctypes.create_string_buffer(256)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    begin("blocked_in_c")
    lock(mutex)

@app.task(name="greedy")
async def greedy() -> None:
    begin("greedy")
    re.match("(a+)+$", "a" * 60 + "b")

@app.task(name="deaf_thread")
def deaf_thread() -> None:
    begin("deaf_thread")
    threading.Event().wait()

@app.task(name="executor")
async def executor() -> None:
    begin("executor")
    await asyncio.to_thread(threading.Event().wait)

@app.task(name="deaf_process", pool="process")
def deaf_process() -> None:
    begin("deaf_process")
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass
"""

COMMAND = "from taskraft.cli import main; main()"
PROGRAM = (
    "import asyncio, said; print('status', asyncio.run(said.app.run(**{options})), flush=True)"
)
WAIT_SECONDS = 20
UNREACHABLE = "127.0.0.1:1"


def can_be_pid_1():
    """Tell whether this machine lets the test start a process with PID 1."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        return False
    command = [unshare, "--fork", "--pid", "--mount-proc", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module", params=["plain", "pid 1"])
def prefix(request):
    """Return the beginning of the command of a worker."""
    if request.param == "plain":
        return []
    if not can_be_pid_1():
        pytest.skip("needs root and `unshare --fork --pid --mount-proc`")
    unshare = shutil.which("unshare")
    return [unshare, "--fork", "--pid", "--mount-proc", "--kill-child"]


class Worker:
    """A worker process with the tasks of MODULE."""

    def __init__(self, target, folder, prefix, *options, program=None, **environment):
        self.target = target
        self.name = f"ends-{uuid.uuid4()}"
        folder.joinpath("said.py").write_text(MODULE)
        command = (
            ["-c", program]
            if program
            else ["-c", COMMAND, "worker", "said:app", "--processes", "1"]
        )
        if not program:
            command += options
        self.stderr = folder.joinpath("stderr")
        with self.stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, *command],
                cwd=folder,
                env={"TUBE": self.name, "TASKRAFT_TARGET": target, "PATH": "", **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.is_pid_1 = bool(prefix)

    def line(self):
        return self.process.stdout.readline().strip()

    def is_up(self):
        """Wait until the lifespan of the app has begun."""
        word, pid = self.line().split()
        assert (word, pid == "1") == ("up", self.is_pid_1)

    def begin(self, name):
        """Put a task, and wait until its handler has begun."""
        with Client(self.target) as client:
            client.create_tube(self.name, if_not_exists=True)
            payload = {"type": name, "content_type": "application/json"}
            task = client.tube(self.name).put({}, **payload)
            assert self.line() == f"began {name}"
            return task

    def state(self, task):
        with Client(self.target) as client:
            found = client.tube(self.name).peek(task)
            return found.state, found.attempt

    def signal(self, number=signal.SIGTERM):
        pid = self.process.pid
        if self.is_pid_1:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        os.kill(pid, number)

    def drain(self):
        """Ask the worker to stop, and wait until it drains."""
        self.signal()
        while "draining, for" not in self.stderr.read_text():
            assert self.process.poll() is None

    def status(self):
        return self.process.wait(WAIT_SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_a_signal_while_the_app_is_imported_ends_the_worker(tmp_path, prefix):
    with Worker(UNREACHABLE, tmp_path, prefix, BLOCKED_IMPORT="1") as worker:
        assert worker.line() == "importing"
        worker.signal()
        assert worker.status() == 0


def test_a_signal_while_a_lifespan_begins_ends_the_worker(tmp_path, prefix):
    with Worker(UNREACHABLE, tmp_path, prefix, SLOW_LIFESPAN="1") as worker:
        worker.is_up()
        worker.signal()
        assert worker.status() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_worker_waits_for_the_cluster_ends_it(tmp_path, prefix, number):
    with Worker(UNREACHABLE, tmp_path, prefix) as worker:
        worker.is_up()
        worker.signal(number)
        assert worker.line() == "down"
        assert worker.status() == 0


def test_a_working_worker_drains(node, tmp_path, prefix):
    with Worker(node.target, tmp_path, prefix) as worker:
        worker.is_up()
        worker.begin("slow")
        worker.drain()
        print(file=worker.process.stdin, flush=True)
        assert worker.line() == "down"
        assert worker.status() == 0


@pytest.mark.parametrize("name", ["hang", "deaf_coroutine", "blocked_in_python", "deaf_process"])
def test_the_second_signal_ends_a_draining_worker_at_once(node, tmp_path, prefix, name):
    with Worker(node.target, tmp_path, prefix, "--grace", "1d") as worker:
        worker.is_up()
        worker.begin(name)
        if name == "blocked_in_python":
            worker.signal()
            worker.signal(signal.SIGINT)  # the kernel merges two equal signals
            assert worker.status() in {128 + signal.SIGINT, 128 + signal.SIGTERM}
        else:
            worker.drain()
            worker.signal()
            assert worker.status() == 128 + signal.SIGTERM


ORPHAN_SECONDS = 5
"""Time after which a process of the pool ends itself when its worker has died."""


def test_the_second_signal_kills_the_processes_of_the_pool(node, tmp_path):
    with Worker(node.target, tmp_path, [], "--grace", "1d") as worker:
        worker.is_up()
        worker.begin("deaf_process")
        threads = Path(f"/proc/{worker.process.pid}/task").glob("*/children")
        children = [int(pid) for thread in threads for pid in thread.read_text().split()]
        assert children
        ends = select.poll()
        watched = [os.pidfd_open(pid) for pid in children]
        for one in watched:
            ends.register(one, select.POLLIN)
        worker.drain()
        worker.signal()
        assert worker.status() == 128 + signal.SIGTERM
        for _ in watched:
            ((ended, _event), *_) = ends.poll(ORPHAN_SECONDS / 2 * 1_000)
            ends.unregister(ended)
            os.close(ended)


GRACES = ("--grace", "10ms", "--cancel-grace", "100ms")


@pytest.mark.parametrize(
    "name", ["deaf_coroutine", "blocked_in_python", "blocked_in_c", "executor"]
)
def test_the_watchdog_ends_a_worker_whose_code_does_not_end(node, tmp_path, prefix, name):
    with Worker(node.target, tmp_path, prefix, *GRACES) as worker:
        worker.is_up()
        worker.begin(name)
        worker.signal()
        assert worker.status() == 9
        stacks = worker.stderr.read_text()
        assert "did not end within the cancel grace" in stacks
        assert "said.py" in stacks or name == "executor"  # its thread waits in `threading`


@pytest.mark.parametrize("name", ["hang", "deaf_thread", "deaf_process"])
def test_handlers_that_can_be_left_alone_are_handed_back(node, tmp_path, prefix, name):
    with Worker(node.target, tmp_path, prefix, *GRACES) as worker:
        worker.is_up()
        task = worker.begin(name)
        worker.signal()
        assert worker.line() == "down"
        assert worker.status() == 7
        assert worker.state(task) == ("READY", 0)


def test_a_handler_that_lets_no_other_thread_run_is_ended_by_the_timer(node, tmp_path, prefix):
    with Worker(node.target, tmp_path, prefix, *GRACES) as worker:
        worker.is_up()
        worker.begin("greedy")
        worker.signal()
        assert worker.status() in {1, 9}
        assert "said.py" in worker.stderr.read_text()


def test_signal_handlers_of_the_app_keep_working(node, tmp_path, prefix):
    with Worker(node.target, tmp_path, prefix, "--grace", "1d") as worker:
        worker.is_up()
        worker.begin("hang")
        worker.signal(signal.SIGHUP)
        assert worker.line() == "began hup"
        worker.drain()
        worker.signal(signal.SIGHUP)
        assert worker.line() == "began hup"
        worker.signal()
        assert worker.status() == 128 + signal.SIGTERM


FORKING = """
import os, signal
from taskraft.worker.watchdog import process_watched
with process_watched():
    for _ in range(50):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        os.kill(child, signal.SIGTERM)  # before or after the child has its own handlers
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    print("alive")
"""


def test_signals_to_forked_processes_do_not_end_the_process(prefix):
    command = [*prefix, sys.executable, "-c", FORKING]
    done = subprocess.run(command, check=False, capture_output=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stdout) == (0, b"alive\n"), done.stderr.decode()


@pytest.mark.parametrize(
    ("name", "lines", "status"),
    [("hang", ["down", "status 7"], 0), ("deaf_coroutine", ["down"], 9)],
)
def test_a_program_that_runs_a_worker_ends(node, tmp_path, prefix, name, lines, status):
    program = PROGRAM.replace("{options}", "{'grace': '10ms', 'cancel_grace': '100ms'}")
    with Worker(node.target, tmp_path, prefix, program=program) as worker:
        worker.is_up()
        worker.begin(name)
        worker.signal()
        assert [worker.line() for _ in lines] == lines
        assert worker.status() == status
