"""The gRPC service config of the contract: its names, its retries, and the leader that it finds."""

import json
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool

from taskraft.v1 import cluster_service_pb2, cluster_service_pb2_grpc
from taskraft_service.api.cluster.service import SERVICE_CONFIG
from tests.service.api.test_three_nodes import cluster_in

CONTRACT = Path(__file__).parents[4] / "proto/taskraft/v1"
CONFIG = json.loads(SERVICE_CONFIG)
SERVICES = {
    service.full_name: service
    for path in CONTRACT.glob("*_service.proto")
    for service in descriptor_pool.Default()
    .FindFileByName(f"taskraft/v1/{path.name}")
    .services_by_name.values()
}
METHODS = {method.full_name: method for service in SERVICES.values() for method in service.methods}


def names(is_retried):
    return [
        ".".join(name.values())
        for one in CONFIG["methodConfig"]
        for name in one["name"]
        if ("retryPolicy" in one) is is_retried
    ]


def test_the_package_contains_the_file_of_the_contract():
    assert (CONTRACT / "service_config.json").read_text() == SERVICE_CONFIG


def test_each_service_has_a_retry_policy_and_each_method_with_a_stream_has_none():
    assert sorted(names(is_retried=True)) == sorted(SERVICES)
    streams = [name for name, one in METHODS.items() if one.server_streaming]
    assert sorted(names(is_retried=False)) == sorted(streams)


def test_only_a_call_that_may_be_sent_again_is_retried():
    (policy,) = [one["retryPolicy"] for one in CONFIG["methodConfig"] if "retryPolicy" in one]
    assert policy["retryableStatusCodes"] == ["UNAVAILABLE"]
    assert 2 <= policy["maxAttempts"] <= 5  # gRPC allows no more
    assert all(one["waitForReady"] for one in CONFIG["methodConfig"])


@pytest.mark.cluster
async def test_a_plain_channel_with_the_config_calls_the_leader(tmp_path):
    async with cluster_in(tmp_path) as three:
        addresses = ",".join(one.listen for one in three.configs.values())
        options = [("grpc.service_config", SERVICE_CONFIG)]
        async with grpc.aio.insecure_channel(f"ipv4:{addresses}", options) as channel:
            cluster = cluster_service_pb2_grpc.ClusterServiceStub(channel)

            async def answering():
                request = cluster_service_pb2.GetClusterStateRequest()
                return (await cluster.GetClusterState(request, timeout=20)).node

            leader = three.leader
            name = leader.server.config.node_name
            assert {await answering() for _ in range(6)} == {name}
            await three.stop(leader)
            await three.settled()
            assert await answering() == three.leader.server.config.node_name != name
