"""Call a real node from Go and from Node.js with only the proto files.

Both programs make the same calls and print their observations, which must be equal.
"""

import json
from pathlib import Path

import pytest

from tests.foreign.conftest import ROOT, build_go, run
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.foreign

RUN_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def go_client(go_stubs, tmp_path_factory):
    return build_go(go_stubs, ".", tmp_path_factory.mktemp("go") / "foreign")


@pytest.fixture(scope="module")
def node_client(node_folder):
    return ["node", str(node_folder / "client.js")]


@pytest.fixture(scope="module")
def node_address(tmp_path_factory):
    with LocalCluster(1, tmp_path_factory.mktemp("foreign")) as cluster:
        yield cluster.target


# Stubs and compilation are tests of their own, because each can take minutes with an empty Go
# cache.


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
