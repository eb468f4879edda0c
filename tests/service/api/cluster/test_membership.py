"""Members are promoted or removed only if the leader knows that a majority stays available."""

import pytest

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
    check_caught_up,
    refused_without_quorum,
)
from taskraft_service.api.rpc.status import CallRefused

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
