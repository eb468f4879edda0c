"""The CronJob of the backup component saves and verifies a snapshot of a real node."""

import subprocess
import sys
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from taskraft import Client
from tools import manifests
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def rendered():
    return manifests.render("overlays/prod")


@pytest.fixture
def nightly(rendered):
    (nightly,) = (one for one in rendered if one["kind"] == "CronJob")
    return nightly["spec"]["jobTemplate"]["spec"]["template"]


@pytest.fixture
def container(nightly):
    (only,) = nightly["spec"]["containers"]
    return only


def test_the_policies_of_the_nodes_admit_the_nightly_backup(rendered, nightly):
    label = "taskraft.dev/client"
    policies = [one for one in rendered if one["kind"] == "NetworkPolicy"]
    assert any(label in str(policy["spec"]["ingress"]) for policy in policies)
    assert nightly["metadata"]["labels"][label] == "true"


def test_the_nightly_backup_is_as_restricted_as_a_node(rendered, nightly, container):
    (node,) = (one for one in rendered if one["kind"] == "StatefulSet")
    pod = node["spec"]["template"]["spec"]
    assert nightly["spec"]["securityContext"] == pod["securityContext"]
    assert container["securityContext"] == pod["containers"][0]["securityContext"]
    assert container["image"] == pod["containers"][0]["image"]


@pytest.mark.cluster
def test_the_script_of_the_cron_saves_and_verifies_a_snapshot(container, tmp_path):
    backups = tmp_path / "backups"
    backups.mkdir()
    (script,) = container["args"]
    script = script.replace("/backups", str(backups))
    with LocalCluster(1, tmp_path / "shop") as cluster:
        with Client(cluster.target) as client:
            client.create_tube("emails")
            client.tube("emails").put(b"x")
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "TASKRAFT_TARGET": cluster.target,
        }
        command = [*container["command"], script]
        for run in range(3):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith("ok: 1 tasks in 1 tubes")
            (file,) = backups.glob("*.snapshot")
            if run == 1:  # the second run of a day has verified the file of the first
                file.write_bytes(file.read_bytes()[:-1])
        with urllib.request.urlopen(f"http://{cluster.nodes[0].http_address}/metrics") as page:
            metrics = page.read().decode()
    assert "\ntaskraft_snapshots_saved_total 2.0\n" in metrics
    assert "\ntaskraft_snapshot_age_seconds " in metrics
    day = datetime.now(UTC).date()
    assert {one.name for one in backups.iterdir()} == {
        f"{day}.snapshot",
        f"{day}.snapshot.damaged",
    }
