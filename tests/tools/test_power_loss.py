"""After a power loss, only synced data is certain to be in a directory."""

import os
import random
import shutil
import subprocess
import sys

import pytest

from tools.local_cluster import LocalCluster
from tools.power_loss import PowerLoss
from tools.sync_fault import SyncFaults

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]

WRITES = """
import os, sys
from pathlib import Path

place = Path(sys.argv[1])


def write(name, content, *, is_synced):
    with (place / name).open("ab") as file:
        file.write(content)
        file.flush()
        if is_synced:
            os.fsync(file.fileno())


def sync_names():
    descriptor = os.open(place, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


write("kept", b"synced", is_synced=True)
write("unsynced", b"lost", is_synced=False)
write("replaced", b"old", is_synced=True)
sync_names()
write("kept", b" and lost", is_synced=False)
write("nameless", b"content without a name", is_synced=True)
write("fresh", b"new", is_synced=True)
(place / "fresh").rename(place / "replaced")
"""


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(1, tmp_path / "c")


@pytest.fixture
def node(cluster):
    return cluster.nodes[0]


@pytest.fixture
def data(node):
    return node.folder / "data"


def run(node, code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **node.environment},
        capture_output=True,
        text=True,
        check=False,
    )


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def power(cluster, node, tmp_path, data):
    power = PowerLoss(cluster, tmp_path / "power")
    done = run(node, WRITES, data)
    assert done.returncode == 0, done.stderr
    return power


def test_only_synced_contents_and_names_survive(power, node, data):
    assert contents(data)["kept"] == b"synced and lost"
    power.cut_power(node)
    assert contents(data) == {"kept": b"synced", "unsynced": b"", "replaced": b"old"}


def test_a_second_power_loss_changes_nothing(power, node, data):
    power.cut_power(node)
    before = contents(data)
    power.cut_power(node)
    assert contents(data) == before


def test_a_disk_may_keep_more_but_never_less(power, node, data):
    power.cut_power(node, random.Random(3))
    found = contents(data)
    assert found["kept"].startswith(b"synced")
    assert found["replaced"] in {b"old", b"new"}


@pytest.mark.shows_fault(
    "disk",
    "an fsync reports success and has written nothing, for example in a write cache "
    "without a battery",
    "undetected while the host has power. After a power loss that leaves no file, "
    "the other members refuse the node, because its directory is unknown; replace "
    "the member. If the disk keeps a part of the files, the checks of this table "
    "apply, but a loss of the newest entries alone can stay undetected: use disks "
    "that honour fsync",
)
def test_a_disk_that_lies_keeps_nothing(cluster, node, tmp_path, data):
    power = PowerLoss(cluster, tmp_path / "power")
    SyncFaults(cluster, tmp_path / "syncs").lie(node)
    assert run(node, WRITES, data).returncode == 0
    power.cut_power(node)
    assert contents(data) == {}


SYNCS = """
import os, sys

for _ in range(3):
    try:
        os.fsync(1)
        print("synced")
    except OSError as error:
        print(error.errno)
"""


@pytest.mark.parametrize(
    ("begin", "expected"),
    [("fail_once", ["5", "synced", "synced"]), ("fail", ["5", "5", "5"])],
)
def test_syncs_fail_once_or_for_good(cluster, node, tmp_path, begin, expected):
    faults = SyncFaults(cluster, tmp_path / "syncs")
    getattr(faults, begin)(node)
    output = tmp_path / "output"
    with output.open("w") as file:
        env = {**os.environ, **node.environment}
        subprocess.run([sys.executable, "-c", SYNCS], env=env, stdout=file, check=True)
    assert output.read_text().split() == expected
    faults.heal(node)
    with output.open("w") as file:
        subprocess.run([sys.executable, "-c", SYNCS], env=env, stdout=file, check=True)
    assert output.read_text().split() == ["synced"] * 3
