"""Check rules that no schema can express: the manifests agree with each other and protect data."""

import re
import subprocess
from pathlib import Path

import pytest

from taskraft import __version__
from taskraft_service.cluster.departure import LEAVE_SECONDS
from taskraft_service.config.server_config import ServerConfig, read_config
from tools import manifests

pytestmark = pytest.mark.real_time

OVERLAYS = manifests.OVERLAYS
KINDS = {
    "ServiceAccount",
    "Service",
    "StatefulSet",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "ConfigMap",
}
FOUNDERS = 3
REPLICAS_MAX = 5
PROBES = {"startupProbe": "/startupz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}


@pytest.fixture(scope="module", params=OVERLAYS)
def rendered(request):
    return manifests.render(request.param)


def one(rendered, kind, name="taskraft"):
    found = [
        manifest
        for manifest in rendered
        if manifest["kind"] == kind and manifest["metadata"]["name"].startswith(name)
    ]
    assert len(found) >= 1, f"no {kind} {name}"
    return found[0]


@pytest.fixture
def stateful_set(rendered):
    return one(rendered, "StatefulSet")


@pytest.fixture
def pod(stateful_set):
    return stateful_set["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    (only,) = pod["containers"]
    return only


@pytest.fixture
def settings(rendered):
    return one(rendered, "ConfigMap")["data"]


@pytest.fixture
def environments(stateful_set, container, settings):
    """Return the environment of each pod up to the largest size, expanded as the kubelet does."""
    found = []
    for ordinal in range(REPLICAS_MAX):
        fields = {
            "metadata.name": f"{stateful_set['metadata']['name']}-{ordinal}",
            "metadata.namespace": "somewhere",
        }
        environment = dict(settings)
        for entry in container["env"]:
            source = entry.get("valueFrom", {})
            if source.get("configMapKeyRef", {}).get("optional"):
                continue  # without the ConfigMap, the value of envFrom stays
            value = entry.get("value") or fields[source["fieldRef"]["fieldPath"]]
            for name, known in environment.items():
                value = value.replace(f"$({name})", known)
            environment[entry["name"]] = value
        found.append(environment)
    return found


def node_config(environment):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return read_config()


def test_every_schema_accepts_every_manifest(rendered):
    assert [fault for manifest in rendered for fault in manifests.faults(manifest)] == []


def test_a_misspelt_field_is_found(stateful_set):
    broken = {**stateful_set, "spec": {**stateful_set["spec"], "serviceNames": "taskraft-peers"}}
    assert len(manifests.faults(broken)) == len(manifests.VERSIONS)


def test_every_kind_of_manifest_exists(rendered):
    assert {manifest["kind"] for manifest in rendered} >= KINDS


def test_all_nodes_start_in_parallel_and_keep_their_volumes(stateful_set):
    spec = stateful_set["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    assert spec["minReadySeconds"] > 0


def test_the_settings_of_each_node_are_valid_and_name_all_founders(stateful_set, environments):
    service, name = stateful_set["spec"]["serviceName"], stateful_set["metadata"]["name"]
    for ordinal, environment in enumerate(environments):
        config = node_config(environment)
        is_founder = ordinal < FOUNDERS
        assert config.is_joiner != is_founder
        assert config.member.member_id == (ordinal + 1 if is_founder else 0)
        assert [member.peer_address for member in config.members] == [
            f"{name}-{peer}.{service}.somewhere.svc:7402" for peer in range(FOUNDERS)
        ]
        assert config.client_address == f"{name}-{ordinal}.{service}.somewhere.svc:7401"
        assert config.member.peer_address == f"{name}-{ordinal}.{service}.somewhere.svc:7402"


def test_pods_beyond_the_founders_join_and_become_voters(stateful_set, environments):
    service, name = stateful_set["spec"]["serviceName"], stateful_set["metadata"]["name"]
    config = node_config(environments[-1])
    assert (config.join_as, config.replace_member) == ("voter", "always")
    port = 7402 if config.peer_tls_cert else 7401  # with certificates, nodes ask at the peer port
    assert config.join_addresses == tuple(
        f"{name}-{peer}.{service}.somewhere.svc:{port}" for peer in range(FOUNDERS)
    )


def test_an_empty_volume_founds_no_cluster_without_permission(container, environments):
    is_dev = environments[0]["TASKRAFT_CLUSTER_ID"] == "taskraft-dev"
    assert node_config(environments[0]).bootstrap == is_dev
    (entry,) = (each for each in container["env"] if each["name"] == "TASKRAFT_BOOTSTRAP")
    assert entry["valueFrom"]["configMapKeyRef"] == {
        "name": "taskraft-bootstrap",
        "key": "allow",
        "optional": True,
    }


def test_every_setting_is_known_to_the_node(environments):
    known = {f"TASKRAFT_{name}".upper() for name in ServerConfig.model_fields}
    assert {name for name in environments[0] if name.startswith("TASKRAFT_")} <= known


def test_the_change_feed_may_use_at_most_half_of_the_volume(stateful_set, environments):
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    volume_gib = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    assert node_config(environments[0]).feed_bytes_max <= volume_gib * 2**30 / 2


def test_the_number_of_replicas_is_3_or_5(stateful_set):
    assert stateful_set["spec"]["replicas"] in {3, 5}


def test_nodes_resolve_each_other_before_they_are_ready(rendered, stateful_set):
    peers = one(rendered, "Service", stateful_set["spec"]["serviceName"])["spec"]
    assert peers["clusterIP"] == "None"
    assert peers["publishNotReadyAddresses"] is True


def test_ports_in_settings_container_and_services_agree(rendered, container, settings):
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listening = {
        "client": settings["TASKRAFT_LISTEN"],
        "peer": settings["TASKRAFT_PEER_LISTEN"],
        "http": settings["TASKRAFT_HTTP_LISTEN"],
    }
    assert {name: f"0.0.0.0:{port}" for name, port in ports.items()} == listening
    for service in (manifest for manifest in rendered if manifest["kind"] == "Service"):
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports
            assert port["port"] == ports[port["targetPort"]]


def test_every_selector_matches_the_pods(rendered, stateful_set):
    labels = stateful_set["spec"]["template"]["metadata"]["labels"].items()
    for manifest in rendered:
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Service":
            selector = spec["selector"]
        elif manifest["kind"] in {"StatefulSet", "PodDisruptionBudget"}:
            selector = spec["selector"]["matchLabels"]
        elif manifest["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
        else:
            continue
        assert selector.items() <= labels, manifest["metadata"]["name"]


def test_the_container_uses_the_generated_settings(rendered, container):
    (source,) = container["envFrom"]
    assert source["configMapRef"]["name"] == one(rendered, "ConfigMap")["metadata"]["name"]


def test_service_links_cannot_shadow_settings(pod):
    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize("probe", PROBES)
def test_probes_use_the_http_port(container, probe):
    assert container[probe]["httpGet"] == {"path": PROBES[probe], "port": "http"}


def test_the_grace_period_covers_a_leadership_transfer(pod, container, environments):
    assert container["lifecycle"]["preStop"] == {"sleep": {"seconds": 3}}
    grace_ms = node_config(environments[0]).stop_grace_ms + 3_000
    leave_ms = LEAVE_SECONDS * 1000
    assert pod["terminationGracePeriodSeconds"] * 1000 >= 2 * grace_ms + leave_ms


def test_a_pod_sees_the_wanted_number_of_pods_without_a_token(pod, container, environments):
    (size,) = (volume for volume in pod["volumes"] if volume["name"] == "size")
    assert size["configMap"] == {"name": "taskraft-size", "optional": True}
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "size")
    assert node_config(environments[0]).replicas_file == Path(mount["mountPath"]) / "replicas"


def test_the_pod_runs_with_restricted_privileges(pod, container):
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_every_written_path_has_a_volume(pod, container, stateful_set, settings):
    claims = {claim["metadata"]["name"] for claim in stateful_set["spec"]["volumeClaimTemplates"]}
    volumes = claims | {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == volumes
    assert mounts[settings["TASKRAFT_DATA_DIR"]] in claims


def test_memory_is_reserved_and_cpu_is_not_limited(container):
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    assert requests["memory"] == limits["memory"]
    assert "cpu" in requests
    assert "cpu" not in limits


def test_one_node_at_a_time_may_be_drained(rendered):
    assert one(rendered, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_only_nodes_reach_the_peer_port(rendered, stateful_set):
    node = {"podSelector": stateful_set["spec"]["selector"]}
    ingress = one(rendered, "NetworkPolicy")["spec"]["ingress"]
    reaching = [rule["from"] for rule in ingress if {"port": "peer"} in rule["ports"]]
    assert reaching == [[node]]


def test_production_forbids_two_nodes_on_one_host_and_one_log_in_two_pods():
    stateful_set = one(manifests.render("overlays/prod"), "StatefulSet")
    affinity = stateful_set["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"] == stateful_set["spec"]["selector"]
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_development_fits_on_one_host():
    stateful_set = one(manifests.render("overlays/dev"), "StatefulSet")
    assert "affinity" not in stateful_set["spec"]["template"]["spec"]


def test_the_scraper_finds_the_metrics():
    rendered = manifests.render("overlays/prod")
    monitor = one(rendered, "ServiceMonitor")["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    services = [
        manifest
        for manifest in rendered
        if manifest["kind"] == "Service" and wanted <= manifest["metadata"]["labels"].items()
    ]
    (service,) = services
    assert [port["name"] for port in service["spec"]["ports"]] == ["http"]
    assert [endpoint["port"] for endpoint in monitor["endpoints"]] == ["http"]


def test_an_overlay_of_another_repository_renders_a_release(tmp_path):
    """The overlay on the page refers to a Git repository, here a clone of this one."""
    repository = tmp_path / "taskraft.git"
    for command in (
        ("clone", "--quiet", "--bare", str(manifests.ROOT.parent), str(repository)),
        ("-C", str(repository), "tag", f"v{__version__}"),
    ):
        subprocess.run(("git", *command), check=True, capture_output=True)
    page = (manifests.ROOT.parent / "docs/kubernetes.md").read_text()
    (overlay,) = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", page, re.DOTALL)
    folder = tmp_path / "overlay"
    folder.mkdir()
    local = overlay.replace("git.example/queue/taskraft.git", f"file://{repository}")
    assert local.count(f"?ref=v{__version__}") == 2
    (folder / "kustomization.yaml").write_text(local)
    rendered = manifests.render(str(folder))
    assert one(rendered, "StatefulSet")["metadata"]["namespace"] == "queue"
    (container,) = one(rendered, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example/taskraft@sha256:")
    assert one(rendered, "ServiceMonitor")
