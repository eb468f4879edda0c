"""The scrubber of a real node finds a flipped bit in a table that no call reads."""

import json
import os
import urllib.request

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

SETTINGS = {
    "TASKRAFT_SCRUB_PERIOD_MS": "1000",
    "TASKRAFT_LOG_SEGMENT_BYTES": "65536",
    "TASKRAFT_LOG_FLUSH_BYTES": "100000",
    "TASKRAFT_COLLECT_MS": "1",
}


def page(node, path):
    with urllib.request.urlopen(f"http://{node.http_address}{path}", timeout=10) as answer:
        return answer.read().decode()


def sample(node, name):
    found = [line for line in page(node, "/metrics").splitlines() if line.startswith(name + " ")]
    return float(found[0].split()[1]) if found else None


def tables(node):
    return sorted(node.folder.glob("data/state/*/*.sst"))


def fill(node):
    with grpc.insecure_channel(node.address) as channel:
        tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFO)
        create = tube_service_pb2.CreateTubeRequest(tube=tube)
        tube_service_pb2_grpc.TubeServiceStub(channel).CreateTube(create)
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        for number in range(40):
            specs = [task_pb2.TaskSpec(payload=os.urandom(2000))] * 5
            tasks.PutTasks(pb.PutTasksRequest(tube="t", tasks=specs, request_id=f"r{number}"))


def test_a_flipped_bit_in_a_table_is_reported_without_a_read_of_it(tmp_path):
    with LocalCluster(1, tmp_path / "c", settings=SETTINGS) as cluster:
        (node,) = cluster.nodes
        fill(node)
        cluster.wait_until(lambda: tables(node), "a table")
        table = tables(node)[0]
        passes = sample(node, "taskraft_scrub_passes_total") or 0
        cluster.wait_until(
            lambda: (sample(node, "taskraft_scrub_passes_total") or 0) > passes + 1, "a pass"
        )
        assert sample(node, 'taskraft_damaged_files{part="state"}') == 0
        assert sample(node, "taskraft_scrub_age_seconds") < 60
        assert sample(node, "taskraft_scrubbed_bytes_total") > 0
        with table.open("r+b") as file:
            file.seek(100)
            (byte,) = file.read(1)
            file.seek(100)
            file.write(bytes((byte ^ 8,)))
        cluster.wait_until(
            lambda: sample(node, 'taskraft_damaged_files{part="state"}') == 1, "damage"
        )
        shown = str(table.relative_to(node.folder / "data"))
        assert f"{shown} is damaged at byte " in page(node, "/readyz")
        assert sample(node, 'taskraft_damaged_files{part="log"}') == 0
        assert node.is_running
        (line,) = [each for each in node.log.read_text().splitlines() if "damage found" in each]
        assert shown in json.loads(line)["damage"]
