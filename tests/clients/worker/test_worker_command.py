"""The command ``taskraft worker`` in processes of its own, on a real node."""

import json
import signal
import subprocess
import sys
import uuid

import pytest
from click.testing import CliRunner

from taskraft import Client
from taskraft.cli import main
from taskraft.cli.worker import worker

pytestmark = pytest.mark.cluster

MODULE = """
import asyncio, os
from taskraft.worker import App
app = App("test")
@app.task(tube=os.environ["TUBE"], name="say")
async def say(word: str) -> str:
    print("began", word, flush=True)
    if word == "hang":
        await asyncio.Event().wait()
    if word == "slow":
        await asyncio.to_thread(input)
    return word
"""

WEIGHTS = "TASKRAFT_WORKER_WEIGHTS"
COMMAND = "from taskraft.cli import main; main()"


class Worker:
    """A worker process, and the tube of its task."""

    def __init__(self, node, folder, *options, module=MODULE):
        self.client = Client(node.target)
        name = f"worker-{uuid.uuid4()}"
        self.client.create_tube(name)
        self.tube = self.client.tube(name)
        folder.joinpath("said.py").write_text(module)
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "worker", "said:app", *options],
            cwd=folder,
            env={"TUBE": name, "TASKRAFT_TARGET": node.target, "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def logged(self, text):
        """Wait until the worker logs a line with the text."""
        assert any(text in line for line in self.process.stderr), f"no line has {text!r}"

    def put(self, word):
        return self.tube.put({"word": word}, type="say", content_type="application/json")

    def line(self):
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.client.close()


def test_a_worker_finishes_its_handlers_after_sigterm_and_ends_with_0(node, tmp_path):
    with Worker(node, tmp_path) as worker:
        task_id = worker.put("slow")
        assert worker.line() == "began slow"
        worker.process.send_signal(signal.SIGTERM)
        worker.logged("draining")
        waiting = worker.put("later")
        print(file=worker.process.stdin, flush=True)
        assert worker.process.wait(30) == 0
        assert worker.tube.peek(task_id).result == b'"slow"'
        assert worker.tube.peek(waiting).attempt == 0


def test_a_worker_hands_back_uncounted_at_the_end_of_the_grace_and_ends_with_7(node, tmp_path):
    with Worker(node, tmp_path, "--grace", "10ms") as worker:
        task_id = worker.put("hang")
        assert worker.line() == "began hang"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(30) == 7
        found = worker.tube.peek(task_id)
        assert (found.state, found.attempt) == ("READY", 0)


def test_a_second_signal_ends_a_worker_at_once(node, tmp_path):
    with Worker(node, tmp_path) as worker:
        worker.put("hang")
        assert worker.line() == "began hang"
        worker.process.send_signal(signal.SIGTERM)
        worker.logged("draining")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(30) == 128 + signal.SIGTERM


def test_a_worker_restarts_with_its_changed_code(node, tmp_path):
    with Worker(node, tmp_path, "--reload") as worker:
        worker.put("one")
        assert worker.line() == "began one"
        tmp_path.joinpath("said.py").write_text("what is this")
        worker.logged("restarting the worker")
        worker.logged("ended with status 1; waiting for a change")
        tmp_path.joinpath("said.py").write_text(MODULE.replace("began", "started"))
        worker.put("two")
        assert worker.line() == "started two"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("worker shop", "does not name an app"),
        ("worker nothing_there:app", "No module named"),
        ("worker json:loads", "is not an App"),
        ("worker json:nothing", "has no attribute"),
    ],
)
def test_an_app_that_cannot_be_imported_is_a_mistake_of_usage(arguments, told):
    done = CliRunner().invoke(main, arguments.split())
    assert (done.exit_code, told in done.output) == (2, True), done.output


