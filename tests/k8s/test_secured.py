"""Check that certificates and grants of the production overlay are mounted as configured."""

import pytest

from taskraft_replication.peers.security import cluster_name, node_name
from tests.k8s.test_manifests import node_config, one
from tools import manifests

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def rendered():
    return manifests.render("overlays/prod")


@pytest.fixture
def pod(rendered):
    return one(rendered, "StatefulSet")["spec"]["template"]["spec"]


def settings_of(rendered, pod, node):
    """Return the environment of a node; a variable can refer only to earlier ones."""
    seen = dict(one(rendered, "ConfigMap")["data"])
    namespace = one(rendered, "StatefulSet")["metadata"]["namespace"]
    fields = {"metadata.name": node, "metadata.namespace": namespace}
    for entry in pod["containers"][0]["env"]:
        if "configMapKeyRef" in entry.get("valueFrom", {}):
            continue  # optional
        value = entry.get("value") or fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for name, known in seen.items():
            value = value.replace(f"$({name})", known)
        seen[entry["name"]] = value
    return node_config(seen)


def certificate_of(rendered, pod, volume, node):
    """Return the attributes of the certificate in a volume, as the driver expands them."""
    (found,) = [one["csi"] for one in pod["volumes"] if one["name"] == volume]
    assert (found["driver"], found["readOnly"]) == ("csi.cert-manager.io", True)
    namespace = one(rendered, "StatefulSet")["metadata"]["namespace"]
    return {
        name.removeprefix("csi.cert-manager.io/"): value.replace("${POD_NAME}", node).replace(
            "${POD_NAMESPACE}", namespace
        )
        for name, value in found["volumeAttributes"].items()
    }


def mounted_at(pod, volume):
    (found,) = [
        one["mountPath"] for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume
    ]
    return found


@pytest.mark.parametrize("node", [f"taskraft-{n}" for n in (0, 2, 4, 11)])
def test_each_node_has_a_certificate_with_its_name(rendered, pod, node):
    config = settings_of(rendered, pod, node)
    folder = mounted_at(pod, "peer-tls")
    assert str(config.peer_tls_cert) == f"{folder}/tls.crt"
    assert str(config.peer_tls_key) == f"{folder}/tls.key"
    assert str(config.peer_tls_ca) == f"{folder}/ca.crt"
    found = certificate_of(rendered, pod, "peer-tls", node)
    assert set(found["dns-names"].split(",")) == {
        node_name(node, config.cluster_id),
        cluster_name(config.cluster_id),
    }
    assert {"server auth", "client auth"} <= set(found["key-usages"].split(","))
    assert found["fs-group"] == str(pod["securityContext"]["fsGroup"])


def test_no_secret_has_a_key_of_a_node(rendered, pod):
    """The driver creates each key on the host of the pod, so a pod cannot read another key."""
    secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets == {"taskraft-access"}
    assert not any("projected" in volume for volume in pod["volumes"])


def test_the_client_certificate_covers_the_advertised_addresses(rendered, pod):
    node = "taskraft-11"
    config = settings_of(rendered, pod, node)
    folder = mounted_at(pod, "client-tls")
    assert (str(config.tls_cert), str(config.tls_key)) == (f"{folder}/tls.crt", f"{folder}/tls.key")
    names = certificate_of(rendered, pod, "client-tls", node)["dns-names"].split(",")
    namespace = one(rendered, "StatefulSet")["metadata"]["namespace"]
    host = config.client_address.rpartition(":")[0]
    assert host == f"{node}.taskraft-peers.{namespace}.svc"
    assert {host, f"taskraft.{namespace}.svc"} <= set(names)


def test_peers_and_clients_use_different_cas(rendered, pod):
    authorities = {
        manifest["metadata"]["name"]: manifest["spec"]["ca"]["secretName"]
        for manifest in rendered
        if manifest["kind"] == "Issuer" and "ca" in manifest["spec"]
    }
    assert len(set(authorities.values())) == 2
    peer, client = (
        certificate_of(rendered, pod, volume, "taskraft-0") for volume in ("peer-tls", "client-tls")
    )
    assert (peer["issuer-name"], client["issuer-name"]) == ("taskraft-peer", "taskraft-client")
    assert {"taskraft-peer", "taskraft-client"} <= authorities.keys()


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
