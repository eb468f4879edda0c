"""Files of a node as a process: for its own user alone, and secrets of others are refused."""

import os
import stat

import pytest

from tests.authority import Authority
from tests.service.access.secured import write_principals
from tests.service.process.test_main import refused
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time


def wide(path):
    """Return the entries of a directory to which other users than the owner have access."""
    inside = (each for each in path.rglob("*") if not each.is_symlink())
    return [str(each) for each in (path, *inside) if stat.S_IMODE(each.stat().st_mode) & 0o077]


def test_all_files_of_a_node_are_for_its_user_alone(tmp_path):
    before = os.umask(0o000)  # the processes of the cluster inherit the mask
    try:
        with LocalCluster(1, tmp_path / "c1") as cluster:
            (node,) = cluster.nodes
            cluster.wait_ready()
            assert node.stop() == 0
            data = next(each.parent for each in tmp_path.rglob("lock"))
            assert {each.name for each in data.iterdir()} == {"lock", "raft-0", "state"}
            assert list(data.rglob("*.sst")) or list(data.rglob("*.log"))
            assert wide(data) == []
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
@pytest.mark.parametrize("which", ["key", "access file"])
def test_a_secret_of_a_node_that_others_can_access_stops_the_start(tmp_path, which, mode):
    files = Authority(tmp_path, "clients").server()
    access = write_principals(tmp_path / "access.toml")
    exposed = files.key if which == "key" else access
    exposed.chmod(mode)
    (node,) = LocalCluster(1, tmp_path / "c1").nodes
    line = refused(
        node,
        TASKRAFT_TLS_CERT=str(files.certificate),
        TASKRAFT_TLS_KEY=str(files.key),
        TASKRAFT_ACCESS_FILE=str(access),
    )
    assert f"(mode 0{mode:o})" in line
    assert line.endswith(f"run: chmod 600 {exposed}")
