"""Grow a cluster of real processes from one node to five and shrink it to three, during puts."""

import subprocess
import sys
import threading

import grpc
import pytest
from click.testing import CliRunner

from taskraft import Client, TaskraftError
from taskraft.cli import main
from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1 import task_service_pb2_grpc
from tools.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]  # test_scaling grows without load

PAUSE_SECONDS = 0.02


class Load(threading.Thread):
    """A client that puts numbered tasks one by one."""

    def __init__(self, target):
        super().__init__()
        self.answered = []
        self.unknown = []
        """Numbers of the puts that failed, with unknown outcome."""
        self._target = target
        self._stopping = threading.Event()
        self._progress = threading.Condition()

    def run(self):
        number = 0
        with Client(self._target) as client:
            while not self._stopping.wait(PAUSE_SECONDS):
                number += 1
                try:
                    client.tube("work").put(b"%d" % number, timeout=30)
                except TaskraftError:
                    self.unknown.append(number)
                else:
                    with self._progress:
                        self.answered.append(number)
                        self._progress.notify()

    def await_puts(self):
        """Wait until several more puts are acknowledged."""
        with self._progress:
            goal = len(self.answered) + 3
            assert self._progress.wait_for(lambda: len(self.answered) >= goal, 30)

    def stop(self):
        self._stopping.set()
        self.join()


def taskraft(target, *words):
    """Run a command in this process."""
    done = CliRunner().invoke(main, [*words, "--timeout", "60s"], env={"TASKRAFT_TARGET": target})
    assert done.exit_code == 0, (words, done.output)
    return done.output


def promote_at_once(target, *names):
    """Run a command for all names concurrently."""
    command = [sys.executable, "-m", "taskraft", "cluster", "promote"]
    running = [
        subprocess.Popen(
            [*command, name, "--target", target, "--timeout", "60s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in names
    ]
    said = [each.communicate(timeout=90)[0] for each in running]
    assert [each.returncode for each in running] == [0] * len(names), said


def found(address):
    """Return the numbers of all tasks."""
    request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="work")], tasks_max=1_000)
    numbers = []
    with grpc.insecure_channel(address) as channel:
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        while tasks := stub.TakeTasks(request, timeout=20).tasks:
            numbers += [int(task.spec.payload) for task in tasks]
    return numbers


def test_a_cluster_grows_to_five_and_shrinks_to_three_under_load(tmp_path):
    cluster = LocalCluster(1, tmp_path / "c", {"TASKRAFT_AUTO_CREATE_TUBES": "true"})
    with cluster:
        newcomers = [cluster.joiner(f"m{number}") for number in range(2, 6)]
        target = cluster.target
        load = Load(target)
        load.start()
        try:
            for pair in (newcomers[:2], newcomers[2:]):
                for node in pair:
                    node.start()
                cluster.wait_ready()
                promote_at_once(target, *[node.name for node in pair])
                load.await_puts()
            assert "5 voters" in taskraft(target, "cluster", "status")
            for _ in range(2):
                leader = cluster.wait_ready()
                assert taskraft(target, "cluster", "remove", leader.name, "--yes")
                assert leader.wait() == 1
                load.await_puts()
            last = cluster.wait_ready()
            assert "3 voters" in taskraft(target, "cluster", "status")
        finally:
            load.stop()
        numbers = found(last.address)
        assert len(numbers) == len(set(numbers)), "no task was put twice"
        assert set(load.answered) <= set(numbers) <= {*load.answered, *load.unknown}
