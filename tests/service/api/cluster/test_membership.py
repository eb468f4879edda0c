"""Members are promoted or removed only if the leader knows that a majority stays available."""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    MemberInfo,
    RaftRole,
    Term,
)
from taskraft_replication.node.replacement import LAG_ENTRIES_MAX
from taskraft_replication.node.status import NodeStatus, PeerStatus
from taskraft_service.api.cluster.membership import (
    MembershipChanges,
    check_caught_up,
    refused_without_quorum,
)
from taskraft_service.api.rpc.status import CallRefused

DIRECTORY = "d" * 32
ME, OTHER, THIRD, FOURTH = (MemberId(number) for number in (1, 2, 3, 4))
NEWCOMER = MemberInfo(OTHER, "n2", "p", "c", "directory")


def peer(lag=0, state=ProgressState.REPLICATE, is_active=True, answers=0):
    index = LogIndex(1)
    return PeerStatus(index, LogIndex(2), lag, state, is_active, is_learner=True, answers=answers)


def status(voters=(ME,), **peers):
    known = {MemberId(int(name.removeprefix("n"))): one for name, one in peers.items()}
    index = LogIndex(500)
    configuration = ConfState(voters=tuple(voters))
    return NodeStatus(ME, 0, RaftRole.LEADER, Term(1), ME, *(index,) * 6, configuration, known)


def refusal(seen, info=NEWCOMER):
    """Return why a learner may not be promoted, or None."""
    try:
        check_caught_up(seen, info)
    except CallRefused as refused:
        return refused
    return None


@pytest.mark.parametrize("lag", [0, LAG_ENTRIES_MAX])
def test_a_learner_that_has_caught_up_is_promoted(lag):
    assert refusal(status(n2=peer(lag))) is None


def test_a_lagging_learner_is_not_promoted():
    refused = refusal(status(n2=peer(LAG_ENTRIES_MAX + 1)))
    assert refused.reason == error_pb2.Error.NODE_BEHIND
    assert refused.metadata == {"name": "n2", "lag_entries": "101"}
    assert "101 entries behind" in refused.message


@pytest.mark.parametrize(
    "seen",
    [status(), status(n2=peer(is_active=False))],
    ids=["never seen", "silent"],
)
def test_a_learner_that_does_not_answer_is_not_promoted(seen):
    assert "not answering" in refusal(seen).message


def test_a_learner_that_was_never_seen_lacks_the_whole_log():
    assert refusal(status()).metadata["lag_entries"] == "500"


@pytest.mark.parametrize("state", [ProgressState.PROBE, ProgressState.SNAPSHOT])
def test_a_learner_that_receives_no_entries_yet_is_not_promoted(state):
    refused = refusal(status(n2=peer(7, state)))
    assert refused.reason == error_pb2.Error.NODE_BEHIND
    assert refused.metadata == {"name": "n2", "lag_entries": "7"}
    assert "not following the log yet" in refused.message


def test_a_learner_that_has_not_joined_is_not_promoted():
    nobody = MemberInfo(OTHER, "n2", "p", "c")
    assert "has not joined" in refusal(status(n2=peer()), nobody).message


@pytest.mark.parametrize(
    ("voters", "silent", "is_needed"),
    [
        ((ME, OTHER), (), False),
        ((ME, OTHER), (OTHER,), False),
        ((ME, OTHER, THIRD), (), False),
        ((ME, OTHER, THIRD), (THIRD,), True),
        ((ME, OTHER, THIRD, FOURTH), (THIRD,), False),
        ((ME, OTHER, THIRD, FOURTH), (THIRD, FOURTH), True),
        ((ME, THIRD, FOURTH), (THIRD, FOURTH), False),
        ((OTHER,), (), True),
    ],
)
def test_a_voter_is_removed_only_if_a_majority_of_the_others_answers(voters, silent, is_needed):
    """An earlier answer does not count, although the silent voters are still active."""

    def seen(answers_of_silent, answers_of_others):
        peers = {
            f"n{number}": peer(answers=answers_of_silent if number in silent else answers_of_others)
            for number in voters
            if number != ME
        }
        return status(voters, **peers)

    refused = refused_without_quorum(seen(7, 8), OTHER, seen(7, 7))
    assert (refused is not None) is is_needed
    if refused is not None:
        rest = len(set(voters) - {OTHER})
        assert refused.reason == error_pb2.Error.MEMBER_NEEDED
        assert refused.metadata == {
            "voters": str(rest),
            "answering": str(rest - len(set(silent) - {OTHER})),
        }


def test_a_member_that_was_never_seen_does_not_count_as_answering():
    now, before = (status((ME, OTHER, THIRD), n2=peer(answers=each)) for each in (2, 1))
    refused = refused_without_quorum(now, OTHER, before)
    assert refused is not None
    assert refused.metadata["answering"] == "1"


class JoinedCluster:
    """The only member of a cluster, at a cluster version; records changes of the members."""

    def __init__(self, version):
        self.state = SimpleNamespace(version=version)
        self.changing = asyncio.Lock()
        self.changes = []
        self.membership = MembershipChanges("c", self, None, self)

    def status(self):
        return status()

    async def change_membership(self, change):
        self.changes.append(change)

    async def add(self, **fields):
        """Return reason and message of a refusal; None and empty: the node was added."""
        request = pb.AddMemberRequest(name="n2", peer_address="h:1", address="h:2", **fields)
        try:
            await self.membership.add(request, "", is_operator=True)
        except CallRefused as refused:
            return error_pb2.Error.Reason.Name(refused.reason), refused.message
        return None, ""


@pytest.mark.parametrize(
    ("version", "spoken", "told"),
    [
        (1, (0, 0), None),
        (1, (1, 1), None),
        (1, (1, 2), None),
        (2, (1, 2), None),
        (2, (1, 1), "node n2 speaks cluster version 1;"),
        (2, (0, 0), "node n2 speaks cluster version 1;"),
        (1, (2, 3), "node n2 speaks cluster versions 2 to 3;"),
        (1, (2, 1), "2 to 1 is not a range of cluster versions"),
        (1, (1, 0), "1 to 0 is not a range of cluster versions"),
    ],
)
@pytest.mark.parametrize("replaces", [False, True])
async def test_a_node_that_does_not_speak_the_cluster_version_is_refused_before_any_change(
    version, spoken, told, replaces
):
    cluster = JoinedCluster(version)
    lowest, highest = spoken
    reason, message = await cluster.add(
        directory_id=DIRECTORY,
        lowest_cluster_version=lowest,
        highest_cluster_version=highest,
        replaces_member=replaces and told is not None,
    )
    assert reason == (told and "INVALID_FIELD")
    assert (told or "") in message
    assert len(cluster.changes) == (told is None)


async def test_an_operator_adds_a_member_without_its_versions():
    cluster = JoinedCluster(2)
    assert await cluster.add() == (None, "")
    assert len(cluster.changes) == 1


async def test_a_node_that_joins_during_a_raise_needs_the_new_version():
    cluster = JoinedCluster(1)
    async with cluster.changing:
        adding = asyncio.create_task(cluster.add(directory_id=DIRECTORY))
        await asyncio.sleep(0)
        assert not adding.done()
        cluster.state.version = 2
    reason, message = await adding
    assert reason == "INVALID_FIELD"
    assert "run a release that speaks cluster version 2" in message
    assert cluster.changes == []