def test_a_check_lists_the_tasks(tmp_path, monkeypatch):
    monkeypatch.setenv("TUBE", "mail")
    tmp_path.joinpath("checked.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["worker", "checked:app", "--check"])
    assert (done.exit_code, done.output) == (0, "say  mail  async\n")


@pytest.mark.parametrize(
    ("size", "told"), [("12 MB", "must look like 500MiB"), ("0.5GiB", "must look like")]
)
def test_a_size_has_a_binary_unit(size, told):
    done = CliRunner().invoke(main, ["worker", "json:loads", "--max-memory", size])
    assert (done.exit_code, told in done.output) == (2, True), done.output


@pytest.mark.parametrize("weight", ["mail", "mail=", "=3", "mail=x"])
def test_a_weight_has_the_name_of_a_tube_and_a_number(weight):
    done = CliRunner().invoke(main, ["worker", "json:loads", "--weight", weight])
    assert (done.exit_code, "is not TUBE=N" in done.output) == (2, True), done.output


def test_a_weight_of_an_unknown_tube_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TUBE", "mail")
    tmp_path.joinpath("weighed.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    for arguments, variables in ((["--weight", "male=3"], {}), ([], {WEIGHTS: "mail=2 male=3"})):
        done = CliRunner().invoke(main, ["worker", "weighed:app", *arguments], env=variables)
        assert (done.exit_code, "has the tube male" in done.output) == (2, True), done.output


def test_each_option_of_a_worker_can_come_from_the_environment():
    without = {"app", "reload", "check"}
    variables = {
        option.name: option.envvar for option in worker.params if option.name not in without
    }
    short = {"async_slots": "ASYNC"}
    assert variables == {
        name: f"TASKRAFT_WORKER_{short.get(name, name.upper())}" for name in variables
    }


@pytest.mark.parametrize("variable", ["TASKRAFT_WORKER_TUBES", "TASKRAFT_WORKER_ONLY"])
def test_tubes_and_tasks_can_come_from_the_environment(tmp_path, monkeypatch, variable):
    monkeypatch.setenv("TUBE", "mail")
    monkeypatch.setenv(variable, "absent none")
    tmp_path.joinpath("chosen.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["worker", "chosen:app"])
    assert done.exit_code == 2, done.output


def test_the_chosen_log_format_holds_although_the_app_configures_logging(node, tmp_path):
    module = "import logging; logging.basicConfig()\n" + MODULE
    with Worker(node, tmp_path, "--log-format", "json", module=module) as worker:
        worker.put("word")
        assert worker.line() == "began word"
        worker.process.send_signal(signal.SIGTERM)
        lines = worker.process.stderr.read().splitlines()
        messages = [json.loads(line)["message"] for line in lines]
        assert "test: running" in messages


LOGGING_MODULE = """
import logging, os
from taskraft.worker import App
logging.basicConfig()
logging.getLogger().addHandler(logging.FileHandler("app.log"))
app = App("test")
@app.task(tube=os.environ["TUBE"], name="say", pool="process")
def say(word: str) -> str:
    try:
        raise LookupError(word)
    except LookupError:
        logging.getLogger("shop").exception("said %s", word)
    print("began", word, flush=True)
    return word
"""


def test_the_chosen_log_format_holds_in_processes_too(node, tmp_path):
    options = ("--log-format", "json", "--processes", "1")
    with Worker(node, tmp_path, *options, module=LOGGING_MODULE) as worker:
        task_id = worker.put("word")
        assert worker.tube.wait(task_id, wait="30s")[0].result == b'"word"'
        worker.process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in worker.process.stderr.read().splitlines()]
        (said,) = [line for line in lines if line["message"] == "said word"]
        fields = {"task": f"{worker.tube.name}/{task_id}", "type": "say", "attempt": 1}
        assert fields.items() <= said.items()
        assert said["exception"].endswith("LookupError: word")
    assert tmp_path.joinpath("app.log").read_text().count("said word") == 1


PROCESS_MODULE = """
import os, signal
from taskraft.worker import App
app = App("test")
@app.task(tube=os.environ["TUBE"], name="say", pool="process")
def say(word: str) -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    print("began", word, flush=True)
    return word
"""


def test_a_process_ignores_a_sigterm_that_a_supervisor_sends_to_all(node, tmp_path):
    options = ("--processes", "1", "--max-memory", "500MiB")
    with Worker(node, tmp_path, *options, module=PROCESS_MODULE) as worker:
        task_id = worker.put("word")
        assert worker.line() == "began word"
        assert worker.tube.wait(task_id, wait="30s")[0].result == b'"word"'
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(30) == 0
