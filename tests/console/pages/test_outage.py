"""The sentence about the nodes of a cluster that does not answer."""

from types import SimpleNamespace

import pytest

from taskraft import errors
from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member, NodeState
from taskraft_console.data.shared_reads import Reading
from taskraft_console.pages.outage import Outage, outage_of


@pytest.mark.parametrize(
    ("answering", "silent", "has_majority", "said"),
    [
        ([], [], False, "No node answers the console."),
        (["n1"], ["n2", "n3"], False, "no majority: only n1 of 3 voters answers. No change"),
        (["n1", "n2"], ["n3", "n4"], False, "only n1, n2 of 4 voters answer. No change"),
        (["n1", "n2"], ["n3"], True, "No leader answers. n1, n2 of 3 voters answer"),
    ],
)
def test_only_more_than_half_of_the_voters_are_a_majority(answering, silent, has_majority, said):
    outage = Outage(answering, silent)
    assert outage.has_majority == has_majority
    assert said in outage.text


def visit_of(nodes):
    return SimpleNamespace(cluster=SimpleNamespace(nodes=nodes))


async def test_the_newest_node_names_the_voters():
    def state(term, *names):
        members = [Member(name=name, suffrage=Member.Suffrage.VOTER) for name in names]
        members.append(Member(name="learner", suffrage=Member.Suffrage.LEARNER))
        return GetClusterStateResponse(state=NodeState(term=term), members=members)

    async def nodes():
        states = {"n1": state(3, "n1", "n9"), "n2": state(4, "n1", "n2", "n3"), "learner": state(1)}
        return Reading(states, 0.0)

    assert await outage_of(visit_of(nodes)) == Outage(["n1", "n2"], ["n3"])


async def test_a_cluster_without_an_answer_names_no_node():
    async def nodes():
        raise errors.DeadlinePassed("no node answers")

    assert await outage_of(visit_of(nodes)) == Outage((), ())
