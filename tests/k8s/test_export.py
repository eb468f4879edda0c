"""The export component: one restricted pod that follows the feed of the nodes into a volume."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from taskraft_pipeline.cli import pipeline
from taskraft_pipeline.spark_session import DRIVER_MEMORY
from tests.k8s.test_manifests import one
from tools import manifests

pytestmark = pytest.mark.real_time

ENTRYPOINT = manifests.ROOT.parent / "pipeline" / "entrypoint.sh"
KUSTOMIZATION = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: taskraft
resources: [{root}/base]
components: [{root}/components/export]
"""
GIB = 1 << 30


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    return manifests.render_overlay(tmp_path_factory.mktemp("overlay"), KUSTOMIZATION)


@pytest.fixture
def export(rendered):
    return one(rendered, "StatefulSet", "taskraft-export")["spec"]


@pytest.fixture
def container(export):
    (only,) = export["template"]["spec"]["containers"]
    return only


@pytest.fixture
def node(rendered):
    (node,) = (
        found
        for found in rendered
        if found["kind"] == "StatefulSet" and found["metadata"]["name"] == "taskraft"
    )
    return node["spec"]["template"]


def test_every_schema_accepts_the_manifests_of_the_export(rendered):
    assert [fault for manifest in rendered for fault in manifests.faults(manifest)] == []


def test_the_export_is_as_restricted_as_a_node(export, container, node):
    pod = export["template"]["spec"]
    assert pod["securityContext"] == node["spec"]["securityContext"]
    assert container["securityContext"] == node["spec"]["containers"][0]["securityContext"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["automountServiceAccountToken"] is False


def test_the_labels_of_the_export_are_not_those_of_a_node(rendered, export, node):
    labels = export["template"]["metadata"]["labels"]
    assert export["selector"]["matchLabels"].items() <= labels.items()
    for kind in ("Service", "PodDisruptionBudget"):
        for found in rendered:
            if found["kind"] == kind:
                spec = found["spec"]["selector"]
                selected = spec.get("matchLabels", spec)
                assert selected.items() <= node["metadata"]["labels"].items()
                assert not selected.items() <= labels.items()


def test_the_export_reaches_the_client_port_of_the_nodes_and_nothing_reaches_it(
    rendered, export, node
):
    labels = export["template"]["metadata"]["labels"]
    policy = one(rendered, "NetworkPolicy", "taskraft-export")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert (policy["policyTypes"], "ingress" in policy) == (["Ingress", "Egress"], False)
    calls, names = policy["egress"]
    (target,) = calls["to"]
    assert target["podSelector"]["matchLabels"].items() <= node["metadata"]["labels"].items()
    (port,) = calls["ports"]
    client = {one["name"]: one for one in node["spec"]["containers"][0]["ports"]}["client"]
    assert port["port"] == client["containerPort"]
    assert {one["port"] for one in names["ports"]} == {53}
    nodes = one(rendered, "NetworkPolicy")["spec"]
    admitted = [each["podSelector"] for rule in nodes["ingress"] for each in rule["from"]]
    assert {"matchLabels": {"taskraft.dev/client": "true"}} in admitted
    assert labels["taskraft.dev/client"] == "true"


def test_the_command_of_the_export_is_valid_and_writes_to_its_volume(container, tmp_path):
    (script,) = container["args"]
    program = tmp_path / "taskraft"
    program.write_text('#!/bin/sh\necho "$TASKRAFT_CA $TASKRAFT_TOKEN_FILE $*"\n')
    program.chmod(0o700)
    (tmp_path / "ca.crt").touch()
    done = subprocess.run(
        [*container["command"], script.replace("/credentials", str(tmp_path))],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TASKRAFT_TOKEN_FILE": "none"},
        capture_output=True,
        text=True,
        check=True,
    )
    ca, token, *arguments = done.stdout.split()
    assert (ca, token) == (str(tmp_path / "ca.crt"), "none")
    assert arguments[0] == "pipeline"
    checked = CliRunner().invoke(pipeline, [*arguments[1:], "--interval", "no number"])
    assert checked.exit_code == 2
    assert "Invalid value for '--interval'" in checked.output
    assert "--follow" in arguments
    folder = Path(arguments[arguments.index("--journal") + 1])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert folder.is_relative_to(mounts["journal"])


def test_the_journal_outlives_the_export_and_the_memory_holds_driver_and_workers(export, container):
    (claim,) = export["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "journal"
    assert set(export["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
    assert export["replicas"] == 1
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) * GIB
    heap = int(DRIVER_MEMORY.removesuffix("g")) * GIB
    assert limit >= 2 * heap
    assert (
        container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]
    )


@pytest.fixture
def entered(tmp_path):
    """Return a function that runs the entry point with programs that print their arguments."""
    for name in ("java", "taskraft"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\nif [ {name} = java ]; then cat "${{1#@}}"; echo end; shift; fi\n'
            'for one in "$@"; do echo "$one"; done\n'
        )
        program.chmod(0o700)
    python = Path(sys.executable).parent

    def run(*arguments, **variables):
        return subprocess.run(
            [str(ENTRYPOINT), *arguments],
            env={"PATH": f"{tmp_path}:{python}:/usr/bin:/bin", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "export-exec-3",
}


def test_the_image_starts_a_command_of_taskraft(entered):
    done = entered("pipeline", "report", "--out", "a b")
    assert done.stdout.splitlines() == ["pipeline", "report", "--out", "a b"]


def test_the_image_starts_an_executor_with_what_spark_gives_the_pod(entered):
    options = {"SPARK_JAVA_OPT_0": '-Dspark.app=a "b" c', "SPARK_JAVA_OPT_1": "-Xss4m"}
    done = entered("executor", **EXECUTOR, **options)
    assert done.returncode == 0, done.stderr
    given, rest = done.stdout.split("end\n", 1)
    assert sorted(shlex.split(given)) == sorted(options.values())
    words = rest.splitlines()
    assert words[:2] == ["-Xms1g", "-Xmx1g"]
    named = dict(zip(words[5::2], words[6::2], strict=True))
    assert named == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "export-exec-3",
    }


def test_an_executor_without_its_variables_does_not_start(entered):
    done = entered("executor", **{name: EXECUTOR[name] for name in EXECUTOR if "URL" not in name})
    assert done.returncode != 0
    assert "SPARK_DRIVER_URL" in done.stderr
