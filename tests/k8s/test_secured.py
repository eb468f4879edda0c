"""Check that certificates and grants of the production overlay are mounted as configured."""

import pytest

from taskraft_replication.peers.security import cluster_name, node_name
from tests.k8s.test_manifests import node_config, one
from tools import manifests


@pytest.fixture(scope="module")
def rendered():
    return manifests.render("overlays/prod")


@pytest.fixture
def pod(rendered):
    return one(rendered, "StatefulSet")["spec"]["template"]["spec"]


def settings_of(rendered, pod, node):
    """Return the environment of a node; a variable can refer only to earlier ones."""
    seen = dict(one(rendered, "ConfigMap")["data"])
    for entry in pod["containers"][0]["env"]:
        value = entry.get("value", node)
        for name, known in seen.items():
            value = value.replace(f"$({name})", known)
        seen[entry["name"]] = value
    return node_config(seen)


def files_of(pod):
    """Return the path of each mounted file, with its Secret and key."""
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    found = {}
    for volume in pod["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            secret = source["secret"]
            for item in secret["items"]:
                path = f"{mounts[volume['name']]}/{item['path']}"
                found[path] = (secret["name"], item["key"])
    return found


def certificate(rendered, secret):
    (found,) = [
        manifest["spec"]
        for manifest in rendered
        if manifest["kind"] == "Certificate" and manifest["spec"]["secretName"] == secret
    ]
    return found


@pytest.mark.parametrize("node", ["taskraft-0", "taskraft-1", "taskraft-2"])
def test_each_node_mounts_the_certificate_with_its_name(rendered, pod, node):
    config, files = settings_of(rendered, pod, node), files_of(pod)
    secret, key = files[str(config.peer_tls_cert)]
    assert (key, files[str(config.peer_tls_key)]) == ("tls.crt", (secret, "tls.key"))
    assert files[str(config.peer_tls_ca)][1] == "ca.crt"
    spec = certificate(rendered, secret)
    assert set(spec["dnsNames"]) == {
        node_name(node, config.cluster_id),
        cluster_name(config.cluster_id),
    }
    assert {"server auth", "client auth"} <= set(spec["usages"])


def test_the_client_certificate_covers_the_advertised_addresses(rendered, pod):
    config = settings_of(rendered, pod, "taskraft-0")
    names = certificate(rendered, "taskraft-client-tls")["dnsNames"]
    namespace = one(rendered, "StatefulSet")["metadata"]["namespace"]
    host = config.client_address.rpartition(":")[0].replace("$(POD_NAMESPACE)", namespace)
    wildcard = f"*.taskraft-peers.{namespace}.svc"
    assert wildcard in names
    assert host.startswith("taskraft-0.taskraft-peers.")
    assert f"taskraft.{namespace}.svc" in names


def test_peers_and_clients_use_different_cas(rendered):
    authorities = {
        manifest["metadata"]["name"]: manifest["spec"]["ca"]["secretName"]
        for manifest in rendered
        if manifest["kind"] == "Issuer" and "ca" in manifest["spec"]
    }
    assert len(set(authorities.values())) == 2
    issuers = {
        manifest["spec"]["secretName"]: manifest["spec"]["issuerRef"]["name"]
        for manifest in rendered
        if manifest["kind"] == "Certificate"
    }
    assert issuers["taskraft-client-tls"] == "taskraft-client"
    assert {issuers[f"taskraft-{node}-peer-tls"] for node in range(3)} == {"taskraft-peer"}


def test_the_access_file_comes_from_a_secret_and_no_secret_is_in_the_manifests(rendered, pod):
    config = settings_of(rendered, pod, "taskraft-0")
    mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    access = volumes[mounts[str(config.access_file.parent)]]
    assert access["secret"]["secretName"] == "taskraft-access"
    assert not any(manifest["kind"] == "Secret" for manifest in rendered)


def test_no_service_declares_the_client_port_as_plain_http2(rendered):
    ports = [
        port
        for manifest in rendered
        if manifest["kind"] == "Service"
        for port in manifest["spec"]["ports"]
    ]
    assert not any(port.get("appProtocol") == "kubernetes.io/h2c" for port in ports)
