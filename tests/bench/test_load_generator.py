"""Run the load generator on a real node: every workload, about one second each."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bench import load_generator
from bench.__main__ import empty_handlers
from bench.cells import ALL, Cell
from bench.load_generator import Window, execute
from bench.servers import Server
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.foreign

LOAD = Path(__file__).parent.parent.parent / "bench/load"
BUILD_TIMEOUT_S = 175


def complaint(*command: str) -> str:
    """Run a command; return its stderr if the command fails, otherwise an empty text."""
    done = subprocess.run(
        command, cwd=LOAD, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}" or "failed in silence"


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    if shutil.which("go") is None:
        pytest.skip("not installed: go")
    binary = tmp_path_factory.mktemp("load") / "load"
    assert complaint("go", "generate") == ""
    assert complaint("go", "build", "-o", str(binary), ".") == ""
    return binary


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with LocalCluster(1, tmp_path_factory.mktemp("load")) as cluster:
        yield cluster.nodes[0]


def test_the_load_generator_passes_its_own_tests(load):
    assert complaint("go", "vet", ".") == ""
    assert complaint("go", "test", ".") == ""


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_every_cell_of_the_bench_is_measured_without_errors(cell, load, node, monkeypatch):
    monkeypatch.setattr(load_generator, "BINARY", load)
    window = Window(warm_up_ms=50, duration_ms=800)
    # Enough tasks for the whole window: a fast node delivers 110 000 tasks a second in batches, and
    # the first reading of the metrics waits for a busy node.
    fill = 120_000 if cell.shape == "batches" else 3_000
    further = ("-fill", str(fill)) if cell.workload == "take" else ()
    run = execute(cell, node.address, [Server(node.pid, node.http_address)], window, *further)
    assert run.errors == {}
    assert run.tasks > 0
    assert run.latency_us
    assert run.use.entries > 0
    assert run.use.syncs > 0


def test_a_wrong_workload_is_refused_with_one_line(load):
    done = subprocess.run([load, "-shape", "triangle"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == 'load: unknown shape "triangle"\n'


def test_an_unreachable_cluster_is_reported(load):
    command = [load, "-addresses", "127.0.0.1:1", "-timeout", "300ms"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "names a leader" in done.stderr


def test_a_server_without_work_answers_the_same_load(load, monkeypatch):
    monkeypatch.setattr(load_generator, "BINARY", load)
    with empty_handlers() as (target, servers):
        run = execute(Cell("put", "batches"), target, servers, Window(50, 300))
    assert run.errors == {}
    assert run.tasks > 0
