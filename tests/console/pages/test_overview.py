"""The members on the overview: who answers, and how many can be lost."""

import pytest

from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member
from taskraft_console.pages.overview import active_members, is_active, losable_members


def state_of(leader, active):
    state = GetClusterStateResponse(leader=leader)
    for name in ("n1", "n2", "n3"):
        state.members.add(
            name=name, suffrage=Member.VOTER, leader=name == leader, active=name in active
        )
    return state


@pytest.mark.parametrize(
    ("leader", "active", "answering", "silent", "can_lose"),
    [
        ("n1", ("n2", "n3"), (), [], 1),
        ("n1", ("n2",), ("n3",), ["n3"], 0),
        ("", ("n1", "n2", "n3"), ("n3",), ["n1", "n2"], 0),
        ("", (), ("n1", "n2", "n3"), [], 1),
    ],
)
def test_without_a_leader_only_nodes_that_answer_the_console_count(
    leader, active, answering, silent, can_lose
):
    state = state_of(leader, active)
    found = [each.name for each in state.members if not is_active(state, each, answering)]
    assert found == silent
    assert active_members(state, answering) == 3 - len(silent)
    assert losable_members(state, answering) == can_lose
