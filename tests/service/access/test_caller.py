"""Which requests a node may send on its own behalf."""

import pytest

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import tube_service_pb2
from taskraft_service.access.caller import NodeCaller, PermissionDenied


@pytest.mark.parametrize(
    "kind", [pb.AddMemberRequest, pb.PromoteMemberRequest, pb.RemoveMemberRequest]
)
def test_a_node_may_add_promote_and_remove_itself_only(kind):
    assert NodeCaller("n4").authorize(kind(name="n4"))
    with pytest.raises(PermissionDenied):
        NodeCaller("n4").authorize(kind(name="n5"))


def test_a_node_that_is_no_member_may_read_no_samples():
    with pytest.raises(PermissionDenied):
        NodeCaller("n4", is_member=False).authorize(tube_service_pb2.GetHistoryRequest())
    assert NodeCaller("n4", is_member=False).authorize(pb.RemoveMemberRequest(name="n4"))


def test_a_node_may_read_the_samples_of_another_node():
    assert not NodeCaller("n4").authorize(tube_service_pb2.GetHistoryRequest(total=True))
    with pytest.raises(PermissionDenied):
        NodeCaller("n4").authorize(tube_service_pb2.GetStatisticsRequest())


@pytest.mark.parametrize("kind", [pb.ConfigureRequest, pb.TransferLeadershipRequest])
def test_a_node_may_ask_for_nothing_else(kind):
    with pytest.raises(PermissionDenied):
        NodeCaller("n4").authorize(kind())
