"""Call a real node from Go and from Node.js with only the proto files.

Both programs make the same calls and print their observations, which must be equal.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.foreign

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD_TIMEOUT_S = 170
RUN_TIMEOUT_S = 60


def run(*command: str, folder: Path, timeout_s: int) -> str:
    """Run a program and return what it printed; its stderr is part of the failure's message."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def require(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def go_stubs():
    require("go")
    folder = HERE / "go"
    shutil.rmtree(folder / "stubs", ignore_errors=True)
    buf = str(Path(sys.executable).parent / "buf")
    contract = str(ROOT / "proto")
    stubs = [buf, "generate", contract, "--path", f"{contract}/taskraft/v1"]
    run(*stubs, "--template", "buf.gen.yaml", folder=folder, timeout_s=BUILD_TIMEOUT_S)
    return folder


@pytest.fixture(scope="module")
def go_client(go_stubs, tmp_path_factory):
    binary = tmp_path_factory.mktemp("go") / "foreign"
    run("go", "build", "-o", str(binary), ".", folder=go_stubs, timeout_s=BUILD_TIMEOUT_S)
    return [str(binary)]


@pytest.fixture(scope="module")
def node_client():
    require("node", "npm")
    folder = HERE / "node"
    installed = folder / "node_modules" / ".package-lock.json"
    lock = folder / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        run("npm", "ci", folder=folder, timeout_s=BUILD_TIMEOUT_S)
    return ["node", str(folder / "client.js")]


@pytest.fixture(scope="module")
def node_address(tmp_path_factory):
    with LocalCluster(1, tmp_path_factory.mktemp("foreign")) as cluster:
        yield cluster.target


# The first two steps are separate tests, because each can take minutes while Go's cache is empty.


def test_the_contract_generates_stubs_for_go(go_stubs):
    generated = {path.name for path in (go_stubs / "stubs").rglob("*.pb.go")}
    contract = {path.stem for path in (ROOT / "proto/taskraft/v1").glob("*.proto")}
    assert generated >= {f"{name}.pb.go" for name in contract}


def test_a_client_compiles_against_the_stubs_for_go(go_client):
    assert Path(go_client[0]).exists()


@pytest.mark.parametrize("language", ["go", "node"])
def test_a_client_of_another_language_puts_takes_acks_and_reads_errors(
    language, node_address, request
):
    command = request.getfixturevalue(f"{language}_client")
    tube = f"from-{language}"
    seen = json.loads(run(*command, node_address, tube, folder=ROOT, timeout_s=RUN_TIMEOUT_S))
    assert seen == {
        "put": ["1", "2", "3"],
        "repeated": ["1", "2", "3"],
        "taken": [["1", "first"], ["2", "second"]],
        "refused": 0,
        "late": [[0, "LEASE_STALE"], [1, "LEASE_STALE"]],
        "stream": {"task": ["3", "third"], "settled": f"{tube}-stream", "errors": 0},
        "refusal": {
            "code": "NOT_FOUND",
            "reason": "TUBE_NOT_FOUND",
            "domain": "taskraft.v1",
            "tube": f"{tube}-nowhere",
        },
    }
