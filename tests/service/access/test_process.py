"""A secured node as a process: invalid files stop its start, and SIGHUP reloads files."""

import os
import signal

import pytest

from taskraft import Client, errors
from tests.authority import Authority
from tests.service.access.secured import GRANTS, token_of, write_principals
from tests.service.process.test_main import refused
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "clients")


def variables(files, **others):
    return {
        "TASKRAFT_TLS_CERT": str(files.certificate),
        "TASKRAFT_TLS_KEY": str(files.key),
        **others,
    }


def ask_on(client):
    for _ in range(10_000):
        client.stats()


def test_an_unreadable_access_file_stops_the_start_with_one_line(tmp_path, authority):
    cluster = LocalCluster(1, tmp_path / "c1")
    (node,) = cluster.nodes
    broken = tmp_path / "broken.toml"
    broken.touch(mode=0o600)
    broken.write_text("nonsense")
    settings = variables(authority.server(), TASKRAFT_ACCESS_FILE=str(broken))
    assert "broken.toml: " in refused(node, **settings)


def test_sighup_applies_new_permissions(tmp_path, authority):
    book = write_principals(tmp_path / "access.toml", {"root": GRANTS["root"]})
    settings = variables(authority.server(), TASKRAFT_ACCESS_FILE=str(book))
    cluster = LocalCluster(1, tmp_path / "c1", settings)
    (node,) = cluster.nodes
    node.start()
    target = node.address.replace("127.0.0.1", "localhost")
    try:
        with Client(target, ca=authority.path, token=token_of("root"), timeout="20s") as root:
            root.create_tube("mail", "fifo")
            write_principals(book, {"other": []})
            os.kill(node.pid, signal.SIGHUP)
            with pytest.raises(errors.NoCredentials):
                ask_on(root)
        assert node.stop() == 0
    finally:
        cluster.close()
    assert "the access file was reloaded" in node.log.read_text()
