"""A node with damaged files either starts with everything it acknowledged or refuses to start.

The matrix: each kind of file, missing and with a flipped bit. The node truncates only data that
nothing acknowledged depends on, and repairs nothing silently.
"""

import os
import shutil
import subprocess
import sys

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.process.main import EXIT_BROKEN, EXIT_REFUSED
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

SMALL = {
    "TASKRAFT_LOG_SEGMENT_BYTES": "65536",
    "TASKRAFT_LOG_FLUSH_BYTES": "100000",
    "TASKRAFT_LOG_KEPT_ENTRIES": "10",
    "TASKRAFT_COLLECT_ENTRIES": "5",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A stopped single node with tasks in its log and in its state."""
    cluster = LocalCluster(1, tmp_path_factory.mktemp("damage") / "c", settings=SMALL)
    with cluster:
        (one,) = cluster.nodes
        with grpc.insecure_channel(one.address) as channel:
            tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFO)
            create = tube_service_pb2.CreateTubeRequest(tube=tube)
            tube_service_pb2_grpc.TubeServiceStub(channel).CreateTube(create)
            tasks = task_service_pb2_grpc.TaskServiceStub(channel)
            for number in range(40):
                specs = [task_pb2.TaskSpec(payload=os.urandom(2000))] * 5
                put = pb.PutTasksRequest(tube="t", tasks=specs, request_id=f"r{number}")
                tasks.PutTasks(put)
        assert one.stop() == 0
    yield one
    cluster.close()


def run(node, data, module="taskraft_service.process", **environment):
    settings = {**node.environment, "TASKRAFT_DATA_DIR": str(data), **environment}
    return subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def one_line(done):
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("taskraft: "))
    return line


def flip(path):
    """Flip a bit in the middle of the written part of a file."""
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) // 2] ^= 0x10
    path.write_bytes(content)


def flip_both_slots(path):
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    content[4096 + 9] ^= 1
    path.write_bytes(content)


REMOVE = os.unlink

CASES = [
    ("raft-0/identity", flip, "fails its checksum"),
    ("raft-0/identity", REMOVE, "identity is missing"),
    ("raft-0/directory", flip, "fails its checksum"),
    ("raft-0/directory", REMOVE, "is missing"),
    ("raft-0/incarnation", flip, "incarnation"),
    ("raft-0/incarnation", REMOVE, "is missing"),
    ("raft-0/hard_state", flip, "fails its checksum"),
    ("raft-0/hard_state", REMOVE, "is missing"),
    ("raft-0/log_start", flip, "fails its checksum"),
    ("raft-0/log_start", REMOVE, "is missing"),
    ("raft-0/membership", flip, "fails its checksum"),
    ("raft-0/membership", REMOVE, "is missing"),
    ("raft-0/mark", flip_both_slots, "is unreadable"),
    ("raft-0/mark", REMOVE, "is missing"),
    ("raft-0/log/first", flip, "entr"),
    ("raft-0/log/first", REMOVE, "are missing or unreadable"),
    ("raft-0/log/last", flip, "entr"),
    ("raft-0/log/last", REMOVE, ".log: the log ends at entry"),
]
STATE_CASES = [
    ("state/current", flip),
    ("state/current", REMOVE),
    ("state/*/CURRENT", flip),
    ("state/*/CURRENT", REMOVE),
    ("state/*/MANIFEST-*", flip),
    ("state/*/MANIFEST-*", REMOVE),
    ("state/*/first.sst", REMOVE),
]


def place_of(data, pattern):
    directory, _, name = pattern.rpartition("/")
    if name in {"first", "last"}:
        segments = sorted((data / directory).glob("*.log"))
        assert len(segments) > 1, "the first segment is the last"
        return segments[0 if name == "first" else -1]
    if name == "first.sst":
        return min(data.glob(f"{directory}/*.sst"))
    (place,) = data.glob(pattern)
    return place


@pytest.mark.shows_fault(
    "log and vote",
    "lost log or vote of a node that knows no other nodes",
    "refuses to start, status 1, and changes nothing",
)
@pytest.mark.parametrize(
    ("pattern", "harm", "said"),
    CASES,
    ids=[f"{pattern}-{harm.__name__}" for pattern, harm, _ in CASES],
)
def test_damage_is_refused_in_one_line_that_names_the_file(node, tmp_path, pattern, harm, said):
    data = tmp_path / "data"
    shutil.copytree(node.folder / "data", data)
    harmed = place_of(data, pattern)
    harm(harmed)
    done = run(node, data)
    assert done.returncode == EXIT_REFUSED, done.stderr
    assert said in one_line(done)
    if harm is flip and pattern.startswith("raft-0/"):
        assert harmed.name in one_line(done)
    assert "Traceback" not in done.stderr


@pytest.mark.shows_fault(
    "state",
    "a lone node cannot open its state",
    "refuses to start, status 1, and keeps the damaged copy",
)
@pytest.mark.parametrize(
    ("pattern", "harm"),
    STATE_CASES,
    ids=[f"{pattern}-{harm.__name__}" for pattern, harm in STATE_CASES],
)
def test_a_single_node_with_a_damaged_state_is_refused_with_advice(node, tmp_path, pattern, harm):
    data = tmp_path / "data"
    shutil.copytree(node.folder / "data", data)
    harm(place_of(data, pattern))
    done = run(node, data)
    assert done.returncode == EXIT_REFUSED, done.stderr
    assert "no other member has it; restore a backup, see docs/disaster.md" in one_line(done)
    assert (data / "state.damaged").is_dir(), "the damaged state is kept"
    assert "Traceback" not in done.stderr


@pytest.mark.shows_fault(
    "disk",
    "an fsync or a write fails (`EIO`, `ENOSPC`)",
    "exits with status 70; the message names the file. The node does not retry, "
    "because the content of the disk is unknown after a failed fsync. Calls in "
    "flight end with an unknown outcome",
)
@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("append.before_sync=eio", "Input/output error"),
        ("append.after_sync=eio", "Input/output error"),
        ("append.before_write=enospc", "No space left"),
        ("hard_state.before_sync=eio", "Input/output error"),
        ("state.before_apply=eio", "Input/output error"),
        ("state.before_write=enospc", "No space left"),
    ],
)
def test_a_failing_disk_stops_the_node_with_one_line(node, tmp_path, rules, said):
    """A failed fsync is never repeated: the pages are clean, but not on disk."""
    done = run(node, tmp_path / "fresh", "tests.failpoints", TASKRAFT_FAILPOINTS=rules)
    assert done.returncode in {EXIT_BROKEN, EXIT_REFUSED}, done.stderr
    assert said in one_line(done)
