"""A majority is more than half of the members; both majorities of a joint group must agree."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_replication.core.quorum import (
    EVERYTHING,
    VoteResult,
    joint_index,
    joint_vote,
    majority_index,
    majority_vote,
)
from taskraft_replication.core.types import ConfState

VOTERS = st.sets(st.integers(1, 7), max_size=7)
ACKED = st.dictionaries(st.integers(1, 9), st.integers(0, 5))


@pytest.mark.parametrize(
    ("voters", "acked", "index"),
    [
        ((), {}, EVERYTHING),
        ((1,), {}, 0),
        ((1,), {1: 12}, 12),
        ((1, 2), {1: 12}, 0),
        ((1, 2), {1: 12, 2: 5}, 5),
        ((1, 2, 3), {1: 12, 2: 5}, 5),
        ((1, 2, 3), {1: 12, 2: 5, 3: 6}, 6),
        ((1, 2, 3, 4), {1: 9, 2: 8, 3: 7, 4: 6}, 7),
        ((1, 2, 3, 4, 5), {1: 9, 2: 8, 3: 7}, 7),
        ((1, 2, 3), {4: 99, 5: 99, 1: 1, 2: 1}, 1),
    ],
)
def test_the_majority_index_is_stored_on_more_than_half(voters, acked, index):
    assert majority_index(voters, acked) == index


@given(VOTERS, ACKED)
def test_the_committed_index_is_the_largest_that_more_than_half_reached(voters, acked):
    reached = [
        index
        for index in range(6)
        if sum(acked.get(voter, 0) >= index for voter in voters) * 2 > len(voters)
    ]
    assert majority_index(voters, acked) == (max(reached) if voters else EVERYTHING)


@given(VOTERS, VOTERS, ACKED)
def test_a_joint_index_needs_both_halves_in_any_order(incoming, outgoing, acked):
    both = joint_index(ConfState(tuple(incoming), voters_outgoing=tuple(outgoing)), acked)
    assert both == min(majority_index(incoming, acked), majority_index(outgoing, acked))


@pytest.mark.parametrize("size", range(1, 6))
def test_a_vote_is_decided_once_no_answer_can_change_it(size):
    voters = range(1, size + 1)
    for said in product((None, True, False), repeat=size):
        votes = {v: s for v, s in zip(voters, said, strict=True) if s is not None}
        silent = [voter for voter in voters if voter not in votes]
        outcomes = set()
        for rest in product((True, False), repeat=len(silent)):
            full = {**votes, **dict(zip(silent, rest, strict=True))}
            outcomes.add(sum(full.values()) * 2 > size)
        expected = {
            frozenset({True}): VoteResult.WON,
            frozenset({False}): VoteResult.LOST,
        }.get(frozenset(outcomes), VoteResult.PENDING)
        assert majority_vote(voters, votes) is expected


@pytest.mark.parametrize(
    ("votes", "result"),
    [
        ({1: True, 2: True}, VoteResult.PENDING),
        ({1: True, 2: True, 3: True, 4: True}, VoteResult.WON),
        ({1: True, 2: True, 4: False, 5: False}, VoteResult.LOST),
        ({1: False, 2: False}, VoteResult.LOST),
        ({3: True, 4: True}, VoteResult.PENDING),
        ({}, VoteResult.PENDING),
    ],
)
def test_a_joint_vote_needs_both_halves_and_is_lost_with_either(votes, result):
    assert joint_vote(ConfState((1, 2, 3), voters_outgoing=(3, 4, 5)), votes) is result


def test_votes_of_unknown_members_do_not_count():
    assert majority_vote((1, 2, 3), {1: True, 7: True, 8: True}) is VoteResult.PENDING


def test_an_empty_configuration_wins_every_vote():
    assert majority_vote((), {}) is VoteResult.WON
