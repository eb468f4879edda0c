"""The KEDA component scales a workload by metadata that the node accepts."""

import re

import pytest

from taskraft_service.api.scaler import trigger_of
from taskraft_service.stubs.externalscaler import external_scaler_pb2 as pb
from tests.k8s.go_modules import KEDA, module_folder
from tests.k8s.test_manifests import one
from tools import manifests

pytestmark = pytest.mark.real_time

OURS = "proto/externalscaler/external_scaler.proto"
KUSTOMIZATION = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{root}/base]
components: [{root}/components/keda]
"""


@pytest.fixture
def rendered(tmp_path):
    return manifests.render_overlay(tmp_path, KUSTOMIZATION)


def test_the_metadata_of_the_trigger_is_accepted_by_the_node(rendered):
    spec = one(rendered, "ScaledObject", "workers")["spec"]
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "external-push"
    found = trigger_of(pb.ScaledObjectRef(name="workers", scalerMetadata=trigger["metadata"]))
    assert (found.tube, found.metric, found.target) == ("emails", "open", 20)
    assert spec["minReplicaCount"] == 0


def test_keda_reaches_the_client_port_and_nothing_else(rendered):
    policy = one(rendered, "NetworkPolicy", "taskraft-keda")["spec"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": "client"}]
    assert [manifests.faults(each) for each in rendered if manifests.faults(each)] == []


def declarations(text):
    """Return the methods and fields of a proto file, each with the name of its block."""
    bare = re.sub(r"//[^\n]*", "", text)
    found = set()
    for kind, name, body in re.findall(r"(service|message)\s+(\w+)\s*\{((?:[^{}]|\{\})*)\}", bare):
        for statement in re.split(r"[;{}]", body):
            if statement.strip():
                found.add((kind, name, " ".join(statement.split())))
    return found


def test_the_interface_is_kedas_own(tmp_path):
    """KEDA pushes targets that change by StreamMetricSpec; targets here are constants."""
    theirs = module_folder(KEDA, tmp_path) / "pkg/scalers/externalscaler/externalscaler.proto"
    ours = manifests.ROOT.parent / OURS
    known, expected = declarations(ours.read_text()), declarations(theirs.read_text())
    assert known - expected == set()
    assert {(name, one.split("(")[0]) for _, name, one in expected - known} == {
        ("ExternalScaler", "rpc StreamMetricSpec")
    }
    package = re.compile(r"^package .*;$", re.MULTILINE)
    assert package.findall(ours.read_text()) == package.findall(theirs.read_text())
