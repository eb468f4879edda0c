"""The Job of the restore component restores the newest snapshot, and the other pods join."""

import subprocess
import sys
from pathlib import Path

import pytest

from taskraft import Client
from tests.cluster.test_scaling import await_voters
from tests.k8s.test_manifests import one
from tools import manifests
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

KUSTOMIZATION = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: taskraft
resources: [{root}/base]
components: [{root}/components/backup, {root}/components/restore]
"""
PROGRAMS = f"{Path(sys.executable).parent}:/usr/bin:/bin"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    return manifests.render_overlay(tmp_path_factory.mktemp("overlay"), KUSTOMIZATION)


@pytest.fixture
def restore(rendered):
    return one(rendered, "Job", "taskraft-restore")["spec"]["template"]["spec"]


def test_the_restore_has_the_settings_the_volume_and_the_restrictions_of_pod_0(rendered, restore):
    pod = one(rendered, "StatefulSet")["spec"]["template"]["spec"]
    (container,), (node,) = restore["containers"], pod["containers"]
    assert container["envFrom"] == node["envFrom"]
    peers = next(entry["value"] for entry in node["env"] if entry["name"] == "TASKRAFT_PEERS")
    assert peers == "taskraft-0=taskraft-0.taskraft-peers.$(POD_NAMESPACE).svc:7402"
    template = one(rendered, "StatefulSet")["spec"]["volumeClaimTemplates"][0]
    claim = one(rendered, "PersistentVolumeClaim", "data-taskraft-0")
    assert claim["spec"] == template["spec"]
    of_node = {entry["name"]: entry for entry in node["env"]}
    for entry in container["env"][1:]:
        assert entry == of_node[entry["name"]]
    assert container["env"][0] == {"name": "TASKRAFT_NODE_NAME", "value": "taskraft-0"}
    assert restore["securityContext"] == pod["securityContext"]
    assert container["securityContext"] == node["securityContext"]
    assert container["image"] == node["image"]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in restore["volumes"]
    }
    assert claims["data"] == "data-taskraft-0"
    backup = one(rendered, "PersistentVolumeClaim", "taskraft-backups")
    assert claims["backups"] == backup["metadata"]["name"]
    assert [manifests.faults(each) for each in rendered if manifests.faults(each)] == []


@pytest.mark.cluster
def test_three_pods_run_again_with_the_tasks_of_the_newest_snapshot(restore, tmp_path):
    backups = tmp_path / "backups"
    backups.mkdir()
    settings = {"TASKRAFT_JOIN_AS": "voter", "TASKRAFT_REPLACE_MEMBER": "always"}
    with LocalCluster(3, tmp_path / "shop", settings) as cluster:
        with Client(cluster.target) as client:
            client.create_tube("emails")
            for day in ("01", "02"):
                client.tube("emails").put(day)
                save = ("taskraft", "snapshot", "save", str(backups / f"2026-11-{day}.snapshot"))
                run(save, {"TASKRAFT_TARGET": cluster.target})
        for node in cluster.nodes:
            node.environment = {
                **node.environment,
                "TASKRAFT_DATA_DIR": str(tmp_path / f"new-{node.name}"),
                "TASKRAFT_PEERS": node.environment["TASKRAFT_PEERS"].split(",")[0],
                "TASKRAFT_BOOTSTRAP": "false",
            }
            node.kill()
        first = cluster.nodes[0]
        (script,) = restore["containers"][0]["args"]
        command = [
            *restore["containers"][0]["command"],
            script.replace("/backups", str(backups)),
        ]
        done = run(command, first.environment)
        assert "ok: 2 tasks in 1 tubes" in done.stdout
        for node in cluster.nodes:
            node.start()
        await_voters(cluster, *(node.name for node in cluster.nodes))
        with Client(cluster.target) as client:
            assert client.tube("emails").stats().tasks.ready == 2


def run(command, environment):
    done = subprocess.run(
        command,
        env={"PATH": PROGRAMS, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
