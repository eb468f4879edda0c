"""Runs of small tests through the gate, as `make test` runs the tests of this repository."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parent.parent.parent
PLUGINS = ("stages", "real_time_guard", "time_limits", "scheduler", "kept_logs", "outcomes")
START = """
import asyncio, itertools, os, pathlib, socket, subprocess, sys, threading, time
import grpc, pytest

def attempt(name):
    '''Return the number of this attempt of a test, from 1.'''
    file = pathlib.Path(f"attempts-{name}")
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return len(file.read_text())
"""


def run_gate(folder, body, *arguments):
    """Run a file of tests through the gate."""
    plugins = [f"tests.gate.{name}" for name in PLUGINS]
    (folder / "conftest.py").write_text(f"pytest_plugins = {plugins}\n")
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 60\nasyncio_mode = auto\n")
    (folder / "test_sample.py").write_text(START + textwrap.dedent(body))
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    few = ("--cores=1", "--together=1", "--grace=1")
    return subprocess.run(
        [sys.executable, "-m", "tests.gate", *few, *arguments, "test_sample.py"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def lines_of(done, prefix):
    """Return the lines of the output that begin with a word."""
    return [line for line in done.stdout.splitlines() if line.startswith(prefix)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gate")


@pytest.fixture(scope="module")
def mixed(folder):
    """Run tests that pass, hang, are late, and are wrong."""
    return run_gate(
        folder,
        """
        def test_pure(): pass

        def test_wrong_in_stage_1(): assert attempt("stage-1") == 2

        @pytest.mark.real_time
        @pytest.mark.timeout(1)
        def test_hanging_in_python(): threading.Event().wait()

        @pytest.mark.real_time
        @pytest.mark.timeout(1)
        def test_hanging_in_c(tmp_path):
            (tmp_path / "n1").mkdir()
            (tmp_path / "n1" / "node.log").write_text("the node began")
            sum(itertools.repeat(0))

        @pytest.mark.real_time
        def test_late(): assert attempt("late") == 2, "it was late"

        @pytest.mark.real_time
        def test_wrong(): assert not attempt("wrong")
        """,
    )


def test_a_run_prints_both_stages_the_slowest_tests_and_the_counts(mixed):
    assert mixed.returncode == 1
    assert re.search(r"^stage 1: 2 tests in \d+ s", mixed.stdout, re.MULTILINE)
    assert re.search(r"^stage 2: 4 tests in \d+ s", mixed.stdout, re.MULTILINE)
    assert re.search(r"slowest tests:\n +1\.\d s +\S+::test_hanging_in_python\n", mixed.stdout)
    assert mixed.stdout.splitlines()[-1] == "2 passed, 4 failed, 0 skipped"


def test_a_test_that_hangs_in_python_fails_with_its_stacks(mixed):
    assert lines_of(mixed, "WRONG: test_sample.py::test_hanging_in_python: Failed: Timeout")
    assert "threading.Event().wait()" in mixed.stdout


def test_a_test_that_hangs_in_c_code_fails_with_its_stacks_and_logs(mixed, folder):
    assert lines_of(mixed, "WRONG: test_sample.py::test_hanging_in_c: worker 'gw")
    assert re.search(r"test_sample\.py\", line \d+ in test_hanging_in_c", mixed.stdout)
    logs = list((folder / "var" / "tests" / "failed").rglob("node.log"))
    assert {log.read_text() for log in logs} == {"the node began"}


def test_a_test_that_passes_when_it_runs_again_is_unstable(mixed, folder):
    assert lines_of(mixed, "UNSTABLE") == [
        "UNSTABLE: test_sample.py::test_late: AssertionError: it was late"
    ]
    assert (folder / "attempts-late").read_text() == "xx"


def test_a_test_of_stage_2_that_fails_twice_is_wrong(mixed, folder):
    assert lines_of(mixed, "WRONG: test_sample.py::test_wrong: ")
    assert (folder / "attempts-wrong").read_text() == "xx"


def test_a_failed_test_of_stage_1_does_not_run_again(mixed, folder):
    assert lines_of(mixed, "WRONG: test_sample.py::test_wrong_in_stage_1: ")
    assert (folder / "attempts-stage-1").read_text() == "x"


def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path):
    assert run_gate(tmp_path, "import nothing_of_this_name").returncode not in (0, 5)


def test_a_selection_without_tests_has_a_status_of_its_own(tmp_path):
    assert run_gate(tmp_path, "def test_pure(): pass", "-k", "another").returncode == 5


def test_one_stage_and_the_nightly_tests_can_be_chosen(tmp_path):
    body = """
        def test_pure(): pass

        @pytest.mark.real_time
        def test_real(): pass

        @pytest.mark.real_time
        @pytest.mark.nightly
        def test_long(): pass
    """
    done = run_gate(tmp_path, body, "--stage", "2")
    assert lines_of(done, "stage") == [lines_of(done, "stage 2: 1 tests")[0]]
    assert "1 passed, 0 failed" in run_gate(tmp_path, body, "--nightly").stdout


def test_the_guard_finds_what_watches_the_real_clock(tmp_path):
    done = run_gate(
        tmp_path,
        """
        def test_pure():
            assert asyncio.run(asyncio.sleep(0, True))

        def test_process():
            subprocess.run([sys.executable, "-c", ""], check=True)

        def test_sleep():
            time.sleep(0.001)

        def sleep_on(woken):
            while not woken.wait(0.001):
                time.sleep(0.001)

        OLDER = threading.Event()
        threading.Thread(target=sleep_on, args=(OLDER,), daemon=True).start()

        def test_beside_an_older_thread():
            pass

        def test_own_thread():
            own = threading.Thread(target=time.sleep, args=(0.001,))
            own.start()
            own.join()

        async def test_timer():
            await asyncio.sleep(0.2)  # longer than a busy machine takes to reach the wait

        def test_port():
            with socket.socket() as one:
                one.bind(("127.0.0.1", 0))

        async def test_grpc_port():
            server = grpc.aio.server()
            server.add_insecure_port("127.0.0.1:0")
            await server.stop(None)
        """,
    )
    assert done.returncode == 1
    found = {line.split(": ")[1]: line.split(", but ")[-1] for line in lines_of(done, "WRONG")}
    assert {test.removeprefix("test_sample.py::"): deed[:13] for test, deed in found.items()} == {
        "test_process": "it started a ",
        "test_sleep": "it slept (0.0",
        "test_own_thread": "it slept (0.0",
        "test_timer": "its event loo",
        "test_port": "it used a por",
        "test_grpc_port": "it opened a p",
    }
