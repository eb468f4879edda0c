"""Which requests a caller may send: a node on its own behalf, and a principal with grants."""

import pytest
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import task_service_pb2, tube_service_pb2
from taskraft_service.access.caller import (
    ANONYMOUS,
    WORD_OF_A_NODE,
    AuthenticatedCaller,
    NodeCaller,
    PermissionDenied,
)
from taskraft_service.access.permission_rules import RULES
from taskraft_service.access.reloaded_principals import ReloadedPrincipals
from tests.service.access.secured import GRANTS, write_principals

NAMED = (task_service_pb2.PutTasksRequest, task_service_pb2.DeleteTasksRequest)
"""Requests that name a tube of the grants."""


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


@pytest.mark.parametrize("name", [*GRANTS, "gone", "node", "stranger"])
def test_a_caller_permits_what_it_authorizes_without_the_permission_to_manage(tmp_path, name):
    current = ReloadedPrincipals(write_principals(tmp_path / "access.toml"))
    caller = AuthenticatedCaller(name, WORD_OF_A_NODE, current)
    if name in ("node", "stranger"):
        caller = NodeCaller("n4", is_member=name == "node")
    for kind in RULES:
        request = kind(tube="billing.mail") if kind in NAMED else kind()
        try:
            expected = not caller.authorize(request)
        except PermissionDenied:
            expected = False
        with structlog.testing.capture_logs() as written:
            assert caller.permits(request) is expected, kind
        assert not written
        assert ANONYMOUS.permits(request)
