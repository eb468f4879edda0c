"""Forked nodes have the exit status, signals and environment of new processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate import forked_nodes
from tests.gate.forked_nodes import FORKERS, ForkedProcess, ForkingLauncher
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parent.parent.parent
PROBE = """
import os, sys
print(os.environ["TASKRAFT_X"], sys.argv[1:], hash("text"), os.getsid(0) == os.getpid(), flush=True)
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1], flush=True)
if sys.argv[1] == "--exit":
    sys.exit(3)
sys.stdin.read()
"""


@pytest.fixture
def launcher():
    one = ForkingLauncher()
    yield one
    one.close()


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """The name of a module that forkers may run."""
    name = f"probe_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(PROBE)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setattr(forked_nodes, "MODULES", frozenset({name}))
    return name


@pytest.fixture
def start(launcher, probe, tmp_path):
    """Start the probe; return the process and the function that reads its lines."""
    ends = []

    def started(*arguments, prefix=(), **variables):
        reading, writing = os.pipe()
        ends.append(writing)
        log = tmp_path / f"{len(ends)}.log"
        environment = {**os.environ, "TASKRAFT_X": "a setting", **variables}
        with log.open("ab") as file:
            process = launcher(prefix, [probe, *arguments], environment, reading, file)
        os.close(reading)
        return process, lambda: log.read_text().splitlines()

    yield started
    for end in ends:
        os.close(end)


def test_a_fork_has_the_arguments_and_settings_and_returns_its_status(start):
    process, lines = start("--exit")
    assert isinstance(process, ForkedProcess)
    assert process.wait(60) == 3
    assert process.poll() == 3
    line, descriptors = lines()
    assert line.startswith("a setting ['--exit'] ")
    assert line.endswith(" True"), "the fork leads a session of its own"
    assert descriptors == "[0, 1, 2]", "the fork has no descriptor of the forker"


def test_a_fork_runs_until_a_signal_ends_it(start):
    process, _ = start("--wait")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.001)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    process.terminate()  # sends nothing: the kernel may have given the id to another process


def test_consecutive_forks_have_different_hash_seeds(start):
    started = [start("--exit") for _ in range(2 * FORKERS)]
    assert [process.wait(60) for process, _ in started] == [3] * len(started)
    seeds = [lines()[0].split()[-2] for _, lines in started]
    assert len(set(seeds)) == FORKERS
    assert seeds[:FORKERS] == seeds[FORKERS:]


@pytest.mark.parametrize("why", ["prefix", "variable"])
def test_a_node_that_a_fork_would_not_equal_is_a_new_process(start, why):
    prefix = [sys.executable, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"]
    options = {"prefix": prefix} if why == "prefix" else {"LD_BIND_NOW": "1"}
    process, _ = start("--exit", **options)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 3


def test_a_changed_environment_of_the_tests_gets_forkers_of_its_own(start, monkeypatch):
    started = [start("--exit")]
    monkeypatch.setenv("LD_BIND_NOW", "1")
    started += [start("--exit") for _ in range(FORKERS)]
    assert [type(process) for process, _ in started] == [ForkedProcess] * (1 + FORKERS)
    assert [process.wait(60) for process, _ in started] == [3] * (1 + FORKERS)


DRAWS = """
import os, random, secrets, sys, uuid

def refusing(draw):
    def refuse(*arguments, **named):
        if sys._getframe(1).f_globals["__name__"].startswith("taskraft"):
            raise AssertionError("an import draws a random number, which all forks would share")
        return draw(*arguments, **named)
    return refuse

for module, names in (
    (os, ["urandom"]),
    (secrets, ["randbits", "token_bytes", "token_hex"]),
    (random, ["random", "randrange", "getrandbits"]),
    (uuid, ["uuid4"]),
):
    for name in names:
        setattr(module, name, refusing(getattr(module, name)))
import tests.gate.node_forker
"""


def test_the_imports_of_a_node_draw_no_random_number():
    command = [sys.executable, "-c", DRAWS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_module_is_a_new_process(launcher, tmp_path):
    with Path(os.devnull).open("ab") as log:
        process = launcher((), ["timeit", "-n1", "pass"], dict(os.environ), 0, log)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 0


def test_the_nodes_of_tests_are_forks(tmp_path):
    with LocalCluster(1, tmp_path / "c") as cluster:
        (node,) = cluster.nodes
        command = Path(f"/proc/{node.pid}/cmdline").read_text()
        assert "tests.gate.node_forker" in command
        assert node.stop() == 0
