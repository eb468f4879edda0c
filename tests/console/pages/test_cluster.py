"""The members on the page of the cluster: what a node does not tell is not shown as 0."""

import pytest

from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member
from taskraft_console.pages import cluster


def state_of(**fields):
    state = GetClusterStateResponse(node="n1", leader="n1", now_ms=60_000)
    state.members.add(name="n1", suffrage=Member.VOTER, leader=True, active=True)
    for name, number in fields.items():
        setattr(state.state, name, number)
    return state


@pytest.mark.parametrize(
    ("told", "free_bytes", "snapshot_age_ms", "unknown"),
    [
        ({"n1": state_of(disk_free_bytes=7, snapshot_ms=50_000)}, 7, 10_000, "not told"),
        ({"n1": state_of(disk_free_bytes=0)}, 0, None, "not told"),
        ({"n1": state_of()}, None, None, "not told"),
        ({}, None, None, "\u2013"),
    ],
)
def test_a_node_of_an_older_version_tells_nothing_instead_of_0(
    told, free_bytes, snapshot_age_ms, unknown
):
    (line,) = cluster._lines(state_of(), told)
    assert (line.node.disk_free_bytes if line.node else None) == free_bytes
    assert (line.snapshot_age_ms, line.unknown) == (snapshot_age_ms, unknown)
