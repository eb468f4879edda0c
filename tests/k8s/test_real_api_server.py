"""A real API server and its controllers run the manifests; pods are processes with own networks.

`make k8s` builds the programs and runs this file in namespaces. The StatefulSet, disruption,
endpoint and job controllers are those of Kubernetes; scheduler, kubelet, network and DNS are
emulated. Custom resources are checked against the definitions of KEDA, cert-manager and the
Prometheus operator.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from taskraft import Client
from taskraft.v1.cluster_service_pb2 import Member
from tests.k8s.control_plane.api_server import ApiServer
from tests.k8s.control_plane.kubelet import HERE, Kubelet, set_up_bridge
from tests.k8s.control_plane.name_server import NameServer
from tests.k8s.go_modules import CERT_MANAGER, KEDA, PROMETHEUS_OPERATOR, module_folder
from tests.turns import blocked_until
from tools import manifests

PROGRAMS = os.environ.get("TASKRAFT_TEST_K8S", "")
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not PROGRAMS, reason="`make k8s` runs this"),
]

NAMESPACE = "taskraft-dev"
OPERATOR_FILES = "example/prometheus-operator-crd/monitoring.coreos.com_"
DEFINITIONS = (
    (KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    (CERT_MANAGER, "deploy/crds/cert-manager.io_certificates.yaml"),
    (CERT_MANAGER, "deploy/crds/cert-manager.io_issuers.yaml"),
    (PROMETHEUS_OPERATOR, f"{OPERATOR_FILES}servicemonitors.yaml"),
    (PROMETHEUS_OPERATOR, f"{OPERATOR_FILES}prometheusrules.yaml"),
)
NO_MAJORITY = "run `taskraft cluster recover --force-new` on the survivor"
HOSTS = ("host-1", "host-2", "host-3", "host-4", "host-5")
TARGET = f"taskraft-0.taskraft-peers.{NAMESPACE}.svc:7401"
FOLLOWED_SECONDS_MAX = 5.0
PRIVILEGED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "intruder", "namespace": NAMESPACE},
    "spec": {
        "containers": [
            {"name": "c", "image": "taskraft", "securityContext": {"privileged": True}},
        ]
    },
}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    set_up_bridge()
    with ApiServer(Path(PROGRAMS), folder / "server", HERE) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(api, tmp_path_factory):
    """Return the kubelet of three running nodes of the overlay ``dev``."""
    applied(api, "overlays/dev")
    kubelet = Kubelet(api, NAMESPACE, tmp_path_factory.mktemp("pods"), NameServer(HERE), HOSTS)
    kubelet.start()
    try:
        await_rollout(api)
        yield kubelet
    finally:
        kubelet.close()
    assert kubelet.failure is None


def applied(api, folder):
    """Apply an overlay server-side; return what kubectl printed."""
    return api.kubectl("apply", "--server-side", "-k", str(manifests.ROOT / folder))


def in_namespace(api, *words, **options):
    return api.kubectl("-n", NAMESPACE, *words, **options)


def await_rollout(api, pods=3):
    """Wait until all pods are new and available, as the pages ask before the next change."""
    in_namespace(api, "rollout", "status", "statefulset/taskraft", "--timeout=300s")
    available = f"--for=jsonpath={{.status.availableReplicas}}={pods}"
    in_namespace(api, "wait", available, "statefulset/taskraft", "--timeout=60s")


def members():
    """Return the id of each voter by name."""
    with Client(TARGET) as client:
        state = client.cluster_state()
    return {one.name: one.id for one in state.members if one.suffrage == Member.VOTER}


def await_voters(count):
    blocked_until(lambda: len(members()) == count)


def put_and_count(number):
    """Put a task, and return how many tasks wait; all are still there."""
    with Client(TARGET) as client:
        client.tube("work").put(b"%d" % number)
        return client.tube("work").stats().tasks.ready


def removed(size, wanted):
    """Return the names of the pods that end, from the highest ordinal down."""
    return [f"taskraft-{ordinal}" for ordinal in range(size - 1, wanted - 1, -1)]


def want(api, cluster, number):
    """Tell the pods the wanted number, and wait until all of them see the number."""
    in_namespace(api, "create", "configmap", "taskraft-size", f"--from-literal=replicas={number}")
    folders = [cluster.config.folder(name) / "size" for name in cluster.pods]

    def seen(folder):  # a file of an earlier number may still be there
        return [each.read_text() for each in folder.glob("replicas")]

    blocked_until(lambda: all(seen(folder) == [str(number)] for folder in folders))


def scale_down(api, cluster, number):
    """Let all pods above a number end at once, as docs/members.md says."""
    names = removed(len(cluster.pods), number)
    want(api, cluster, number)
    with Client(TARGET) as client:  # the leader ends too
        assert client.transfer_leadership(names[0]) == names[0]
    in_namespace(api, "scale", "statefulset", "taskraft", f"--replicas={number}")
    for name in names:
        in_namespace(api, "wait", "--for=delete", f"pod/{name}", "--timeout=120s")
        assert "the node has left its cluster" in cluster.log(name).read_text()
        cluster.log(name).write_text("")
    in_namespace(api, "delete", "configmap", "taskraft-size")
    left = [cluster.config.folder(name) / "size/replicas" for name in cluster.pods]
    blocked_until(lambda: not any(each.exists() for each in left))


def replace_volume(api, cluster, name):
    """Delete the volume of a pod, and the pod."""
    in_namespace(api, "delete", "pvc", f"data-{name}", "--wait=false")
    cluster.before_start[name] = lambda: shutil.rmtree(cluster.volume(name))
    in_namespace(api, "delete", "pod", name)


def last_line(cluster, name):
    """Return the last line for the operator in the log of a pod; empty: there is none."""
    lines = cluster.log(name).read_text().splitlines()
    return next((line for line in reversed(lines) if line.startswith("taskraft: ")), "")


def await_line(cluster, name, text):
    """Wait until a pod has exited with one line."""
    blocked_until(lambda: name in cluster.pods and text in last_line(cluster, name))


def ready_text(cluster, name):
    pod = cluster.pods.get(name)
    return "" if pod is None else pod.page("/readyz")[1]


def test_the_server_accepts_every_manifest_without_a_warning(api, tmp_path):
    for module, file in DEFINITIONS:
        path = module_folder(module, tmp_path) / file
        api.kubectl("apply", "--server-side", "-f", str(path))
    api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    for overlay in ("overlays/dev", "overlays/prod"):
        blocked_until(lambda folder=overlay: not applied(api, folder).stderr)
        assert "Warning" not in applied(api, overlay).stderr
    keda = os.path.relpath(manifests.ROOT / "components/keda", tmp_path)
    base = os.path.relpath(manifests.ROOT / "overlays/dev", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [base], "components": [keda]})
    )
    assert "Warning" not in api.kubectl("apply", "--server-side", "-k", str(tmp_path)).stderr
    rendered = api.kubectl("-n", "taskraft", "get", "certificates,prometheusrules,cronjobs")
    assert "taskraft-backup" in rendered.stdout


def commands_of(page):
    """Return the kubectl commands of a page, without pipelines."""
    text = (manifests.ROOT.parent / "docs" / page).read_text()
    found = re.findall(r"^\$ kubectl (.+)$", text, re.MULTILINE)
    return [shlex.split(one) for one in found if "|" not in one]


def test_the_server_accepts_the_commands_of_the_pages(api, cluster, tmp_path):
    """Commands that change something are dry runs here; other tests of this file run them."""
    (tmp_path / "access.toml").touch()
    (tmp_path / "k8s").symlink_to(manifests.ROOT)
    for name in ("taskraft-bootstrap", "taskraft-size"):
        api.kubectl("-n", "taskraft", "create", "configmap", name)
    pages = ("kubernetes.md", "members.md", "operators-day.md")
    commands = [command for page in pages for command in commands_of(page)]
    assert len(commands) > 8
    for words in commands:
        if not {"rollout", "pvc", "exec", "wait"}.isdisjoint(words):
            continue  # the pods of the overlay `prod` do not run here
        is_there = "create" in words and "configmap" in words
        done = api.kubectl(*words, "--dry-run=server", cwd=tmp_path, is_checked=not is_there)
        assert "already exists" in done.stderr or not is_there, words


def test_pod_security_refuses_a_privileged_pod_and_accepts_the_nodes(api, cluster):
    refused = api.kubectl("apply", "-f", "-", input=yaml.safe_dump(PRIVILEGED), is_checked=False)
    assert refused.returncode != 0
    assert 'violates PodSecurity "restricted' in refused.stderr
    pods = in_namespace(api, "get", "pods", "-o", "name").stdout.split()
    assert pods == ["pod/taskraft-0", "pod/taskraft-1", "pod/taskraft-2"]


def test_the_nightly_backup_gets_a_pod(api):
    in_prod = ("-n", "taskraft")
    api.kubectl(*in_prod, "create", "job", "now", "--from=cronjob/taskraft-backup")
    chosen = ("get", "pods", "-l", "job-name=now", "-o", "name")
    blocked_until(lambda: api.kubectl(*in_prod, *chosen).stdout)
    assert len(api.kubectl(*in_prod, *chosen).stdout.split()) == 1


def test_a_restart_of_all_pods_removes_nobody_and_new_addresses_are_followed(api, cluster):
    before, tasks = members(), put_and_count(0)
    addresses = {name: pod.address for name, pod in cluster.pods.items()}
    cluster.followed_seconds.clear()
    in_namespace(api, "rollout", "restart", "statefulset/taskraft")
    await_rollout(api)
    assert all(pod.address != addresses[name] for name, pod in cluster.pods.items())
    assert members() == before
    assert put_and_count(1) == tasks + 1
    print("seconds until a pod with a new address was ready:", cluster.followed_seconds)
    assert len(cluster.followed_seconds) == len(before)
    assert max(seconds for _, seconds in cluster.followed_seconds) < FOLLOWED_SECONDS_MAX


def test_a_changed_setting_restarts_one_pod_at_a_time(api, cluster):
    before = members()
    turn = len(cluster.ready_counts)
    change = '{"spec":{"template":{"metadata":{"annotations":{"restarted":"by a patch"}}}}}'
    in_namespace(api, "patch", "statefulset", "taskraft", "-p", change)
    await_rollout(api)
    assert min(cluster.ready_counts[turn:]) == len(before) - 1
    assert members() == before


def test_two_hosts_drained_at_once_leave_a_majority_and_remove_nobody(api, cluster):
    before, tasks = members(), put_and_count(2)
    turn = len(cluster.ready_counts)
    placed = in_namespace(
        api, "get", "pods", "-o", "jsonpath={range .items[*]}{.spec.nodeName}{'\\n'}{end}"
    ).stdout.split()
    hosts = list(dict.fromkeys([*placed, *HOSTS]))[:2]
    command = api.kubectl_command(
        *("drain", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s")
    )
    environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig)}
    drains = [subprocess.Popen([*command, host], env=environment) for host in hosts]
    assert [drain.wait() for drain in drains] == [0, 0]
    await_rollout(api)
    api.kubectl("uncordon", *hosts)
    assert min(cluster.ready_counts[turn:]) >= len(before) - 1
    assert members() == before
    assert put_and_count(3) == tasks + 1


def test_a_cluster_scales_to_five_and_back(api, cluster):
    before, tasks = members(), put_and_count(4)
    in_namespace(api, "scale", "statefulset", "taskraft", "--replicas=5")
    await_rollout(api, 5)
    await_voters(5)
    with Client(TARGET) as client:
        for ordinal in (4, 3):
            client.remove_member(f"taskraft-{ordinal}")
            in_namespace(api, "scale", "statefulset", "taskraft", f"--replicas={ordinal}")
            in_namespace(api, "wait", "--for=delete", f"pod/taskraft-{ordinal}", "--timeout=120s")
            in_namespace(api, "delete", "pvc", f"data-taskraft-{ordinal}")
            shutil.rmtree(cluster.volume(f"taskraft-{ordinal}"))
    assert members() == before
    assert put_and_count(5) == tasks + 1


def test_two_pods_that_end_at_once_leave_one_after_the_other(api, cluster):
    before, tasks = members(), put_and_count(8)
    in_namespace(api, "scale", "statefulset", "taskraft", "--replicas=5")
    await_rollout(api, 5)
    await_voters(5)
    scale_down(api, cluster, 3)
    assert members() == before
    assert put_and_count(9) == tasks + 1


def test_the_old_volume_of_a_removed_member_is_refused(api, cluster):
    """Ordinal 3 comes back with its old volume, and becomes a member with an empty one."""
    before, tasks = members(), put_and_count(10)
    in_namespace(api, "scale", "statefulset", "taskraft", "--replicas=4")
    await_line(cluster, "taskraft-3", "it must join again, with an empty data directory")
    assert members() == before
    replace_volume(api, cluster, "taskraft-3")
    await_rollout(api, 4)
    await_voters(4)
    scale_down(api, cluster, 3)
    assert members() == before
    assert put_and_count(11) == tasks + 1


def test_a_cluster_scales_to_one_and_back(api, cluster):
    """The overlay always permits the founding, and the empty volumes found no second cluster."""
    before, tasks = members(), put_and_count(12)
    scale_down(api, cluster, 1)
    assert members() == {"taskraft-0": before["taskraft-0"]}
    assert put_and_count(13) == tasks + 1
    for size in (2, 3):
        name = f"taskraft-{size - 1}"
        in_namespace(api, "scale", "statefulset", "taskraft", f"--replicas={size}")
        await_line(cluster, name, "it must join again, with an empty data directory")
        replace_volume(api, cluster, name)
        await_rollout(api, size)
        await_voters(size)
        assert put_and_count(12 + size) == tasks + size
    scale_down(api, cluster, 2)
    await_voters(2)
    assert put_and_count(16) == tasks + 4
    in_namespace(api, "scale", "statefulset", "taskraft", "--replicas=3")
    await_line(cluster, "taskraft-2", "it must join again, with an empty data directory")
    replace_volume(api, cluster, "taskraft-2")
    await_rollout(api)
    await_voters(3)
    assert put_and_count(17) == tasks + 5


def test_a_pod_above_the_wanted_number_does_not_join(api, cluster):
    before = members()
    want(api, cluster, 3)
    shutil.rmtree(cluster.volume("taskraft-3"), ignore_errors=True)
    in_namespace(api, "scale", "statefulset", "taskraft", "--replicas=4")
    await_line(cluster, "taskraft-3", "taskraft-3 does not join")
    in_namespace(api, "scale", "statefulset", "taskraft", "--replicas=3")
    in_namespace(api, "delete", "configmap", "taskraft-size")
    in_namespace(api, "wait", "--for=delete", "pod/taskraft-3", "--timeout=120s")
    assert members() == before


def test_a_wrong_bootstrap_mark_stops_only_the_pods_that_start(api, cluster):
    before, tasks = members(), put_and_count(18)
    in_namespace(api, "create", "configmap", "taskraft-bootstrap", "--from-literal=allow=perhaps")
    in_namespace(api, "delete", "pod", "taskraft-2")
    await_line(cluster, "taskraft-2", "bootstrap: Input should be a valid boolean")
    assert put_and_count(19) == tasks + 1
    in_namespace(api, "delete", "configmap", "taskraft-bootstrap")
    in_namespace(api, "delete", "pod", "taskraft-2")
    await_rollout(api)
    assert members() == before
    assert put_and_count(20) == tasks + 2


def test_two_empty_volumes_at_once_found_no_second_cluster(api, cluster):
    """Both pods may found. The old volumes return, and nothing is lost."""
    before, tasks = members(), put_and_count(21)
    lost = ("taskraft-1", "taskraft-2")
    for name in lost:
        cluster.lose_volume(name)
    in_namespace(api, "delete", "pod", *lost)
    blocked_until(lambda: all(NO_MAJORITY in ready_text(cluster, name) for name in lost))
    for name in lost:
        cluster.return_volume(name)
    in_namespace(api, "delete", "pod", *lost)
    await_rollout(api)
    assert members() == before
    assert put_and_count(22) == tasks + 1


def test_a_pod_with_a_lost_volume_comes_back_as_a_new_member(api, cluster):
    before, tasks = members(), put_and_count(6)
    replace_volume(api, cluster, "taskraft-2")

    def is_replaced():
        now = members()
        return now.keys() == before.keys() and now["taskraft-2"] != before["taskraft-2"]

    blocked_until(is_replaced)
    await_rollout(api)
    assert put_and_count(7) == tasks + 1
